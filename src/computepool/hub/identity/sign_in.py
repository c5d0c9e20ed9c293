"""Signing in: who a key, a cookie or a node's token stands for; one-time codes; accounts. Keys are made in keys.py."""

from __future__ import annotations

import re
from dataclasses import dataclass

from computepool.core.errors import BadRequest, NotFound, Unauthenticated
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.identity.hub_secrets import make_key, parse_key
from computepool.hub.identity.rows import AccountRow
from computepool.hub.nodes import rows as node_rows
from computepool.hub.snapshot import Snapshot
from computepool.protocol.accounts import (
    AccountPage,
    AccountView,
    SignInReply,
    SignInRequest,
)
from computepool.protocol.tokens import node_token_subject, public_key, signed_by, verify_node_token

HUB_AUDIENCE = "computepool"
_CACHE_MS = 10_000
_CACHE_MAX = 200_000
KEYS_TOPIC = "keys"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class _Known:
    principal: Principal | NodePrincipal
    until_ms: int


class WrongCredential(Unauthenticated):
    """Nobody has, or had, such a key."""


class WrongCode(BadRequest):
    """The code is wrong, used or expired."""


class Authenticator:
    """Turns credentials into principals; remembers good ones briefly, and forgets all when any key is revoked."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._known: dict[str, _Known] = {}
        self._used: dict[str, int] = {}
        self._forgotten = 0  #: how often; what was looked up before the newest is not remembered after it

    def forget(self) -> None:
        self._known.clear()
        self._forgotten += 1

    def take_used(self) -> dict[str, int]:
        used, self._used = self._used, {}
        return used

    def peek_node(self, token: str) -> NodePrincipal | None:
        """The hot path of polls: no await, no cryptography."""
        known = self._known.get(token)
        if (
            known is None
            or known.until_ms <= self._hub.now_ms()
            or not isinstance(known.principal, NodePrincipal)
        ):
            return None
        return known.principal

    async def person(self, key: str) -> Principal:
        known = self._known.get(key)
        now_ms = self._hub.now_ms()
        if known is not None and known.until_ms > now_ms and isinstance(known.principal, Principal):
            return known.principal
        parsed = parse_key(key)
        if parsed is None or not _ID.fullmatch(parsed[0]):
            raise Unauthenticated("This is not a valid key. Run `pool login`, or copy the key again.")
        key_id, secret = parsed
        forgotten = self._forgotten
        row = await self._hub.store.read(lambda connection: account_rows.get_key(connection, key_id))
        if row is None or not self._hub.secrets.matches(secret, row.hash):
            raise WrongCredential("This key is not known to the hub.")
        if row.revoked_at_ms is not None:
            raise Unauthenticated("This key was revoked.")
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            raise Unauthenticated("This key has expired; make a new one with `pool keys create`.")
        scopes = access.scopes_from_text(row.scopes)
        principal = Principal(
            account_id=row.account_id,
            name=row.account_name,
            roles=access.usable_roles(frozenset(row.roles.split(",")), scopes),
            key_id=row.id,
            scopes=scopes,
        )
        self._used[row.id] = now_ms
        until_ms = min(now_ms + _CACHE_MS, row.expires_at_ms or now_ms + _CACHE_MS)
        self._remember(key, _Known(principal, until_ms), forgotten)
        return principal

    async def node(self, token: str) -> NodePrincipal:
        if (known := self.peek_node(token)) is not None:
            return known
        node_id = node_token_subject(token)
        if not _ID.fullmatch(node_id):
            raise Unauthenticated("The node token's subject is not a node's id.")
        forgotten = self._forgotten
        row = await self._hub.store.read(lambda connection: node_rows.get_node(connection, node_id))
        if row is None:
            raise Unauthenticated(
                "This node is not enrolled here; enrol it with a code from `pool node code`."
            )
        now_ms = self._hub.now_ms()
        key_until_ms = row.previous_key_until_ms or 0
        previous = row.previous_key if key_until_ms > now_ms else None
        expires_s = _verified(token, row.public_key, previous, now_s=now_ms // 1000)
        if row.state == NodeState.REVOKED:
            raise Unauthenticated("This node's key was revoked by its owner or the operator.")
        principal = NodePrincipal(
            node_id=node_id, owner=row.account_id, public_key=row.public_key, previous_key=previous
        )
        until_ms = expires_s * 1000 if previous is None else min(expires_s * 1000, key_until_ms)
        self._remember(token, _Known(principal, until_ms), forgotten)
        return principal

    def _remember(self, credential: str, known: _Known, forgotten: int) -> None:
        if forgotten != self._forgotten:
            return  # a key was revoked while this one was looked up: it may have been this one
        if len(self._known) >= _CACHE_MAX:
            self._known.clear()
        self._known[credential] = known


def _verified(token: str, key: str, previous: str | None, *, now_s: int) -> int:
    """When the token ends; signed with the node's key, or with the one before it while that is accepted."""
    try:
        return verify_node_token(token, key=public_key(key), hub=HUB_AUDIENCE, now_s=now_s)
    except Unauthenticated:
        if previous is None:
            raise
        return verify_node_token(token, key=public_key(previous), hub=HUB_AUDIENCE, now_s=now_s)


