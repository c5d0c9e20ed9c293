"""Waiting for a sandboxed process from an event loop, without a thread. Owns nothing but the waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from computepool.agent.sandbox.base import Exit, Process, ProcessUsage

PATROL_S = 1.0


async def finish(process: Process, *, on_usage: Callable[[ProcessUsage], None] | None = None) -> Exit:
    """The Exit of `process`. Enforces its limits meanwhile and tells `on_usage` about each look at it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Exit] = loop.create_future()

    timer: asyncio.TimerHandle | None = None

    def read() -> None:
        ended = process.wait(0)
        if ended is not None and not done.done():
            done.set_result(ended)

    def patrol() -> None:
        nonlocal timer
        used = process.patrol()
        if on_usage is not None:
            on_usage(used)
        timer = loop.call_later(PATROL_S, patrol)
        read()

    descriptor = process.fileno()
    timer = loop.call_later(PATROL_S, patrol)
    loop.add_reader(descriptor, read)
    try:
        read()
        return await done
    finally:
        if timer is not None:
            timer.cancel()
        loop.remove_reader(descriptor)
