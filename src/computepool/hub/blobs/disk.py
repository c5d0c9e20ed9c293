"""Artifact bytes on disk, named by their SHA-256. A file is visible under its name only when it is whole and verified."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from computepool.core.errors import BadRequest, Conflict, OutOfSpace

_FULL = (errno.ENOSPC, errno.EDQUOT)


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

    def uploaded(self, digest: str, owner: str) -> int:
        """How many bytes of this owner's upload are here."""
        part = self._part(digest, owner)
        return part.stat().st_size if part.exists() else 0

    def append(self, digest: str, owner: str, *, offset: int, data: bytes) -> int:
        """Add bytes at the end of an upload; returns its new length. A wrong offset is refused with the right one."""
        try:
            with self._locked(self._part(digest, owner)) as handle:
                have = handle.seek(0, os.SEEK_END)
                if have != offset:
                    raise Conflict(
                        f"The upload is at byte {have}, not {offset}; continue from there.", field="offset"
                    )
                handle.write(data)
            return have + len(data)
        except OSError as error:
            if error.errno in _FULL:
                raise OutOfSpace("The hub has no disk space left for this artifact.") from error
            raise

    @contextmanager
    def _locked(self, part: Path) -> Iterator[IO[bytes]]:
        """An upload, held by one request at a time, whichever hub it came to."""
        while True:
            with part.open("ab") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX)
                # While we waited, the holder may have finished the upload: what we opened is then the artifact itself.
                if part.exists() and os.path.samestat(part.stat(), os.fstat(handle.fileno())):
                    yield handle
                    return

    def verify(self, digest: str, owner: str, *, size: int) -> Path:
        """Check a whole upload and set it aside for `publish`. A wrong one is dropped: it would never become right."""
        part = self._part(digest, owner)
        with self._locked(part) as handle:
            with part.open("rb") as readable:
                actual = hashlib.file_digest(readable, "sha256").hexdigest()
            length = part.stat().st_size
            if actual != digest or length != size:
                part.unlink(missing_ok=True)
                raise BadRequest(
                    f"{length} bytes came, with SHA-256 {actual}, not {size} with {digest}; the upload was dropped.",
                    field="digest",
                )
            os.fsync(handle.fileno())
            whole = part.with_name(f"{part.name}.whole-{os.fstat(handle.fileno()).st_ino}")
            part.replace(whole)
            return whole

    def publish(self, digest: str, whole: Path) -> None:
        """Give a verified upload its name. Doing it again, or after somebody else, changes nothing."""
        final = self.path(digest)
        if final.exists():
            whole.unlink(missing_ok=True)
            return
        final.parent.mkdir(exist_ok=True)
        whole.replace(final)
        _sync_folder(final.parent)

    def exists(self, digest: str) -> bool:
        return self.path(digest).exists()

    def size(self, digest: str) -> int:
        return self.path(digest).stat().st_size

    def remove(self, digest: str) -> None:
        self.path(digest).unlink(missing_ok=True)

    def drop_stale_uploads(self, *, before_s: float) -> int:
        stale = [path for path in self._partial.iterdir() if path.stat().st_mtime < before_s]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)


def _sync_folder(folder: Path) -> None:
    """The name must be on disk too before the artifact is called complete."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
