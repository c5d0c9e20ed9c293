"""What follows, in the same transaction, from errands that are over and from results that were proven wrong.

Called at the end of every unit that may end a job: what it does can end or begin others, so it goes on until nothing
is left to do.
"""

from __future__ import annotations

from typing import Protocol

from computepool.hub.services import comparing, errands, lifecycle, probes, rechecks, strikes
from computepool.hub.services.context import Hub
from computepool.hub.services.lifecycle import Effects
from computepool.hub.store import jobs as job_rows
from computepool.hub.store.session import AnyRow, Tx


class Listener(Protocol):
    """Is told of an errand that is over: its whole row, whatever became of it."""

    def __call__(self, hub: Hub, tx: Tx, errand: AnyRow, *, effects: Effects) -> None: ...


_LISTENERS: dict[str, Listener] = {
    comparing.KIND: comparing.answered,
    rechecks.KIND: rechecks.ended,
    probes.KIND: probes.ended,
}


def follow(hub: Hub, tx: Tx, effects: Effects) -> Effects:
    while effects.errands or effects.struck or effects.ended_parents:
        if effects.ended_parents:
            parents, effects.ended_parents = effects.ended_parents, []
            lifecycle.end_children(tx, parents, effects)
            continue
        if effects.struck:
            node_id = effects.struck.pop(0)
            strikes.tell_owner(tx, node_id)
            rechecks.start(hub, tx, node_id, effects=effects)
            continue
        errand = job_rows.get_job_full(tx.connection, effects.errands.pop(0))
        assert errand is not None
        kind, _, _ = errands.parts(errand.errand)
        _LISTENERS[kind](hub, tx, errand, effects=effects)
    return effects
