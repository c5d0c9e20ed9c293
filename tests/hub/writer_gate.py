"""Holds the store's writer, so that what is written meanwhile waits for it, and shares the next transaction."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

from computepool.hub.db.session import Store, Tx
from computepool.testing.waiting import eventually


class Gate:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._open = threading.Event()
        self._entered = threading.Event()
        self._held = asyncio.ensure_future(store.write(self._unit))

    def _unit(self, _tx: Tx) -> None:
        self._entered.set()
        self._open.wait(60)

    async def closed(self) -> None:
        await eventually(self._entered.is_set)

    async def all_wait(self, *requests: asyncio.Task[Any]) -> None:
        """Until each of these requests waits for the writer, or has ended."""
        waiting = self._store._queue
        await eventually(lambda: waiting.qsize() + sum(request.done() for request in requests) == len(requests))

    async def open(self) -> None:
        self._open.set()
        await self._held

    async def __aenter__(self) -> Self:
        await self.closed()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.open()
