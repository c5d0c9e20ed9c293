"""Requests of a node about itself, with its own key: whose it is, what it earns, and that it stops."""

from __future__ import annotations

from computepool.core.errors import NotFound
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.nodes import known_nodes
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.owner import earnings
from computepool.protocol.money.market import OwnNodeView


async def view(hub: Hub, node: NodePrincipal) -> OwnNodeView:
    """For the machine that it is: nothing of its owner but the name, and what this node earned."""
    row = await hub.store.read(lambda connection: node_rows.get_node(connection, node.node_id))
    if row is None:
        raise NotFound("There is no such node.")
    found = await earnings.of_node(hub, node, node.node_id)
    return OwnNodeView(owner_name=row.owner_name, earnings=found)


async def stop(hub: Hub, session: NodeSession) -> None:
    """Its agent ends: it is offline at once, not only when its lease is over. What it could not report waits for that."""
    node_id, boot_id, seen_ms = session.node_id, session.boot_id, session.seen_ms
    owner = session.profile.owner

    def unit(tx: Tx) -> None:
        if node_rows.depart(tx, node_id=node_id, boot_id=boot_id):
            tx.emit(actor=node_id, action="node.offline", node_id=node_id, account_id=owner, reason="stopped")
            node_rows.touch_nodes(tx, {node_id: seen_ms})
            tx.touch("events")

    await hub.store.write(unit)
    if hub.nodes.registry.get(node_id) is session:  # else the next start of it was quicker
        hub.nodes.registry.on_node_lost(node_id)
    await known_nodes.refresh(hub)  # it may come back to confirm a result
