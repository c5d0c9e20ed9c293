"""What counts as supply and demand: against a plain count, and in runs of a small market with the real fleet and queue."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import Reservation
from computepool.core.isolation import Level
from computepool.core.money.demand import MarketCount, _split, merge
from computepool.core.money.market import Market, next_spot
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.core.money.pricing import PriceTable, Zone
from computepool.core.placement.backlog import Backlog
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape
from tests.core.fleet_oracle import REGIONS, Pair, PlainNode, PlainPrices, gates, loaded_fleets, markets, shapes

CPU_IN = Zone("cpu", "in")
CORE = Requirements(cpu_milli=1_000, ram_mb=0, disk_mb=0)


def node(node_id: str, *, cores: int = 4, region: str = "in", **fields: object) -> NodeProfile:
    capacity = Capacity(cpu_milli=cores * 1_000, ram_mb=32_000, disk_mb=32_000)
    defaults = {"name": node_id, "owner": "owner", "level": Level.NAMESPACE, "capacity": capacity}
    return NodeProfile(node_id=node_id, region=region, **{**defaults, **fields})  # type: ignore[arg-type]


def fleet_of(*profiles: NodeProfile, spots: dict[Zone, int] | None = None) -> tuple[Fleet, Market]:
    fleet, market = Fleet(), Market(PriceTable())
    market.spots = spots or {}
    fleet.set_prices(market)
    for profile in profiles:
        fleet.upsert(profile)
    return fleet, market


def counted(
    fleet: Fleet, market: Market, waiting: dict[Shape, int], others: dict[Zone, int] | None = None
) -> dict[Zone, tuple[int, int]]:
    counting = MarketCount(fleet, market, others)
    for shape, jobs in waiting.items():
        counting.add(shape, jobs)
    return {zone: (found.capacity, found.demand) for zone, found in counting.zones.items()}


# against a plain count


def plain_capacity(plain: PlainNode, prices: PlainPrices, *, cards: bool) -> int:
    """What one node counts for its zone, card by card and job by job."""
    profile, total = plain.profile, plain.profile.capacity
    lent = profile.level >= Level.NAMESPACE and (profile.lends_gpus or not cards)
    for_sale = plain.available and (lent or "*" in profile.trusted)
    probe = Shape(replace(CORE, gpus=int(cards)), "nobody")
    if not for_sale or not prices.accepts(plain, probe):
        free = 0
    elif cards:
        free = sum(
            plain.card_free_mb(index) * 1_000 // gpu.vram_mb if plain.card_free_mb(index) > 0 else 0
            for index, gpu in enumerate(total.gpus)
        )
    else:
        free = max(0, total.cpu_milli - plain.used("cpu_milli"))
    return free + sum(held.units for held in plain.held if bool(held.cards) == cards)


@pytest.mark.soak
@settings(max_examples=100)
@given(loaded_fleets(), markets)
def test_capacity_is_what_is_offered_and_met_and_what_runs(pair: Pair, prices: PlainPrices) -> None:
    pair.follow(prices)
    market = pair.fleet.prices.market
    assert market is not None
    expected: Counter[Zone] = Counter()
    for plain in pair.nodes.values():
        region = REGIONS[plain.profile.region]
        expected[Zone("cpu", region)] += plain_capacity(plain, prices, cards=False)
        if plain.profile.capacity.gpus:
            zone = Zone(plain.profile.capacity.tier, region)
            expected[zone] += plain_capacity(plain, prices, cards=True)
    found = MarketCount(pair.fleet, market).zones
    assert {zone: count.capacity for zone, count in found.items()} == dict(expected)
    assert {zone: count.demand for zone, count in found.items()} == {z: c.busy for z, c in found.items()}


@pytest.mark.soak
@settings(max_examples=100)
@given(loaded_fleets(), markets, shapes, st.integers(1, 1_000))
def test_waiting_jobs_count_once_and_only_where_they_pay(
    pair: Pair, prices: PlainPrices, shape: Shape, jobs: int
) -> None:
    pair.follow(prices)
    market = pair.fleet.prices.market
    assert market is not None
    counting = MarketCount(pair.fleet, market)
    counting.add(shape, jobs)
    queued = {zone: count.queued for zone, count in counting.zones.items() if count.queued}
    stranger = replace(shape, account="nobody")
    payable = {
        offer.zone: offer.units
        for plain in pair.nodes.values()
        if all(ok for gate, ok in gates(plain, shape, idle=True).items())
        for offer in [market.offer(stranger, plain.profile)]
        if shape.ceiling is None or offer.price <= shape.ceiling
    }
    assert queued.keys() <= payable.keys()
    largest = max((jobs * units for units in payable.values()), default=0)
    if not shape.requirements.vram_mb:  # a share of a card is another number of units on every card
        assert sum(queued.values()) == largest
    elif payable:
        assert 0 < sum(queued.values()) <= jobs * 1_000 * max(1, shape.requirements.gpus)


@given(
    st.integers(0, 10**6),
    st.integers(0, 64_000),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=8),
    st.integers(0, 10**9),
)
def test_a_split_loses_nothing_and_follows_the_weights(jobs: int, units: int, weights: list[int], beside: int) -> None:
    parts = _split(jobs, [units] * len(weights), weights=weights, beside=beside)
    total = sum(weights) + beside
    if not total:
        assert not any(parts)
        return
    assert sum(parts) == jobs * units * sum(weights) // total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - Fraction(jobs * units * weight, total)) < 1


def test_a_job_for_any_region_is_split_as_capacity_is() -> None:
    fleet, market = fleet_of(node("a", cores=3), node("b", cores=1, region="us"))
    waiting = {Shape(CORE, "ann"): 8}
    assert counted(fleet, market, waiting) == {CPU_IN: (3_000, 6_000), Zone("cpu", "us"): (1_000, 2_000)}
    bound = {Shape(replace(CORE, regions=frozenset({"us"})), "ann"): 8}
    assert counted(fleet, market, bound) == {CPU_IN: (3_000, 0), Zone("cpu", "us"): (1_000, 8_000)}


def test_priced_out_jobs_do_not_count() -> None:
    fleet, market = fleet_of(node("a"), spots={CPU_IN: 8 * CREDIT})
    assert counted(fleet, market, {Shape(CORE, "ann", ceiling=8 * CREDIT - 1): 100}) == {CPU_IN: (4_000, 0)}
    assert counted(fleet, market, {Shape(CORE, "ann", ceiling=8 * CREDIT): 100}) == {CPU_IN: (4_000, 100_000)}
    two = replace(CORE, cpu_milli=2_000)
    assert counted(fleet, market, {Shape(two, "ann", ceiling=8 * CREDIT): 100}) == {CPU_IN: (4_000, 0)}


def test_a_job_that_no_node_could_ever_run_does_not_count() -> None:
    fleet, market = fleet_of(node("a"))
    hopeless = Shape(replace(CORE, tags=frozenset({"nobody-has-this"})), "ann")
    assert counted(fleet, market, {hopeless: 10_000}) == {CPU_IN: (4_000, 0)}


def test_a_floor_above_the_price_is_no_capacity() -> None:
    fleet, market = fleet_of(node("a"), node("b"))
    fleet.set_floor("a", AMOUNT_MAX)
    assert counted(fleet, market, {}) == {CPU_IN: (4_000, 0)}
    fleet.set_floor("b", AMOUNT_MAX)
    assert counted(fleet, market, {Shape(CORE, "ann"): 2}) == {CPU_IN: (0, 2_000)}, "and then the price rises"


def test_what_the_owner_runs_at_home_is_no_part_of_the_market() -> None:
    fleet, market = fleet_of(node("a"))
    assert fleet.reserve("a", CORE, "owner")
    assert counted(fleet, market, {}) == {CPU_IN: (3_000, 0)}
    assert fleet.reserve("a", CORE, "ann")
    assert counted(fleet, market, {}) == {CPU_IN: (3_000, 1_000)}


def test_a_node_without_a_sandbox_is_not_for_sale() -> None:
    fleet, market = fleet_of(node("a", level=Level.PROCESS), node("b", level=Level.PROCESS, trusted=frozenset({"*"})))
    assert counted(fleet, market, {}) == {CPU_IN: (4_000, 0)}


def test_a_paused_node_offers_nothing_but_what_it_runs_counts() -> None:
    fleet, market = fleet_of(node("a"))
    held = fleet.reserve("a", CORE, "ann")
    fleet.set_available("a", False)
    assert counted(fleet, market, {}) == {CPU_IN: (1_000, 1_000)}
    assert isinstance(held, Reservation)
    fleet.release("a", held)
    assert counted(fleet, market, {}) == {CPU_IN: (0, 0)}


def test_hubs_share_one_queue_without_counting_it_twice() -> None:
    first, market = fleet_of(node("a", cores=3))
    second, _ = fleet_of(node("b", cores=1))
    waiting = {Shape(CORE, "ann"): 10}
    here = counted(first, market, waiting, {CPU_IN: 1_000})[CPU_IN]
    there = counted(second, market, waiting, {CPU_IN: 3_000})[CPU_IN]
    assert (here, there) == ((3_000, 7_500), (1_000, 2_500))
    idle, _ = fleet_of()
    assert counted(idle, market, waiting, {CPU_IN: 4_000}) == {}


def test_nodes_that_come_and_go_while_it_is_counted_do_no_harm() -> None:
    fleet, market = fleet_of(node("a"), node("b", region="us"))
    counting = MarketCount(fleet, market)
    for number in range(100):
        fleet.upsert(node(f"late{number}", region=f"r{number}"))
    fleet.remove("b")
    counting.add(Shape(CORE, "ann", ceiling=100 * CREDIT), 4)
    counting.add_ceilings(Shape(CORE, "ann", ceiling=100 * CREDIT), 4)
    counting.add_floors()
    counting.add(Shape(CORE, "ann", ceiling=1), 4)
    assert {zone: count.demand for zone, count in counting.zones.items()} == {CPU_IN: 4_000, Zone("cpu", "us"): 0}


def test_gpu_jobs_are_counted_by_the_card() -> None:
    cards = (Gpu(name="x", tier="rtx-4090", vram_mb=24_000),) * 2
    capacity = Capacity(cpu_milli=8_000, ram_mb=32_000, disk_mb=32_000, gpus=cards)
    fleet, market = fleet_of(node("a", capacity=capacity))
    zone = Zone("rtx-4090", "in")
    assert fleet.reserve("a", replace(CORE, vram_mb=6_000), "ann")
    assert counted(fleet, market, {Shape(replace(CORE, gpus=2), "ann"): 3}) == {
        zone: (2_000, 250 + 6_000),
        CPU_IN: (7_000, 0),
    }


def test_depth_shows_floors_and_ceilings_by_the_unit() -> None:
    fleet, market = fleet_of(node("a"), node("b"), node("c", cores=2), spots={CPU_IN: 8 * CREDIT})
    fleet.set_floor("b", 5 * CREDIT)
    fleet.set_floor("c", 50 * CREDIT)
    counting = MarketCount(fleet, market)
    counting.add_floors()
    two = replace(CORE, cpu_milli=2_000)
    for shape, jobs in {Shape(two, "ann", ceiling=12 * CREDIT): 3, Shape(CORE, "bob"): 1}.items():
        counting.add(shape, jobs)
        counting.add_ceilings(shape, jobs)
    found = counting.zones[CPU_IN]
    assert found.floors == {0: 4_000, 5 * CREDIT: 4_000, 50 * CREDIT: 2_000}
    assert found.ceilings == {6 * CREDIT: 6_000, None: 1_000}
    assert (found.free, found.unmet, found.queued, found.nodes) == (8_000, 2_000, 1_000, 3)


def test_levels_are_taken_together_under_the_last_price() -> None:
    levels = [(price, 1) for price in range(10)]
    assert merge(levels, 3) == [(3, 4), (7, 4), (9, 2)]
    assert merge(levels, 10) == levels
    assert merge([], 3) == []


# a small market


class Bazaar:
    """Nodes, jobs that run for some ticks, and a price every tick: the real fleet, backlog, count and rule."""

    def __init__(self, *profiles: NodeProfile) -> None:
        self.fleet, self.market = fleet_of(*profiles)
        self.backlog = Backlog()
        self.running: list[tuple[int, str, Reservation]] = []
        self.work: Counter[str] = Counter()
        self.tick = 0
        self.jobs = 0

    def submit(self, count: int, *, ceiling: int | None = None) -> None:
        for _ in range(count):
            self.jobs += 1
            shape = Shape(CORE, f"account-{self.jobs % 3}", ceiling=ceiling)
            self.backlog.add(f"j{self.jobs}", shape, age_key=f"{self.jobs:08}")

    def step(self, *, runs: int = 4, count_priced_out: bool = False) -> None:
        self.tick += 1
        for end, node_id, held in [job for job in self.running if job[0] <= self.tick]:
            self.fleet.release(node_id, held)
            self.running.remove((end, node_id, held))
        while self.backlog.can_take_more(self.fleet):
            for number, (_, placement) in enumerate(self.backlog.take(self.fleet, 512)):
                end = self.tick + runs + number % 3
                self.running.append((end, placement.node_id, placement.reservation))
                self.work[placement.node_id] += 1
        counting = MarketCount(self.fleet, self.market)
        for shape, jobs in self.backlog.shapes().items():
            counting.add(replace(shape, ceiling=None) if count_priced_out else shape, jobs)
        for zone, found in counting.zones.items():
            self.market.spots[zone] = next_spot(
                self.market.spot(zone),
                capacity=found.capacity,
                demand=found.demand,
                bounds=self.market.table.bounds(zone),
            )
        self.fleet.set_prices(self.market)

    @property
    def spot(self) -> int:
        return self.market.spot(CPU_IN)


def bazaar(nodes: int) -> Bazaar:
    return Bazaar(*(node(f"n{number}") for number in range(nodes)))


@pytest.mark.parametrize("wrong", [False, True])
def test_priced_out_jobs_must_not_drive_the_price_away_from_everybody(wrong: bool) -> None:
    """A thousand jobs pay 10.00 at most. Counted although they do not pay, they would push the price to its bound,
    where nobody works: that is what happens with the mistake put in."""
    market = bazaar(20)
    market.submit(2_000, ceiling=10 * CREDIT)
    for _ in range(100):
        market.step(count_priced_out=wrong)
    work = sum(market.work.values())
    if wrong:
        assert market.spot == market.market.table.bounds(CPU_IN)[1]
        assert not market.running
    else:
        assert market.spot <= 10 * CREDIT * 105 // 100
        assert market.running
        assert work > 1_000


def test_the_price_follows_demand_up_and_down() -> None:
    market = bazaar(20)
    reference = market.spot
    for _ in range(60):
        market.submit(40)
        market.step()
    busy = market.spot
    assert busy > 2 * reference
    while market.running or len(market.backlog):
        market.step()
    for _ in range(100):
        market.step()
    assert market.spot == market.market.table.bounds(CPU_IN)[0]


def test_high_floors_come_in_as_the_price_rises() -> None:
    market = bazaar(10)
    floor = market.spot  # gross 25 % above the reference
    for number in range(5, 10):
        market.fleet.set_floor(f"n{number}", floor)
    for _ in range(30):
        market.submit(20)
        market.step()
    dear = sum(market.work[f"n{number}"] for number in range(5, 10))
    assert dear > 0
    assert market.market.table.net_of(market.spot) >= floor


def test_four_hundred_nodes_that_join_do_not_stampede_one() -> None:
    """The work of a long queue spreads over all who are in the money: no floor buys a better place."""
    market = bazaar(20)
    market.submit(1_000)
    for _ in range(4):
        market.step()
    before = market.spot
    for number in range(400):
        market.fleet.upsert(node(f"new{number}"))
        market.fleet.set_floor(f"new{number}", number * 20_000 if number % 2 else None)
    market.work.clear()
    for _ in range(20):
        market.submit(600)
        market.step()
        in_money = [profile.node_id for profile in market.fleet if _in_money(market, profile.node_id)]
        share = max(market.work.values()) / (sum(market.work.values()) / len(in_money))
        assert share <= 3, f"one node has {share:.1f} times the mean"
    assert len(market.work) >= 400, "nearly everybody got work"
    assert before // 4 < market.spot < 4 * before


def _in_money(market: Bazaar, node_id: str) -> bool:
    row = market.fleet[node_id].row
    return row is not None and bool(market.fleet.prices.cpu.met[row])
