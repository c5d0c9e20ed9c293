"""Feasibility: whether any node could ever run a job. Infeasible jobs get a warning, or are refused if the submitter asks."""

from __future__ import annotations

from dataclasses import replace

from computepool.core.errors import Conflict
from computepool.core.fleet.fleet import Fleet
from computepool.core.placement import explain
from computepool.core.placement.explain import Explanation
from computepool.core.resources import Requirements, Shape
from computepool.hub.context import Hub
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.nodes import group_homes, rows as node_rows
from computepool.protocol.nodes.nodes import Profile

_AWAY_MAX = 50  #: nodes that are offline and compared with the job


async def warning(hub: Hub, needs: Requirements, account: str, *, refuse: bool) -> str:
    """A warning for jobs that no connected node could run; empty for all others, at no cost.

    With `refuse`, raises Conflict instead, unless a node that could run them is offline, or no node is connected.
    """
    if hub.money.ceilings.is_possible(hub.nodes.registry.fleet, needs, account=account, now_ms=hub.now_ms()):
        return ""
    found = await explanation(hub, shape_of(needs, account))
    if refuse and found.unsatisfiable:
        raise Conflict(found.sentence, field="impossible")
    return found.sentence


async def explanation(hub: Hub, shape: Shape) -> Explanation:
    """Like `explain`, but if a node that could run the job is offline, the sentence names it."""
    found = explain.explain(hub.nodes.registry.fleet, shape)
    away = "" if found.able else await _away(hub, shape)
    if not away:
        return found
    if shape.requirements.node:
        return replace(found, sentence=f"Waiting: {away}.", able=1)  # the others were not asked for
    rest = found.sentence.partition(": ")[2]
    others = "the others could never run it: " if found.unsatisfiable else ""
    return replace(found, sentence=f"Waiting: {away}; {others}{rest}", able=1)


async def _away(hub: Hub, shape: Shape) -> str:
    """The node that could run it and went offline last, in words; empty if there is none."""
    rows = await hub.store.read(lambda connection: node_rows.recently_seen(connection, limit=_AWAY_MAX))
    gone = [(row, since_ms) for row in rows if (since_ms := group_homes.offline_since(hub, row)) is not None]
    for row, since_ms in gone:
        fleet = Fleet()
        profile = Profile.model_validate_json(row.profile)
        fleet.upsert(profile.node_profile(node_id=row.id, owner=row.account_id))
        if explain.explain(fleet, shape).able:
            return f"{row.name}, which could run it, is offline since {group_homes.moment(since_ms)}"
    return ""
