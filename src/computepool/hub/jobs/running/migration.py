"""Migration: a job that named the host where it resumes waits for that host, with its checkpoint."""

from __future__ import annotations

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.jobs import transitions
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints
from computepool.hub.jobs.transactions import JobTx
from computepool.protocol.nodes.nodes import Report


def move(tx: JobTx, job: JobRow, *, report: Report, attempt_no: int, actor: str) -> bool:
    """False: there is no checkpoint to resume from."""
    if job.checkpoint_no != attempt_no or report.move_to is None:
        return False
    most, pinned = tx.snapshot.settings.moves_max, None
    if job.moves >= most:
        reason, error = Reason.MOVED_TOO_OFTEN, f"It has moved {most} times; no job may move more often here."
    else:
        pinned = checkpoints.destination(tx, job, host=report.move_to)
        reason, error = Reason.HOST_NOT_REACHED, f"There is no host {report.move_to!r} where it may resume."
    if pinned is None:
        transitions.finish(tx, job, JobState.FAILED, actor=actor, reason=reason, error=error)
        return True
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
    return True
