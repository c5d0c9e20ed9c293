"""Rotation of the hub's signing key. The next key is published before it signs; the previous one is accepted for a while."""

from __future__ import annotations

from collections.abc import Sequence

from computepool.core.errors import Conflict
from computepool.hub.clock import Clock
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import Principal
from computepool.hub.identity.signing import rows as signing_key_rows
from computepool.hub.identity.signing.rows import SigningKeyRow
from computepool.hub.identity.signing.secrets import add_next
from computepool.hub.settings import Settings
from computepool.protocol.hub_keys import HubKeys

SIGNING_TOPIC = "hubkeys"
_DAY_MS = 24 * 3600 * 1000


def rotate_in(tx: Tx, clock: Clock, *, settings: Settings, actor: str) -> str:
    """Let the next key sign, and create another next one. Returns the id of the key that signs now."""
    rows = signing_key_rows.list_keys(tx.connection)
    old = [row for row in rows if row.starts_at_ms is not None][-1]
    new = next((row for row in rows if row.starts_at_ms is None), None)
    if new is None or not signing_key_rows.start_key(tx, new.kid):
        raise Conflict("The hub's key changed concurrently; reload and try again.")
    signing_key_rows.end_key(tx, old.kid, at_ms=tx.now_ms + round(settings.key_overlap_s * 1000))
    add_next(tx, clock, after=new)
    tx.emit(actor=actor, action="hub.key_rotated", before=old.kid, after=new.kid)
    tx.touch(SIGNING_TOPIC)
    return new.kid


async def rotate(hub: Hub, admin: Principal) -> HubKeys:
    actor, settings = admin.account_id, hub.settings
    await hub.store.write(rotate_in, clock=hub.clock, settings=settings, actor=actor)
    await reload(hub)
    return hub.identity.secrets.published


async def reload(hub: Hub) -> None:
    hub.identity.secrets.adopt(await hub.store.read(signing_key_rows.list_keys))


async def tend(hub: Hub) -> None:
    """Rotate when due, retire keys past their overlap, and load what another process changed."""
    rows = await hub.store.read(signing_key_rows.list_keys)
    if _due(rows, hub.settings, hub.now_ms()) or _over(rows, hub.now_ms()):
        await hub.store.write(_tend_in, settings=hub.settings, clock=hub.clock)
    await reload(hub)


def _due(rows: Sequence[SigningKeyRow], settings: Settings, now_ms: int) -> bool:
    period_ms = round(settings.key_rotation_days * _DAY_MS)
    since_ms = max(row.starts_at_ms for row in rows if row.starts_at_ms is not None)
    return period_ms > 0 and now_ms - since_ms >= period_ms


def _over(rows: Sequence[SigningKeyRow], now_ms: int) -> bool:
    return any(row.private_key is not None and (row.ends_at_ms or now_ms + 1) <= now_ms for row in rows)


def _tend_in(tx: Tx, *, settings: Settings, clock: Clock) -> None:
    keys = signing_key_rows.list_keys(tx.connection)
    if _due(keys, settings, tx.now_ms):  # another hub may have rotated meanwhile
        rotate_in(tx, clock, settings=settings, actor="hub")
    for kid in signing_key_rows.retire_keys(tx):
        tx.emit(actor="hub", action="hub.key_retired", before=kid)
        tx.touch(SIGNING_TOPIC)
