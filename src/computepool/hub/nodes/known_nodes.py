"""Nodes that could run a job at all, to decide whether anybody could confirm its result.

A result must not be accepted just because nobody else is free right now. So nodes that are paused, cooling off or busy count,
and so do nodes that poll another hub or left a short while ago. A copy of the latter is kept in memory, so that settling a
job needs no query.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from computepool.core.placement.gates import could_run
from computepool.core.resources import Requirements
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.owner import owner_rules
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.snapshot import Question
from computepool.hub.trust import reputation_rows
from computepool.protocol.nodes.profile import Profile


@dataclass(frozen=True, slots=True)
class AbleOwners(Question[frozenset[str]]):
    """The owners of nodes that could run a job if they were idle."""

    requirements: Requirements
    account: str
    ceiling: int | None

    def answer(self, hub: Hub) -> frozenset[str]:
        shape = shape_of(self.requirements, self.account, ceiling=self.ceiling)
        able: set[str] = set()
        for fleet in (hub.nodes.registry.fleet, hub.nodes.elsewhere.fleet):
            rows = could_run(fleet, shape, slice(0, fleet.rows))
            owners = np.bincount(fleet.table.owner[: fleet.rows][rows])
            able.update(map(fleet.accounts.word, np.flatnonzero(owners).tolist()))
        return frozenset(able)


async def refresh(hub: Hub) -> None:
    """Load the nodes that were seen recently and do not poll this hub."""
    since_ms = hub.now_ms() - round(hub.settings.verify_known_s * 1000)
    seen = await hub.store.read(node_rows.recently_seen_ids, since_ms=since_ms)
    here, most = hub.nodes.registry.fleet, hub.settings.verify_known_max
    absent = [node_id for node_id in seen if node_id not in here][:most]

    def load(connection: Connection) -> tuple[list[NodeRow], set[str]]:
        known = reputation_rows.load(connection, absent)
        banned = {node_id for node_id, reputation in known.items() if reputation.banned_at_ms}
        return list(node_rows.get_nodes(connection, absent)), banned

    rows, banned = await hub.store.read(load) if absent else ([], set())
    for node_id in set(hub.nodes.elsewhere.descriptions) - {row.id for row in rows}:
        forget(hub, node_id)
    for row in rows:
        _note(hub, row, banned=row.id in banned)


def _note(hub: Hub, row: NodeRow, *, banned: bool) -> None:
    known, description = hub.nodes.elsewhere, f"{row.profile} {row.rules} {banned}"
    if known.descriptions.get(row.id) == description:
        return
    profile = Profile.model_validate_json(row.profile)
    known.fleet.upsert(profile.node_profile(node_id=row.id, owner=row.account_id))
    known.fleet.set_rules(row.id, owner_rules.rules_of(row).rules())
    known.fleet.set_integrity(row.id, streak=0, banned=banned)
    known.descriptions[row.id] = description


def forget(hub: Hub, node_id: str) -> None:
    hub.nodes.elsewhere.fleet.remove(node_id)
    hub.nodes.elsewhere.descriptions.pop(node_id, None)
