"""What the first texts about this pool had wrong, one test each. S1 to S9 are the numbers of the list of mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import HOUR_MS, PriceTable
from computepool.core.trust.tiers import tier_of
from computepool.hub.scheduling import leases
from computepool.hub.settings import Settings
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.submitting import job, submit

GPU = {"gpus": 1}


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubDouble]:
    """Its clock is ours, and no price moves by itself."""
    async with running_hub(tmp_path, clock=FakeClock(), tick_s=100_000) as running:
        yield running


def card(name: str) -> dict[str, Any]:
    return {"gpus": [{"name": name, "tier": tier_of(name), "vram_mb": 11_000}], "cores": 8}


async def run_for_an_hour(hub: HubDouble, node: NodeDouble, job_id: str) -> dict[str, Any]:
    clock = hub.hub.clock
    assert isinstance(clock, FakeClock)
    [grant] = await node.take()
    assert grant.job_id == job_id
    clock.advance(HOUR_MS)
    node.sign_in()
    assert await node.report(grant.attempt_id, ran_ms=HOUR_MS) == "accepted"
    return await job(hub.admin, job_id)


async def test_s1_one_job_goes_to_one_of_fifty_pollers_and_none_gets_nothing(hub: HubDouble) -> None:
    nodes = [await hub.node() for _ in range(50)]
    assert not any(reply.grants for reply in await asyncio.gather(*(node.poll(wait_ms=0) for node in nodes)))
    parked = [asyncio.ensure_future(node.poll(wait_ms=5_000)) for node in nodes]
    [job_id] = await submit(hub.admin)
    replies = await asyncio.gather(*parked)
    assert [grant.job_id for reply in replies for grant in reply.grants] == [job_id]


async def test_s2_what_a_silent_node_held_is_given_to_another(hub: HubDouble) -> None:
    clock, silent = hub.hub.clock, await hub.node()
    assert isinstance(clock, FakeClock)
    [job_id] = await submit(hub.admin)
    await silent.take()
    clock.advance(hub.hub.nodes.registry.lease_ms + 15_000)
    other = await hub.node()
    await leases.expire_overdue(hub.hub)
    [grant] = await other.take()
    assert (grant.job_id, grant.attempt_no) == (job_id, 2)


async def test_s3_a_4090_in_india_earns_one_point_four_times_a_1080_ti_in_london(hub: HubDouble) -> None:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    charges: list[int] = []
    for name, region in (("NVIDIA GeForce RTX 4090", "in"), ("NVIDIA GeForce GTX 1080 Ti", "uk")):
        node = await hub.node(pia, region=region, **card(name))
        [job_id] = await submit(sam, needs=GPU | {"regions": [region]}, spec={"timeout_s": 7200})
        charges.append((await run_for_an_hour(hub, node, job_id))["charge"])
    assert Fraction(*charges) == Fraction(14, 10)
    assert charges == [21 * CREDIT, 15 * CREDIT]


async def test_s4_a_node_that_fails_one_minimum_never_wins_by_another(hub: HubDouble) -> None:
    """All the cores in the world are no video memory."""
    giant = await hub.node(cores=1_000, ram_mb=10**6)
    small = await hub.node(**card("GTX 1080 Ti"))
    [job_id] = await submit(hub.admin, needs={"vram_mb": 8_000})
    [grant] = await small.take()
    assert grant.job_id == job_id
    assert not (await giant.poll(wait_ms=0)).grants


async def test_s5_no_amount_is_a_float(hub: HubDouble) -> None:
    assert type(PriceTable().payout_min) is int
    assert PriceTable().payout_min == 500 * CREDIT
    for amount in (500.0, 0.1, "500", 1e3):
        answer = await hub.admin.post("/credits/top-ups", json={"account": "admin", "amount": amount})
        assert answer.status_code == 422, answer.text
    credits = (await hub.admin.get("/credits")).json()
    assert all(type(credits[name]) is int for name in ("available", "withdrawable", "held", "maturing"))


@pytest.mark.parametrize("name", ["4090", "Fake 4090", "GTX 4090", "Radeon 4090"])
def test_s6_a_name_that_merely_contains_4090_is_no_4090(name: str) -> None:
    assert tier_of(name) == "gpu"


async def test_s6_what_a_node_calls_itself_does_not_raise_the_price_of_a_core(hub: HubDouble) -> None:
    """A card is paid for by jobs that use it. What it really is, is measured elsewhere."""
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    node = await hub.node(pia, region="us", **card("NVIDIA GeForce RTX 4090"))
    [job_id] = await submit(sam, needs={"cores": 1}, spec={"timeout_s": 7200})
    assert (await run_for_an_hour(hub, node, job_id))["charge"] == 8 * CREDIT


def test_s7_every_interval_is_said_once_and_follows_from_it() -> None:
    rules = Settings().lease_rules()
    for nodes, interval_ms in ((1, 10_000), (40_000, 10_000), (100_000, 25_000), (10**6, 50_000)):
        assert rules.interval_ms(nodes) == interval_ms
        assert rules.suspect_after_ms(interval_ms) == 2 * interval_ms + 10_000
        assert rules.offline_after_ms(interval_ms) == max(60_000, 3 * interval_ms)
        assert rules.lease_ms(interval_ms) == max(60_000, 3 * interval_ms)
    assert (rules.self_fence_ms, round(Settings().sweep_s * 1000)) == (10_000, 10_000)


async def test_s8_one_table_and_its_version_is_on_whatever_was_priced_by_it(hub: HubDouble) -> None:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    node = await hub.node(pia, region="us", cores=1)
    [old] = await submit(sam, spec={"timeout_s": 7200})
    [grant] = await node.take()
    table = (await hub.admin.get("/prices")).json()
    names = ("base", "tiers", "regions", "fee_ppm", "spot_range", "payout_min")
    changed = {name: table[name] for name in names} | {"base": 20 * CREDIT, "fee_ppm": 0, "based_on": 1}
    assert (await hub.admin.put("/prices", json=changed)).status_code == 200
    clock = hub.hub.clock
    assert isinstance(clock, FakeClock)
    clock.advance(HOUR_MS)
    node.sign_in()
    await node.report(grant.attempt_id, ran_ms=HOUR_MS)
    [new] = await submit(sam, spec={"timeout_s": 7200})
    await run_for_an_hour(hub, node, new)
    costs = [(await sam.get(f"/jobs/{id_}/cost")).json() for id_ in (old, new)]
    assert [cost["price_version"] for cost in costs] == [1, 2]
    assert [(await job(sam, id_))["charge"] for id_ in (old, new)] == [8 * CREDIT, 16 * CREDIT]
    quote = (await sam.post("/quotes", json={"needs": {"cores": 1}})).json()
    assert quote["price_version"] == 2


@pytest.mark.parametrize("name", ["god", "root", "administrator", "Admin"])
async def test_s9_no_name_gives_rights(hub: HubDouble, name: str) -> None:
    them = await hub.account(name, "submitter", "provider")
    top_up = {"account": name, "amount": CREDIT}
    assert (await them.post("/credits/top-ups", json=top_up)).status_code == 403
    assert (await them.post("/accounts", json={"name": "x", "roles": ["admin"]})).status_code == 403
    assert (await them.get("/accounts")).status_code == 403
