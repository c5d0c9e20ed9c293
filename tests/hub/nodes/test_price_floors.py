"""Price floors apply at once and everywhere, and earnings agree with prices and ledger."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.core.money.pricing import Zone
from computepool.hub.money.market import spot_prices
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from computepool.testing.waiting import eventually
from tests.hub.fixtures import hub_fixture, two_hubs
from tests.hub.submitting import state, submit
from tests.hub.untouched import untouched

QUIET: dict[str, Any] = {"tick_s": 1_000, "sweep_s": 10_000}
#: The price of a core in India, 10 × 0.8 × 0.7, and what remains after the fee.
SPOT = 5_600_000
NET = 4_480_000
DAY_MS = 24 * 3_600_000


pool = hub_fixture(**QUIET)


async def people(hub: HubDouble) -> tuple[httpx2.AsyncClient, httpx2.AsyncClient, NodeDouble]:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    return sam, pia, await hub.node(pia, region="in")


async def put(client: httpx2.AsyncClient, path: str, floor: object) -> dict[str, Any]:
    answer = await client.put(path, json={"floor": floor})
    assert answer.status_code == 200, answer.text
    return answer.json()


def held(hub: HubDouble, node: NodeDouble) -> int | None:
    """The floor that placements see."""
    fleet = hub.hub.nodes.registry.fleet
    row = fleet[node.node_id].row
    assert row is not None
    return fleet.node_at(row).floor


async def stays_away(hub: HubDouble, node: NodeDouble) -> bool:
    hub.hub.jobs.queue.wake()
    return not any([(await node.poll(wait_ms=50)).grants for _ in range(3)])


async def starts(node: NodeDouble, job_id: str) -> bool:
    [grant] = await node.take()
    await node.report(grant.attempt_id)
    return grant.job_id == job_id


async def test_a_floor_above_the_price_keeps_other_peoples_jobs_away_until_it_is_lowered(pool: HubDouble) -> None:
    sam, pia, node = await people(pool)
    said = await put(pia, f"/nodes/{node.node_id}/floor", NET + 1)
    assert said["sentence"] == (
        "The node asks for 4.480001 a unit-hour and cpu/in pays 4.48 after the fee: it waits for a higher price."
    )
    [job_id] = await submit(sam)
    assert await stays_away(pool, node)
    why = (await sam.get(f"/jobs/{job_id}/why")).json()
    assert "want more than the spot price pays" in why["sentence"]
    told = (await pia.get(f"/nodes/{node.node_id}/why")).json()
    assert "its owner wants 4.480001/h for a core" in told["rows"][0]["reason"]
    said = await put(pia, f"/nodes/{node.node_id}/floor", NET)
    assert said["sentence"].endswith("it takes jobs.")
    assert await starts(node, job_id)


@pytest.mark.soak
async def test_an_owners_own_jobs_ignore_the_floor(pool: HubDouble) -> None:
    node = await pool.node(region="in")
    await put(pool.admin, f"/nodes/{node.node_id}/floor", AMOUNT_MAX)
    [job_id] = await submit(pool.admin, max_price=0)
    assert await starts(node, job_id)


@pytest.mark.soak
async def test_a_floor_that_can_never_be_paid_says_so(pool: HubDouble) -> None:
    _, pia, node = await people(pool)
    said = await put(pia, f"/nodes/{node.node_id}/floor", 18 * CREDIT)
    assert "more than cpu/in can ever pay (17.92)" in said["sentence"]


@pytest.mark.soak
async def test_the_default_floor_applies_to_nodes_without_one(pool: HubDouble) -> None:
    _, pia, node = await people(pool)
    other = await pool.node(pia, region="in", name="other")
    stranger = await pool.node(region="in", name="stranger")
    await put(pia, f"/nodes/{other.node_id}/floor", 7)
    said = await put(pia, "/market/floor", 5)
    assert (said["nodes"], held(pool, node), held(pool, other), held(pool, stranger)) == (1, 5, 7, None)
    said = await put(pia, f"/nodes/{other.node_id}/floor", None)
    assert (said["floor"], said["default"], held(pool, other)) == (None, 5, 5)
    assert (await pia.get("/market/floor")).json()["sentence"] == (
        "The default floor is 0.000005 a unit-hour after the fee; it holds for 2 nodes of yours."
    )
    await put(pia, "/market/floor", None)
    assert (held(pool, node), held(pool, other)) == (None, None)


async def test_a_floor_of_zero_overrides_the_default(pool: HubDouble) -> None:
    _, pia, node = await people(pool)
    await put(pia, "/market/floor", 9 * CREDIT)
    await put(pia, f"/nodes/{node.node_id}/floor", 0)
    assert held(pool, node) == 0


@pytest.mark.soak
async def test_floors_are_events_and_repeats_are_not(pool: HubDouble) -> None:
    _, pia, node = await people(pool)
    for floor in (5, 5, None, None):
        await put(pia, f"/nodes/{node.node_id}/floor", floor)
        await put(pia, "/market/floor", floor)
    events = (await pia.get("/events", params={"limit": 100})).json()["events"]
    seen = [(event["action"], event["before"], event["after"]) for event in events if "floor" in event["action"]]
    assert seen == [
        ("node.floor", "none", "5"),
        ("account.floor", "none", "5"),
        ("node.floor", "5", "none"),
        ("account.floor", "5", "none"),
    ]


@pytest.mark.soak
async def test_a_floor_outlives_restarts_of_node_and_hub(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, **QUIET) as hub:
        _, pia, node = await people(hub)
        await put(pia, f"/nodes/{node.node_id}/floor", 3)
        node.restart()
        await node.poll(wait_ms=0)
        assert held(hub, node) == 3
        away = await hub.node(pia, region="in", name="away")
        hub.hub.nodes.registry.on_node_lost(away.node_id)
        await put(pia, "/market/floor", 4)
        await put(pia, f"/nodes/{away.node_id}/floor", 8)
        away.restart()
        await away.poll(wait_ms=0)
        assert held(hub, away) == 8
    async with running_hub(tmp_path, clock=clock, **QUIET) as hub:
        node.client = hub.client()
        node.sign_in()
        node.restart()
        await node.poll(wait_ms=0)
        assert held(hub, node) == 3


@pytest.mark.soak
async def test_a_floor_set_at_one_hub_applies_at_the_other(tmp_path: Path, migrated_url: str) -> None:
    async with two_hubs(tmp_path, migrated_url) as (first, second):
        node = await second.node(region="in")
        for path, floor in ((f"/nodes/{node.node_id}/floor", 7), ("/market/floor", 9)):
            await put(first.admin, path, floor)
        await eventually(lambda: held(second, node) == 7)
        await put(first.admin, f"/nodes/{node.node_id}/floor", None)
        await eventually(lambda: held(second, node) == 9)


#: tests/tidy/test_no_float_money.py tries more amounts.
BAD_FLOORS = [b'{"floor": -1}', b'{"floor": 1.0}', b'{"floor": NaN}', b'{"floor": 5, "extra": 1}', b"{}", b"", b"null"]


@pytest.mark.soak
async def test_bad_floors_change_nothing(hub: HubDouble, subtests: pytest.Subtests) -> None:
    node = await hub.node(region="in")
    for path, body in itertools.product(["/market/floor", f"/nodes/{node.node_id}/floor"], BAD_FLOORS):
        with subtests.test(path=path, body=body):
            async with untouched(hub):
                answer = await hub.admin.put(path, content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code == 422, answer.text
            assert held(hub, node) is None


@pytest.mark.parametrize(
    ("economy", "said"),
    [
        (
            "time-bank",
            "The economy of this pool is time-bank: an hour costs one credit everywhere, so there are no floors.",
        ),
        ("none", "The economy of this pool is none: nothing has a price, so there are no floors."),
    ],
)
async def test_there_are_no_floors_without_a_market(tmp_path: Path, economy: str, said: str) -> None:
    async with running_hub(tmp_path, economy=economy, **QUIET) as hub:
        node = await hub.node(region="in")
        for path in ("/market/floor", f"/nodes/{node.node_id}/floor"):
            answer = await hub.admin.put(path, json={"floor": 5})
            assert (answer.status_code, answer.json()["detail"]) == (409, said)
            await put(hub.admin, path, None)
        await spot_prices.tick(hub.hub)
        [zone] = (await hub.admin.get("/market")).json()["zones"]
        price = CREDIT if economy == "time-bank" else 0
        assert (zone["spot"], zone["low"], zone["high"]) == (price, price, price)
        seen = (await hub.admin.get("/market")).json()
        assert (seen["economy"], zone["sentence"]) == (economy, "")
        assert ("one credit" in seen["sentence"]) == (economy == "time-bank")


async def test_floors_and_ceilings_make_the_markets_depth(pool: HubDouble) -> None:
    sam, pia, node = await people(pool)
    dear = await pool.node(pia, region="in", name="dear", cores=2)
    await put(pia, f"/nodes/{node.node_id}/floor", 4 * CREDIT)
    await put(pia, f"/nodes/{dear.node_id}/floor", 40 * CREDIT)
    await submit(sam, needs={"cores": 8}, items=2, max_price=16 * CREDIT)
    [zone] = (await pool.admin.get("/market")).json()["zones"]
    assert zone["floors"] == [
        {"floor": 4 * CREDIT, "price": 5 * CREDIT, "units": 4_000},
        {"floor": 40 * CREDIT, "price": 50 * CREDIT, "units": 2_000},
    ]
    assert zone["ceilings"] == [], "no node has eight cores"
    await submit(sam, needs={"cores": 2}, items=3, max_price=2 * CREDIT)
    [zone] = (await pool.admin.get("/market")).json()["zones"]
    assert zone["ceilings"] == [{"price": CREDIT, "units": 6_000}]
    assert (zone["capacity"], zone["demand"], zone["nodes"]) == (4_000, 0, 2)


# earnings


async def earnings(client: httpx2.AsyncClient, node: NodeDouble) -> dict[str, Any]:
    answer = await client.get(f"/nodes/{node.node_id}/earnings")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.soak
async def test_earnings_show_an_estimate_and_the_past(pool: HubDouble) -> None:
    sam, pia, node = await people(pool)
    other = await pool.node(pia, region="us", name="other", cores=1)
    clock: Any = pool.hub.clock
    paid = []
    for days in (20, 3, 0):
        node.sign_in()
        await submit(sam, needs={"cores": 1, "regions": ["in"]}, max_price=100 * CREDIT, spec={"timeout_s": 7200})
        [grant] = await node.take()
        clock.advance(3_600_000)
        node.sign_in()
        await node.report(grant.attempt_id, ran_ms=1_800_000)
        paid.append(grant.price // 2 * 8 // 10)
        clock.advance(days * DAY_MS)
    node.sign_in()
    await node.poll(wait_ms=0)
    found = await earnings(pia, node)
    assert [(part["days"], part["amount"], part["jobs"]) for part in found["past"]] == [
        (1, paid[2], 1),
        (7, paid[1] + paid[2], 2),
        (30, sum(paid), 3),
    ]
    assert [part["amount"] for part in (await earnings(pia, other))["past"]] == [0, 0, 0]
    [sale] = found["sales"]
    assert (sale["units"], sale["spot"], sale["per_hour"]) == (4_000, SPOT, 4 * NET)
    assert (sale["in_money"], found["floor"], found["sentence"]) == (
        True,
        None,
        "No minimum price set: the node takes any price.",
    )


async def test_the_estimate_per_day_follows_the_zones_utilisation(pool: HubDouble) -> None:
    sam, pia, node = await people(pool)
    await submit(sam, items=2, max_price=100 * CREDIT)
    await node.take(2)
    await spot_prices.tick(pool.hub)
    [sale] = (await earnings(pia, node))["sales"]
    spot = pool.hub.money.market.spot(Zone("cpu", "in"))
    net = pool.hub.money.market.table.net_of(4 * spot)
    assert (sale["utilisation_ppm"], sale["per_hour"], sale["per_day"]) == (500_000, net, net * 12)


async def test_a_node_with_cards_sells_cards_and_cores(pool: HubDouble) -> None:
    _, pia, _ = await people(pool)
    card = {"name": "RTX 4090", "tier": "rtx-4090", "vram_mb": 24_000}
    node = await pool.node(pia, region="in", name="gpu", gpus=[card, card])
    await put(pia, f"/nodes/{node.node_id}/floor", 20 * CREDIT)
    found = await earnings(pia, node)
    cards, cores = found["sales"]
    assert (cards["tier"], cards["units"], cards["spot"], cards["floor"]) == (
        "rtx-4090",
        2_000,
        21 * CREDIT,
        20 * CREDIT,
    )
    assert (cores["tier"], cores["units"], cores["floor"]) == ("cpu", 4_000, 5_333_334)
    assert (found["in_money"], cards["per_day"], cards["per_hour"]) == (False, 0, 33_600_000)
    assert "waits for a higher price" in found["sentence"]


@pytest.mark.parametrize("case", ["paused", "offline", "unsafe"])
async def test_why_a_node_earns_nothing(pool: HubDouble, case: str) -> None:
    _, pia, node = await people(pool)
    if case == "paused":
        await pia.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
        said = "The node is paused"
    elif case == "offline":
        pool.hub.nodes.registry.on_node_lost(node.node_id)
        pool.hub.clock.advance(DAY_MS)  # type: ignore[attr-defined]
        said = "The node is offline"
    else:
        node = await pool.node(pia, isolation="process", name="unsafe")
        said = "no sandbox for other accounts' jobs"
    assert said in (await earnings(pia, node))["sentence"]


async def test_own_jobs_earn_nothing(pool: HubDouble) -> None:
    node = await pool.node(region="in")
    [job_id] = await submit(pool.admin)
    [grant] = await node.take()
    assert grant.price == 0
    await node.report(grant.attempt_id, ran_ms=5)
    assert await state(pool.admin, job_id) == "succeeded"
    assert [part["jobs"] for part in (await earnings(pool.admin, node))["past"]] == [0, 0, 0]
