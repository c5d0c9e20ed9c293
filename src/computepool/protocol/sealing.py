"""Sealing: what a job brings back, encrypted to its submitter's key, so that nobody in between can read it.

A sealed stream is `MAGIC`, the first 8 bytes of the SHA-256 of the receiver's public key, an X25519 key made for this
stream alone, and chunks of 64 KiB, each ChaCha20-Poly1305 with 16 more bytes. The chunks' key comes from both keys by
HKDF-SHA256 over the whole header. Their nonces count, and say which chunk is the last (the STREAM construction): what was
cut off, changed, repeated or put in another order does not open. Memory is flat.

Sealing hides; it does not prove who sealed: the public key is known to the hub and the nodes.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from io import BytesIO
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MAGIC: Final = b"CPSEAL1\n"
CHUNK: Final = 64 * 1024
TAG: Final = 16
KEY_ID: Final = 8
KEY: Final = 32
HEADER: Final = len(MAGIC) + KEY_ID + KEY
#: First letters of a sealed text among the words of a job: its error, its log.
TEXT_PREFIX: Final = "cpsealed:"
_INFO: Final = b"computepool sealing 1"

Read = Callable[[int], bytes]
Write = Callable[[bytes], object]
#: The private key with this id; raises SealError where there is none.
FindKey = Callable[[bytes], X25519PrivateKey]


class SealError(ValueError):
    """Not sealed, not for a key that is here, or not as it was sealed."""


def public_text(key: X25519PrivateKey) -> str:
    return b64encode(key.public_key().public_bytes_raw()).decode("ascii")


def public_bytes(text: str) -> bytes:
    """Raises ValueError."""
    data = b64decode(text, validate=True)
    if len(data) != KEY:
        raise ValueError("a public key for sealing has 32 bytes, as base64")
    return data


def key_id(public: bytes) -> bytes:
    return hashlib.sha256(public).digest()[:KEY_ID]


def is_sealed(start: bytes) -> bool:
    return start[: len(MAGIC)] == MAGIC


def sealed_size(size: int) -> int:
    return HEADER + size + TAG * max(1, -(-size // CHUNK))


def seal(read: Read, write: Write, *, to: bytes, ephemeral: X25519PrivateKey | None = None) -> None:
    """All of `read` into `write`. `ephemeral` is for tests: two streams with one key would betray both."""
    own = ephemeral or X25519PrivateKey.generate()
    header = MAGIC + key_id(to) + own.public_key().public_bytes_raw()
    cipher = _cipher(own, to, to=to, header=header)
    write(header)
    number, chunk = 0, _exactly(read, CHUNK)
    while True:
        following = _exactly(read, CHUNK) if len(chunk) == CHUNK else b""
        write(cipher.encrypt(_nonce(number, last=not following), chunk, None))
        if not following:
            return
        number, chunk = number + 1, following


def unseal(read: Read, write: Write, *, find_key: FindKey) -> None:
    """The plain text into `write`, chunk by chunk; use it only when this returns. Raises SealError."""
    header = _exactly(read, HEADER)
    if not is_sealed(header) or len(header) < HEADER:
        raise SealError("This is not sealed, or only its beginning is here.")
    own = find_key(header[len(MAGIC) : len(MAGIC) + KEY_ID])
    public = own.public_key().public_bytes_raw()
    try:
        cipher = _cipher(own, header[-KEY:], to=public, header=header)
    except ValueError:
        raise SealError(_DAMAGED) from None
    number, chunk = 0, _exactly(read, CHUNK + TAG)
    while True:
        following = _exactly(read, CHUNK + TAG) if len(chunk) == CHUNK + TAG else b""
        if len(chunk) < TAG or (number and len(chunk) == TAG):
            raise SealError(_DAMAGED)
        try:
            plain = cipher.decrypt(_nonce(number, last=not following), chunk, None)
        except InvalidTag:
            raise SealError(_DAMAGED) from None
        write(plain)
        if not following:
            return
        number, chunk = number + 1, following


_DAMAGED = "This is not as it was sealed: cut short, changed, or put together from parts."


def _cipher(private: X25519PrivateKey, other: bytes, /, *, to: bytes, header: bytes) -> ChaCha20Poly1305:
    """Refuses (ValueError) a public key that leads to nothing secret."""
    shared = private.exchange(X25519PublicKey.from_public_bytes(other))
    key = HKDF(SHA256(), 32, salt=to, info=_INFO + header).derive(shared)
    return ChaCha20Poly1305(key)


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\x01" if last else b"\x00")


def _exactly(read: Read, size: int) -> bytes:
    """`size` bytes, fewer only at the end."""
    data = read(size)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (more := read(missing)):
        parts.append(more)
        missing -= len(more)
    return b"".join(parts)


def seal_bytes(data: bytes, *, to: bytes) -> bytes:
    sink = BytesIO()
    seal(BytesIO(data).read, sink.write, to=to)
    return sink.getvalue()


def unseal_bytes(data: bytes, *, find_key: FindKey) -> bytes:
    sink = BytesIO()
    unseal(BytesIO(data).read, sink.write, find_key=find_key)
    return sink.getvalue()


def seal_text(text: str, *, to: bytes) -> str:
    data = seal_bytes(text.encode("utf-8", "replace"), to=to)
    return TEXT_PREFIX + b64encode(data).decode("ascii")


def unseal_text(text: str, *, find_key: FindKey) -> str:
    try:
        data = b64decode(text.removeprefix(TEXT_PREFIX), validate=True)
    except ValueError:
        raise SealError(_DAMAGED) from None
    return unseal_bytes(data, find_key=find_key).decode("utf-8", "replace")
