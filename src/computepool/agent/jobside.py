"""What a job can import as `computepool` where the whole package is not installed: the agent puts this file there.

Runs inside the sandbox: standard library only, no other module of the project.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def progress(fraction: float) -> None:
    """Tell the pool how far this job is, from 0 to 1. Shown to the submitter while the job runs."""
    sys.stdout.write(f"::progress {min(1.0, max(0.0, float(fraction))):.4f}\n")
    sys.stdout.flush()


def outputs() -> Path:
    """The folder whose files come back as artifacts."""
    return Path(os.environ.get("COMPUTEPOOL_OUTPUTS", "outputs"))


def job_slice() -> tuple[int, int]:
    """Which part of a sliced job this is, and of how many."""
    return int(os.environ.get("COMPUTEPOOL_SLICE", "0")), int(os.environ.get("COMPUTEPOOL_SLICES", "1"))
