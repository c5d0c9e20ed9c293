"""Authentication: from a key, a cookie or a node's token to the principal it stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from computepool.core.errors import Unauthenticated
from computepool.core.resources import NodeState
from computepool.hub.batching import Batcher
from computepool.hub.clock import Clock
from computepool.hub.db.session import Store
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.identity.signing.secrets import Secrets, parse_key
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.rows import NodeKeysRow
from computepool.protocol.tokens import is_signed_by, node_token_subject, public_key, verify_node_token

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
    """No account has, or had, such a key."""


class Authenticator:
    """Caches valid credentials briefly, and forgets all of them when any key is revoked."""

    def __init__(self, store: Store, clock: Clock, secrets: Secrets) -> None:
        self._store, self._clock, self._secrets = store, clock, secrets
        self._known: dict[str, _Known] = {}
        self._used: dict[str, int] = {}
        self._looked_up: Batcher[str, NodeKeysRow] = Batcher()
        self._generation = 0  #: counts `forget`; a look-up that began before one is not cached after it

    def forget(self) -> None:
        self._known.clear()
        self._generation += 1

    def take_used(self) -> dict[str, int]:
        used, self._used = self._used, {}
        return used

    def peek_node(self, token: str) -> NodePrincipal | None:
        """The hot path of polls: no await and no cryptography."""
        known = self._known.get(token)
        if known is None or known.until_ms <= self._clock.now_ms() or not isinstance(known.principal, NodePrincipal):
            return None
        return known.principal

    async def person(self, key: str) -> Principal:
        known = self._known.get(key)
        now_ms = self._clock.now_ms()
        if known is not None and known.until_ms > now_ms and isinstance(known.principal, Principal):
            return known.principal
        parsed = parse_key(key)
        if parsed is None or not _ID.fullmatch(parsed[0]):
            raise Unauthenticated("This is not a valid key. Run `pool login`, or copy the key again.")
        key_id, secret = parsed
        generation = self._generation
        row = await self._store.read(account_rows.get_key, key_id)
        if row is None or not self._secrets.matches(secret, row.hash):
            raise WrongCredential("This key is not known to the hub.")
        if row.revoked_at_ms is not None:
            raise Unauthenticated("This key was revoked.")
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            raise Unauthenticated("This key has expired; create a new one with `pool keys create`.")
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
        self._remember(key, _Known(principal, until_ms), generation)
        return principal

    async def node(self, token: str) -> NodePrincipal:
        if (known := self.peek_node(token)) is not None:
            return known
        node_id = node_token_subject(token)
        if not _ID.fullmatch(node_id):
            raise Unauthenticated("The node token's subject is not a node's id.")
        generation = self._generation
        row = await self._looked_up.ask(node_id, node_id, self._look_up)
        now_ms = self._clock.now_ms()
        key_until_ms = row.previous_key_until_ms or 0
        previous = row.previous_key if key_until_ms > now_ms else None
        expires_s = _verify(token, row.public_key, previous, now_s=now_ms // 1000)
        if row.state == NodeState.REVOKED:
            raise Unauthenticated("This node's key was revoked by its owner or the operator.")
        principal = NodePrincipal(
            node_id=node_id, owner=row.account_id, public_key=row.public_key, previous_key=previous
        )
        until_ms = expires_s * 1000 if previous is None else min(expires_s * 1000, key_until_ms)
        self._remember(token, _Known(principal, until_ms), generation)
        return principal

    async def _look_up(self, node_ids: list[str]) -> list[NodeKeysRow | Exception]:
        """Batched: after a restart of the hub all nodes call at once."""
        rows = await self._store.read(node_rows.get_keys, node_ids)
        unknown = "This node is not enrolled here; enrol it with a code from `pool node code`."
        return [rows.get(node_id) or Unauthenticated(unknown) for node_id in node_ids]

    def _remember(self, credential: str, known: _Known, generation: int) -> None:
        if generation != self._generation:
            return  # a key was revoked during the look-up: it may be this one
        if len(self._known) >= _CACHE_MAX:
            self._known.clear()
        self._known[credential] = known


def _verify(token: str, key: str, previous: str | None, *, now_s: int) -> int:
    """Check the signature by the node's key, or by its previous one while that is accepted. Returns the token's end."""
    try:
        return verify_node_token(token, key=public_key(key), hub=HUB_AUDIENCE, now_s=now_s)
    except Unauthenticated:
        if previous is None:
            raise
        return verify_node_token(token, key=public_key(previous), hub=HUB_AUDIENCE, now_s=now_s)


def is_signed_by_node(principal: NodePrincipal, signature: str, message: bytes) -> bool:
    keys = (principal.public_key, principal.previous_key)
    return any(is_signed_by(public_key(key), signature, message) for key in keys if key is not None)
