"""Folders that are built once, cached for later jobs, and evicted when there are too many.

Knows which folders are in use, so that nobody gets one that is being removed, but nothing of their content.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.storage.cache_usage import FACTS, file_sizes, least_recent

_log = logging.getLogger(__name__)

T = TypeVar("T")
_GONE = ".gone-"
#: Creates and fills the folder; returns its size in bytes.
Make = Callable[[Path], Awaitable[int]]


class CachedFolders:
    def __init__(self, folder: Path, *, count_max: int, bytes_max: int) -> None:
        self.folder = folder
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._locks: dict[str, asyncio.Lock] = {}
        self._in_use: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self._evicting = asyncio.Lock()
        self._removing: set[str] = set()  #: in a thread, which continues even if the caller is cancelled
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)

    def has(self, key: str) -> bool:
        return (self.folder / key).is_dir()

    async def acquire(self, key: str, make: Make, *, label: str = "") -> Path:
        """The folder of this name, made if it is missing, and kept until `release`. `label`: for its owner to read."""
        self._in_use[key] += 1
        try:
            path = self.folder / key
            async with self._locks.setdefault(key, asyncio.Lock()):
                if not path.is_dir():
                    await self._make(path, make, label=label)
                with contextlib.suppress(OSError):
                    os.utime(path)
            await self._evict()
        except BaseException:
            self._in_use[key] -= 1
            raise
        return path

    def release(self, path: Path) -> None:
        self._in_use[path.name] -= 1

    async def clear(self) -> None:
        """Remove all folders that no job or warm worker uses."""
        await self._evict(everything=True)

    async def _make(self, path: Path, make: Make, *, label: str) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        building = self.folder / f".building-{uuid.uuid4().hex}"
        self._in_use[building.name] += 1
        try:
            self._sizes[path.name] = await make(building)
            facts = {"label": label, "took_ms": round((loop.time() - began) * 1000)}
            with contextlib.suppress(OSError):  # A package may have put a folder there.
                (building / FACTS).write_text(json.dumps(facts))
            # Another agent on this folder may have been quicker; its content is the same.
            with contextlib.suppress(OSError):
                building.rename(path)
        finally:
            try:
                if building.exists():
                    await asyncio.to_thread(remove_tree, building)
            finally:
                del self._in_use[building.name]

    async def _evict(self, *, everything: bool = False) -> None:
        """Evict folders. They are first renamed, without an await in between, so that nobody starts to use them."""
        async with self._evicting:
            found = [name for name, _ in await asyncio.to_thread(least_recent, self.folder, folders=True)]
            complete = [name for name in found if not name.startswith(".")]
            surplus = complete if everything else await asyncio.to_thread(self._surplus, complete)
            # Left by an agent that was killed, or by a build that failed.
            leftovers = [name for name in found if name.startswith(".")]
            gone = []
            for name in (*surplus, *leftovers):
                if not self._in_use[name] and name not in self._removing:
                    hidden = f"{_GONE}{uuid.uuid4().hex}"
                    with contextlib.suppress(OSError):
                        (self.folder / name).rename(self.folder / hidden)
                        gone.append(hidden)
            self._removing.update(gone)
        if gone:
            await asyncio.to_thread(self._remove, gone)

    def _surplus(self, names: list[str]) -> list[str]:
        """The least recently used of these folders that exceed the limits on number and size."""
        sizes = {}
        for name in names:
            if name not in self._sizes:
                self._sizes[name] = bytes_in(self.folder / name)
            sizes[name] = self._sizes[name]
        total, count, surplus = sum(sizes.values()), len(names), []
        for name in names[:-1]:  # The newest is in demand.
            if count <= self._count_max and total <= self._bytes_max:
                break
            surplus.append(name)
            total, count = total - sizes[name], count - 1
        return surplus

    def _remove(self, names: list[str]) -> None:
        for name in names:
            try:
                remove_tree(self.folder / name)
            except OSError as error:
                _log.warning("cannot remove %s: %s", self.folder / name, error)
            finally:
                self._removing.discard(name)


async def finish_anyway(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work in a thread, which cannot be interrupted, even if the caller is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def bytes_in(folder: Path) -> int:
    """Disk usage of a folder that others may write to; 0 if it does not exist."""
    return sum(file_sizes(folder))
