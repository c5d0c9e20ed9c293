"""Files by their SHA-256: fetched from the hub into a bounded cache, and sent to the hub.

Both directions resume where they stopped, and nothing is used or called sent before its digest was right.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

from computepool.agent.clock import Clock
from computepool.agent.config import AgentLimits
from computepool.agent.hub_client import Backoff, HubClient
from computepool.core.errors import (
    BadRequest,
    ComputePoolError,
    Conflict,
    OutOfSpace,
    RateLimited,
    Unauthenticated,
    Unavailable,
)

_log = logging.getLogger(__name__)

_PASSING = (Unavailable, RateLimited, Unauthenticated, OutOfSpace)
#: A download that fails this often in a row is the node's failure; the job runs elsewhere.
DOWNLOAD_TRIES = 6
#: Up to this size an upload does not ask first how much of it the hub has.
ASK_FIRST_ABOVE = 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ArtifactCache:
    """Least recently used files go first; files in use stay, because their users hold them open."""

    def __init__(self, folder: Path, client: HubClient, *, clock: Clock, limits: AgentLimits) -> None:
        self._folder = folder
        self._client = client
        self._clock = clock
        self._limits = limits
        self._locks: dict[str, asyncio.Lock] = {}
        self._slots = asyncio.Semaphore(limits.transfers_max)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def open(self, digest: str) -> int:
        """A descriptor of the file, fetched if need be. The caller closes it."""
        if not _DIGEST.fullmatch(digest):  # It becomes a path, and names come from the hub.
            raise BadRequest("What names the artifact is no SHA-256.")
        lock = self._locks.setdefault(digest, asyncio.Lock())
        async with lock:
            path = self._folder / digest
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                os.utime(path)
                return fd
            except FileNotFoundError:
                pass
            async with self._slots:
                await self._fetch(digest, path)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._locks.pop(digest, None)
        await asyncio.to_thread(self._evict)
        return fd

    async def _fetch(self, digest: str, path: Path) -> None:
        part = path.with_suffix(".part")
        backoff = Backoff(self._clock, self._limits)
        for left in reversed(range(DOWNLOAD_TRIES)):
            try:
                await self._fetch_once(digest, part)
                break
            except _PASSING as error:
                if not left:
                    raise
                await asyncio.sleep(backoff.delay_s(error))
        if await asyncio.to_thread(_sha256, part) != digest:
            part.unlink()
            raise BadRequest(f"The hub sent other bytes than {digest[:12]}… stands for.")
        part.rename(path)

    async def _fetch_once(self, digest: str, part: Path) -> None:
        have = part.stat().st_size if part.exists() else 0
        async with self._client.download(digest, offset=have) as (start, chunks):
            with part.open("r+b" if have else "wb") as file:
                file.truncate(start)
                file.seek(start)
                async for chunk in chunks:
                    file.write(chunk)

    def _evict(self) -> None:
        files = sorted(
            (entry.stat().st_mtime_ns, entry.stat().st_size, entry.name) for entry in self._complete()
        )
        total = sum(size for _, size, _ in files)
        for _, size, name in files[:-1]:
            if total <= self._limits.input_cache_bytes:
                return
            (self._folder / name).unlink(missing_ok=True)
            total -= size

    def _complete(self) -> list[os.DirEntry[str]]:
        with os.scandir(self._folder) as entries:
            return [entry for entry in entries if not entry.name.endswith(".part")]


class Uploader:
    """Keeps trying for as long as a report may be late: the result is worth more than the wait."""

    def __init__(self, client: HubClient, *, clock: Clock, limits: AgentLimits) -> None:
        self._client = client
        self._clock = clock
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.transfers_max)

    async def send(self, fd: int, digest: str, *, size: int, name: str) -> None:
        """`fd` stays the caller's. Raises what the hub refuses, and Unavailable after a day without it."""
        backoff = Backoff(self._clock, self._limits)
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
            except Conflict:
                # The hub has another part of it than we thought.
                if ask and self._clock.steady() > deadline:
                    raise
                ask = True
            except _PASSING as error:
                if self._clock.steady() > deadline:
                    raise
                ask = True
                await self._pause(error, backoff)

    async def _pause(self, error: ComputePoolError, backoff: Backoff) -> None:
        delay_s = backoff.delay_s(error)
        _log.warning("an upload goes on in %.1f s: %s", delay_s, error.detail)
        await asyncio.sleep(delay_s)

    async def _chunks(self, fd: int, offset: int, size: int) -> AsyncIterator[bytes]:
        while offset < size:
            chunk = os.pread(fd, min(self._limits.transfer_chunk, size - offset), offset)
            if not chunk:
                raise BadRequest("An output became shorter while it was sent.")
            offset += len(chunk)
            yield chunk


def sha256_of(fd: int, size: int) -> str:
    """Of the first `size` bytes: a file of a job may still grow if something in it survived."""
    hasher = hashlib.sha256()
    offset = 0
    while offset < size:
        chunk = os.pread(fd, min(1024 * 1024, size - offset), offset)
        if not chunk:
            raise BadRequest("An output became shorter while it was read.")
        hasher.update(chunk)
        offset += len(chunk)
    return hasher.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
