"""A blob store in a folder, which hubs of one pool may share."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from computepool.core.errors import Conflict, OutOfSpace
from computepool.hub.artifacts.storage.base import (
    Reading,
    RunningHashes,
    Stored,
    check_offset,
    mismatch,
    owner_key,
    place_of,
)

_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_BYTES = 1024 * 1024
_CLAIM = "pool"
_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class DiskBlobs:
    def __init__(self, folder: Path, *, chunk_bytes: int = 1024 * 1024) -> None:
        self._whole = folder / "artifacts"
        self._partial = folder / "uploads"
        self._claim = folder / "artifacts" / _CLAIM
        self._chunk_bytes = chunk_bytes
        self._hashes = RunningHashes()
        for path in (self._whole, self._partial):
            path.mkdir(parents=True, exist_ok=True)

    def claim(self, pool: str) -> None:
        with suppress(FileExistsError), self._claim.open("x") as file:
            file.write(pool)
        if (owner := self._claim.read_text()) not in ("", pool):  # empty: another hub of this pool is about to write it
            raise Conflict(f"{self._whole} holds the artifacts of another pool ({owner[:12]}); choose another folder.")

    def path(self, place: str) -> Path:
        return self._whole / place

    # uploads

    def uploaded_bytes(self, digest: str, owner: str) -> int:
        part = self._part(digest, owner)
        return 0 if part is None else _size(part) or 0

    def upload_sizes(self, owner: str) -> dict[str, int]:
        folder, found = self._partial / owner_key(owner), Counter[str]()
        for part in folder.iterdir() if folder.is_dir() else ():
            found[part.stem] += _size(part) or 0
        return found

    def open_upload(self, digest: str, owner: str, *, offset: int) -> DiskUpload:
        part = self._part(digest, owner)
        if part is None:
            check_offset(0, offset)
        with _space():
            file = self._create(digest, owner) if part is None else _reopen(part)
            upload = DiskUpload(*file, whole=self._whole, hashes=self._hashes, chunk_bytes=self._chunk_bytes)
        try:
            upload.begin(offset)
        except BaseException:
            upload.close()
            raise
        return upload

    def _create(self, digest: str, owner: str) -> tuple[Path, int]:
        part = self._partial / owner_key(owner) / f"{digest}.{secrets.token_hex(8)}"
        part.parent.mkdir(exist_ok=True)
        return part, os.open(part, os.O_CREAT | os.O_EXCL | _APPENDING, 0o600)

    def drop_upload(self, digest: str, owner: str) -> None:
        part = self._part(digest, owner)
        if part is not None:
            part.unlink(missing_ok=True)

    def _part(self, digest: str, owner: str) -> Path | None:
        """Every new upload gets a new name, so a running hash kept under a name belongs to its bytes."""
        found = sorted((self._partial / owner_key(owner)).glob(f"{digest}.*"))
        return found[0] if found else None

    def drop_stale_uploads(self, *, before_s: float) -> int:
        dropped = 0
        for part in [path for path in self._partial.rglob("*") if path.is_file()]:
            with suppress(FileNotFoundError):
                if part.stat().st_mtime < before_s:
                    part.unlink()
                    dropped += 1
        return dropped

    # places

    def size(self, place: str) -> int | None:
        return _size(self.path(place))

    def read(self, place: str, *, start: int, length: int) -> Reading:
        file = self.path(place).open("rb", buffering=0)
        file.seek(start)
        return file

    def erase(self, place: str) -> None:
        self.path(place).unlink(missing_ok=True)

    def walk(self, *, after: str, limit: int) -> list[Stored]:
        found: list[Stored] = []
        for folder in sorted(entry for entry in self._whole.iterdir() if entry.is_dir()):
            if folder.name < after[:2]:
                continue
            names = sorted(f"{folder.name}/{entry.name}" for entry in folder.iterdir())
            for place in names:
                if place > after:
                    with suppress(FileNotFoundError):
                        about = self.path(place).stat()
                        found.append(Stored(place, about.st_size, about.st_mtime))
                if len(found) >= limit:
                    return found
        return found


class DiskUpload:
    def __init__(self, part: Path, fd: int, *, whole: Path, hashes: RunningHashes, chunk_bytes: int) -> None:
        self.chunk_bytes = chunk_bytes
        self._part, self._whole, self._hashes = part, whole, hashes
        self._offset = 0
        self._one = threading.Lock()  # a cancelled request may close the file during a write
        self._fd = fd

    def begin(self, offset: int) -> None:
        with self._lock():
            check_offset(os.fstat(self._fd).st_size, offset)
        self._offset = offset

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Held for one operation, not for the request: a connection that hangs must not block its successor."""
        with self._one, _space():
            if self._fd < 0:
                raise Conflict("The request was cancelled.")
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                if not self._part.exists():  # the name is never reused, so no other file can be there
                    raise _gone_error()
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def append(self, data: bytes | bytearray) -> int:
        with self._lock():
            check_offset(os.fstat(self._fd).st_size, self._offset)
            left = memoryview(data)
            try:
                while left:
                    left = left[os.write(self._fd, left) :]
            except OSError:
                os.ftruncate(self._fd, self._offset)  # the hash covers whole appends
                raise
            self._add_to_hash(data)
        self._offset += len(data)
        return self._offset

    def _add_to_hash(self, data: bytes | bytearray) -> None:
        hasher, done = self._hashes.take(self._part.name)
        if done == self._offset:
            hasher.update(data)
            done += len(data)
        self._hashes.put(self._part.name, hasher, done)

    def finish(self, size: int) -> str:
        with self._lock():
            length = os.fstat(self._fd).st_size
            actual = self._digest(length)
            digest, _, nonce = self._part.name.partition(".")
            if actual != digest or length != size:
                self._part.unlink(missing_ok=True)
                raise mismatch(length, actual, size=size, digest=digest)
            os.utime(self._fd)  # the time when it is placed, not of its last bytes
            os.fsync(self._fd)
            place = place_of(digest, nonce)
            final = self._whole / place
            final.parent.mkdir(exist_ok=True)
            self._part.rename(final)
            _sync_folder(final.parent)
        return place

    def _digest(self, length: int) -> str:
        hasher, done = self._hashes.take(self._part.name)
        while chunk := os.pread(self._fd, min(_READ_BYTES, length - done), done):
            hasher.update(chunk)
            done += len(chunk)
        return str(hasher.hexdigest())

    def close(self) -> None:
        with self._one:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)


def _reopen(part: Path) -> tuple[Path, int]:
    """Never recreates the file: its name is bound to the bytes written first."""
    try:
        return part, os.open(part, _APPENDING)
    except FileNotFoundError:
        raise _gone_error() from None


def _gone_error() -> Conflict:
    return Conflict("The upload was finished or dropped concurrently; check its state.", field="offset")


@contextmanager
def _space() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise OutOfSpace("The hub has no disk space left for this artifact.") from error
        raise


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    """The name, too, must be on disk before the artifact counts as complete."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
