"""Keeps this hub in step with what the other hubs did."""

from __future__ import annotations

from computepool.hub.loops.runner import guarded, pause_after_failure
from computepool.hub.scheduling.cache_sync import OtherHubs


async def run(others: OtherHubs) -> None:
    while True:
        if not await guarded("follow", others.catch_up):
            await pause_after_failure()
