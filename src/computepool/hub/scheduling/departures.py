"""Nodes that take no part any more: their owner or the operator revoked them, or they left by themselves."""

from __future__ import annotations

from computepool.core.errors import NotFound
from computepool.core.fleet.node_status import Departure
from computepool.core.jobs.lifecycle import Reason
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import authenticator
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs.transitions import Settlement
from computepool.hub.nodes import nodes, own_node
from computepool.hub.nodes import rows as node_rows
from computepool.hub.scheduling import leases
from computepool.hub.settlement import after_commit
from computepool.hub.snapshot import Snapshot, write
from computepool.protocol.money.market import OwnNodeView
from computepool.protocol.nodes.nodes import NodeView


async def revoke(hub: Hub, principal: Principal, node_id: str) -> NodeView:
    """Its key stops working at once; what it held runs elsewhere."""

    def unit(tx: Tx, snapshot: Snapshot) -> Settlement:
        row = nodes.manageable(tx.connection, principal, node_id)
        # Whoever has that machine may know the code it joined with, which would let it in again.
        account_rows.end_join_codes(tx, account_id=row.account_id)
        return _remove(tx, snapshot, node_id, actor=principal.account_id, action="node.revoked")

    await _follow(hub, node_id, await write(hub, unit))
    return await nodes.get(hub, principal, node_id)


async def leave(hub: Hub, node: NodePrincipal) -> OwnNodeView:
    """Its key stops working at once, and what it still held runs elsewhere. What it earned stays its owner's."""
    known, node_id = await own_node.view(hub, node), node.node_id

    def unit(tx: Tx, snapshot: Snapshot) -> Settlement:
        left = Departure.LEFT
        return _remove(tx, snapshot, node_id, actor=node_id, action="node.left", departure=left)

    await _follow(hub, node_id, await write(hub, unit))
    return known


async def _follow(hub: Hub, node_id: str, settlement: Settlement) -> None:
    nodes.follow_state(hub, node_id, NodeState.REVOKED)
    await after_commit.follow(hub, settlement)


def _remove(
    tx: Tx, snapshot: Snapshot, node_id: str, *, actor: str, action: str, departure: Departure | None = None
) -> Settlement:
    """Its history and what it earned stay."""
    node_rows.lock_node(tx, node_id)
    row = node_rows.get_node(tx.connection, node_id)
    if row is None:
        raise NotFound("There is no such node.")
    live = attempt_rows.live_attempts(tx.connection, [node_id]).get(node_id, [])
    held = [attempt.id for attempt in live]
    settlement = leases.end_attempts(tx, snapshot, attempt_ids=held, reason=Reason.NODE_ERROR)
    if node_rows.revoke(tx, node_id, departure=departure):
        tx.emit(
            actor=actor,
            action=action,
            account_id=row.account_id,
            node_id=node_id,
            before=row.state,
            after=NodeState.REVOKED.value,
        )
    tx.touch(f"node:{node_id}", "events", authenticator.KEYS_TOPIC)
    return settlement
