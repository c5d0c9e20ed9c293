"""Wake-ups within one hub, for all who wait for a topic (`job:…`, `group:…`, `events`) that may have changed.

A signal carries no data; the waiter reads the store again. A lost signal costs a little waiting, never a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Signals:
    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def fire(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for future in self._waiting.pop(topic, ()):
                if not future.done():
                    future.set_result(None)

    def fire_all(self) -> None:
        self.fire(list(self._waiting))

    def watch(self, *topics: str) -> Watch:
        """Start to wait. Call it *before* reading the store, so that no change in between is missed."""
        return Watch(self._waiting, topics)


class Watch:
    def __init__(self, waiting: dict[str, set[asyncio.Future[None]]], topics: tuple[str, ...]) -> None:
        self._waiting = waiting
        self._topics = topics
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for topic in topics:
            waiting.setdefault(topic, set()).add(self._future)

    async def wait(self, timeout_s: float) -> bool:
        """Return False at the time-out. Several tasks may wait for one watch."""
        done, _ = await asyncio.wait((self._future,), timeout=timeout_s)
        return bool(done)

    @property
    def fired(self) -> bool:
        return self._future.done()

    def close(self) -> None:
        self._future.cancel()
        for topic in self._topics:
            futures = self._waiting.get(topic)
            if futures is not None:
                futures.discard(self._future)
                if not futures:
                    del self._waiting[topic]

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
