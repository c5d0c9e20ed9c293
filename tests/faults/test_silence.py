"""Leases of silent nodes: they last from the node's own last message."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError

from computepool.hub.scheduling import housekeeping, leases
from computepool.hub.scheduling.dispatch import Dispatcher
from computepool.hub.settings import Settings
from computepool.testing.clock import FakeClock
from computepool.testing.hub import running_hub
from tests.hub.submitting import state, submit

LEASE_MS = 60_000
PARKED_MS = 9_000
SUSPECT_MS = 30_000  #: two intervals and ten seconds


@pytest.mark.soak
async def test_a_parked_poll_does_not_renew_the_lease_when_the_hub_ends_it(tmp_path: Path) -> None:
    """The node died while its poll was parked."""
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, interval_min_s=2) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        await node.take()
        poll = asyncio.create_task(node.poll(wait_ms=2_000))
        async with asyncio.timeout(60):
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


async def test_a_suspect_node_gets_no_new_work_until_it_polls(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        quiet = await hub.node(name="quiet", cores=8)
        clock.advance(SUSPECT_MS + 1_000)
        await housekeeping.drop_silent(hub.hub)
        [job_id] = await submit(hub.admin)
        await Dispatcher(hub.hub).rounds()
        assert await state(hub.admin, job_id) == "queued"

        assert [grant.job_id for grant in await quiet.take()] == [job_id]


def test_a_lease_must_be_longer_than_the_time_a_node_stops_before_its_end() -> None:
    """Otherwise every node would fail every job."""
    assert Settings(lease_min_s=11, self_fence_s=10).lease_rules().lease_min_ms == 11_000
    with pytest.raises(ValidationError, match="self_fence_s must be less than lease_min_s"):
        Settings(lease_min_s=10, self_fence_s=10)
