"""The hub's signing keys and the pepper of all hashes. Kept in the store: hubs of one pool share them."""

from __future__ import annotations

import hashlib
import hmac
import zlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.hub.clock import Clock
from computepool.hub.store import accounts
from computepool.hub.store.session import Store, Tx
from computepool.protocol.tokens import b64, public_text, unb64

_KEY_PREFIX = "key:"


class Secrets:
    def __init__(self, values: dict[str, str]) -> None:
        self._pepper = unb64(values["pepper"])
        keys = {
            name.removeprefix(_KEY_PREFIX): value
            for name, value in values.items()
            if name.startswith(_KEY_PREFIX)
        }
        self._keys = {kid: Ed25519PrivateKey.from_private_bytes(unb64(value)) for kid, value in keys.items()}
        self.kid = list(self._keys)[-1]  #: newest last; it signs

    @property
    def signing_key(self) -> Ed25519PrivateKey:
        return self._keys[self.kid]

    def public_keys(self) -> dict[str, str]:
        return {kid: public_text(key) for kid, key in self._keys.items()}

    def digest(self, secret: str) -> str:
        """What is stored of a key or code: a leaked table gives nobody access."""
        return hmac.new(self._pepper, secret.encode(), hashlib.sha256).hexdigest()

    def matches(self, secret: str, digest: str) -> bool:
        return hmac.compare_digest(self.digest(secret), digest)


def load_secrets(store: Store, clock: Clock) -> Secrets:
    """Reads them, making them on the first start."""
    values = store.read_now(accounts.get_secrets)
    if "pepper" not in values or not any(name.startswith(_KEY_PREFIX) for name in values):
        kid = clock.entropy(4).hex()

        def create(tx: Tx) -> None:
            accounts.insert_secret(tx, name="pepper", value=b64(clock.entropy(32)))
            # One fixed name decides which of two hubs starting together made the first key.
            if not any(name.startswith(_KEY_PREFIX) for name in accounts.get_secrets(tx.connection)):
                accounts.insert_secret(tx, name=f"{_KEY_PREFIX}{kid}", value=b64(clock.entropy(32)))

        store.write_now(create)
        values = store.read_now(accounts.get_secrets)
    return Secrets(values)


def make_key(key_id: str, secret: bytes) -> str:
    """`cp_<id>_<secret>_<checksum>`: recognisable by secret scanners, and a typo is told from a wrong key."""
    body = f"cp_{key_id}_{secret.hex()}"
    return f"{body}_{zlib.crc32(body.encode()):08x}"


def parse_key(text: str) -> tuple[str, str] | None:
    """(id, secret), or None when it is not a key of ours or was mistyped."""
    body, _, checksum = text.rpartition("_")
    parts = body.split("_")
    if len(parts) != 3 or parts[0] != "cp" or f"{zlib.crc32(body.encode()):08x}" != checksum:
        return None
    return parts[1], parts[2]
