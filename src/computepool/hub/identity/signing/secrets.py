"""The hub's signing keys and the pepper of all hashes. They are in the store, shared by the hubs of a pool."""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.hub.clock import Clock
from computepool.hub.db.session import Store, Tx
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.signing import rows as signing_key_rows
from computepool.hub.identity.signing.rows import SigningKeyRow
from computepool.protocol.hub_keys import Endorsement, HubKeys, endorsed_text
from computepool.protocol.tokens import b64, public_text, unb64


class Secrets:
    """The keys as this hub last read them; `adopt` updates them."""

    def __init__(self, pepper: str, rows: Sequence[SigningKeyRow]) -> None:
        self._pepper = unb64(pepper)
        self.adopt(rows)

    def adopt(self, rows: Sequence[SigningKeyRow]) -> None:
        """`rows`: all signing keys, in their order."""
        current = [row for row in rows if row.starts_at_ms is not None][-1]
        assert current.private_key is not None
        assert current.starts_at_ms is not None
        self.kid: str = current.kid  #: it signs
        self.since_ms: int = current.starts_at_ms
        self.signing_key = Ed25519PrivateKey.from_private_bytes(unb64(current.private_key))
        self.published = _publish(rows, self.signing_key, kid=self.kid)

    def digest(self, secret: str) -> str:
        """The stored form of a key or code: a leaked table gives no access."""
        return hmac.new(self._pepper, secret.encode(), hashlib.sha256).hexdigest()

    def matches(self, secret: str, digest: str) -> bool:
        return hmac.compare_digest(self.digest(secret), digest)


def _publish(rows: Sequence[SigningKeyRow], key: Ed25519PrivateKey, *, kid: str) -> HubKeys:
    """The published list, signed once a change rather than once a request."""
    coming = [row.kid for row in rows if row.starts_at_ms is None]
    retired = [row for row in rows if row.private_key is None]
    published = HubKeys(
        keys={row.kid: row.public_key for row in rows if row.private_key is not None},
        current=kid,
        next=coming[0] if coming else None,
        retired={row.kid: row.public_key for row in retired},
        endorsements=[
            Endorsement(kid=row.kid, key=row.public_key, by=row.endorsed_by, signature=row.endorsement)
            for row in rows
            if row.endorsed_by is not None
        ],
        # Every key passes three stages: created, signing, retired.
        version=len(rows) + sum(row.starts_at_ms is not None for row in rows) + len(retired),
    )
    return published.model_copy(update={"signature": b64(key.sign(published.signed_text()))})


def load_secrets(store: Store, clock: Clock) -> Secrets:
    """Read the secrets; create them on the first start."""
    rows = store.read_now(signing_key_rows.list_keys)
    values = store.read_now(account_rows.get_secrets)
    if "pepper" not in values or not any(row.starts_at_ms is None for row in rows):
        store.write_now(lambda tx: _create(tx, clock))
        rows = store.read_now(signing_key_rows.list_keys)
        values = store.read_now(account_rows.get_secrets)
    return Secrets(values["pepper"], rows)


def _create(tx: Tx, clock: Clock) -> None:
    """Unique names and numbers decide between hubs that start together."""
    account_rows.insert_secret(tx, name="pepper", value=b64(clock.entropy(32)))
    rows = signing_key_rows.list_keys(tx.connection)
    if not rows:
        kid, private = clock.entropy(4).hex(), Ed25519PrivateKey.from_private_bytes(clock.entropy(32))
        signing_key_rows.insert_key(
            tx,
            kid=kid,
            number=1,
            public_key=public_text(private),
            private_key=b64(private.private_bytes_raw()),
            starts_at_ms=tx.now_ms,
        )
        rows = signing_key_rows.list_keys(tx.connection)
    if not any(row.starts_at_ms is None for row in rows):
        add_next(tx, clock, after=rows[-1])


def add_next(tx: Tx, clock: Clock, *, after: SigningKeyRow) -> None:
    """Create the next key, endorsed by the current one."""
    private = Ed25519PrivateKey.from_private_bytes(clock.entropy(32))
    kid, public = clock.entropy(4).hex(), public_text(private)
    assert after.private_key is not None
    signer = Ed25519PrivateKey.from_private_bytes(unb64(after.private_key))
    signing_key_rows.insert_key(
        tx,
        kid=kid,
        number=after.number + 1,
        public_key=public,
        private_key=b64(private.private_bytes_raw()),
        endorsed_by=after.kid,
        endorsement=b64(signer.sign(endorsed_text(kid, public))),
    )


def make_key(key_id: str, secret: bytes) -> str:
    """`cp_<id>_<secret>_<checksum>`: secret scanners recognise it, and the checksum tells a typo from a wrong key."""
    body = f"cp_{key_id}_{secret.hex()}"
    return f"{body}_{zlib.crc32(body.encode()):08x}"


def parse_key(text: str) -> tuple[str, str] | None:
    """(id, secret); None if it is no key of ours or was mistyped."""
    body, _, checksum = text.rpartition("_")
    parts = body.split("_")
    if len(parts) != 3 or parts[0] != "cp" or f"{zlib.crc32(body.encode()):08x}" != checksum:
        return None
    return parts[1], parts[2]
