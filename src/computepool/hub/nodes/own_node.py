"""Requests of a node about itself, with its own key: whose it is, what it earns, that it stops and that it leaves."""

from __future__ import annotations

from functools import partial

from computepool.core.errors import NotFound
from computepool.core.fleet.node_status import Departure
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.memory.registry import NodeSession
from computepool.hub.nodes import earnings, known_nodes, nodes
from computepool.hub.nodes import rows as node_rows
from computepool.hub.snapshot import write
from computepool.protocol.money.market import OwnNodeView


async def view(hub: Hub, node: NodePrincipal) -> OwnNodeView:
    """For the machine that it is: nothing of its owner but the name, and what this node earned."""
    row = await hub.store.read(lambda connection: node_rows.get_node(connection, node.node_id))
    if row is None:
        raise NotFound("There is no such node.")
    found = await earnings.of_node(hub, node, node.node_id)
    return OwnNodeView(owner_name=row.owner_name, earnings=found)


async def leave(hub: Hub, node: NodePrincipal) -> OwnNodeView:
    """Its key stops working at once, and what it still held runs elsewhere. What it earned stays its owner's."""
    known = await view(hub, node)
    node_id, left = node.node_id, Departure.LEFT
    unit = partial(nodes.remove, node_id=node_id, actor=node_id, action="node.left", departure=left)
    settlement = await write(hub, unit)
    nodes.follow_state(hub, node.node_id, NodeState.REVOKED)
    await hub.dispatcher.follow(settlement)
    return known


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
    if hub.registry.get(node_id) is session:  # else the next start of it was quicker
        hub.registry.on_node_lost(node_id)
    await known_nodes.refresh(hub)  # it may come back to confirm a result
