"""Waits for a sandboxed process from an event loop, without a thread."""

from __future__ import annotations

import asyncio

from computepool.agent.sandbox.base import Exit, Process

PATROL_S = 1.0


async def finish(process: Process) -> Exit:
    """Wait for the Exit of `process`, enforcing its limits meanwhile."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Exit] = loop.create_future()

    timer: asyncio.TimerHandle | None = None

    def read() -> None:
        ended = process.wait(0)
        if ended is not None and not done.done():
            done.set_result(ended)

    def patrol() -> None:
        nonlocal timer
        process.patrol()
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
