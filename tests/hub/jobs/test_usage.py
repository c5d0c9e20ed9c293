"""What attempts use over time: told by nodes, bounded, kept after the job and the hub, and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import func, select

from computepool.hub.db.tables import attempt_usage
from computepool.hub.jobs.running import usage
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import submit
from tests.hub.working import got

MINUTE_MS = 60_000


hub = hub_fixture(on=BOTH, usage_points_max=8)


def load(cpu: int, **more: Any) -> dict[str, Any]:
    return {"cpu_percent": cpu, "rss_mb": 10, "processes": 1, **more}


async def start(hub: HubDouble, client: httpx2.AsyncClient) -> tuple[NodeDouble, str, str]:
    node = await hub.node(region="in")
    [job_id] = await submit(client, needs={"cores": 2, "ram_mb": 512})
    [grant] = await node.take()
    return node, job_id, grant.attempt_id


async def tell(node: NodeDouble, attempt: str, cpu: int, **more: Any) -> None:
    node.sign_in()
    said = {"attempt_id": attempt, "load": load(cpu), **more}
    await node.poll(wait_ms=0, running=[said])


async def rows(hub: HubDouble) -> int:
    return await hub.hub.store.read(
        lambda connection: connection.execute(select(func.count()).select_from(attempt_usage)).scalar_one()
    )


async def used(client: httpx2.AsyncClient, job_id: str) -> dict[str, Any]:
    return await got(client, f"/jobs/{job_id}/usage")


@pytest.mark.soak
async def test_a_job_that_runs_and_then_is_done(hub: HubDouble, clock: FakeClock) -> None:
    sam = await hub.account("sam", "submitter")
    node, job_id, attempt = await start(hub, sam)
    began = clock.now_ms()
    empty = await used(sam, job_id)
    assert (empty["cores"], empty["ram_mb"], empty["attempts"][0]["at_ms"]) == (2, 512, [])
    clock.advance(10_000)
    earlier = [load(50, ago_ms=4_000), load(190, ago_ms=2_000)]
    await tell(node, attempt, 100, earlier=earlier)
    clock.advance(10_000)
    await tell(node, attempt, 20, load=load(20, gpu_percent=80, vram_mb=4_000))
    [seen] = (await used(sam, job_id))["attempts"]
    assert seen["live"]
    assert [at - began for at in seen["at_ms"]] == [6_000, 8_000, 10_000, 20_000]
    assert seen["cpu_percent"] == [50, 190, 100, 20]
    assert seen["gpu_percent"] == [0, 0, 0, 80]
    assert seen["now"] == {**load(20, gpu_percent=80, vram_mb=4_000), "at_ms": clock.now_ms()}
    clock.advance(2_000)
    await node.report(attempt, ran_ms=20_000, ended_ago_ms=500, loads=[load(70, ago_ms=1_000)])
    await usage.save(hub.hub)
    assert hub.hub.jobs.usages == {}
    [kept] = (await used(sam, job_id))["attempts"]
    assert not kept["live"]
    assert kept["now"] is None
    assert [at - began for at in kept["at_ms"]] == [6_000, 8_000, 10_000, 20_000, 20_500]
    assert kept["cpu_percent"] == [50, 190, 100, 20, 70]


@pytest.mark.soak
async def test_little_is_kept_of_a_long_run_and_every_peak(hub: HubDouble, clock: FakeClock) -> None:
    node, job_id, attempt = await start(hub, hub.admin)
    for number in range(100):
        clock.advance(10_000)
        await tell(node, attempt, 777 if number == 41 else number)
    [seen] = (await used(hub.admin, job_id))["attempts"]
    assert len(seen["at_ms"]) <= 8
    assert max(seen["cpu_percent"]) == 777
    assert seen["step_ms"] >= 100_000


async def test_a_short_job_leaves_nothing(hub: HubDouble, clock: FakeClock) -> None:
    node, job_id, attempt = await start(hub, hub.admin)
    clock.advance(2_000)
    await tell(node, attempt, 100)
    await node.report(attempt)
    await usage.save(hub.hub)
    assert await rows(hub) == 0
    assert hub.hub.jobs.usages == {}
    assert (await used(hub.admin, job_id))["attempts"][0]["cpu_percent"] == []


async def test_words_about_what_a_node_does_not_hold_are_dropped(hub: HubDouble, clock: FakeClock) -> None:
    node, _, attempt = await start(hub, hub.admin)
    stranger = await hub.node(await hub.account("pia", "provider"))
    await tell(stranger, attempt, 100)
    await stranger.complete([stranger.make_report(attempt, loads=[load(1)])])
    await tell(node, "job_nonsense-1", 100)
    assert hub.hub.jobs.usages == {}


async def test_a_node_cannot_date_it_before_it_had_the_job(hub: HubDouble, clock: FakeClock) -> None:
    node, job_id, attempt = await start(hub, hub.admin)
    began = clock.now_ms()
    clock.advance(5_000)
    await tell(node, attempt, 5, earlier=[load(9, ago_ms=2**53)])
    assert (await used(hub.admin, job_id))["attempts"][0]["at_ms"] == [began, began + 5_000]


@pytest.mark.soak
async def test_the_curve_goes_on_after_the_hub_restarted(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node, job_id, attempt = await start(hub, hub.admin)
        for cpu in (10, 20):
            clock.advance(10_000)
            await tell(node, attempt, cpu)
    async with running_hub(tmp_path, clock=clock) as hub:
        [kept] = (await used(hub.admin, job_id))["attempts"]
        assert kept["cpu_percent"] == [10, 20]
        again = NodeDouble(hub.client(), clock)
        again.key, again.node_id, again.boot_id = node.key, node.node_id, node.boot_id
        again.profile, again.holding = node.profile, node.holding
        again.sign_in()
        await again.poll(wait_ms=0)
        for cpu in (30, 40):
            clock.advance(10_000)
            await tell(again, attempt, cpu)
        [seen] = (await used(hub.admin, job_id))["attempts"]
        assert seen["cpu_percent"] == [10, 20, 30, 40]
        await usage.save(hub.hub, everything=True)
        [seen] = (await used(hub.admin, job_id))["attempts"]
        assert seen["cpu_percent"] == [10, 20, 30, 40]


@pytest.mark.soak
async def test_what_runs_long_is_saved_now_and_then(hub: HubDouble, clock: FakeClock) -> None:
    node, _, attempt = await start(hub, hub.admin)
    for _ in range(4):
        clock.advance(MINUTE_MS)
        await tell(node, attempt, 1)
        await usage.save(hub.hub)
    assert await rows(hub) == 0
    clock.advance(2 * MINUTE_MS)
    await usage.save(hub.hub)
    assert await rows(hub) == 1


@pytest.mark.soak
async def test_it_goes_after_its_time(hub: HubDouble, clock: FakeClock) -> None:
    node, _, attempt = await start(hub, hub.admin)
    for _ in range(3):
        clock.advance(1_000)
        await tell(node, attempt, 1)
    await node.report(attempt)
    await usage.save(hub.hub)
    await usage.prune(hub.hub)
    assert await rows(hub) == 1
    clock.advance(round(hub.hub.settings.usage_keep_s * 1000) + 1)
    await usage.prune(hub.hub)
    assert await rows(hub) == 0


@pytest.mark.soak
async def test_only_so_many_are_watched(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock, usage_series_max=1) as hub:
        node = await hub.node(cores=4)
        await submit(hub.admin, items=2, spec={"timeout_s": 60})
        grants = await node.take(2)
        said = [{"attempt_id": grant.attempt_id, "load": load(1)} for grant in grants]
        await node.poll(wait_ms=0, running=said)
        assert len(hub.hub.jobs.usages) == 1
