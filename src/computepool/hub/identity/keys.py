"""API keys and browser sessions: made, replaced, ended. A key is shown once; only its hash is kept."""

from __future__ import annotations

import json
from typing import Any

from computepool.core.errors import Conflict, Forbidden, NotFound
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import Principal, Role, Scope
from computepool.hub.identity.authenticator import KEYS_TOPIC
from computepool.hub.identity.idempotency import Remembered, once
from computepool.hub.identity.rows import KeyRow
from computepool.hub.identity.signing.secrets import make_key
from computepool.hub.settings import Settings
from computepool.protocol.accounts import KeyPage, KeyRequest, KeyRotateRequest, KeyView, NewKeyReply

_KEY, _SESSION = "key", "cookie"  #: the kinds; a session is a browser's


def key_view(row: KeyRow, principal: Principal, *, now_ms: int) -> KeyView:
    scopes = access.scopes_from_text(row.scopes)
    ended = row.expires_at_ms is not None and row.expires_at_ms <= now_ms
    state = "revoked" if row.revoked_at_ms is not None else "expired" if ended else "good"
    fields = {
        "scopes": None if scopes is None else sorted(scopes),
        "state": state,
        "this": row.id == principal.key_id,
        "can_revoke": state == "good" and access.may_use(principal, Scope.ACCOUNT),
    }
    return KeyView.model_validate({**row._asdict(), **fields})


async def create(
    hub: Hub, principal: Principal, request: KeyRequest, *, remembered: Remembered
) -> NewKeyReply:
    owner = request.account_id or principal.account_id
    access.check_owner(principal, owner, what="account")
    access.check_not_pools(owner)
    scopes = principal.scopes if request.scopes is None else frozenset({*request.scopes, Scope.READ.value})
    access.check_scopes_within(principal, scopes)
    requested_ms = _after(hub.now_ms(), request.expires_in_s)
    key_id, secret = hub.clock.entropy(8).hex(), hub.clock.entropy(32)
    hash_, settings = hub.identity.secrets.digest(secret.hex()), hub.settings

    def effect(tx: Tx) -> NewKeyReply:
        if account_rows.get_account(tx.connection, owner) is None:
            raise NotFound("There is no such account.", field="account_id")
        check_not_impersonating(tx, principal, settings=settings, owner=owner)
        ends_ms = _ends_with_maker(tx, principal, requested_ms, explicit=requested_ms is not None)
        key = {"id": key_id, "account_id": owner, "name": request.name, "expires_at_ms": ends_ms}
        reply = _insert(tx, key, secret=secret, hash_=hash_, scopes=scopes)
        _emit(tx, principal, "key.created", account_id=owner, key_id=key_id)
        return reply

    return await hub.store.write(
        lambda tx: once(tx, remembered, lambda: effect(tx), model=NewKeyReply, sealed=True)
    )


def check_not_impersonating(tx: Tx, principal: Principal, *, owner: str, settings: Settings) -> None:
    """Where two administrators must agree, one must not get himself a key of the other."""
    account = account_rows.get_account(tx.connection, owner)
    roles = "" if account is None else account.roles
    if owner != principal.account_id and Role.ADMIN in roles.split(",") and settings.two_person_kinds():
        raise Forbidden("Where two administrators are required, each creates their own keys.")


def _ends_with_maker(tx: Tx, principal: Principal, requested_ms: int | None, *, explicit: bool) -> int | None:
    """No key outlives the key that makes it; a person in a browser, and a key without an end, may make any.

    What the caller did not ask for himself is shortened; what he did ask for is refused.
    """
    maker = account_rows.get_key(tx.connection, principal.key_id)
    if maker is None or maker.kind != _KEY or maker.expires_at_ms is None:
        return requested_ms
    if requested_ms is not None and requested_ms <= maker.expires_at_ms:
        return requested_ms
    if explicit:
        left_s = max(0, maker.expires_at_ms - tx.now_ms) // 1000
        raise Forbidden(
            f"This key ends in {left_s} s, and cannot make one that lives longer; ask for less, or sign in with one "
            "that does.",
            field="expires_in_s",
        )
    return int(maker.expires_at_ms)


def _after(now_ms: int, seconds: float | None) -> int | None:
    return None if seconds is None else now_ms + round(seconds * 1000)


def _insert(
    tx: Tx, key: dict[str, Any], *, secret: bytes, hash_: str, scopes: frozenset[str] | None
) -> NewKeyReply:
    text = access.scopes_to_text(scopes)
    account_rows.insert_key(tx, kind=_KEY, hash=hash_, scopes=text, **key)
    return NewKeyReply(
        **key,
        created_at_ms=tx.now_ms,
        scopes=None if scopes is None else sorted(scopes),
        key=make_key(key["id"], secret),
    )


