"""API keys and browser sessions: create, list, rotate, revoke. A key is shown once; only its hash is stored."""

from __future__ import annotations

from typing import Any

from computepool.core.errors import Conflict, Forbidden
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.identity.access import Principal, Role, Scope
from computepool.hub.identity.authenticator import KEYS_TOPIC
from computepool.hub.identity.idempotency import Remembered, write_once
from computepool.hub.identity.rows import KeyRow
from computepool.hub.identity.signing.secrets import make_key
from computepool.hub.settings import Settings
from computepool.protocol.accounts import KeyPage, KeyRequest, KeyRotateRequest, KeyView, NewKeyReply

_KEY, _SESSION = "key", "cookie"  #: kinds; a session belongs to a browser


def key_view(row: KeyRow, principal: Principal, *, now_ms: int) -> KeyView:
    scopes = access.scopes_from_text(row.scopes)
    expired = row.expires_at_ms is not None and row.expires_at_ms <= now_ms
    state = "revoked" if row.revoked_at_ms is not None else "expired" if expired else "good"
    return KeyView.from_attributes(
        row,
        scopes=None if scopes is None else sorted(scopes),
        state=state,
        this=row.id == principal.key_id,
        can_revoke=state == "good" and access.may_use(principal, Scope.ACCOUNT),
    )


async def create(hub: Hub, principal: Principal, request: KeyRequest, *, remembered: Remembered) -> NewKeyReply:
    owner = access.chosen_account(principal, request.account_id)
    access.check_not_pools(owner)
    scopes = principal.scopes if request.scopes is None else frozenset({*request.scopes, Scope.READ.value})
    access.check_scopes_within(principal, scopes)
    requested_ms = _after(hub.now_ms(), request.expires_in_s)
    key_id, secret = hub.clock.entropy(8).hex(), hub.clock.entropy(32)
    hash_, settings = hub.identity.secrets.digest(secret.hex()), hub.settings

    def effect(tx: Tx) -> NewKeyReply:
        access.require_found(account_rows.get_account(tx.connection, owner), what="account", field="account_id")
        check_not_impersonating(tx, principal, settings=settings, owner=owner)
        expires_at_ms = _expiry_within_maker(tx, principal, requested_ms, explicit=requested_ms is not None)
        key = {"id": key_id, "account_id": owner, "name": request.name, "expires_at_ms": expires_at_ms}
        reply = _insert(tx, key, secret=secret, hash_=hash_, scopes=scopes)
        _emit(tx, principal, "key.created", account_id=owner, key_id=key_id)
        return reply

    return await write_once(hub, remembered, effect, model=NewKeyReply, sealed=True)


def check_not_impersonating(tx: Tx, principal: Principal, *, owner: str, settings: Settings) -> None:
    """Where two administrators must agree, neither may obtain a key of the other."""
    account = account_rows.get_account(tx.connection, owner)
    roles = "" if account is None else account.roles
    if owner != principal.account_id and Role.ADMIN in roles.split(",") and settings.two_person_kinds():
        raise Forbidden("Where two administrators are required, each creates their own keys.")


def _expiry_within_maker(tx: Tx, principal: Principal, requested_ms: int | None, *, explicit: bool) -> int | None:
    """The new key's expiry. No key outlives the key that creates it; a browser session, or a key without expiry, has no
    such limit. A longer life is refused if the caller asked for it explicitly, and shortened if not.
    """
    maker = account_rows.get_key(tx.connection, principal.key_id)
    if maker is None or maker.kind != _KEY or maker.expires_at_ms is None:
        return requested_ms
    if requested_ms is not None and requested_ms <= maker.expires_at_ms:
        return requested_ms
    if explicit:
        left_s = max(0, maker.expires_at_ms - tx.now_ms) // 1000
        raise Forbidden(
            f"This key expires in {left_s} s and cannot create one that lives longer; request a shorter lifetime, or use "
            "a key that lives longer.",
            field="expires_in_s",
        )
    return maker.expires_at_ms


def _after(now_ms: int, seconds: float | None) -> int | None:
    return None if seconds is None else now_ms + round(seconds * 1000)


def _insert(tx: Tx, key: dict[str, Any], *, secret: bytes, hash_: str, scopes: frozenset[str] | None) -> NewKeyReply:
    listed = None if scopes is None else sorted(scopes)
    text = None if listed is None else ",".join(listed)
    account_rows.insert_key(tx, kind=_KEY, hash=hash_, scopes=text, **key)
    return NewKeyReply(**key, created_at_ms=tx.now_ms, scopes=listed, key=make_key(key["id"], secret))


def _emit(tx: Tx, principal: Principal, action: str, *, account_id: str, **data: object) -> None:
    tx.emit(actor=principal.account_id, action=action, account_id=account_id, data=data)


