"""Migration: a job that named the host where it resumes waits for that host, with its checkpoint."""

from __future__ import annotations

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.jobs import transitions
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints
from computepool.hub.jobs.transactions import JobTx


def move(tx: JobTx, job: JobRow, *, host: str, attempt_no: int, actor: str) -> None:
    """The attempt has saved the checkpoint to resume from."""
    most, pinned = tx.snapshot.settings.moves_max, None
    if job.moves >= most:
        reason, error = Reason.MOVED_TOO_OFTEN, f"It has moved {most} times; no job may move more often here."
    else:
        pinned = checkpoints.destination(tx, job, host=host)
        reason, error = Reason.HOST_NOT_REACHED, f"There is no host {host!r} where it may resume."
    if pinned is None:
        transitions.finish(tx, job, JobState.FAILED, actor=actor, reason=reason, error=error)
        return
    transitions.requeue(
        tx,
        job,
        attempt_no=attempt_no,
        reason=Reason.MOVED,
        actor=actor,
        ready_at_ms=tx.now_ms,
        avoid_node="",
        pinned=pinned,
        moves=job.moves + 1,
    )
