"""The list of nodes, filtered by stored columns and by their current status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from computepool.core.fleet.node_status import NodeStatus
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity.access import Principal
from computepool.hub.nodes import nodes, rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.protocol.jobs.requirements import satisfies
from computepool.protocol.nodes.nodes import NodePage, NodeView

#: Nodes scanned for one page, however few of them match; the next page continues there.
SCANNED_MAX = 2_000
_STEP = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilter:
    mine: bool = False
    states: Sequence[str] = ()
    text: str = ""
    online: bool | None = None
    statuses: Sequence[NodeStatus] = ()
    tier: str = ""  #: the tier in force: of its cards, or without any, of its cores
    region: str = ""
    software: frozenset[str] = frozenset()  #: dependencies that one of its environments satisfies

    @property
    def is_stored(self) -> bool:
        """Whether stored columns alone decide."""
        return self.online is None and not (self.statuses or self.tier or self.region or self.software)

    def takes(self, view: NodeView) -> bool:
        if self.online is not None and view.online is not self.online:
            return False
        if self.statuses and view.status not in self.statuses:
            return False
        if self.tier not in ("", view.tier) or self.region not in ("", view.region):
            return False
        offered = view.profile.environments
        return not self.software or any(satisfies(found.environment(), self.software) for found in offered)


async def page(hub: Hub, principal: Principal, filters: NodeFilter, *, after: str | None, limit: int) -> NodePage:
    found: list[NodeView] = []
    at, scanned = after or "", 0
    step = limit if filters.is_stored else _STEP
    while scanned < SCANNED_MAX:
        views = await _load(hub, principal, filters, after=at, limit=step)
        for view in filter(filters.takes, views):
            if len(found) == limit:
                return NodePage(nodes=found, next=found[-1].id)
            found.append(view.model_copy(update={"profile": view.profile.brief()}))
        if len(views) < step:
            return NodePage(nodes=found)
        at, scanned = views[-1].id, scanned + step
        if len(found) == limit:
            break
    return NodePage(nodes=found, next=at)


async def _load(hub: Hub, principal: Principal, filters: NodeFilter, *, after: str, limit: int) -> list[NodeView]:
    def load(connection: Connection) -> tuple[Sequence[NodeRow], nodes.NodeHistory]:
        rows = node_rows.list_nodes(
            connection,
            after=after,
            limit=limit,
            account_id=principal.account_id if filters.mine else None,
            states=filters.states,
            text=filters.text,
        )
        return rows, nodes.load_background(hub, connection, [row.id for row in rows])

    rows, background = await hub.store.read(load)
    return [nodes.view(hub, row, principal, background=background) for row in rows]
