"""How long a node that fell silent keeps its jobs: its lease lasts from the last word that it said itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from computepool.hub.services import leases
from computepool.testing.clock import FakeClock
from computepool.testing.hub import running_hub
from tests.hub.submitting import state, submit

LEASE_MS = 60_000
PARKED_MS = 9_000


async def test_a_parked_poll_is_no_word(tmp_path: Path) -> None:
    """The node dies while its poll is parked. When the hub ends the poll by itself, nobody has spoken."""
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, interval_min_s=0.2) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        await node.take()
        poll = asyncio.create_task(node.poll(wait_ms=200))
        await asyncio.sleep(0.05)
        assert hub.hub.registry.sessions[0].waiter is not None
        clock.advance(PARKED_MS)
        await poll

        clock.advance(LEASE_MS - PARKED_MS - 1_000)
        await leases.renew(hub.hub)
        await leases.expire_overdue(hub.hub)
        assert await state(hub.admin, job_id) == "leased"

        clock.advance(2_000)
        await leases.renew(hub.hub)
        await leases.expire_overdue(hub.hub)
        assert await state(hub.admin, job_id) == "queued"
