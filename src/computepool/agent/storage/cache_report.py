"""Tells the hub what this node has cached, so that jobs that need it start here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from computepool.agent.storage import cache_usage
from computepool.protocol.nodes.software import Cached

_log = logging.getLogger(__name__)


class CacheReport:
    """`send`: receives what is cached, after each change."""

    def __init__(self, cache_dir: Path, send: Callable[[Cached], None], *, gap_s: float) -> None:
        self._cache_dir = cache_dir
        self._send = send
        self._gap_s = gap_s
        self._sent: dict[str, int] | None = None

    async def run(self) -> None:
        while True:
            try:
                await self.check()
            except OSError as error:
                _log.warning("cannot read the cache: %s", error)
            await asyncio.sleep(self._gap_s)

    async def check(self) -> None:
        """Not in the order of their last use, which changes with each job."""
        items = await asyncio.to_thread(cache_usage.warm_items, self._cache_dir)
        found = {item.key: item.took_ms for item in items}
        if found != self._sent and (found or self._sent):
            self._send(Cached(items=items))
        self._sent = found
