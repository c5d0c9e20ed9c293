"""Cursors of pages. A sealed cursor hides the number of an event from everyone but the hubs of this pool.

Events have one numbering for the whole pool, so a number would reveal to the millisecond when something happened.
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from computepool.core.errors import BadRequest
from computepool.hub.context import Hub
from computepool.protocol.tokens import unb64

_SIZE = 16  #: one block: half of it is the number, half marks what it belongs to


def wrong() -> BadRequest:
    return BadRequest("The cursor is invalid; use the one from the previous page.", field="after")


def read_plain(cursor: str) -> str:
    """The text that `b64` encoded; empty if the cursor is invalid."""
    try:
        return unb64(cursor).decode()
    except ValueError:
        return ""


def seal(hub: Hub, seq: int, *, of: str) -> str:
    cipher = _cipher(hub).encryptor()
    return (cipher.update(_mark(of) + seq.to_bytes(_SIZE // 2, "big")) + cipher.finalize()).hex()


def read(hub: Hub, cursor: str, *, of: str) -> int | None:
    """None: it was made elsewhere, or for another list."""
    try:
        sealed = bytes.fromhex(cursor)
    except ValueError:
        return None
    if len(sealed) != _SIZE:
        return None
    cipher = _cipher(hub).decryptor()
    plain = cipher.update(sealed) + cipher.finalize()
    return int.from_bytes(plain[_SIZE // 2 :], "big") if plain.startswith(_mark(of)) else None


def _cipher(hub: Hub) -> Cipher[ECB]:
    # A single block that never repeats under one key needs no mode.
    return Cipher(AES(bytes.fromhex(hub.identity.secrets.digest("cursors"))), ECB())


def _mark(of: str) -> bytes:
    return hashlib.sha256(of.encode()).digest()[: _SIZE // 2]
