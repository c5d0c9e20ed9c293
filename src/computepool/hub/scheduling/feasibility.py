"""Jobs that no node could ever run: said when they are submitted, and refused where their submitter wants that."""

from __future__ import annotations

from dataclasses import replace

from computepool.core.errors import Conflict
from computepool.core.fleet.fleet import Fleet
from computepool.core.placement import explain
from computepool.core.placement.explain import Explanation
from computepool.core.resources import Requirements, Shape
from computepool.hub.context import Hub
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.nodes import group_homes
from computepool.hub.nodes import rows as node_rows
from computepool.protocol.nodes.nodes import Profile

#: Nodes that are looked at when none that is here could run a job.
_AWAY_MAX = 50


async def warning(hub: Hub, needs: Requirements, account: str, *, refuse: bool) -> str:
    """What to tell the submitter of jobs that no connected node could run; empty for all others, at no cost.

    Raises Conflict where such jobs are to be refused: not while a node that could run them is away, or nobody is here.
    """
    if hub.money.ceilings.is_possible(hub.nodes.registry.fleet, needs, account=account, now_ms=hub.now_ms()):
        return ""
    found = await explanation(hub, shape_of(needs, account))
    if refuse and found.unsatisfiable:
        raise Conflict(found.sentence, field="impossible")
    return found.sentence


async def explanation(hub: Hub, shape: Shape) -> Explanation:
    """As `explain` has it, but a node that is away and could run it is named."""
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
    """The last of the nodes that could run it and are offline; empty if there is none."""
    rows = await hub.store.read(lambda connection: node_rows.lately_seen(connection, limit=_AWAY_MAX))
    gone = [(row, since_ms) for row in rows if (since_ms := group_homes.offline_since(hub, row)) is not None]
    for row, since_ms in gone:
        fleet = Fleet()
        profile = Profile.model_validate_json(row.profile)
        fleet.upsert(profile.node_profile(node_id=row.id, owner=row.account_id))
        if explain.explain(fleet, shape).able:
            return f"{row.name}, which could run it, is offline since {group_homes.moment(since_ms)}"
    return ""
