"""What follows, in the same transaction, from errands that are over and from results that were proven wrong.

Called at the end of every unit that may end a job: what it does can end or begin others, so it goes on until nothing
is left to do.
"""

from __future__ import annotations

from typing import Protocol

from computepool.hub.context import Hub
from computepool.hub.db.session import AnyRow, Tx
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs import transitions
from computepool.hub.jobs.transitions import Effects
from computepool.hub.settlement import hub_jobs
from computepool.hub.settlement.verification import compare_jobs, probes, rechecks, violations


class FollowUp(Protocol):
    """Is told of an errand that is over: its whole row, whatever became of it."""

    def __call__(self, hub: Hub, tx: Tx, errand: AnyRow, *, effects: Effects) -> None: ...


_LISTENERS: dict[str, FollowUp] = {
    compare_jobs.KIND: compare_jobs.answered,
    rechecks.KIND: rechecks.ended,
    probes.KIND: probes.ended,
}


def follow(hub: Hub, tx: Tx, effects: Effects) -> Effects:
    while effects.errands or effects.struck or effects.ended_parents:
        if effects.ended_parents:
            parents, effects.ended_parents = effects.ended_parents, []
            transitions.end_children(tx, parents, effects)
            continue
        if effects.struck:
            node_id = effects.struck.pop(0)
            violations.tell_owner(tx, node_id)
            rechecks.start(hub, tx, node_id, effects=effects)
            continue
        errand = job_rows.get_job_full(tx.connection, effects.errands.pop(0))
        assert errand is not None
        kind, _, _ = hub_jobs.parts(errand.errand)
        _LISTENERS[kind](hub, tx, errand, effects=effects)
    return effects
