"""Runs the hub's loops: a tick that fails is logged and tried again; a loop never ends before the hub does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)
_FAILED_PAUSE_S = 1.0


async def every(interval_s: float, name: str, tick: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await guarded(name, tick)


async def guarded(name: str, tick: Callable[[], Awaitable[object]]) -> bool:
    """False when the tick failed."""
    try:
        await tick()
    except asyncio.CancelledError:
        raise
    except Exception:
        logger.exception("loop.failed: %s", name)
        return False
    return True


async def pause_after_failure() -> None:
    await asyncio.sleep(_FAILED_PAUSE_S)
