"""Homes: the node that a group's results are delivered to. The node's own requests are in groups/result_delivery.py."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from computepool.core.errors import Conflict, NotFound
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.groups import rows as group_rows
from computepool.hub.groups.rows import ARRIVED, WAITING, GroupRow
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.snapshot import Question
from computepool.protocol.jobs.groups import HomeView

#: The groups that wait for some node have changed; a second topic names the node.
HOMES_TOPIC = "homes"
_NODE = "home:"
_NODES_MAX = 1_000


def find(connection: Connection, account_id: str, text: str | None) -> str | None:
    """The node of the account with this id or name. Without one, the account's only node, or None if it has several."""
    nodes = [
        node
        for node in node_rows.list_nodes(connection, after="", limit=_NODES_MAX, account_id=account_id)
        if node.state != NodeState.REVOKED
    ]
    if text is None:
        return str(nodes[0].id) if len(nodes) == 1 else None
    named = [node for node in nodes if node.id == text] or [node for node in nodes if node.name == text]
    if not named:
        raise NotFound(
            f"Your account has no node {text!r}; a home is one of your own nodes (`pool nodes --mine`).", field="home"
        )
    if len(named) > 1:
        ids = ", ".join(node.id for node in named[:5])
        raise Conflict(f"Several of your nodes are named {text!r}; give an id: {ids}.", field="home")
    return str(named[0].id)


def begin(tx: Tx, row: GroupRow) -> None:
    """Request delivery of a complete group, when it became complete or its home changed."""
    if row.return_home and row.home is not None:
        group_rows.set_group(tx, row.id, home_state=WAITING, home_at_ms=tx.now_ms, home_reason=None, home_arrival=None)
        touch(tx, row.home)


def touch(tx: Tx, node_id: str | None) -> None:
    if node_id is not None:
        tx.touch(HOMES_TOPIC, f"{_NODE}{node_id}")


def follow(hub: Hub, topics: set[str] | None) -> None:
    """After a commit of any hub, wake the nodes named by these topics, or all nodes (None), if they poll this hub."""
    if topics is None:
        sessions = hub.nodes.registry.sessions
    else:
        named = (topic.removeprefix(_NODE) for topic in topics if topic.startswith(_NODE))
        sessions = [session for node_id in named if (session := hub.nodes.registry.get(node_id)) is not None]
    for session in sessions:
        session.home_due = True
        session.wake()


async def load(hub: Hub, session: NodeSession) -> None:
    """Load the groups that wait for this node."""
    session.home_due = False
    session.result_deliveries = await hub.store.read(group_rows.groups_to_fetch, session.node_id)


def waiting_groups(connection: Connection, node_ids: Sequence[str]) -> dict[str, list[str]]:
    """The groups that these nodes, of which few are homes, are to fetch next."""
    homes = group_rows.with_groups_to_fetch(connection, node_ids)
    return {node_id: group_rows.groups_to_fetch(connection, node_id) for node_id in homes}


@dataclass(frozen=True, slots=True)
class OnlineNodes(Question[frozenset[str]]):
    """Which of these nodes are online, according to their rows and to this hub's sessions."""

    last_seen: frozenset[tuple[str, int | None, bool]]  #: id, when, and whether it left

    @classmethod
    def among(cls, rows: Iterable[NodeRow]) -> OnlineNodes:
        return cls(frozenset((row.id, row.last_seen_ms, row.departure is not None) for row in rows))

    def answer(self, hub: Hub) -> frozenset[str]:
        since_ms = hub.now_ms() - hub.nodes.registry.lease_ms
        return frozenset(
            node_id
            for node_id, seen_ms, left in self.last_seen
            if hub.nodes.registry.get(node_id) is not None or ((seen_ms or 0) > since_ms and not left)
        )


def offline_since(hub: Hub, node: NodeRow) -> int | None:
    """When the node was last seen, or None while it is online. For a node of another hub, its row decides."""
    return None if OnlineNodes.among([node]).answer(hub) else int(node.last_seen_ms or 0)


def view(row: GroupRow, node: NodeRow | None, *, offline_ms: int | None = None) -> HomeView:
    """`node` is the home's row, and `offline_ms` the time since when it is offline."""
    if not row.return_home:
        return HomeView(node_id=row.home, node_name=None if node is None else node.name)
    state = row.home_state or ("when_complete" if row.completed_at_ms is None else WAITING)
    offline = "" if offline_ms is None or state == ARRIVED else f" (offline since {moment(offline_ms)})"
    arrival = json.loads(row.home_arrival) if row.home_arrival is not None and state == ARRIVED else {}
    return HomeView(
        state=state,
        sentence=_sentence(row, node, state) + offline,
        node_id=row.home,
        node_name=None if node is None else node.name,
        reason=row.home_reason,
        at_ms=row.home_at_ms,
        **arrival,
    )


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _sentence(row: GroupRow, node: NodeRow | None, state: str) -> str:
    if row.home is None or node is None:
        return f"it has no home; name a node of yours: pool group return-home {row.id} --home NODE"
    if state == ARRIVED:
        return f"everything is on {node.name}"
    if node.state == NodeState.REVOKED:
        return f"its home {node.name} was revoked; name another one: pool group return-home {row.id} --home NODE"
    if state == "when_complete":
        return f"goes to {node.name} when it is complete"
    if row.home_reason:
        return f"{node.name} could not fetch it yet: {row.home_reason}"
    return f"waits for {node.name} to fetch it"
