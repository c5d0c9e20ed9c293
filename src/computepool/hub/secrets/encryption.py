"""Encryption of secrets at rest, with keys derived from the hub's signing keys and the setting `secrets_key`.

Each secret records the signing key of its encryption. When the hub's key rotates, its secrets are encrypted anew; the
private half of a key is kept until none is left. Without `secrets_key`, everything needed to read a secret is in the
database; with it, a copy of the database reveals nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from computepool.hub.clock import Clock
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity.signing import rows as signing_key_rows
from computepool.hub.secrets import rows
from computepool.hub.secrets.rows import SecretRow
from computepool.hub.settings import Settings
from computepool.protocol.tokens import b64, unb64

_log = logging.getLogger(__name__)
_INFO = b"computepool secrets at rest 1"
_NONCE = 12
#: Secrets that one transaction encrypts anew.
_BATCH = 200


class Unreadable(Exception):
    """A value was encrypted under another setting `secrets_key`."""


class Cipher:
    """The hub's keys, as one transaction reads them."""

    def __init__(self, connection: Connection, settings: Settings) -> None:
        found = [row for row in signing_key_rows.list_keys(connection) if row.private_key is not None]
        self.kid = [row.kid for row in found if row.starts_at_ms is not None][-1]  #: it encrypts
        self.kids = frozenset(row.kid for row in found)
        self._private = {row.kid: unb64(row.private_key or "") for row in found}
        self._salt = settings.secrets_key.get_secret_value().encode()

    def encrypt(self, value: str, *, account_id: str, name: str, clock: Clock) -> str:
        nonce, about = clock.entropy(_NONCE), _about(account_id, name, self.kid)
        return b64(nonce + self._key(self.kid).encrypt(nonce, value.encode(), about))

    def decrypt(self, row: SecretRow) -> str:
        """Raises Unreadable if the hub has another key now."""
        data = unb64(row.value)
        try:
            about = _about(row.account_id, row.name, row.kid)
            return self._key(row.kid).decrypt(data[:_NONCE], data[_NONCE:], about).decode()
        except (InvalidTag, KeyError, ValueError):
            raise Unreadable(
                f"the secret {row.name} of {row.account_id} was encrypted with another COMPUTEPOOL_SECRETS_KEY"
            ) from None

    def decrypt_all(self, found: Iterable[SecretRow]) -> dict[str, str]:
        """By name, those that this hub can read."""
        values: dict[str, str] = {}
        for row in found:
            try:
                values[row.name] = self.decrypt(row)
            except Unreadable as error:
                _log.warning("secrets.unreadable: %s", error)
        return values

    def _key(self, kid: str) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(HKDF(SHA256(), 32, salt=self._salt, info=_INFO).derive(self._private[kid]))


def _about(account_id: str, name: str, kid: str) -> bytes:
    """What a value belongs to, so that no row's value opens in another row."""
    return f"{account_id}\n{name}\n{kid}".encode()


async def renew(hub: Hub) -> int:
    """Encrypt with the current key what an earlier one encrypted. Returns the number of secrets."""
    published = hub.identity.secrets.published
    former = published.keys.keys() - {published.current, published.next}
    if not former:
        return 0
    settings, clock, done, after = hub.settings, hub.clock, 0, ("", "")

    def unit(tx: Tx) -> tuple[int, tuple[str, str] | None]:
        cipher = Cipher(tx.connection, settings)
        found = rows.of_keys(tx.connection, former - {cipher.kid}, after=after, limit=_BATCH)
        renewed = sum(_renew_row(tx, cipher, row, clock=clock) for row in found)
        return renewed, (found[-1].account_id, found[-1].name) if len(found) == _BATCH else None

    while True:
        renewed, last = await hub.store.write(unit)
        done += renewed
        if last is None:
            return done
        after = last


def _renew_row(tx: Tx, cipher: Cipher, row: SecretRow, *, clock: Clock) -> bool:
    try:
        value = cipher.decrypt(row)
    except Unreadable as error:
        _log.warning("secrets.unreadable: %s", error)
        return False
    encrypted = cipher.encrypt(value, account_id=row.account_id, name=row.name, clock=clock)
    return rows.replace_encryption(tx, row, value=encrypted, kid=cipher.kid)
