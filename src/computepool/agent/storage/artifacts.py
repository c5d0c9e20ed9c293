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
from functools import partial
from pathlib import Path

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentLimits
from computepool.agent.hub_link.hub_client import TRANSIENT_OR_FULL, Backoff, HubClient, retry
from computepool.core.errors import BadRequest, ComputePoolError, Conflict
from computepool.protocol.file_digest import file_digest

_log = logging.getLogger(__name__)

#: A download that fails this often in a row is the node's failure; the job runs elsewhere.
DOWNLOAD_TRIES = 6
#: Up to this size an upload does not ask first how much of it the hub has.
ASK_FIRST_ABOVE = 1024 * 1024
#: Larger files are hashed in a thread.
_THREAD_ABOVE = 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PART, _GONE = ".part", ".gone-"


class ArtifactCache:
    """Evicts the least recently used files, including partial downloads; files in use stay readable, because their users
    hold them open.
    """

    def __init__(self, folder: Path, client: HubClient, *, limits: AgentLimits) -> None:
        self._folder = folder
        self._client = client
        self._limits = limits
        self._locks: dict[str, asyncio.Lock] = {}
        self._requested: Counter[str] = Counter()  #: by how many at the moment; what is coming of these stays
        self._evicting = asyncio.Lock()
        self._untidy = True  #: a download may have been left unfinished, now or by an earlier start
        self._slots = asyncio.Semaphore(limits.transfers_max)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def open(self, digest: str) -> int:
        """Open a file, fetching it if necessary. The caller closes the descriptor."""
        if not _DIGEST.fullmatch(digest):  # It becomes a path, and names come from the hub.
            raise BadRequest(f"{digest[:80]!r} is not a SHA-256 digest.")
        self._requested[digest] += 1
        try:
            async with self._locks.setdefault(digest, asyncio.Lock()):
                return await self._open_or_fetch(digest, self._folder / digest)
        finally:
            self._requested[digest] -= 1
            if not self._requested[digest]:
                del self._requested[digest], self._locks[digest]

    async def _open_or_fetch(self, digest: str, path: Path) -> int:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            with contextlib.suppress(OSError):
                os.utime(fd)
            return fd
        if self._untidy:
            self._untidy = False
            await self._make_room()
        try:
            async with self._slots:
                await self._fetch(digest, path)
        except BaseException:
            self._untidy = True
            raise
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            await self._make_room(keep=digest)
        except BaseException:
            os.close(fd)
            raise
        return fd

    async def _fetch(self, digest: str, path: Path) -> None:
        part = path.with_suffix(_PART)
        fetch = partial(resume_download, self._client, digest, part)
        try:
            await retry(fetch, self._client.backoff(), on=TRANSIENT_OR_FULL, tries=DOWNLOAD_TRIES)
        except TRANSIENT_OR_FULL:
            raise
        except ComputePoolError:
            part.unlink(missing_ok=True)  # The hub refuses the rest, so this part is useless.
            raise
        await check_digest(part, digest)
        part.rename(path)

    async def clear(self) -> None:
        """Remove everything but running downloads; a job keeps the files it has open."""
        await self._make_room(most=0)

    async def _make_room(self, keep: str = "", *, most: int | None = None) -> None:
        """Evicted entries are renamed first, without awaiting in between, so that nobody starts to use them."""
        async with self._evicting:
            listed = await asyncio.to_thread(self._list_files)
            gone = [name for _, _, name in listed if name.startswith(_GONE)]
            files = [(size, name) for _, size, name in listed if not name.startswith(_GONE)]
            most = self._limits.input_cache_bytes if most is None else most
            over = sum(size for size, _ in files) - most
            for size, name in files:
                if over > 0 and name != keep and not self._is_coming(name):
                    with contextlib.suppress(OSError):
                        (self._folder / name).rename(self._folder / f"{_GONE}{name}")
                        gone.append(f"{_GONE}{name}")
                        over -= size
        if gone:
            await asyncio.to_thread(self._remove, gone)

    def _is_coming(self, name: str) -> bool:
        return name.endswith(_PART) and name.removesuffix(_PART) in self._requested

    def _list_files(self) -> list[tuple[int, int, str]]:
        """Time of last use, size and name of each file, oldest first."""
        files = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(
                    FileNotFoundError
                ):  # A download that ended well has another name now.
                    info = entry.stat(follow_symlinks=False)
                    files.append((info.st_mtime_ns, info.st_size, entry.name))
        return sorted(files)

    def _remove(self, names: list[str]) -> None:
        for name in names:
            try:
                (self._folder / name).unlink(missing_ok=True)
            except OSError as error:
                _log.warning("cannot remove %s from the cache: %s", name, error)


