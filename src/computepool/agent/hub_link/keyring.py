"""Key changes: the hub's keys, which must follow from the pinned ones, and the node's own.

Everything that signs or verifies shares one Identity; only this module changes it.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.agent.clock import AgentClock
from computepool.agent.hub_link import identity as identities
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.hub_link.identity import Identity
from computepool.core.errors import ComputePoolError, Unauthenticated
from computepool.protocol.hub_keys import followed, rekey_text
from computepool.protocol.nodes.nodes import RekeyRequest
from computepool.protocol.tokens import b64, public_key, public_text, token_kid

_log = logging.getLogger(__name__)

#: An unknown key is asked about this often at most, whatever comes.
ASK_S = 60.0
_NEXT_KEY = "node.next.key"


class Keyring:
    def __init__(self, identity: Identity, client: HubClient, *, path: Path, clock: AgentClock) -> None:
        self._identity = identity
        self._client = client
        self._path = path
        self._clock = clock
        self._requested_at: float | None = None

    # ------------------------------------------------------------ the hub's keys
    async def know(self, token: str | None) -> None:
        """Before a job token is verified: fetch the hub's keys if its key is unknown. Known keys stay if that fails."""
        kid = token_kid(token or "")
        now = self._clock.steady()
        if kid is None or kid in self._identity.hub_keys:
            return
        if self._requested_at is not None and now - self._requested_at < ASK_S:
            return
        self._requested_at = now
        try:
            await self.follow()
        except ComputePoolError as error:
            _log.error("the hub signs with an unknown key %s: %s", kid, error.detail)

    async def follow(self) -> None:
        """Fetch the hub's keys. Raises Unauthenticated, and changes nothing, if pinned keys do not vouch for them."""
        identity = self._identity
        pinned = {kid: public_text(key) for kid, key in identity.hub_keys.items()}
        found = followed(pinned, await self._client.hub_keys(), seen=identity.hub_keys_version)
        identity.hub_keys = {kid: public_key(text) for kid, text in found.keys.items()}
        identity.hub_keys_version = found.version
        self._keep()  # Where that fails, the next start follows them again from the old ones.
        _log.info("the hub signs with %s; trusted keys: %s", found.current, ", ".join(sorted(found.keys)))

    # ------------------------------------------------------------ its own
    async def rekey(self) -> int:
        """Replace this node's key; returns until when (ms) the hub accepts the old one.

        The new key is saved before the hub learns of it: if the reply is lost, the same key is sent again.
        """
        waiting = self._path.with_name(_NEXT_KEY)
        new = identities.load_key(waiting)
        until_ms = await self._replace(new)
        self._use(new)
        _log.info("this node has a new key")
        return until_ms

    def _use(self, new: Ed25519PrivateKey) -> None:
        """The hub knows the key by now. If it cannot be saved, the next start repeats this."""
        self._identity.key = new
        if self._keep():
            with contextlib.suppress(OSError):
                self._path.with_name(_NEXT_KEY).unlink()
        self._client.identify(self._identity)

    def _keep(self) -> bool:
        try:
            identities.save(self._identity, self._path)
        except OSError as error:
            _log.error("cannot save changed keys: %s", error)
            return False
        return True

    async def _replace(self, new: Ed25519PrivateKey) -> int:
        identity = self._identity
        text = rekey_text(identity.node_id, public_text(new))
        request = RekeyRequest(
            public_key=public_text(new), proof=b64(new.sign(text)), endorsement=identity.sign(text)
        )
        reply = await self._client.rekey(request)
        return reply.old_accepted_until_ms

    async def resume(self) -> None:
        """At start-up: finish a key change that was interrupted."""
        waiting = self._path.with_name(_NEXT_KEY)
        if not waiting.exists():
            return
        try:
            await self.rekey()
        except Unauthenticated:
            # The hub accepted the new key long ago, and the old one has expired.
            self._use(identities.load_key(waiting))
        except ComputePoolError as error:
            _log.warning("this node's key change will be retried: %s", error.detail)
