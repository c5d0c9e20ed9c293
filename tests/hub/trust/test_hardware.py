"""Hardware truth: measurements and run times decide the tier by which a node is paid, whatever it claims."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.money.pricing import PriceTable, Zone
from computepool.core.trust.hardware import Scores, Standing, Truth, decide
from computepool.core.trust.relative_speed import RelativeSpeed
from computepool.hub.nodes import nodes
from computepool.hub.trust import hardware, hardware_rows
from computepool.protocol.nodes.profile import Profile
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import hub_fixture, two_hubs
from tests.hub.submitting import submit
from tests.hub.working import got
from tests.hub.writer_gate import Gate

QUIET: dict[str, Any] = {"tick_s": 1_000, "sweep_s": 10_000, "retier_round_s": 10_000, "verify": "none"}
RULES: dict[str, Any] = {"retier_jobs": 6, "measure_history": 2}
CARD: dict[str, Any] = {
    "region": "in",
    "gpus": [{"name": "NVIDIA GeForce RTX 4090", "tier": "rtx-4090", "vram_mb": 24_000}],
}
HONEST, SLOW = 150_000, 12_000
WEEK_MS = 7 * 24 * 3_600_000


pool = hub_fixture(**QUIET, **RULES)


def test_truth_survives_being_stored() -> None:
    truth = Truth(
        standing=Standing.LOWERED,
        scores=Scores(cpu=7, gflops=(1, None)),
        notes=("no",),
        history=((5, Scores(cpu=3)),),
        gpu_tiers=("l4",),
        gpu_speed=RelativeSpeed().add(1.0, "acc"),
    )
    assert hardware_rows.BODY.validate_json(hardware_rows.BODY.dump_json(truth)) == truth


async def asked(hub: HubDouble, node: NodeDouble) -> str:
    """Advance to the time of the first measurement, and poll for the request."""
    assert isinstance(hub.hub.clock, FakeClock)
    hub.hub.clock.advance(10_000)
    hardware.request_due_measurements(hub.hub)
    await node.poll(wait_ms=0)
    return node.measurement


async def measured(hub: HubDouble, node: NodeDouble, **scores: Any) -> dict[str, Any]:
    assert await asked(hub, node)
    answer = await node.report_measurement(**scores)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def retierings(hub: HubDouble, node: NodeDouble) -> list[dict[str, Any]]:
    page = await got(hub.admin, "/events", node_id=node.node_id, limit=500)
    return [event for event in page["events"] if event["action"] == "node.retiered"]


def reference(tier: str) -> int:
    return PriceTable().reference(Zone(tier, "in"))


async def price_of_a_card(sam: httpx2.AsyncClient, node: NodeDouble) -> int:
    await submit(sam, needs={"gpus": 1, "host": node.node_id})
    [grant] = await node.take()
    await node.report(grant.attempt_id)
    return grant.price


async def race(
    hub: HubDouble, rounds: int, *, factor: float, submitters: list[httpx2.AsyncClient], fleet: list[NodeDouble]
) -> None:
    """Each node runs the same jobs; the first takes `factor` times as long. Job sizes vary by a half."""
    for number in range(rounds):
        client = submitters[number % len(submitters)]
        await submit(client, items=len(fleet), needs={"gpus": 1}, retries=0)
        for node in fleet:
            [grant] = await node.take()
            ran_ms = round(1_000 * (1 + (number * 7 + fleet.index(node)) % 5 / 10))
            await node.report(grant.attempt_id, ran_ms=round(ran_ms * (factor if node is fleet[0] else 1)))
        await hardware.judge_runs(hub.hub)


async def fleet_of(hub: HubDouble, count: int = 5) -> list[NodeDouble]:
    owners = [await hub.account(f"owner{number}", "provider") for number in range(count)]
    return [await hub.node(owner, name=f"n{number}", **CARD) for number, owner in enumerate(owners)]


async def test_a_node_is_asked_soon_after_its_first_word_and_then_at_random(pool: HubDouble) -> None:
    node = await pool.node(region="in")
    hardware.request_due_measurements(pool.hub)
    await node.poll(wait_ms=0)
    assert node.measurement == ""  # not the very moment it comes: it may come with jobs
    found = await measured(pool, node, cpu=1_000, memory_mb_s=9_000, disk_mb_s=300, net_mb_s=50, rtt_us=900)
    assert (found["standing"], found["tier"]) == ("confirmed", "cpu")
    session = pool.hub.nodes.registry.get(node.node_id)
    assert session is not None
    wait_ms = session.truth.due_at_ms - pool.hub.now_ms()
    assert 12 * 3_600_000 <= wait_ms <= 36 * 3_600_000
    node.measurement = ""
    assert await asked(pool, node) == ""  # one is enough for today


async def test_a_node_that_leaves_while_its_measurement_is_stored_stays_away(pool: HubDouble) -> None:
    node = await pool.node(**CARD)
    assert await asked(pool, node)
    async with Gate(pool.hub.store) as gate:
        measuring = asyncio.create_task(node.report_measurement(cpu=1_000, gflops=[SLOW]))
        await gate.all_wait(measuring)
        pool.hub.nodes.registry.on_node_lost(node.node_id)
    assert (await measuring).status_code == 200
    assert pool.hub.nodes.registry.fleet.get(node.node_id) is None


async def test_run_times_that_are_judged_while_a_measurement_is_stored_are_kept(pool: HubDouble) -> None:
    node = await pool.node(**CARD)
    assert await asked(pool, node)
    session = pool.hub.nodes.registry.get(node.node_id)
    assert session is not None
    session.truth = replace(session.truth, cpu_cap=100, capped_until_ms=1)
    async with Gate(pool.hub.store) as gate:
        measuring = asyncio.create_task(node.report_measurement(cpu=1_000, gflops=[HONEST]))
        await gate.all_wait(measuring)
        lifting = asyncio.create_task(hardware.lift_caps(pool.hub))
    await lifting
    assert (await measuring).status_code == 200
    assert session.truth.measured_at_ms
    assert session.truth.cpu_cap is None


async def test_an_answer_counts_once_and_only_if_it_was_asked_for(pool: HubDouble) -> None:
    node, other = await pool.node(region="in"), await pool.node(region="in")
    assert (await node.report_measurement(id="made-up", cpu=1)).status_code == 409
    await measured(pool, node, cpu=1_000)
    assert (await node.report_measurement(cpu=5)).status_code == 409
    await asked(pool, other)
    assert (await other.report_measurement(id="made-up", cpu=1)).status_code == 409
    other.key, right = node.key, other.key
    assert (await other.report_measurement(cpu=1_000)).status_code == 403
    other.key = right
    assert (await other.report_measurement(cpu=1_000)).status_code == 200


async def test_a_slow_card_is_paid_as_what_it_does_and_the_owner_is_told(pool: HubDouble) -> None:
    sam, pia = await pool.account("sam", "submitter"), await pool.account("pia", "provider")
    node = await pool.node(pia, **CARD)
    assert await price_of_a_card(sam, node) == reference("rtx-4090")
    await submit(sam, needs={"gpus": 1, "host": node.node_id})
    [before] = await node.take()
    found = await measured(pool, node, cpu=900, gflops=[SLOW])
    assert found["standing"] == "lowered"
    assert found["tier"] == "rtx-3050"
    [event] = await retierings(pool, node)
    assert (event["before"], event["after"]) == ("rtx-4090", "rtx-3050")
    assert "claims rtx-4090" in event["reason"]
    assert "reached 12" in event["reason"]
    why = await got(pia, f"/nodes/{node.node_id}/why")
    assert why["hardware"] == event["reason"]
    seen = await got(sam, f"/nodes/{node.node_id}")
    assert (seen["tier"], seen["hardware"]["claimed"]) == ("rtx-3050", "rtx-4090")
    assert before.price == reference("rtx-4090")  # what was leased keeps its price
    await node.report(before.attempt_id)
    assert await price_of_a_card(sam, node) == reference("rtx-3050")
    earned = await got(pia, f"/nodes/{node.node_id}/earnings")
    assert earned["sales"][0]["tier"] == "rtx-3050"


async def test_a_card_that_no_table_knows_is_paid_by_what_it_does(pool: HubDouble) -> None:
    """Also if the agent is older than the hub and does not know the card."""
    sam, pia = await pool.account("sam", "submitter"), await pool.account("pia", "provider")
    card = {"name": "NVIDIA GeForce RTX 6090", "tier": "gpu", "vram_mb": 48_000}
    node = await pool.node(pia, region="in", gpus=[card])
    assert (await got(sam, f"/nodes/{node.node_id}"))["tier"] == "rtx-6090"
    assert await price_of_a_card(sam, node) == reference("gpu")
    found = await measured(pool, node, cpu=900, gflops=[400_000])
    assert (found["claimed"], found["tier"], found["standing"]) == ("rtx-6090", "rtx-5090", "measured")
    assert found["sentence"] == (
        "GPU 0 (rtx-6090) is in no price table and reached 400 TFLOPS: it counts as rtx-5090, the best of its family that"
        " it matches."
    )
    [event] = await retierings(pool, node)
    assert (event["before"], event["after"]) == ("rtx-6090", "rtx-5090")
    assert await price_of_a_card(sam, node) == reference("rtx-5090")


async def test_measurements_that_vary_a_little_change_no_tier(pool: HubDouble) -> None:
    node = await pool.node(**CARD)
    assert isinstance(pool.hub.clock, FakeClock)
    found: dict[str, Any] = {}
    for gflops in (HONEST, HONEST * 8 // 10, HONEST * 12 // 10, HONEST * 9 // 10):
        node.measurement = ""
        found = await measured(pool, node, cpu=1_000, gflops=[gflops])
        assert (found["standing"], found["tier"]) == ("confirmed", "rtx-4090")
        pool.hub.clock.advance(48 * 3_600_000)
        node.sign_in()
    assert await retierings(pool, node) == []
    assert len(found["history"]) == 2  # of measure_history


async def test_impossible_scores_are_capped_and_flagged(pool: HubDouble) -> None:
    node = await pool.node(**CARD)
    found = await measured(pool, node, cpu=10**9, gflops=[10**9])
    assert found["scores"]["cpu"] == 5_000
    assert found["scores"]["gflops"] == [None]
    assert found["standing"] == "claimed"
    assert len(found["notes"]) == 2
    assert "impossible" in found["sentence"]
    page = await got(pool.admin, "/events", node_id=node.node_id, limit=500)
    assert any(event["action"] == "node.measured" and "impossible" in event["reason"] for event in page["events"])


async def test_slow_cores_are_priced_as_slow_cores(pool: HubDouble) -> None:
    sam, pia = await pool.account("sam", "submitter"), await pool.account("pia", "provider")
    node = await pool.node(pia, region="in")
    await measured(pool, node, cpu=300)
    await submit(sam)
    [grant] = await node.take()
    assert grant.price == reference("cpu-slow") < reference("cpu")


@pytest.mark.soak
async def test_a_node_whose_jobs_run_four_times_slower_is_retiered_whatever_it_measures(pool: HubDouble) -> None:
    sam, sue = await pool.account("sam", "submitter"), await pool.account("sue", "submitter")
    fleet = await fleet_of(pool)
    await measured(pool, fleet[0], cpu=1_000, gflops=[HONEST])  # it lies
    fleet[0].measurement = ""
    await race(pool, 8, factor=4, submitters=[sam, sue], fleet=fleet)
    assert await retierings(pool, fleet[0]) == []  # it is doubted, and asked again
    await fleet[0].poll(wait_ms=0)
    assert fleet[0].measurement
    assert (await fleet[0].report_measurement(cpu=1_000, gflops=[HONEST])).status_code == 200
    await race(pool, 8, factor=4, submitters=[sam, sue], fleet=fleet)
    [event] = await retierings(pool, fleet[0])
    assert event["before"] == "rtx-4090"
    assert "times as long" in event["reason"]
    assert await price_of_a_card(sam, fleet[0]) == reference(event["after"]) < reference("rtx-4090")
    for node in fleet[1:]:
        assert await retierings(pool, node) == []


@pytest.mark.soak
async def test_an_honest_noisy_node_stays_what_it_is(pool: HubDouble) -> None:
    sam, sue = await pool.account("sam", "submitter"), await pool.account("sue", "submitter")
    fleet = await fleet_of(pool)
    await race(pool, 16, factor=1.25, submitters=[sam, sue], fleet=fleet)
    for node in fleet:
        assert await retierings(pool, node) == []
    # Nothing could be measured, but its jobs run as others' do: that confirms the claim too.
    seen = await got(sam, f"/nodes/{fleet[0].node_id}")
    assert seen["hardware"]["compared_jobs"] >= 12


@pytest.mark.soak
async def test_one_submitter_alone_cannot_lower_a_node_that_measures_well(pool: HubDouble) -> None:
    sam = await pool.account("sam", "submitter")
    fleet = await fleet_of(pool)
    await race(pool, 8, factor=4, submitters=[sam], fleet=fleet)
    await fleet[0].poll(wait_ms=0)
    assert (await fleet[0].report_measurement(cpu=1_000, gflops=[HONEST])).status_code == 200
    await race(pool, 8, factor=4, submitters=[sam], fleet=fleet)
    assert await retierings(pool, fleet[0]) == []


@pytest.mark.soak
async def test_a_node_that_does_not_answer_is_lowered_by_its_jobs(pool: HubDouble) -> None:
    sam = await pool.account("sam", "submitter")
    fleet = await fleet_of(pool)
    await race(pool, 8, factor=4, submitters=[sam], fleet=fleet)
    assert isinstance(pool.hub.clock, FakeClock)
    pool.hub.clock.advance(901_000)
    for node in fleet:
        node.sign_in()
    await race(pool, 8, factor=4, submitters=[sam], fleet=fleet)
    assert len(await retierings(pool, fleet[0])) == 1
    # After a week the claim is tried again, also if the agent was started again since.
    pool.hub.clock.advance(WEEK_MS)
    fleet[0].sign_in()
    fleet[0].restart()
    await fleet[0].poll(wait_ms=0)
    assert pool.hub.nodes.registry.fleet[fleet[0].node_id].profile.capacity.tier != "rtx-4090"
    await hardware.lift_caps(pool.hub)
    assert pool.hub.nodes.registry.fleet[fleet[0].node_id].profile.capacity.tier == "rtx-4090"
    [_, lifted] = await retierings(pool, fleet[0])
    assert (lifted["after"], "tried again" in lifted["reason"]) == ("rtx-4090", True)


async def test_truth_survives_a_restart_and_a_new_boot(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, **QUIET) as hub:
        node = await hub.node(**CARD)
        await measured(hub, node, cpu=900, gflops=[SLOW])
    async with running_hub(tmp_path, clock=clock, **QUIET) as hub:
        node.client = hub.client()
        node.sign_in()
        node.restart()
        await node.poll(wait_ms=0)
        assert hub.hub.nodes.registry.fleet[node.node_id].profile.capacity.tier == "rtx-3050"
        node.measurement = ""
        assert await asked(hub, node) == ""  # nor is everybody measured again at once


async def test_another_hubs_verdict_is_followed(pool: HubDouble) -> None:
    node = await pool.node(**CARD)
    truth = Truth(scores=Scores(gflops=(SLOW,)), measured_at_ms=pool.hub.now_ms())
    verdict = decide(truth, ["rtx-4090"], now_ms=pool.hub.now_ms())
    await pool.hub.store.write(lambda tx: hardware_rows.save(tx, {node.node_id: verdict}))
    await nodes.reconcile(pool.hub, node.node_id)
    assert pool.hub.nodes.registry.fleet[node.node_id].profile.capacity.tier == "rtx-3050"


@pytest.mark.soak
async def test_a_node_that_changes_hubs_keeps_its_tier(tmp_path: Path, migrated_url: str) -> None:
    async with two_hubs(tmp_path, migrated_url, clock=FakeClock(), **QUIET) as (first, second):
        node = await first.node(**CARD)
        await measured(first, node, gflops=[SLOW])
        seen = await got(second.admin, f"/nodes/{node.node_id}")  # known here by the store's word alone
        assert (seen["tier"], seen["hardware"]["standing"]) == ("rtx-3050", "lowered")
        node.client = second.client()
        node.sign_in()
        await node.poll(wait_ms=0)
        await node.poll(wait_ms=0)
        assert second.hub.nodes.registry.fleet[node.node_id].profile.capacity.tier == "rtx-3050"


async def test_a_better_claim_does_not_wash_a_measurement_away(pool: HubDouble) -> None:
    node = await pool.node(**CARD)
    await measured(pool, node, gflops=[SLOW])
    gpus = [{"name": "NVIDIA H200", "tier": "h200", "vram_mb": 140_000}]
    node.profile = Profile.model_validate(node.profile.model_dump() | {"gpus": gpus})
    node.restart()
    await node.poll(wait_ms=0)
    assert pool.hub.nodes.registry.fleet[node.node_id].profile.capacity.tier == "rtx-3050"


async def test_nobody_is_asked_where_the_operator_does_not_want_it(tmp_path: Path) -> None:
    async with running_hub(tmp_path, clock=FakeClock(), **QUIET, measure_every_s=0) as hub:
        node = await hub.node()
        assert await asked(hub, node) == ""


async def test_cards_without_the_opt_in_are_for_the_owner_and_whom_he_trusts(pool: HubDouble) -> None:
    sam, pia = await pool.account("sam", "submitter"), await pool.account("pia", "submitter", "provider")
    node = await pool.node(pia, **CARD, lends_gpus=False)
    [job_id] = await submit(sam, needs={"gpus": 1})
    [own] = await submit(pia, needs={"gpus": 1})
    [grant] = await node.take()
    assert grant.job_id == own
    await node.report(grant.attempt_id)
    why = await got(sam, f"/jobs/{job_id}/why")
    assert "gpu_lent" in {gate["gate"] for gate in why["gates"] if gate["failing"]}
    assert "owner and trusted accounts only" in why["sentence"]
    # Its cores are for everybody.
    await submit(sam)
    [grant] = await node.take()
    assert grant.gpus == []
