"""The status of a node as this hub knows it: from memory for a node that polls it, from the store for any other."""

from __future__ import annotations

from computepool.core.fleet.node_status import Contact, Departure, NodeStatus, node_status, rest_reason
from computepool.core.resources import NodeProfile, NodeState
from computepool.hub.context import Hub
from computepool.hub.db import dialect
from computepool.hub.db.session import Connection
from computepool.hub.identity import rows as account_rows
from computepool.hub.nodes.owner import price_floors
from computepool.hub.nodes.rows import NodeStanding


def of_node(
    hub: Hub, row: NodeStanding, profile: NodeProfile, *, banned: bool, shared: bool, jobs: int = 0
) -> NodeStatus:
    """`shared` says whether other hubs serve this database, so that the node may poll one of them; `jobs` is the number of
    its jobs there."""
    now_ms = hub.now_ms()
    session = hub.nodes.registry.get(row.id)
    if session is not None:
        return hub.nodes.registry.status(session, now_ms, banned=banned)
    reachable = row.departure is None and (row.last_seen_ms or 0) + hub.nodes.registry.lease_ms > now_ms
    rest = rest_reason(
        NodeState(row.state),
        Contact(reachable=reachable, polls=shared),
        cooling=(row.cool_off_until_ms or 0) > now_ms,
        left=row.departure == Departure.LEFT,
    )
    floor_met = price_floors.is_met(hub, profile, price_floors.in_force(row))
    return node_status(rest, banned=banned, floor_met=floor_met, jobs=jobs)


def other_hubs_serve(hub: Hub, connection: Connection) -> bool:
    """Whether another hub was alive a moment ago. A SQLite file has a single hub."""
    if dialect.is_sqlite(hub.settings.url):
        return False
    since_ms = hub.now_ms() - account_rows.HUB_FRESH_MS
    return account_rows.other_hubs(connection, hub_id=hub.process.hub_id, since_ms=since_ms) > 0
