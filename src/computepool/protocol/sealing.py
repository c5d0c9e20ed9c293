"""Sealing: a job's results and outputs, encrypted to its submitter's key so that nobody in between can read them.

A sealed stream consists of `MAGIC`, the first 8 bytes of the SHA-256 of the receiver's public key, an ephemeral X25519
key, a description (`About`), and chunks of 64 KiB, each encrypted with ChaCha20-Poly1305, which adds 16 bytes. The key of
the chunks is derived from both keys by HKDF-SHA256 over the whole header, so that nothing can be passed off as something
else. The nonces count the chunks and mark the last one (the STREAM construction), so that truncated, changed, repeated or
reordered streams do not open. Memory use is constant.

Sealing provides confidentiality, not authenticity: hub and nodes know the public key, too.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    #: The private key with this id; raises SealError where there is none.
    FindKey = Callable[[bytes], X25519PrivateKey]

MAGIC: Final = b"CPSEAL2\n"
CHUNK: Final = 64 * 1024
TAG: Final = 16
KEY_ID: Final = 8
KEY: Final = 32
#: The length of the header before `About`, whose own length follows in two bytes.
HEADER: Final = len(MAGIC) + KEY_ID + KEY
ABOUT_BYTES_MAX: Final = 4096
#: What can be sealed. A file never opens as a text, or a text as a file.
RESULT, OUTPUT, ERROR, LOG = "result", "output", "error", "log"
#: What the hub seals to a node: the secrets of an attempt.
SECRETS: Final = "secrets"
_FILES: Final = (RESULT, OUTPUT)
#: The beginning of a sealed text: an error or a log.
TEXT_PREFIX: Final = "cpsealed:"
_INFO: Final = b"computepool sealing 2"

Read = Callable[[int], bytes]
Write = Callable[[bytes], object]


class SealError(ValueError):
    """The data is not sealed, not for an available key, or damaged."""


@dataclass(frozen=True, slots=True)
class About:
    """A description of the sealed data, which can be read without the key but not changed."""

    job_id: str
    purpose: str
    name: str = ""  #: for an output, its name; for a log, the attempt and the stream

    def pack(self) -> bytes:
        """Raises ValueError."""
        words = (self.purpose, self.job_id, self.name)
        data = "\n".join(words).encode()
        if len(data) > ABOUT_BYTES_MAX or any("\n" in word for word in words):
            raise ValueError("the name of sealed data is too long or has several lines")
        return len(data).to_bytes(2, "big") + data

    def __str__(self) -> str:
        return f"the {self.purpose} {self.name + ' ' if self.name else ''}of job {self.job_id}"


@dataclass(frozen=True, slots=True)
class Seal:
    """Seals the texts and files of a job to a public key."""

    to: bytes
    job_id: str

    def about(self, purpose: str, name: str = "") -> About:
        return About(self.job_id, purpose, name)

    def text(self, text: str, purpose: str, name: str = "") -> str:
        return seal_text(text, to=self.to, about=self.about(purpose, name))


def log_about(job_id: str, attempt_id: str, stream: str) -> About:
    return About(job_id, LOG, f"{attempt_id} {stream}")


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


def sealed_size(size: int, about: About) -> int:
    return HEADER + len(about.pack()) + size + TAG * max(1, -(-size // CHUNK))


def seal(read: Read, write: Write, *, to: bytes, about: About, ephemeral: X25519PrivateKey | None = None) -> None:
    """Seal everything from `read` into `write`. `ephemeral` is for tests: a reused key would reveal both streams."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    own = ephemeral or X25519PrivateKey.generate()
    header = MAGIC + key_id(to) + own.public_key().public_bytes_raw() + about.pack()
    cipher = _cipher(own, to, to=to, header=header)
    write(header)
    number, chunk = 0, _exactly(read, CHUNK)
    while True:
        following = _exactly(read, CHUNK) if len(chunk) == CHUNK else b""
        write(cipher.encrypt(_nonce(number, last=not following), chunk, None))
        if not following:
            return
        number, chunk = number + 1, following


def unseal(read: Read, write: Write, *, find_key: FindKey, about: About | None) -> About:
    """Write the plain text to `write`, chunk by chunk. Use it only after this function returns. Raises SealError.

    The data must have been sealed as `about`; with None, as a file of any job, which the caller must check.
    """
    from cryptography.exceptions import InvalidTag

    header = _exactly(read, HEADER)
    if not is_sealed(header) or len(header) < HEADER:
        raise SealError("This is not sealed, or it is truncated.")
    words, found = _read_about(read)
    if found != about and (about is not None or found.purpose not in _FILES):
        raise SealError(f"This was sealed as {found}, and not as {about or 'a file'}.")
    own = find_key(header[len(MAGIC) : len(MAGIC) + KEY_ID])
    public = own.public_key().public_bytes_raw()
    try:
        cipher = _cipher(own, header[-KEY:], to=public, header=header + words)
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
            return found
        number, chunk = number + 1, following


_DAMAGED = "The sealed data is damaged: truncated, changed, or assembled from parts."


def _read_about(read: Read) -> tuple[bytes, About]:
    length = _exactly(read, 2)
    data = _exactly(read, min(int.from_bytes(length, "big"), ABOUT_BYTES_MAX))
    try:
        purpose, job_id, name = data.decode().split("\n")
        about = About(job_id, purpose, name)
        if about.pack() != length + data:
            raise ValueError
    except ValueError:
        raise SealError(_DAMAGED) from None
    return length + data, about


def _cipher(private: X25519PrivateKey, other: bytes, /, *, to: bytes, header: bytes) -> ChaCha20Poly1305:
    """Raises ValueError for a public key that gives no secret."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    shared = private.exchange(X25519PublicKey.from_public_bytes(other))
    key = HKDF(SHA256(), 32, salt=to, info=_INFO + header).derive(shared)
    return ChaCha20Poly1305(key)


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\x01" if last else b"\x00")


def _exactly(read: Read, size: int) -> bytes:
    """`size` bytes, or fewer at the end."""
    data = read(size)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (more := read(missing)):
        parts.append(more)
        missing -= len(more)
    return b"".join(parts)


def seal_bytes(data: bytes, *, to: bytes, about: About) -> bytes:
    sink = BytesIO()
    seal(BytesIO(data).read, sink.write, to=to, about=about)
    return sink.getvalue()


def unseal_bytes(data: bytes, *, find_key: FindKey, about: About | None) -> bytes:
    sink = BytesIO()
    unseal(BytesIO(data).read, sink.write, find_key=find_key, about=about)
    return sink.getvalue()


def seal_text(text: str, *, to: bytes, about: About) -> str:
    data = seal_bytes(text.encode("utf-8", "replace"), to=to, about=about)
    return TEXT_PREFIX + b64encode(data).decode("ascii")


def unseal_text(text: str, *, find_key: FindKey, about: About) -> str:
    try:
        data = b64decode(text.removeprefix(TEXT_PREFIX), validate=True)
    except ValueError:
        raise SealError(_DAMAGED) from None
    return unseal_bytes(data, find_key=find_key, about=about).decode("utf-8", "replace")
