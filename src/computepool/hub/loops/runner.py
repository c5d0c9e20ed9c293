"""Runs the hub's loops: a tick that fails is logged and tried again; a loop never ends before the hub does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from computepool.hub.memory.loop_health import Beats

logger = logging.getLogger(__name__)
_FAILED_PAUSE_S = 1.0


async def every(
    interval_s: float, name: str, tick: Callable[[], Awaitable[object]], *, beats: Beats | None = None
) -> None:
    if beats is not None:
        beats.begin(name, interval_s)
    while True:
        await asyncio.sleep(interval_s)
        await guarded(name, tick, beats=beats)


async def guarded(name: str, tick: Callable[[], Awaitable[object]], *, beats: Beats | None = None) -> bool:
    """False when the tick failed."""
    try:
        await tick()
    except asyncio.CancelledError:
        raise
    except Exception as error:
        logger.exception("loop.failed: %s", name)
        if beats is not None:
            beats.failed(name, error)
        return False
    if beats is not None:
        beats.ran(name)
    return True


async def pause_after_failure() -> None:
    await asyncio.sleep(_FAILED_PAUSE_S)
