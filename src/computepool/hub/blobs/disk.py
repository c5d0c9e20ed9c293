"""Artifact bytes on disk, named by their SHA-256. A file is visible under its name only when it is whole and verified."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from computepool.core.errors import BadRequest, Conflict, OutOfSpace

_READ_BYTES = 1024 * 1024
_ENOSPC = 28


@dataclass(frozen=True, slots=True)
class Upload:
    """How much of an artifact is here."""

    offset: int
    complete: bool


class DiskBlobs:
    def __init__(self, folder: Path) -> None:
        self._whole = folder / "artifacts"
        self._partial = folder / "uploads"
        for path in (self._whole, self._partial):
            path.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        return self._whole / digest[:2] / digest

    def _part(self, digest: str, owner: str) -> Path:
        """Uploads are per owner: nobody can spoil, or finish, somebody else's."""
        return self._partial / f"{digest}.{hashlib.sha256(owner.encode()).hexdigest()[:16]}"

    def state(self, digest: str, owner: str) -> Upload:
        if self.path(digest).exists():
            return Upload(self.path(digest).stat().st_size, complete=True)
        part = self._part(digest, owner)
        return Upload(part.stat().st_size if part.exists() else 0, complete=False)

    def append(self, digest: str, owner: str, *, offset: int, data: bytes) -> int:
        """Add bytes at the end of an upload; returns its new length. A wrong offset is refused with the right one."""
        part = self._part(digest, owner)
        try:
            with part.open("ab") as handle:
                have = handle.tell()
                if have != offset:
                    raise Conflict(
                        f"The upload is at byte {have}, not {offset}; continue from there.", field="offset"
                    )
                handle.write(data)
            return have + len(data)
        except OSError as error:
            if error.errno == _ENOSPC:
                raise OutOfSpace("The hub has no disk space left for this artifact.") from error
            raise

    def finish(self, digest: str, owner: str, *, size: int) -> None:
        """Verify and publish. A wrong checksum drops the upload: it would never become right."""
        if self.path(digest).exists():
            return
        part = self._part(digest, owner)
        actual = _sha256(part)
        if actual != digest or part.stat().st_size != size:
            part.unlink(missing_ok=True)
            raise BadRequest(
                f"The bytes have SHA-256 {actual}, not {digest}; the upload was dropped.", field="digest"
            )
        final = self.path(digest)
        final.parent.mkdir(exist_ok=True)
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(final)
        _sync_folder(final.parent)

    def read(self, digest: str, *, start: int, length: int) -> Iterator[bytes]:
        with self.path(digest).open("rb") as handle:
            handle.seek(start)
            while length > 0 and (data := handle.read(min(_READ_BYTES, length))):
                length -= len(data)
                yield data

    def exists(self, digest: str) -> bool:
        return self.path(digest).exists()

    def remove(self, digest: str) -> None:
        self.path(digest).unlink(missing_ok=True)

    def drop_stale_uploads(self, *, before_s: float) -> int:
        stale = [path for path in self._partial.iterdir() if path.stat().st_mtime < before_s]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)


def _sha256(path: Path) -> str:
    if not path.exists():
        return hashlib.sha256(b"").hexdigest() if path.parent.exists() else ""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    """The name must be on disk too before the artifact is called complete."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
