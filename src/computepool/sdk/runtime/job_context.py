"""Functions for a running job: its progress, its output folder, and its slice.

On a node, the agent provides them in a small module named `computepool`. They are pickled by that name, so a function may
use them on a node that does not have this package.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple


def progress(fraction: float) -> None:
    """Report the progress of this job, from 0 to 1. The node removes the line from the output."""
    sys.stdout.write(f"::progress {min(1.0, max(0.0, float(fraction))):.4f}\n")
    sys.stdout.flush()


def outputs() -> Path:
    """The folder whose files are returned as artifacts."""
    return Path(os.environ.get("COMPUTEPOOL_OUTPUTS", "outputs"))


def job_slice() -> tuple[int, int]:
    """The number of this slice, from 0, and the number of slices."""
    return int(os.environ.get("COMPUTEPOOL_SLICE", "0")), int(os.environ.get("COMPUTEPOOL_SLICES", "1"))


class Gang(NamedTuple):
    """This member of a job on several nodes."""

    rank: int  #: from 0
    size: int  #: the number of members
    addresses: tuple[str, ...]  #: of all members, by rank; all ports are open between them
    port: int  #: by convention, of rank 0 for the first contact

    @property
    def address(self) -> str:
        return self.addresses[self.rank]


def gang() -> Gang:
    """This member's rank, and the addresses of all members. A job on one node is a gang of one."""
    about = json.loads(os.environ.get("COMPUTEPOOL_GANG", "{}"))
    addresses = tuple(about.get("addresses", ["127.0.0.1"]))
    return Gang(about.get("rank", 0), about.get("size", 1), addresses, about.get("port", 29500))


for _function in (gang, progress, outputs, job_slice):
    _function.__module__ = "computepool"
