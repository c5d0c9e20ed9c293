"""Runs the hub's loops: a failed tick is logged and tried again, and a loop never ends before the hub does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from computepool.hub.observability.state import LoopHealth

logger = logging.getLogger(__name__)
_FAILED_PAUSE_S = 1.0


async def every(interval_s: float, name: str, tick: Callable[[], Awaitable[object]], *, health: LoopHealth) -> None:
    health.begin(name, interval_s)
    while True:
        await asyncio.sleep(interval_s)
        await run_tick(name, tick, health=health)


async def run_tick(name: str, tick: Callable[[], Awaitable[object]], *, health: LoopHealth | None = None) -> bool:
    """Run one tick. Returns False if it failed."""
    try:
        await tick()
    except Exception as error:
        logger.exception("loop.failed: %s", name)
        if health is not None:
            health.record_failure(name, error)
        return False
    if health is not None:
        health.ran(name)
    return True


async def pause_after_failure() -> None:
    await asyncio.sleep(_FAILED_PAUSE_S)
