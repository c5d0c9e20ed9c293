"""How long a node that fell silent keeps its jobs: its lease lasts from the last word that it said itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from computepool.hub.scheduling import housekeeping, leases
from computepool.hub.scheduling.dispatch import Dispatcher
from computepool.testing.clock import FakeClock
from computepool.testing.hub import running_hub
from tests.hub.submitting import state, submit

LEASE_MS = 60_000
PARKED_MS = 9_000
SUSPECT_MS = 30_000  #: two intervals and ten seconds


@pytest.mark.soak
async def test_a_parked_poll_is_no_word(tmp_path: Path) -> None:
    """The node dies while its poll is parked. When the hub ends the poll by itself, nobody has spoken."""
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, interval_min_s=2) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        await node.take()
        poll = asyncio.create_task(node.poll(wait_ms=2_000))
        async with asyncio.timeout(10):
            while hub.hub.nodes.registry.sessions[0].waiter is None:  # noqa: ASYNC110 - it is soft state
                await asyncio.sleep(0.005)
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


async def test_a_node_that_may_be_gone_gets_no_new_work(tmp_path: Path) -> None:
    """It keeps what it has until its lease is over, but what comes now goes to those who speak."""
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        quiet = await hub.node(name="quiet", cores=8)
        clock.advance(SUSPECT_MS + 1_000)
        await housekeeping.drop_silent(hub.hub)
        [job_id] = await submit(hub.admin)
        await Dispatcher(hub.hub).rounds()
        assert await state(hub.admin, job_id) == "queued"

        assert [grant.job_id for grant in await quiet.take()] == [job_id]
