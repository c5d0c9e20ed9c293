"""The interface of a storage of artifact bytes. Every method blocks, and is called on threads.

Bytes arrive in an *upload*, which belongs to one owner and grows at its end; it can be read by nobody. When all have come
and their SHA-256 is right they get a *place*. A place is never used twice: whoever knows that nothing names it any more
may erase it, without asking who else is at work at this moment.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from computepool.core.errors import BadRequest, Conflict

#: Uploads under way whose hash is kept at hand; one that falls out is read again when it is whole.
_HASHES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Stored:
    place: str
    size: int
    at_s: float  #: when it came there


class Upload(Protocol):
    """One request's hold on an upload."""

    chunk_bytes: int  #: how much to append at a time

    def append(self, data: bytes | bytearray) -> int:
        """Add bytes at the end; returns the new length."""

    def finish(self, size: int) -> str:
        """Check the whole of it and give it a place. A wrong one is dropped: it would never become right."""

    def close(self) -> None:
        """What came so far is kept."""


class Reading(Protocol):
    def read(self, size: int) -> bytes: ...

    def close(self) -> None: ...


class Blobs(Protocol):
    def claim(self, pool: str) -> None:
        """Raises Conflict where another pool keeps its artifacts: it would take ours for rubbish, or we its."""

    def uploaded(self, digest: str, owner: str) -> int:
        """How many bytes of this owner's upload are here."""

    def uploading(self, owner: str) -> dict[str, int]:
        """How many bytes of each upload of this owner are here, by digest."""

    def open_upload(self, digest: str, owner: str, *, offset: int) -> Upload:
        """Goes on with an upload, or begins it. A wrong offset is refused with the right one."""

    def drop_upload(self, digest: str, owner: str) -> None: ...

    def size(self, place: str) -> int | None:
        """None where nothing is there."""

    def read(self, place: str, *, start: int, length: int) -> Reading:
        """Raises FileNotFoundError."""

    def erase(self, place: str) -> None: ...

    def drop_stale_uploads(self, *, before_s: float) -> int:
        """Those that nobody has added to since."""

    def walk(self, *, after: str, limit: int) -> list[Stored]:
        """Places in their order, behind this one, whole or not; an empty list is the end."""


class RunningHashes:
    """The hash over the bytes of uploads so far, by a name that is never used for other bytes.

    Without it every artifact would be read again when it is whole. It is over what this process itself has put behind
    that name; where another hub added something in between, the rest is read when it is whole.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def take(self, name: Hashable) -> tuple[Any, int]:
        """The hash and how many bytes it is over; a fresh one where nothing is known. It is not kept any longer."""
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
        f"{length} bytes came, with SHA-256 {actual}, not {size} with {digest}; the upload was dropped.",
        field="digest",
    )


def owner_key(owner: str) -> str:
    """Uploads are per owner: nobody can spoil, or finish, somebody else's."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]


def place_of(digest: str, nonce: str) -> str:
    return f"{digest[:2]}/{digest}.{nonce}" if nonce else f"{digest[:2]}/{digest}"