class Uploader:
    """Retries for as long as a report may be late, because the result is worth the wait."""

    def __init__(self, client: HubClient, *, clock: AgentClock, limits: AgentLimits) -> None:
        self._client = client
        self._clock = clock
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.transfers_max)

    async def send(self, fd: int, digest: str, *, size: int, name: str) -> None:
        """`fd` stays the caller's. Raises the hub's refusal, and Unavailable after a day without the hub."""
        backoff = self._client.backoff()
        deadline = self._clock.steady() + self._limits.outbox_age_max_s
        offset = 0
        ask = size > ASK_FIRST_ABOVE
        while True:
            try:
                async with self._slots:
                    if ask:
                        state = await self._client.upload_state(digest)
                        if state.complete:
                            return
                        offset = state.offset
                    chunks = self._chunks(fd, offset, size)
                    state = await self._client.upload(digest, chunks, offset=offset, size=size, name=name)
                if state.complete:
                    return
                ask = True
            except Conflict as error:
                # The hub has more or less of it than expected: ask, and then take time.
                if ask and self._clock.steady() > deadline:
                    raise
                if ask:
                    await self._pause(error, backoff)
                ask = True
            except TRANSIENT_OR_FULL as error:
                if self._clock.steady() > deadline:
                    raise
                ask = True
                await self._pause(error, backoff)

    async def _pause(self, error: ComputePoolError, backoff: Backoff) -> None:
        delay_s = backoff.delay_s(error)
        _log.warning("retrying an upload in %.1f s: %s", delay_s, error.detail)
        await asyncio.sleep(delay_s)

    async def _chunks(self, fd: int, offset: int, size: int) -> AsyncIterator[bytes]:
        while offset < size:
            chunk = os.pread(fd, min(self._limits.transfer_chunk, size - offset), offset)
            if not chunk:
                raise BadRequest("An output was truncated while it was sent.")
            offset += len(chunk)
            yield chunk


async def resume_download(client: HubClient, digest: str, part: Path, *, sync: bool = False) -> None:
    """Fetch what the file `part` still lacks of an artifact; `sync`: and write it to the disk."""
    have = part.stat().st_size if part.exists() else 0
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


async def check_digest(part: Path, digest: str) -> None:
    """Remove a downloaded file that is not what was asked for. Raises BadRequest."""
    if await asyncio.to_thread(file_digest, part) != digest:
        part.unlink()
        raise BadRequest(f"The file does not match its digest {digest[:12]}….")


async def digest_of(fd: int, size: int) -> str:
    """sha256_of, in a thread for a large file, so that other attempts are not held up."""
    return await asyncio.to_thread(sha256_of, fd, size) if size > _THREAD_ABOVE else sha256_of(fd, size)


def sha256_of(fd: int, size: int) -> str:
    """Digest of the first `size` bytes: a job's file may still grow if a process survived."""
    hasher = hashlib.sha256()
    offset = 0
    while offset < size:
        chunk = os.pread(fd, min(1024 * 1024, size - offset), offset)
        if not chunk:
            raise BadRequest("An output was truncated while it was read.")
        hasher.update(chunk)
        offset += len(chunk)
    return hasher.hexdigest()
