"""Effects of an owner's record: new nodes inherit the worst, earnings mature sooner, and banned nodes get no work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.money.money import CREDIT
from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import (
    EXPOSURE_BASE,
    NEWCOMER_SCORE,
    PROBE_WRONG_ACTION,
    REFUTED_ACTION,
    VERIFIED_ACTION,
)
from computepool.hub.money import credits as credit_service
from computepool.hub.settlement.verification import sampling
from computepool.hub.trust import reputation_rows
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.submitting import submit
from tests.hub.working import HOUR, got

FAULT = {"outcome": "failed", "reason": "node_restarted", "exit_code": None}


async def judged(hub: HubDouble, node: NodeDouble, action: str, *, times: int = 1) -> None:
    """Emit what verification would about this node's results, for two submitters in turn."""
    for number in range(times):
        said = {"account_id": f"acc_{number % 2}", "node_id": node.node_id}
        await hub.hub.store.write(lambda tx, said=said: tx.emit(actor="hub", action=action, **said))


async def known(client: httpx2.AsyncClient, node: NodeDouble) -> dict[str, Any]:
    return (await got(client, f"/nodes/{node.node_id}"))["reputation"]


async def test_three_wrong_results_end_work_for_others_and_a_new_key_does_not_help(any_hub: HubDouble) -> None:
    sam = await any_hub.account("sam", "submitter")
    pia = await any_hub.account("pia", "provider", "submitter")
    node = await any_hub.node(pia)
    await judged(any_hub, node, REFUTED_ACTION, times=2)
    assert (await known(pia, node))["recent_violations"] == 2
    assert "2 results were proven wrong" in (await got(pia, f"/nodes/{node.node_id}/why"))["reputation"]
    await judged(any_hub, node, REFUTED_ACTION)
    assert (await known(pia, node))["probation_at_ms"]
    assert "on probation" in (await got(pia, f"/nodes/{node.node_id}/why"))["reputation"]
    await judged(any_hub, node, PROBE_WRONG_ACTION, times=2)
    assert (await known(pia, node))["banned_at_ms"]
    assert "banned" in (await got(pia, f"/nodes/{node.node_id}/why"))["reputation"]
    [job_id] = await submit(sam)
    assert (await node.poll(wait_ms=50)).grants == []
    assert "proven wrong" in (await got(sam, f"/jobs/{job_id}/why"))["sentence"]
    assert (await pia.post(f"/nodes/{node.node_id}/revoke")).status_code == 200
    again = await any_hub.node(pia)
    assert (await known(pia, again))["banned_at_ms"]
    assert (await again.poll(wait_ms=50)).grants == []
    [own] = await submit(pia)  # for its owner it may work
    [grant] = await again.take()
    assert grant.job_id == own
    assert (await any_hub.admin.post(f"/nodes/{again.node_id}/pardon")).status_code == 200
    assert (await known(pia, again))["banned_at_ms"] is None
    assert [grant.job_id for grant in await again.take()] == [job_id]


