"""What a node asks and tells of itself, with its own key: whose it is and what it earns, and that it leaves."""

from __future__ import annotations

from computepool.core.errors import NotFound
from computepool.core.resources import NodeState
from computepool.hub.services import earnings, nodes
from computepool.hub.services.access import NodePrincipal
from computepool.hub.services.context import Hub
from computepool.hub.services.lifecycle import Effects
from computepool.hub.store import nodes as node_rows
from computepool.protocol.market import OwnNodeView


async def view(hub: Hub, node: NodePrincipal) -> OwnNodeView:
    """For the machine that it is: nothing of its owner but the name, and what this node earned."""
    row = await hub.store.read(lambda connection: node_rows.get_node(connection, node.node_id))
    if row is None:
        raise NotFound("There is no such node.")
    found = await earnings.of_node(hub, node, node.node_id)
    return OwnNodeView(owner_name=row.owner_name, earnings=found)


async def leave(hub: Hub, node: NodePrincipal) -> tuple[OwnNodeView, Effects]:
    """Its key stops working at once, and what it still held runs elsewhere. What it earned stays its owner's."""
    known = await view(hub, node)
    effects = await hub.store.write(
        lambda tx: nodes.remove(hub, tx, node.node_id, actor=node.node_id, action="node.left")
    )
    nodes.follow_state(hub, node.node_id, NodeState.REVOKED)
    return known, effects