def _emit(tx: Tx, principal: Principal, action: str, *, account_id: str, **data: object) -> None:
    tx.emit(actor=principal.account_id, action=action, account_id=account_id, data=json.dumps(data))


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
    """One's own; for administrators, another account's or everybody's. With `sessions`, those of browsers, too."""
    owner = account_id or (None if everybody and principal.is_admin else principal.account_id)
    if owner is not None:
        access.check_owner(principal, owner, what="account")
    kinds = [_KEY, _SESSION] if sessions else [_KEY]
    rows = await hub.store.read(
        lambda connection: account_rows.list_keys(
            connection, account_id=owner, kinds=kinds, after=after or "", limit=limit
        )
    )
    views = [key_view(row, principal, now_ms=hub.now_ms()) for row in rows]
    return KeyPage(keys=views, next=views[-1].id if len(views) == limit else None)


async def rotate(
    hub: Hub, principal: Principal, key_id: str, *, request: KeyRotateRequest, remembered: Remembered
) -> NewKeyReply:
    """A successor with the same name, scopes and length of life. Both are good until the overlap ends.

    One that replaces itself, or that ends earlier than the successor would, hands on only its own end.
    """
    new_id, secret = hub.clock.entropy(8).hex(), hub.clock.entropy(32)
    hash_, settings = hub.identity.secrets.digest(secret.hex()), hub.settings

    def effect(tx: Tx) -> NewKeyReply:
        old = _live(tx, principal, key_id)
        check_not_impersonating(tx, principal, settings=settings, owner=old.account_id)
        scopes = access.scopes_from_text(old.scopes)
        access.check_scopes_within(principal, scopes)
        life_ms = None if old.expires_at_ms is None else old.expires_at_ms - old.created_at_ms
        lives_s = request.expires_in_s or (None if life_ms is None else life_ms / 1000)
        explicit = request.expires_in_s is not None
        expires_at_ms = _ends_with_maker(tx, principal, _after(tx.now_ms, lives_s), explicit=explicit)
        key = {"id": new_id, "account_id": old.account_id, "name": old.name, "expires_at_ms": expires_at_ms}
        reply = _insert(tx, key, secret=secret, hash_=hash_, scopes=scopes)
        ends_ms = tx.now_ms + round(request.overlap_s * 1000)
        account_rows.end_key(tx, key_id, at_ms=min(ends_ms, old.expires_at_ms or ends_ms))
        _emit(tx, principal, "key.rotated", account_id=old.account_id, key_id=key_id, successor=new_id)
        tx.touch(KEYS_TOPIC)
        return reply

    return await hub.store.write(
        lambda tx: once(tx, remembered, lambda: effect(tx), model=NewKeyReply, sealed=True)
    )


def _live(tx: Tx, principal: Principal, key_id: str) -> KeyRow:
    row = account_rows.get_key(tx.connection, key_id)
    access.check_owner(
        principal, row.account_id if row is not None and row.kind == _KEY else None, what="key"
    )
    assert row is not None
    if row.revoked_at_ms is not None or (row.expires_at_ms or tx.now_ms + 1) <= tx.now_ms:
        raise Conflict("This key has expired; create a new one.")
    return row


async def revoke(hub: Hub, principal: Principal, key_id: str) -> None:
    """At once, here and on every hub of the pool."""

    def unit(tx: Tx) -> None:
        row = access.owned(principal, account_rows.get_key(tx.connection, key_id), what="key")
        if account_rows.revoke_key(tx, key_id):
            _emit(tx, principal, "key.revoked", account_id=row.account_id, key_id=key_id)
        tx.touch(KEYS_TOPIC)

    await hub.store.write(unit)


async def sign_out(hub: Hub, principal: Principal) -> None:
    """End the very credential that asks."""

    def unit(tx: Tx) -> None:
        if account_rows.revoke_key(tx, principal.key_id):
            _emit(
                tx, principal, "account.signed_out", account_id=principal.account_id, key_id=principal.key_id
            )
        tx.touch(KEYS_TOPIC)

    await hub.store.write(unit)


async def revoke_all(hub: Hub, principal: Principal, account_id: str | None, *, keep_this: bool) -> int:
    """Every key and every browser's session of the account; how many were good until now."""
    owner = account_id or principal.account_id
    access.check_owner(principal, owner, what="account")
    kept = principal.key_id if keep_this else ""

    def unit(tx: Tx) -> int:
        if account_rows.get_account(tx.connection, owner) is None:
            raise NotFound("There is no such account.", field="account_id")
        ended = account_rows.revoke_keys_of(tx, account_id=owner, but=kept)
        if ended:
            _emit(tx, principal, "account.signed_out_everywhere", account_id=owner, ended=ended)
        tx.touch(KEYS_TOPIC)
        return ended

    return await hub.store.write(unit)