async def test_whitewashing_keeps_what_counts_against_a_node_and_loses_what_speaks_for_it(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
        good = await hub.node(pia)
        await judged(hub, good, VERIFIED_ACTION, times=12)
        assert (await known(pia, good))["streak"] == 12
        bad = await hub.node(pia)
        assert (await known(pia, bad))["score"] == round(NEWCOMER_SCORE, 4)  # the other one still works
        for _ in range(2):
            await submit(sam, retries=0, needs={"host": bad.node_id})
            grant, *_ = await bad.take()  # the one that failed comes again, maybe with the next
            await bad.report(grant.attempt_id, **FAULT)
        await judged(hub, bad, REFUTED_ACTION)
        low = await known(pia, bad)
        assert low["score"] < NEWCOMER_SCORE
        clock.advance(600_000)  # both are silent: either may come back under another name
        again = await hub.node(pia)
        heir = await known(pia, again)
        assert (heir["failures"], heir["violation_count"], heir["streak"], heir["newcomer_jobs_done"]) == (2, 1, 0, 0)
        assert heir["score"] == pytest.approx(low["score"], abs=0.001)
        fleet = hub.hub.nodes.registry.fleet
        assert fleet.streak(again.node_id) == 0
        assert await hub.hub.store.read(reputation_rows.differing_nodes) == []
        other = await hub.node(await hub.account("oda", "provider"))
        assert (await known(pia, other))["score"] == round(NEWCOMER_SCORE, 4)


async def earn(clock: FakeClock, sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    node.sign_in()
    await node.poll(wait_ms=0)
    await submit(sam, spec=HOUR)
    [grant] = await node.take()
    clock.advance(600_000)
    assert await node.report(grant.attempt_id, ran_ms=540_000) == "accepted"


async def test_earnings_of_a_proven_owner_mature_sooner_unless_a_result_was_wrong(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
        node = await hub.node(pia)
        for _ in range(30):
            await judged(hub, node, VERIFIED_ACTION)
            clock.advance(DAY_MS)
        await earn(clock, sam, node)
        assert (await got(pia, "/credits"))["holdback_ms"] == 3 * DAY_MS
        clock.advance(3 * DAY_MS - 1)
        assert await credit_service.mature(hub.hub) == 0
        clock.advance(1)
        assert await credit_service.mature(hub.hub) == 1
        assert (await got(pia, "/credits"))["maturing"] == 0
        await judged(hub, node, REFUTED_ACTION)
        await earn(clock, sam, node)
        assert (await got(pia, "/credits"))["holdback_ms"] == 7 * DAY_MS
        clock.advance(3 * DAY_MS)
        assert await credit_service.mature(hub.hub) == 0
        clock.advance(4 * DAY_MS)
        assert await credit_service.mature(hub.hub) == 1


async def get(nodes: list[NodeDouble], count: int) -> bool:
    """Whether the nodes get this many jobs in all, and then no more."""
    given = 0
    async with asyncio.timeout(60):
        while given < count:
            given += sum([len((await node.poll(wait_ms=50)).grants) for node in nodes])
    return given == count and not any([(await node.poll(wait_ms=50)).grants for node in nodes])


async def test_a_new_owner_holds_few_jobs_of_others_at_once_and_more_with_every_verified_day(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, exposure=EXPOSURE_BASE) as hub:
        sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
        nodes = [await hub.node(pia, cores=8), await hub.node(pia, cores=8)]
        jobs = await submit(sam, items=9, spec=HOUR, needs={"cores": 1})  # each may cost 16 credits
        assert await get(nodes, 3)
        why = await got(sam, f"/jobs/{jobs[-1]}/why")
        assert "may not hold jobs worth 16" in why["sentence"]
        why = await got(pia, f"/nodes/{nodes[0].node_id}/why")
        assert "may hold jobs worth 50.00 credits, and has 48.00" in why["rows"][0]["reason"]
        assert (await known(pia, nodes[0]))["exposure_cap"] == 50 * CREDIT
        await judged(hub, nodes[1], VERIFIED_ACTION)
        assert (await known(pia, nodes[1]))["exposure_cap"] == 100 * CREDIT
        hub.hub.jobs.queue.wake()  # as after every report
        assert await get(nodes, 3)


async def test_what_is_worth_more_than_a_node_may_hold_is_always_checked(tmp_path: Path) -> None:
    async with running_hub(tmp_path, exposure=EXPOSURE_BASE, verify="adaptive") as hub:
        sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
        node = await hub.node(pia, cores=8)
        await submit(sam, spec=HOUR, needs={"cores": 4})  # 64 credits
        [dear] = await node.take()
        await hub.node(await hub.account("oda", "provider"), cores=8)
        fleet = hub.hub.nodes.registry.fleet
        fleet.set_integrity(node.node_id, streak=10**9, banned=False)
        assert sampling.draw(hub.hub, node.node_id, [dear.attempt_id]).drawn == {dear.attempt_id}
        fleet.set_cap(node.node_id, 64 * CREDIT)
        drawn = sampling.draw(hub.hub, node.node_id, [dear.attempt_id]).drawn
        assert drawn == ({dear.attempt_id} if sampling._draw(hub.hub, dear.attempt_id) < 50_000 else set())


async def test_a_verified_success_counts_once_and_in_full(tmp_path: Path) -> None:
    async with running_hub(tmp_path, verify="adaptive") as hub:
        sam = await hub.account("sam", "submitter")
        nodes = [await hub.node(await hub.account(name, "provider")) for name in ("pia", "oda")]
        await submit(sam)
        done: list[NodeDouble] = []
        while len(done) < 2:
            for node in nodes:
                for grant in (await node.poll(wait_ms=20)).grants:
                    assert await node.report(grant.attempt_id) == "accepted"
                    done.append(node)
        assert {node.node_id for node in done} == {node.node_id for node in nodes}
        for node in nodes:
            found = await known(hub.admin, node)
            assert (found["successes"], found["success_weight"]) == (1, 1.0)
            assert (found["verified"], found["streak"], found["verified_days"]) == (1, 1, 1)
        assert await hub.hub.store.read(reputation_rows.differing_nodes) == []
