"""Functions for a job while it runs: how far it is, where its outputs go, which slice it is.

On a node these names come from a small file that the agent puts there under the name `computepool`; so they are
pickled by that name, and a function may use them where this package is not installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def progress(fraction: float) -> None:
    """Tell the submitter how far this job is, from 0 to 1; the node takes the line out of the output."""
    sys.stdout.write(f"::progress {min(1.0, max(0.0, float(fraction))):.4f}\n")
    sys.stdout.flush()


def outputs() -> Path:
    """The folder whose files come back as artifacts."""
    return Path(os.environ.get("COMPUTEPOOL_OUTPUTS", "outputs"))


def job_slice() -> tuple[int, int]:
    """Which part of a sliced job this is, and of how many."""
    return int(os.environ.get("COMPUTEPOOL_SLICE", "0")), int(os.environ.get("COMPUTEPOOL_SLICES", "1"))


for _function in (progress, outputs, job_slice):
    _function.__module__ = "computepool"
