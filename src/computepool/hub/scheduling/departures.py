"""Departures of nodes: their owner or the operator revokes them, they leave by themselves, or their agents stop."""

from __future__ import annotations

from collections.abc import Callable

from computepool.core.fleet.node_status import Departure
from computepool.core.jobs.lifecycle import Reason
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity import access, authenticator, rows as account_rows
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.nodes import known_nodes, nodes, rows as node_rows
from computepool.hub.nodes.owner import earnings
from computepool.hub.scheduling import leases
from computepool.hub.settlement import after_commit, follow_ups
from computepool.protocol.money.market import OwnNodeView
from computepool.protocol.nodes.nodes import NodeView


async def revoke(hub: Hub, principal: Principal, node_id: str) -> NodeView:
    """Its key stops working at once; what it held runs elsewhere."""

    def unit(tx: JobTx) -> None:
        row = nodes.manageable(tx.connection, principal, node_id)
        # Whoever has the machine may know the code with which it joined, and which would let it in again.
        account_rows.end_join_codes(tx, account_id=row.account_id)
        _remove(tx, node_id, actor=principal.account_id, action="node.revoked")

    await _commit(hub, node_id, unit)
    return await nodes.get(hub, principal, node_id)


async def leave(hub: Hub, node: NodePrincipal) -> OwnNodeView:
    """Its key stops working at once; what it held runs elsewhere. Its owner keeps what it earned."""
    view = await earnings.own_view(hub, node)

    def unit(tx: JobTx) -> None:
        _remove(tx, node.node_id, actor=node.node_id, action="node.left", departure=Departure.LEFT)

    await _commit(hub, node.node_id, unit)
    return view


async def stop(hub: Hub, session: NodeSession) -> None:
    """Take a node offline at once because its agent stops. Attempts that it could not report wait for the lease's end."""
    node_id, boot_id, seen_ms = session.node_id, session.boot_id, session.seen_ms
    owner = session.profile.owner

    def unit(tx: Tx) -> None:
        if node_rows.depart(tx, node_id=node_id, boot_id=boot_id):
            tx.emit(actor=node_id, action="node.offline", node_id=node_id, account_id=owner, reason="stopped")
            node_rows.touch_nodes(tx, {node_id: seen_ms})

    await hub.store.write(unit)
    if hub.nodes.registry.get(node_id) is session:  # else it has already been started again
        hub.nodes.registry.on_node_lost(node_id)
    await known_nodes.refresh(hub)  # it may come back to confirm a result


async def _commit(hub: Hub, node_id: str, unit: Callable[[JobTx], None]) -> None:
    _, changed = await follow_ups.write(hub, unit)
    nodes.follow_state(hub, node_id, NodeState.REVOKED)
    await after_commit.follow(hub, changed)


def _remove(tx: JobTx, node_id: str, *, actor: str, action: str, departure: Departure | None = None) -> None:
    """Its history and what it earned stay."""
    node_rows.lock_node(tx, node_id)
    row = access.require_found(node_rows.get_node(tx.connection, node_id), what="node")
    live = attempt_rows.live_attempts(tx.connection, [node_id]).get(node_id, [])
    leases.end_attempts(tx, attempt_ids=[attempt.id for attempt in live], reason=Reason.NODE_ERROR)
    if node_rows.revoke(tx, node_id, departure=departure):
        node_rows.emit_change(tx, row, actor=actor, action=action, before=row.state, after=NodeState.REVOKED.value)
    tx.touch(f"node:{node_id}", authenticator.KEYS_TOPIC)
