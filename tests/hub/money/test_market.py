"""Spot prices: counted, decided once, recorded, shown, and fixed for running jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from computepool.core.money.market import next_spot
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import PriceTable, Zone
from computepool.hub.db.money_tables import spots
from computepool.hub.db.session import Connection, Tx
from computepool.hub.main import check
from computepool.hub.money.market import rows as market_rows, spot_prices
from computepool.hub.money.market.rows import Count
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.fixtures import BOTH, hub_fixture, two_hubs
from tests.hub.submitting import job, submit

#: Ticks come only when a test says so. No sweep or dispatch by itself finds nodes silent after the clock was advanced.
QUIET: dict[str, Any] = {"tick_s": 1_000, "sweep_s": 10_000, "resync_s": 10_000}
TICK_MS = 1_000_000
CPU = Zone("cpu", "in")
REFERENCE = 5_600_000  # 10 × 0.8 × 0.7
HOUR_MS = 3_600_000


pool = hub_fixture(on=BOTH, **QUIET)


async def tick(*hubs: HubDouble, times: int = 1) -> None:
    for _ in range(times):
        hubs[0].hub.clock.advance(TICK_MS)  # type: ignore[attr-defined]
        for hub in hubs:
            await spot_prices.tick(hub.hub)


async def zone_of(hub: HubDouble, zone: Zone = CPU) -> dict[str, Any]:
    answer = await hub.admin.get("/market")
    assert answer.status_code == 200, answer.text
    return next(seen for seen in answer.json()["zones"] if (seen["tier"], seen["region"]) == (zone.tier, zone.region))


async def recorded(hub: HubDouble) -> list[Any]:
    statement = select(spots).order_by(spots.c.tier, spots.c.region, spots.c.tick)
    return list(await hub.hub.store.read(lambda connection: connection.execute(statement).all()))


@pytest.mark.soak
async def test_the_price_follows_the_queue_and_falls_back(pool: HubDouble) -> None:
    sam, pia = await pool.account("sam", "submitter"), await pool.account("pia", "provider")
    node = await pool.node(pia, region="in")
    await tick(pool)
    seen = await zone_of(pool)
    assert (seen["capacity"], seen["demand"], seen["spot"]) == (4_000, 0, REFERENCE * 95 // 100)
    assert (seen["reference"], seen["low"], seen["high"]) == (REFERENCE, REFERENCE // 4, REFERENCE * 4)
    assert seen["sentence"] == "Demand is 0 % of supply, below the 75 % balance point; the price will fall."
    jobs = await submit(sam, items=12, max_price=100 * CREDIT)
    node.sign_in()
    await node.take(4)
    await tick(pool, times=3)
    seen = await zone_of(pool)
    assert (seen["capacity"], seen["demand"], seen["utilisation_ppm"]) == (4_000, 12_000, 3_000_000)
    assert seen["spot"] > REFERENCE
    assert seen["sentence"] == "Demand is 300 % of supply, above the 75 % balance point; the price will rise."
    for job_id in jobs:
        await sam.post(f"/jobs/{job_id}/cancel")
    node.sign_in()
    await node.poll(wait_ms=0)
    await tick(pool, times=80)
    assert (await zone_of(pool))["spot"] == REFERENCE // 4


async def test_a_running_job_keeps_its_price(pool: HubDouble) -> None:
    sam, pia = await pool.account("sam", "submitter"), await pool.account("pia", "provider")
    node = await pool.node(pia, region="in")
    [job_id] = await submit(sam, max_price=100 * CREDIT)
    [grant] = await node.take()
    assert grant.price == REFERENCE
    await submit(sam, items=50, max_price=100 * CREDIT)
    await tick(pool, times=5)
    assert pool.hub.money.market.spot(CPU) > REFERENCE
    node.sign_in()
    await node.report(grant.attempt_id, ran_ms=HOUR_MS // 2)
    assert (await job(sam, job_id))["charge"] == REFERENCE // 2


async def test_every_price_can_be_computed_again_from_the_record(pool: HubDouble) -> None:
    sam, pia = await pool.account("sam", "submitter"), await pool.account("pia", "provider")
    node = await pool.node(pia, region="in")
    await pool.node(pia, region="us")
    for round_ in range(12):
        await tick(pool)
        if round_ % 4 == 1:
            await submit(sam, items=round_, max_price=6 * CREDIT)
        if round_ % 4 == 3:
            node.sign_in()
            for grant in await node.take():
                await node.report(grant.attempt_id)
    table = PriceTable()
    before: dict[Zone, int] = {}
    rows = await recorded(pool)
    assert len(rows) > 12
    for row in rows:
        zone = Zone(row.tier, row.region)
        last = before.get(zone, table.reference(zone))
        price = next_spot(last, capacity=row.capacity, demand=row.demand, bounds=table.bounds(zone))
        assert (row.price, row.price_version) == (price, 1)
        before[zone] = row.price


async def test_priced_out_jobs_do_not_raise_the_price(pool: HubDouble) -> None:
    sam, pia = await pool.account("sam", "submitter"), await pool.account("pia", "provider")
    await pool.node(pia, region="in")
    await submit(sam, items=100, max_price=1)
    await tick(pool, times=3)
    seen = await zone_of(pool)
    assert (seen["demand"], seen["spot"] < REFERENCE) == (0, True)
    assert seen["ceilings"] == [{"price": 1, "units": 100_000}]


async def test_a_job_starts_when_the_price_falls_to_its_ceiling(pool: HubDouble) -> None:
    sam, pia = await pool.account("sam", "submitter"), await pool.account("pia", "provider")
    node = await pool.node(pia, region="in")
    [job_id] = await submit(sam, max_price=5 * CREDIT)
    why = (await sam.get(f"/jobs/{job_id}/why")).json()
    assert why["sentence"] == (
        "Waiting: it pays at most 5.00/h, and the price is 5.60/h in cpu/in; with --max-price 5.60 it could start now on 1 node."
    )
    await tick(pool, times=3)  # 5 % each
    pool.hub.jobs.queue.wake()
    node.sign_in()
    [grant] = await node.take()
    assert grant.job_id == job_id
    assert grant.price <= 5 * CREDIT


async def test_a_restarted_hub_goes_on_with_the_prices_it_had(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, **QUIET) as hub:
        await hub.node(region="in")
        await tick(hub, times=4)
        price = hub.hub.money.market.spot(CPU)
        assert price < REFERENCE
    async with running_hub(tmp_path, clock=clock, **QUIET) as hub:
        assert hub.hub.money.market.spot(CPU) == price
        await hub.node(region="in")
        await tick(hub)
        assert hub.hub.money.market.spot(CPU) == price + price * -50_000 // 1_000_000


async def test_ticks_in_which_nothing_moved_leave_no_record(pool: HubDouble) -> None:
    await pool.node(region="in")
    await tick(pool, times=60)
    at_bottom = len(await recorded(pool))
    assert pool.hub.money.market.spot(CPU) == REFERENCE // 4
    await tick(pool, times=20)
    assert len(await recorded(pool)) == at_bottom


async def test_a_pool_without_nodes_records_nothing(pool: HubDouble) -> None:
    await tick(pool, times=3)
    assert await recorded(pool) == []
    assert (await pool.admin.get("/market")).json()["zones"] == []


async def test_old_records_go_but_never_the_price(pool: HubDouble) -> None:
    rows = [_row(CPU, at * TICK_MS, price=REFERENCE + at) for at in range(5)]
    rows.append(_row(Zone("cpu", "us"), 0, price=7))
    await pool.hub.store.write(lambda tx: tx.connection.execute(insert(spots), rows))
    await pool.hub.store.write(lambda tx: market_rows.prune(tx, before=3 * TICK_MS))
    left = [(row.region, row.tick // TICK_MS) for row in await recorded(pool)]
    assert left == [("in", 3), ("in", 4), ("us", 0)]
    await pool.hub.store.write(lambda tx: market_rows.prune(tx, before=100 * TICK_MS))
    assert [(row.region, row.tick // TICK_MS) for row in await recorded(pool)] == [("in", 4), ("us", 0)]
    await spot_prices.load(pool.hub)
    assert pool.hub.money.market.spots[CPU] == REFERENCE + 4
    await spot_prices.prune(pool.hub)


def _row(zone: Zone, at: int, *, price: int, capacity: int = 1, demand: int = 0) -> dict[str, Any]:
    return {
        "tier": zone.tier,
        "region": zone.region,
        "tick": at,
        "price": price,
        "capacity": capacity,
        "demand": demand,
        "price_version": 1,
    }


# history


async def history(hub: HubDouble, **params: Any) -> dict[str, Any]:
    answer = await hub.admin.get("/market/history", params={"tier": "cpu", "region": "in", **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_history_is_in_steps_with_their_lowest_and_highest(pool: HubDouble) -> None:
    now = pool.hub.now_ms()
    begin = now - 10 * HOUR_MS
    minutes = {-5: 50, 0: 100, 10: 140, 50: 120, 190: 90}
    rows = [_row(CPU, begin + at * 60_000, price=price, demand=at + 5) for at, price in minutes.items()]
    await pool.hub.store.write(lambda tx: tx.connection.execute(insert(spots), rows))
    found = await history(pool, since_ms=begin, step_ms=HOUR_MS)
    points = found["points"]
    assert len(points) == 10
    assert [point["at_ms"] for point in points] == [begin + hour * HOUR_MS for hour in range(10)]
    assert [point["price"] for point in points] == [120, 120, 120, *[90] * 7]
    assert [(points[0]["low"], points[0]["high"]), (points[1]["low"], points[1]["high"])] == [(100, 140), (120, 120)]
    assert (points[0]["demand"], points[9]["demand"]) == (55, 195)
    early = await history(pool, since_ms=begin - 2 * HOUR_MS, step_ms=HOUR_MS)
    assert len(early["points"]) == 11, "before the first record there is no price"


async def test_history_is_bounded_whatever_is_asked(pool: HubDouble) -> None:
    rows = [_row(CPU, pool.hub.now_ms() - at * 1_000, price=at) for at in range(1, 3_000)]
    await pool.hub.store.write(lambda tx: tx.connection.execute(insert(spots), rows))
    found = await history(pool, since_ms=0, step_ms=1)
    assert len(found["points"]) <= 1_000
    assert found["step_ms"] == -(-pool.hub.now_ms() // 1_000)
    assert len((await history(pool, since_ms=pool.hub.now_ms() - 500_000))["points"]) <= 240
    assert len((await history(pool))["points"]) <= 240


BAD_QUESTIONS: list[tuple[dict[str, Any], int, str]] = [
    ({"tier": "cpu", "region": "mars"}, 404, "No price has been recorded for cpu/mars."),
    ({"since_ms": 2**53}, 422, "since_ms must be in the past."),
    ({"since_ms": -1}, 422, "since_ms"),
    ({"step_ms": 0}, 422, "step_ms"),
    ({"step_ms": "NaN"}, 422, "step_ms"),
    ({"tier": "x'; drop"}, 422, "tier"),
    ({"region": "\x00"}, 422, "region"),
    ({"since_ms": 10**30}, 422, "since_ms"),
]


async def test_bad_questions_about_past_prices_are_refused(hub: HubDouble, subtests: pytest.Subtests) -> None:
    for params, status, said in BAD_QUESTIONS:
        with subtests.test(params=params):
            answer = await hub.admin.get("/market/history", params=params)
            assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text


async def test_the_market_shows_the_trend_and_the_price_an_hour_ago(pool: HubDouble) -> None:
    await pool.node(region="in")
    now = pool.hub.now_ms()
    rows = [_row(CPU, now - 7 * HOUR_MS, price=2 * CREDIT), _row(CPU, now - 2 * HOUR_MS, price=3 * CREDIT)]
    await pool.hub.store.write(lambda tx: tx.connection.execute(insert(spots), rows))
    await spot_prices.load(pool.hub)
    await tick(pool)
    seen = await zone_of(pool)
    assert len(seen["trend"]) == 24
    assert (seen["trend"][0], seen["hour_ago"]) == (2 * CREDIT, 3 * CREDIT)
    assert seen["trend"][-1] == seen["spot"] == 2_850_000


# several hubs


@pytest.fixture
async def two(tmp_path: Path, migrated_url: str) -> AsyncIterator[tuple[HubDouble, HubDouble]]:
    async with two_hubs(tmp_path, migrated_url, clock=FakeClock(), **QUIET) as hubs:
        yield hubs
        assert check(hubs[0].hub.settings) == []


async def test_two_hubs_agree_on_every_price(two: tuple[HubDouble, HubDouble]) -> None:
    first, second = two
    sam = await first.account("sam", "submitter")
    await first.node(region="in", cores=3)
    await second.node(region="in", cores=1)
    await second.node(region="us", cores=2)
    await submit(sam, items=40, needs={"cores": 1, "regions": ["in"]}, max_price=100 * CREDIT)
    for _ in range(8):
        await tick(first, second)
        await tick(second, first)
        spots_here, spots_there = first.hub.money.market.spots, second.hub.money.market.spots
        assert spots_here == spots_there
    assert set(first.hub.money.market.spots) == {CPU, Zone("cpu", "us")}
    newest = max(await recorded(first), key=lambda row: (row.region == "in", row.tick))
    assert (newest.capacity, newest.demand) == (4_000, 40_000), "the queue of all hubs counts once"
    here, there = await zone_of(first), await zone_of(second)
    assert [(seen["spot"], seen["capacity"]) for seen in (here, there)] == [(newest.price, 4_000)] * 2


@pytest.mark.soak
async def test_hubs_that_decide_at_once_decide_once(two: tuple[HubDouble, HubDouble]) -> None:
    first, second = two
    await first.node(region="in")
    await second.node(region="in")
    for _ in range(10):
        first.hub.clock.advance(TICK_MS)  # type: ignore[attr-defined]
        await asyncio.gather(spot_prices.tick(first.hub), spot_prices.tick(second.hub))
        await spot_prices.tick(first.hub)
        assert first.hub.money.market.spots == second.hub.money.market.spots
    rows = await recorded(first)
    assert len({row.tick for row in rows}) == len(rows)
    prices = [row.price for row in rows]
    assert all(after >= before * 95 // 100 - 1 for before, after in pairwise(prices))


@pytest.mark.soak
async def test_a_hub_that_is_gone_counts_no_more(two: tuple[HubDouble, HubDouble]) -> None:
    first, second = two
    await first.node(region="in", cores=1)
    await second.node(region="in", cores=3)
    await tick(first, second)
    await tick(second, first)
    assert (await recorded(first))[-1].capacity == 4_000
    await tick(first, times=3)
    assert (await recorded(first))[-1].capacity == 1_000


@pytest.mark.soak
async def test_new_prices_of_one_hub_hold_at_the_other(two: tuple[HubDouble, HubDouble]) -> None:
    first, second = two
    await second.node(region="in")
    body = (await first.admin.get("/prices")).json()
    wanted = ("tiers", "regions", "fee_ppm", "spot_range", "payout_min")
    change = {name: body[name] for name in wanted} | {"based_on": 1, "base": 20 * CREDIT}
    answer = await first.admin.put("/prices", json=change)
    assert answer.status_code == 200, answer.text
    await _until(lambda: second.hub.money.market.table.version == 2)
    assert second.hub.money.market.spot(CPU) == 2 * REFERENCE
    assert (await zone_of(second))["reference"] == 2 * REFERENCE


async def _until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not met():  # noqa: ASYNC110 - what happens at another hub has no event here
            await asyncio.sleep(0.01)


# the store


async def test_counts_of_one_hub_replace_each_other(pool: HubDouble) -> None:
    us = Zone("cpu", "us")

    def unit(tx: Tx) -> None:
        market_rows.put_counts(tx, hub_id="x", tick=10, counts={CPU: Count(5, 4), us: Count(1, 1)})
        market_rows.put_counts(tx, hub_id="y", tick=10, counts={CPU: Count(2, 1)})
        market_rows.put_counts(tx, hub_id="x", tick=20, counts={CPU: Count(7, 6)})

    def sums(connection: Connection) -> list[dict[Zone, Count]]:
        return [
            market_rows.sum_counts(connection, since=10),
            market_rows.sum_counts(connection, since=11),
            market_rows.sum_counts(connection, since=10, but="x"),
        ]

    await pool.hub.store.write(unit)
    assert await pool.hub.store.read(sums) == [{CPU: Count(9, 7)}, {CPU: Count(7, 6)}, {CPU: Count(2, 1)}]


async def test_the_first_to_write_a_tick_decides(pool: HubDouble) -> None:
    def unit(tx: Tx) -> None:
        for price in (5, 9):
            market_rows.insert_price(tx, CPU, tick=10, price=price, count=Count(1, 1), price_version=1)

    await pool.hub.store.write(unit)
    assert [row.price for row in await recorded(pool)] == [5]
