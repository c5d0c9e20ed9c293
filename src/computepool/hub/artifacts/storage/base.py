"""The interface of a blob store, which holds artifact bytes. Every method blocks, and is called on threads.

Bytes arrive in an *upload*, which belongs to one owner and grows at its end; nobody can read it. When it is complete and
its SHA-256 is right, the bytes get a *place*. A place is never reused, so whoever knows that nothing names it any more may
erase it, whatever others do at the same time.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from computepool.core.errors import BadRequest, Conflict

#: Uploads whose running hash is kept; those that drop out are read again when they are complete.
_HASHES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Stored:
    place: str
    size: int
    at_s: float  #: when it was placed


class Upload(Protocol):
    """An open upload, for one request."""

    chunk_bytes: int  #: how much to append at a time

    def append(self, data: bytes | bytearray) -> int:
        """Add bytes at the end; returns the new length."""

    def finish(self, size: int) -> str:
        """Verify the upload and give it a place. A wrong one is dropped, because it could never become right."""

    def close(self) -> None:
        """Keeps what has arrived so far."""


class Reading(Protocol):
    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, and no more than are left of the file."""

    def close(self) -> None: ...


class Blobs(Protocol):
    def claim(self, pool: str) -> None:
        """Raises Conflict if another pool uses the store: each would collect the other's artifacts as garbage."""

    def uploaded_bytes(self, digest: str, owner: str) -> int:
        """How many bytes of this owner's upload have arrived."""

    def upload_sizes(self, owner: str) -> dict[str, int]:
        """How many bytes of each of the owner's uploads have arrived, by digest."""

    def open_upload(self, digest: str, owner: str, *, offset: int) -> Upload:
        """Resumes or begins an upload. A wrong offset is refused with the right one."""

    def drop_upload(self, digest: str, owner: str) -> None: ...

    def size(self, place: str) -> int | None:
        """None: nothing is there."""

    def read(self, place: str, *, start: int, length: int) -> Reading:
        """From `start` on; may read beyond `length`. Raises FileNotFoundError."""

    def erase(self, place: str) -> None: ...

    def drop_stale_uploads(self, *, before_s: float) -> int:
        """Drops uploads to which nothing was added since."""

    def walk(self, *, after: str, limit: int) -> list[Stored]:
        """The next places in their order after this one; an empty list is the end."""


class RunningHashes:
    """Hashes of unfinished uploads, by a name that is never used for other bytes.

    Without them every artifact would be read again when it is complete. A hash covers what this process has added; if
    another hub added something in between, the rest is read when the upload is complete.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def take(self, name: Hashable) -> tuple[Any, int]:
        """Remove and return the hash and the number of bytes it covers; a new one if there is none."""
        return self._known.pop(name, None) or (hashlib.sha256(), 0)

    def put(self, name: Hashable, hasher: Any, length: int) -> None:
        self._known[name] = (hasher, length)
        while len(self._known) > _HASHES_MAX:
            self._known.popitem(last=False)


def check_offset(have: int, offset: int) -> None:
    if have != offset:
        raise Conflict(f"The upload is at byte {have}, not {offset}; continue from there.", field="offset")


def mismatch(length: int, actual: str, *, size: int, digest: str) -> BadRequest:
    return BadRequest(
        f"{length} bytes arrived with SHA-256 {actual}, not {size} with {digest}; the upload was dropped.",
        field="digest",
    )


def owner_key(owner: str) -> str:
    """Uploads are separate by owner: nobody can spoil, or finish, another's."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]


def place_of(digest: str, nonce: str) -> str:
    return f"{digest[:2]}/{digest}.{nonce}"
