"""The dispatch loop: places queued jobs after any change: a submission, free capacity, a node, the end of a back-off."""

from __future__ import annotations

import asyncio

from computepool.hub.context import Hub
from computepool.hub.loops.runner import pause_after_failure, run_tick
from computepool.hub.scheduling.cache_sync import OtherHubs
from computepool.hub.scheduling.dispatch import Dispatcher

_LOAD_ALL_S = 60.0  #: how often the whole queue is loaded as a safety net


async def run(hub: Hub, dispatcher: Dispatcher) -> None:
    hub.observability.loop_health.begin("dispatch", hub.settings.resync_s)
    loop = asyncio.get_running_loop()
    loaded_at = loop.time()
    while True:
        await _wait(hub)
        if loop.time() - loaded_at >= _LOAD_ALL_S:
            await run_tick("dispatch.load_all", hub.jobs.queue.load_all)
            loaded_at = loop.time()
        hub.jobs.queue.changed.clear()
        if not await run_tick("dispatch", dispatcher.rounds, health=hub.observability.loop_health):
            await pause_after_failure()
            hub.jobs.queue.wake()


async def follow(others: OtherHubs) -> None:
    """Apply what the other hubs did."""
    while True:
        if not await run_tick("follow", others.catch_up):
            await pause_after_failure()


async def _wait(hub: Hub) -> None:
    due_ms = hub.jobs.queue.backlog.next_due_ms()
    timeout_s = hub.settings.resync_s if due_ms is None else max(0.0, (due_ms - hub.now_ms()) / 1000)
    try:
        # Not wait_for: on Python 3.11 it loses a cancellation that arrives together with the event.
        async with asyncio.timeout(min(timeout_s, hub.settings.resync_s)):
            await hub.jobs.queue.changed.wait()
    except TimeoutError:
        await run_tick("dispatch.resync", hub.jobs.queue.resync)
