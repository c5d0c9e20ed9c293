"""Silence: nodes that go away, hubs that come back, leases that end. The clock is ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from computepool.hub.services import leases, upkeep
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import job, state, submit


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def sweep(hub: HubDouble) -> None:
    """What the upkeep loop does, now instead of at its interval."""
    await upkeep.drop_silent(hub.hub)
    await hub.dispatcher.follow(await leases.expire_overdue(hub.hub))


async def test_a_silent_node_goes_offline_and_its_job_runs_elsewhere(
    tmp_path: Path, clock: FakeClock
) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        silent = await hub.node(name="silent")
        [job_id] = await submit(hub.admin)
        [grant] = await silent.take()
        other = await hub.node(name="other")

        clock.advance(59_000)
        await other.poll(wait_ms=0)
        await sweep(hub)
        assert await state(hub.admin, job_id) == "leased"

        clock.advance(2_000)
        await other.poll(wait_ms=0)
        await sweep(hub)
        nodes = {node["name"]: node["online"] for node in (await hub.admin.get("/nodes")).json()["nodes"]}
        assert nodes == {"silent": False, "other": True}
        [again] = await other.take()
        assert again.attempt_id == f"{job_id}-2"

        assert await silent.report(grant.attempt_id, result="1") == "accepted_late"
        assert await other.report(again.attempt_id, result="2") == "superseded"
        assert (await hub.admin.get(f"/jobs/{job_id}/result")).json()["result"] == "1"


async def test_heartbeats_keep_a_lease_alive_as_long_as_they_come(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin, spec={"timeout_s": 7200})
        await node.take()
        for _ in range(100):
            clock.advance(20_000)
            node.sign_in()
            await node.poll(wait_ms=0)
            await leases.renew(hub.hub)
            await sweep(hub)
        assert await state(hub.admin, job_id) == "leased"


async def test_a_node_that_ignores_the_time_limit_loses_the_job(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin, spec={"timeout_s": 60})
        [grant] = await node.take()
        for _ in range(20):
            clock.advance(20_000)
            await node.poll(wait_ms=0)
            await leases.renew(hub.hub)
            await sweep(hub)
        found = await job(hub.admin, job_id)
        assert found["tries"][0]["state"] == "expired"
        assert grant.attempt_id not in node.holding


async def test_a_restarted_hub_takes_nothing_back_at_once(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        await node.take()
    clock.advance(3_600_000)  # the hub was away for an hour; the node went on working
    async with running_hub(tmp_path, clock=clock) as hub:
        await sweep(hub)
        assert await state(hub.admin, job_id) == "leased"
        clock.advance(121_000)
        await sweep(hub)
        assert await state(hub.admin, job_id) == "queued"


async def test_a_job_nobody_can_run_expires_after_its_time_to_live(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        [job_id] = await submit(hub.admin, ttl_s=60)
        clock.advance(61_000)
        await sweep(hub)
        ended = await job(hub.admin, job_id)
        assert (ended["state"], ended["reason"]) == ("expired", "queued_too_long")


async def test_the_hubs_clock_jumping_an_hour_loses_and_doubles_nothing(
    tmp_path: Path, clock: FakeClock
) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        [grant] = await node.take()
        clock.advance(-3_600_000)
        await node.poll(wait_ms=0)
        await leases.renew(hub.hub)
        await sweep(hub)
        clock.advance(7_200_000)
        node.sign_in()
        await node.poll(wait_ms=0)
        await leases.renew(hub.hub)
        await sweep(hub)
        assert await state(hub.admin, job_id) == "leased"
        assert await node.report(grant.attempt_id) == "accepted"
