"""Housekeeping: drops silent nodes from the registry, and deletes old codes, replies and files."""

from __future__ import annotations

from computepool.hub.artifacts import garbage_collection
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import rows as account_rows
from computepool.hub.nodes import known_nodes, rows as node_rows
from computepool.hub.notifications import rows as webhook_rows


async def drop_silent(hub: Hub) -> None:
    """Drop silent nodes from the registry. Their attempts expire when their leases end, which is no earlier."""
    hub.nodes.registry.suspect_silent(hub.now_ms())
    lost = hub.nodes.registry.silent(hub.now_ms())
    if not lost:
        return

    owners = {session.node_id: session.profile.owner for session in lost}
    seen = {session.node_id: session.seen_ms for session in lost}

    def unit(tx: Tx) -> None:
        for node_id, owner in owners.items():
            tx.emit(actor="hub", action="node.offline", node_id=node_id, account_id=owner, reason="silent")
        node_rows.touch_nodes(tx, seen)

    await hub.store.write(unit)
    still = {id(session) for session in hub.nodes.registry.silent(hub.now_ms())}
    for session in lost:
        if id(session) in still:
            hub.nodes.registry.on_node_lost(session.node_id)
    if back := sorted(session.node_id for session in lost if id(session) not in still):
        await hub.store.write(_note_online, owners={node_id: owners[node_id] for node_id in back})
    await known_nodes.refresh(hub)  # they may come back and could confirm results


def _note_online(tx: Tx, *, owners: dict[str, str]) -> None:
    """These nodes spoke while it was written that they are silent."""
    for node_id, owner in owners.items():
        tx.emit(actor=node_id, action="node.online", node_id=node_id, account_id=owner)


async def note_key_use(hub: Hub) -> None:
    used = hub.identity.authenticator.take_used()
    if used:
        await hub.store.write(account_rows.touch_keys, used)


async def prune(hub: Hub) -> None:
    keep_ms, webhook_keep_ms = (
        round(keep_s * 1000) for keep_s in (hub.settings.idempotency_keep_s, hub.settings.webhook_keep_s)
    )

    def unit(tx: Tx) -> None:
        account_rows.prune_codes(tx, before_ms=tx.now_ms - keep_ms)
        account_rows.prune_replies(tx, before_ms=tx.now_ms - keep_ms)
        webhook_rows.prune(tx, before_ms=tx.now_ms - webhook_keep_ms)

    await hub.store.write(unit)
    await garbage_collection.collect(hub)
