"""Files by their SHA-256: downloads from the hub into a bounded cache, and uploads to the hub.

Both directions resume where they stopped, and nothing is used before its digest was verified.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from computepool.agent.context import Node
from computepool.agent.hub_link.hub_client import TRANSIENT_OR_FULL, HubClient
from computepool.agent.storage.cache_usage import least_recent
from computepool.core.errors import BadRequest, ComputePoolError, Conflict
from computepool.protocol.files import file_digest

_log = logging.getLogger(__name__)

#: A download fails after this many tries in a row without progress.
DOWNLOAD_TRIES = 6
#: Above this size an upload asks first how much of the file the hub has.
ASK_FIRST_ABOVE = 1024 * 1024
#: Larger files are hashed in a thread.
_THREAD_ABOVE = 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PART, _GONE = ".part", ".gone-"


@dataclass(eq=False)
class ArtifactCache:
    """Evicts the least recently used files, including partial downloads; files in use stay readable, because their users
    hold them open.
    """

    folder: Path
    node: Node

    def __post_init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._requested: Counter[str] = Counter()  #: digests that are being opened: their partial downloads stay
        self._evicting = asyncio.Lock()
        self._has_leftovers = True  #: there may be an unfinished download, perhaps of an earlier start
        self._slots = asyncio.Semaphore(self.node.limits.transfers_max)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def open(self, digest: str) -> int:
        """Open a file, fetching it if necessary. The caller closes the descriptor."""
        if not _DIGEST.fullmatch(digest):  # The hub sent it, and it becomes a path.
            raise BadRequest(f"{digest[:80]!r} is not a SHA-256 digest.")
        self._requested[digest] += 1
        try:
            async with self._locks.setdefault(digest, asyncio.Lock()):
                return await self._open_or_fetch(digest, self.folder / digest)
        finally:
            self._requested[digest] -= 1
            if not self._requested[digest]:
                del self._requested[digest], self._locks[digest]

    def has(self, digest: str) -> bool:
        """Whether it can be opened without being fetched, for now."""
        return (self.folder / digest).exists()

    async def adopt(self, path: Path, digest: str) -> None:
        """Keep a verified file that was made here, by moving it into the cache."""
        with contextlib.suppress(
            OSError
        ):  # The cache may be on another file system; then the file is fetched when needed.
            path.rename(self.folder / digest)
            await self._evict(keep=digest)

    async def _open_or_fetch(self, digest: str, path: Path) -> int:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            with contextlib.suppress(OSError):
                os.utime(fd)
            return fd
        if self._has_leftovers:
            self._has_leftovers = False
            await self._evict()
        try:
            async with self._slots:
                await self._fetch(digest, path)
        except BaseException:
            self._has_leftovers = True
            raise
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            await self._evict(keep=digest)
        except BaseException:
            os.close(fd)
            raise
        return fd

    async def _fetch(self, digest: str, path: Path) -> None:
        part = path.with_suffix(_PART)
        try:
            await download(self.node.client, digest, part)
        except TRANSIENT_OR_FULL:
            raise
        except ComputePoolError:
            part.unlink(missing_ok=True)  # The hub refuses the rest, so this part is useless.
            raise
        part.rename(path)

    async def clear(self) -> None:
        """Remove everything but running downloads; a job keeps the files that it has open."""
        await self._evict(most=0)

    async def _evict(self, keep: str = "", *, most: int | None = None) -> None:
        """Evicted entries are renamed first, without awaiting in between, so that nobody starts to use them."""
        async with self._evicting:
            listed = await asyncio.to_thread(least_recent, self.folder)
            gone = [name for name, _ in listed if name.startswith(_GONE)]
            files = [(name, size) for name, size in listed if not name.startswith(_GONE)]
            most = self.node.limits.input_cache_bytes if most is None else most
            over = sum(size for _, size in files) - most
            for name, size in files:
                if over > 0 and name != keep and not self._is_downloading(name):
                    with contextlib.suppress(OSError):
                        (self.folder / name).rename(self.folder / f"{_GONE}{name}")
                        gone.append(f"{_GONE}{name}")
                        over -= size
        if gone:
            await asyncio.to_thread(self._remove, gone)

    def _is_downloading(self, name: str) -> bool:
        return name.endswith(_PART) and name.removesuffix(_PART) in self._requested

    def _remove(self, names: list[str]) -> None:
        for name in names:
            try:
                (self.folder / name).unlink(missing_ok=True)
            except OSError as error:
                _log.warning("cannot remove %s from the cache: %s", name, error)


@dataclass(eq=False)
class Uploader:
    """Retries for as long as a report may be late."""

    node: Node

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.node.limits.transfers_max)

    async def send(self, fd: int, digest: str, *, size: int, name: str) -> None:
        """Upload a file; the caller closes `fd`. Raises the hub's refusal, and Unavailable after a day without the hub."""
        backoff = self.node.client.backoff()
        deadline = self.node.clock.steady() + self.node.limits.outbox_age_max_s
        offset = 0
        ask = size > ASK_FIRST_ABOVE
        while True:
            try:
                async with self._slots:
                    if ask:
                        state = await self.node.client.upload_state(digest)
                        if state.complete:
                            return
                        offset = state.offset
                    chunks = self._chunks(fd, offset, size)
                    state = await self.node.client.upload(digest, chunks, offset=offset, size=size, name=name)
                if state.complete:
                    return
                ask = True
            except (Conflict, *TRANSIENT_OR_FULL) as error:
                if isinstance(error, Conflict) and not ask:
                    ask = True  # The hub has more or less of it than expected.
                    continue
                if self.node.clock.steady() > deadline:
                    raise
                ask = True
                delay_s = backoff.delay_s(error)
                _log.warning("retrying an upload in %.1f s: %s", delay_s, error.detail)
                await asyncio.sleep(delay_s)

    async def _chunks(self, fd: int, offset: int, size: int) -> AsyncIterator[bytes]:
        while offset < size:
            chunk = os.pread(fd, min(self.node.limits.transfer_chunk, size - offset), offset)
            if not chunk:
                raise BadRequest("An output was truncated while it was sent.")
            offset += len(chunk)
            yield chunk