async def page(
    hub: Hub,
    principal: Principal,
    account_id: str | None,
    *,
    everybody: bool,
    sessions: bool,
    after: str | None,
    limit: int,
) -> KeyPage:
    """The caller's keys; for administrators, those of another account or of all. `sessions` includes browser sessions."""
    every_account = everybody and principal.is_admin and account_id is None
    owner = None if every_account else access.chosen_account(principal, account_id)
    kinds = [_KEY, _SESSION] if sessions else [_KEY]
    rows = await hub.store.read(account_rows.list_keys, account_id=owner, kinds=kinds, after=after or "", limit=limit)
    views = [key_view(row, principal, now_ms=hub.now_ms()) for row in rows]
    return KeyPage(keys=views, next=views[-1].id if len(views) == limit else None)


async def rotate(
    hub: Hub, principal: Principal, key_id: str, *, request: KeyRotateRequest, remembered: Remembered
) -> NewKeyReply:
    """Create a successor with the same name, scopes and lifetime. Both keys work until the overlap ends.

    The successor expires no later than the key that requests it.
    """
    new_id, secret = hub.clock.entropy(8).hex(), hub.clock.entropy(32)
    hash_, settings = hub.identity.secrets.digest(secret.hex()), hub.settings

    def effect(tx: Tx) -> NewKeyReply:
        old = _find_live(tx, principal, key_id)
        check_not_impersonating(tx, principal, settings=settings, owner=old.account_id)
        scopes = access.scopes_from_text(old.scopes)
        access.check_scopes_within(principal, scopes)
        life_ms = None if old.expires_at_ms is None else old.expires_at_ms - old.created_at_ms
        lives_s = request.expires_in_s or (None if life_ms is None else life_ms / 1000)
        explicit = request.expires_in_s is not None
        expires_at_ms = _expiry_within_maker(tx, principal, _after(tx.now_ms, lives_s), explicit=explicit)
        key = {"id": new_id, "account_id": old.account_id, "name": old.name, "expires_at_ms": expires_at_ms}
        reply = _insert(tx, key, secret=secret, hash_=hash_, scopes=scopes)
        ends_ms = tx.now_ms + round(request.overlap_s * 1000)
        account_rows.end_key(tx, key_id, at_ms=min(ends_ms, old.expires_at_ms or ends_ms))
        _emit(tx, principal, "key.rotated", account_id=old.account_id, key_id=key_id, successor=new_id)
        tx.touch(KEYS_TOPIC)
        return reply

    return await write_once(hub, remembered, effect, model=NewKeyReply, sealed=True)


def _find_live(tx: Tx, principal: Principal, key_id: str) -> KeyRow:
    row = account_rows.get_key(tx.connection, key_id)
    access.check_owner(principal, row.account_id if row is not None and row.kind == _KEY else None, what="key")
    assert row is not None
    if row.revoked_at_ms is not None or (row.expires_at_ms or tx.now_ms + 1) <= tx.now_ms:
        raise Conflict("This key has expired; create a new one.")
    return row


async def revoke(hub: Hub, principal: Principal, key_id: str) -> None:
    """Revoke a key at once, on every hub of the pool."""

    def unit(tx: Tx) -> None:
        row = access.require_owned(principal, account_rows.get_key(tx.connection, key_id), what="key")
        if account_rows.revoke_key(tx, key_id):
            _emit(tx, principal, "key.revoked", account_id=row.account_id, key_id=key_id)
        tx.touch(KEYS_TOPIC)

    await hub.store.write(unit)


async def sign_out(hub: Hub, principal: Principal) -> None:
    """Revoke the calling credential."""

    def unit(tx: Tx) -> None:
        if account_rows.revoke_key(tx, principal.key_id):
            _emit(tx, principal, "account.signed_out", account_id=principal.account_id, key_id=principal.key_id)
        tx.touch(KEYS_TOPIC)

    await hub.store.write(unit)


async def revoke_all(hub: Hub, principal: Principal, account_id: str | None, *, keep_this: bool) -> int:
    """Revoke every key and browser session of the account. Returns how many were valid until now."""
    owner = access.chosen_account(principal, account_id)
    kept = principal.key_id if keep_this else ""

    def unit(tx: Tx) -> int:
        access.require_found(account_rows.get_account(tx.connection, owner), what="account", field="account_id")
        ended = account_rows.revoke_keys_of(tx, account_id=owner, but=kept)
        if ended:
            _emit(tx, principal, "account.signed_out_everywhere", account_id=owner, ended=ended)
        tx.touch(KEYS_TOPIC)
        return ended

    return await hub.store.write(unit)
