"""Requests of a node about itself, with its own key: its owner, its earnings, and its shutdown."""

from __future__ import annotations

from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity import access
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.nodes import known_nodes, rows as node_rows
from computepool.hub.nodes.owner import earnings
from computepool.protocol.money.market import OwnNodeView


async def view(hub: Hub, node: NodePrincipal) -> OwnNodeView:
    """The owner's name and this node's own earnings; nothing else about the owner."""
    row = await hub.store.read(lambda connection: node_rows.get_node(connection, node.node_id))
    owner_name = access.found(row, what="node").owner_name
    return OwnNodeView(owner_name=owner_name, earnings=await earnings.of_node(hub, node, node.node_id))


async def stop(hub: Hub, session: NodeSession) -> None:
    """Take a node offline at once because its agent stops. Attempts that it could not report wait for the lease's end."""
    node_id, boot_id, seen_ms = session.node_id, session.boot_id, session.seen_ms
    owner = session.profile.owner

    def unit(tx: Tx) -> None:
        if node_rows.depart(tx, node_id=node_id, boot_id=boot_id):
            tx.emit(actor=node_id, action="node.offline", node_id=node_id, account_id=owner, reason="stopped")
            node_rows.touch_nodes(tx, {node_id: seen_ms})
            tx.touch("events")

    await hub.store.write(unit)
    if hub.nodes.registry.get(node_id) is session:  # else it has already been started again
        hub.nodes.registry.on_node_lost(node_id)
    await known_nodes.refresh(hub)  # it may come back to confirm a result