async def download(client: HubClient, digest: str, part: Path, *, sync: bool = False) -> None:
    """Complete the file `part` with the rest of an artifact, and verify it. `sync`: also flush it to the disk.

    Raises BadRequest, and removes the file, if it does not match its digest.
    """
    backoff = client.backoff()
    tries = DOWNLOAD_TRIES
    while True:
        before = size_of(part)
        try:
            await _resume_download(client, digest, part, sync=sync)
            break
        except TRANSIENT_OR_FULL as error:
            tries = DOWNLOAD_TRIES if size_of(part) > before else tries - 1
            if tries <= 0:
                raise
            await asyncio.sleep(backoff.delay_s(error))
    if await asyncio.to_thread(file_digest, part) != digest:
        part.unlink()
        raise BadRequest(f"The file does not match its digest {digest[:12]}….")


async def _resume_download(client: HubClient, digest: str, part: Path, *, sync: bool) -> None:
    have = size_of(part)
    # The last byte is fetched again: a range that begins at the end is refused.
    async with client.download(digest, offset=max(0, have - 1)) as (start, chunks):
        with part.open("r+b" if have else "wb") as file:
            file.truncate(start)
            file.seek(start)
            async for chunk in chunks:
                file.write(chunk)
            if sync:
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())


def size_of(path: Path) -> int:
    """0 if there is no such file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def digest_of(fd: int, size: int) -> str:
    """The same as sha256_of, in a thread for a large file, so that other attempts are not delayed."""
    return await asyncio.to_thread(sha256_of, fd, size) if size > _THREAD_ABOVE else sha256_of(fd, size)


def sha256_of(fd: int, size: int) -> str:
    """The digest of the first `size` bytes: a job's file may still grow if a process survived."""
    hasher = hashlib.sha256()
    offset = 0
    while offset < size:
        chunk = os.pread(fd, min(1024 * 1024, size - offset), offset)
        if not chunk:
            raise BadRequest("An output was truncated while it was read.")
        hasher.update(chunk)
        offset += len(chunk)
    return hasher.hexdigest()
