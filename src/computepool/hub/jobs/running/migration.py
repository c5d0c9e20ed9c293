"""A job that named the host where it goes on: it waits for that one, with what it saved."""

from __future__ import annotations

from typing import Any

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.db.session import Tx
from computepool.hub.jobs import transitions
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints
from computepool.hub.jobs.transitions import Effects
from computepool.hub.snapshot import Snapshot
from computepool.protocol.nodes.nodes import Report


def move(
    tx: Tx, snapshot: Snapshot, job: JobRow, *, report: Report, attempt_no: int, actor: str, effects: Effects
) -> bool:
    """False: there is nothing to go on from."""
    if job.checkpoint_no != attempt_no or report.move_to is None:
        return False
    change: dict[str, Any] = {"actor": actor, "effects": effects}
    most = snapshot.settings.moves_max
    pinned = None
    if job.moves >= most:
        refused = Reason.MOVED_TOO_OFTEN, f"It moved {most} times already; no job may move more often here."
    else:
        pinned = checkpoints.destination(tx, snapshot, job, host=report.move_to)
        refused = Reason.HOST_NOT_REACHED, f"There is no host {report.move_to!r} that it may go on at."
    if pinned is None:
        reason, error = refused
        transitions.finish(tx, job, JobState.FAILED, reason=reason, error=error, **change)
        return True
    transitions.requeue(
        tx,
        job,
        attempt_no=attempt_no,
        reason=Reason.MOVED,
        ready_at_ms=tx.now_ms,
        avoid_node="",
        pinned=pinned,
        moves=job.moves + 1,
        **change,
    )
    return True
