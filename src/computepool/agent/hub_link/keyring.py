"""Key changes: the hub's keys, which must follow from the pinned ones, and the node's own.

Only this module changes the Identity.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.agent.context import Node
from computepool.agent.hub_link import identity as identities
from computepool.core.errors import ComputePoolError, Unauthenticated
from computepool.protocol.hub_keys import rekey_text, verify_published
from computepool.protocol.nodes.nodes import RekeyRequest
from computepool.protocol.tokens import b64, public_key, public_text, token_kid

_log = logging.getLogger(__name__)

#: Between two requests for the hub's keys because of an unknown one, at least.
ASK_S = 60.0
_NEXT_KEY = "node.next.key"


@dataclass(eq=False)
class Keyring:
    node: Node
    path: Path  #: of the identity

    def __post_init__(self) -> None:
        self._requested_at: float | None = None

    # ------------------------------------------------------------ the hub's keys
    async def learn_key_of(self, token: str | None) -> None:
        """Before a job token is verified: fetch the hub's keys if its key is unknown. Known keys stay if that fails."""
        kid = token_kid(token or "")
        now = self.node.clock.steady()
        if kid is None or kid in self.node.identity.hub_keys:
            return
        if self._requested_at is not None and now - self._requested_at < ASK_S:
            return
        self._requested_at = now
        try:
            await self.refresh()
        except ComputePoolError as error:
            _log.error("the hub signs with an unknown key %s: %s", kid, error.detail)

    async def refresh(self) -> None:
        """Fetch the hub's keys. Raises Unauthenticated, and changes nothing, if pinned keys do not vouch for them."""
        identity = self.node.identity
        pinned = {kid: public_text(key) for kid, key in identity.hub_keys.items()}
        found = verify_published(pinned, await self.node.client.hub_keys(), seen=identity.hub_keys_version)
        identity.hub_keys = {kid: public_key(text) for kid, text in found.keys.items()}
        identity.hub_keys_version = found.version
        self._save()  # If that fails, the next start fetches them again and follows them from the old ones.
        _log.info("the hub signs with %s; trusted keys: %s", found.current, ", ".join(sorted(found.keys)))

    # ------------------------------------------------------------ the node's key
    @property
    def _next_key_path(self) -> Path:
        return self.path.with_name(_NEXT_KEY)

    async def rekey(self) -> int:
        """Replace this node's key; returns until when (ms) the hub accepts the old one.

        The new key is saved before the hub learns of it: if the reply is lost, the same key is sent again.
        """
        identity, new = self.node.identity, identities.load_key(self._next_key_path)
        text = rekey_text(identity.node_id, public_text(new))
        request = RekeyRequest(public_key=public_text(new), proof=b64(new.sign(text)), endorsement=identity.sign(text))
        reply = await self.node.client.rekey(request)
        self._use(new)
        _log.info("this node has a new key")
        return reply.old_accepted_until_ms

    def _use(self, new: Ed25519PrivateKey) -> None:
        """The hub knows the key by now. If it cannot be saved, the next start repeats this."""
        self.node.identity.key = new
        if self._save():
            with contextlib.suppress(OSError):
                self._next_key_path.unlink()
        self.node.client.identify(self.node.identity)

    def _save(self) -> bool:
        try:
            identities.save(self.node.identity, self.path)
        except OSError as error:
            _log.error("cannot save changed keys: %s", error)
            return False
        return True

    async def resume(self) -> None:
        """At start-up: finish a key change that was interrupted."""
        if not self._next_key_path.exists():
            return
        try:
            await self.rekey()
        except Unauthenticated:
            # The hub accepted the new key long ago, and the old one has expired.
            self._use(identities.load_key(self._next_key_path))
        except ComputePoolError as error:
            _log.warning("this node's key change will be retried: %s", error.detail)
