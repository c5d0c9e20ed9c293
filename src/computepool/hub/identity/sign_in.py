"""Accounts, and signing in with one-time codes. Keys are created in keys.py and looked up in authenticator.py."""

from __future__ import annotations

from computepool.core.errors import BadRequest, Forbidden
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access, keys, rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.identity.rows import AccountRow
from computepool.hub.identity.signing.secrets import make_key
from computepool.hub.snapshot import Snapshot, take
from computepool.protocol.accounts import AccountPage, AccountView, LinkReply, SignInReply, SignInRequest


class WrongCode(BadRequest):
    """The code is wrong, used or expired."""


def account_view(row: AccountRow) -> AccountView:
    return AccountView.from_attributes(row, roles=row.roles.split(","))


async def list_accounts(hub: Hub, *, after: str | None, limit: int) -> AccountPage:
    rows = await hub.store.read(account_rows.list_accounts, after=after or "", limit=limit)
    views = [account_view(row) for row in rows]
    return AccountPage(accounts=views, next=views[-1].id if len(views) == limit else None)


async def get_account(hub: Hub, account_id: str) -> AccountView:
    row = await hub.store.read(account_rows.get_account, account_id)
    return account_view(access.require_found(row, what="account"))


def issue_code(
    tx: Tx, snapshot: Snapshot, *, purpose: str, account_id: str, lifetime_s: float, uses_max: int | None = None
) -> tuple[str, int]:
    """128 random bits in hexadecimal; only the hash is stored. Returns the code and its expiry."""
    code = snapshot.clock.entropy(16).hex()
    expires_at_ms = tx.now_ms + round(lifetime_s * 1000)
    account_rows.insert_code(
        tx,
        hash=snapshot.secrets.digest(code),
        purpose=purpose,
        account_id=account_id,
        expires_at_ms=expires_at_ms,
        uses_max=uses_max,
    )
    return code, expires_at_ms


async def create_link(hub: Hub, admin: Principal, account_id: str) -> LinkReply:
    """Create a sign-in link that works once. Whoever opens it has all rights of the account, so the key that creates it
    must have no limits either."""
    access.check_not_pools(account_id)
    if admin.scopes is not None:
        raise Forbidden(
            "A link grants everything the account may do, so creating one needs a key without scopes, or a browser session."
        )

    snapshot, lifetime_s = take(hub), hub.settings.signin_code_lifetime_s

    def unit(tx: Tx) -> tuple[str, int]:
        access.require_found(account_rows.get_account(tx.connection, account_id), what="account")
        keys.check_not_impersonating(tx, admin, owner=account_id, settings=snapshot.settings)
        maker = account_rows.get_key(tx.connection, admin.key_id)
        if maker is not None and maker.kind == "key" and maker.expires_at_ms is not None:
            raise Forbidden(
                "This key expires but a link's key need not; use a key without expiry, or a browser session."
            )
        code, expires_at_ms = issue_code(tx, snapshot, purpose="signin", account_id=account_id, lifetime_s=lifetime_s)
        data = {"expires_at_ms": expires_at_ms}
        tx.emit(actor=admin.account_id, action="account.link_issued", account_id=account_id, data=data)
        return code, expires_at_ms

    code, expires_at_ms = await hub.store.write(unit)
    link = f"{hub.settings.address}/signin?code={code}"
    return LinkReply(account_id=account_id, link=link, code=code, expires_at_ms=expires_at_ms)


async def sign_in(hub: Hub, request: SignInRequest) -> SignInReply:
    """Exchange a one-time code for a key, or for the secret of a browser session."""
    lifetime_s = hub.settings.cookie_lifetime_s if request.kind == "cookie" else None
    key_id, secret = hub.clock.entropy(8).hex(), hub.clock.entropy(32)
    code_hash, hash_ = hub.identity.secrets.digest(request.code), hub.identity.secrets.digest(secret.hex())

    def unit(tx: Tx) -> SignInReply:
        account_id = account_rows.use_code(tx, code_hash=code_hash, purpose="signin")
        account = account_rows.get_account(tx.connection, account_id) if account_id is not None else None
        if account is None:
            raise WrongCode("The code is wrong, used or expired; ask for a new one.", field="code")
        account_rows.insert_key(
            tx,
            id=key_id,
            account_id=account.id,
            kind=request.kind,
            name=request.name,
            hash=hash_,
            expires_at_ms=None if lifetime_s is None else tx.now_ms + round(lifetime_s * 1000),
        )
        tx.emit(actor=account.id, action="account.signed_in", account_id=account.id)
        return SignInReply(account=account_view(account), key=make_key(key_id, secret))

    return await hub.store.write(unit)
