"""The time of a lane: its attempts run one after the other, so together they cannot have run for longer than it was held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from computepool.hub.db.session import Tx
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.nodes import rows as node_rows


@dataclass(slots=True)
class LaneTime:
    had_ms: int
    billed_ms: int


def find(tx: Tx, node_id: str, attempts: Iterable[AttemptRow]) -> dict[str, LaneTime]:
    """One report a request, or all at once, here or at another hub: a second is paid for once."""
    node_rows.lock_node(tx, node_id)
    opened = {attempt.lane: attempt.lane_since_ms or attempt.leased_at_ms for attempt in attempts}
    billed = attempt_rows.lanes_billed(tx.connection, opened)
    return {
        lane: LaneTime(had_ms=tx.now_ms - since_ms, billed_ms=billed.get(lane, 0))
        for lane, since_ms in opened.items()
    }
