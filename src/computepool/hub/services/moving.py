"""A job that named the host where it goes on: it waits for that one, with what it saved."""

from __future__ import annotations

from typing import Any

from computepool.core.jobs import JobState, Reason
from computepool.hub.services import checkpoints, lifecycle
from computepool.hub.services.context import Hub
from computepool.hub.services.lifecycle import Effects
from computepool.hub.store.session import AnyRow, Tx
from computepool.protocol.nodes import Report


def move(
    hub: Hub, tx: Tx, job: AnyRow, *, report: Report, attempt_no: int, actor: str, effects: Effects
) -> bool:
    """False: there is nothing to go on from."""
    if job.checkpoint_no != attempt_no or report.move_to is None:
        return False
    said: dict[str, Any] = {"actor": actor, "effects": effects}
    most = hub.settings.moves_max
    pinned = None
    if job.moves >= most:
        refused = Reason.MOVED_TOO_OFTEN, f"It moved {most} times already; no job may move more often here."
    else:
        pinned = checkpoints.destination(hub, tx, job, host=report.move_to)
        refused = Reason.HOST_NOT_REACHED, f"There is no host {report.move_to!r} that it may go on at."
    if pinned is None:
        reason, error = refused
        lifecycle.finish(tx, job, JobState.FAILED, reason=reason, error=error, **said)
        return True
    lifecycle.requeue(
        tx,
        job,
        attempt_no=attempt_no,
        reason=Reason.MOVED,
        ready_at_ms=tx.now_ms,
        avoid_node="",
        pinned=pinned,
        moves=job.moves + 1,
        **said,
    )
    return True
