"""The folder in which a running job leaves its checkpoints.

A job may put anything there, so no link is followed, and a checkpoint is moved out of the job's reach before it is read.
"""

from __future__ import annotations

import contextlib
import os

from computepool.agent.execution.attempts import Attempt
from computepool.agent.sandbox.scratch import NEW_FILE
from computepool.core.jobs.lifecycle import Reason

#: In the work folder: where a job leaves checkpoints, and where it finds the last one.
CHECKPOINT, RESTORED = ".checkpoint", ".restored"
#: Marks for the job in its checkpoint folder: it is too early to save again; this node is about to stop.
WAIT, STOP = "wait", "stop"


class CheckpointRejected(Exception):
    """The message says why; `reason` says whose fault it is."""

    def __init__(self, message: str, reason: Reason = Reason.OUTPUT_LIMIT) -> None:
        super().__init__(message)
        self.reason = reason


def is_checkpoint(attempt: Attempt, name: str, moves: bool) -> bool:
    """True if the job declared checkpoints and left one of that name. Otherwise the line that names it is plain output."""
    if moves and not attempt.spec.spec.moves:
        return False
    with contextlib.suppress(OSError), attempt.open_folder(CHECKPOINT) as (_, here):
        os.stat(name, dir_fd=here, follow_symlinks=False)
        return True
    return False


def add_mark(attempt: Attempt, name: str) -> None:
    with contextlib.suppress(OSError), attempt.open_folder(CHECKPOINT) as (_, here):
        os.close(os.open(name, NEW_FILE, 0o644, dir_fd=here))


def remove_mark(attempt: Attempt, name: str) -> None:
    with contextlib.suppress(OSError), attempt.open_folder(CHECKPOINT) as (_, here):
        os.unlink(name, dir_fd=here)


def take_over(attempt: Attempt, name: str, taken: str) -> None:
    """Move a checkpoint to `taken` in the work folder, where its path contains no folder of the job's."""
    with attempt.open_folder(CHECKPOINT) as (top, here):
        os.rename(name, taken, src_dir_fd=here, dst_dir_fd=top)