def signed_by_node(principal: NodePrincipal, signature: str, message: bytes) -> bool:
    keys = (principal.public_key, principal.previous_key)
    return any(signed_by(public_key(key), signature, message) for key in keys if key is not None)


# accounts


def account_view(row: AccountRow) -> AccountView:
    return AccountView(
        id=row.id,
        name=row.name,
        roles=row.roles.split(","),
        created_at_ms=row.created_at_ms,
        jobs_open_max=row.jobs_open_max,
        spend_per_day_max=row.spend_per_day_max,
        artifact_bytes_max=row.artifact_bytes_max,
        artifact_keep_s=row.artifact_keep_s,
    )


async def list_accounts(hub: Hub, *, after: str | None, limit: int) -> AccountPage:
    rows = await hub.store.read(
        lambda connection: account_rows.list_accounts(connection, after=after or "", limit=limit)
    )
    views = [account_view(row) for row in rows]
    return AccountPage(accounts=views, next=views[-1].id if len(views) == limit else None)


async def get_account(hub: Hub, account_id: str) -> AccountView:
    row = await hub.store.read(lambda connection: account_rows.get_account(connection, account_id))
    if row is None:
        raise NotFound("There is no such account.")
    return account_view(row)


# one-time codes


def issue_code(
    tx: Tx, snapshot: Snapshot, *, purpose: str, account_id: str, life_s: float, uses_max: int | None = None
) -> tuple[str, int]:
    """128 random bits, written in groups a person can read aloud; only its hash is kept."""
    code = snapshot.clock.entropy(16).hex()
    expires_at_ms = tx.now_ms + round(life_s * 1000)
    account_rows.insert_code(
        tx,
        code_hash=snapshot.secrets.digest(code),
        purpose=purpose,
        account_id=account_id,
        expires_at_ms=expires_at_ms,
        uses_max=uses_max,
    )
    return code, expires_at_ms


async def sign_in(hub: Hub, request: SignInRequest) -> SignInReply:
    """Exchange a one-time code for a key, or for the secret of a browser session."""
    life_s = hub.settings.cookie_life_s if request.kind == "cookie" else None
    key_id, secret = hub.clock.entropy(8).hex(), hub.clock.entropy(32)
    code_hash, hash_ = hub.secrets.digest(request.code), hub.secrets.digest(secret.hex())

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
            expires_at_ms=None if life_s is None else tx.now_ms + round(life_s * 1000),
        )
        tx.emit(actor=account.id, action="account.signed_in", account_id=account.id)
        return SignInReply(account=account_view(account), key=make_key(key_id, secret))

    return await hub.store.write(unit)
