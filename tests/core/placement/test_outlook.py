"""Who would take a job at which price: counted by columns, held against asking every node one by one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from computepool.core.fleet.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.money.market import Market
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import Economy, Zone, first_table
from computepool.core.placement.outlook import outlook, percentile
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape

ME = "me"
CARDS = (None, ("rtx-4090", 24_000), ("rtx-4090", 12_000), ("rtx-3060", 12_000))
NODE = st.tuples(
    st.sampled_from(CARDS),
    st.sampled_from(["in", "us"]),
    st.sampled_from([ME, "you"]),
    st.sampled_from([1_000, 4_000]),  # cores
    st.booleans(),  # takes work now
    st.sampled_from([None, 0, 5 * CREDIT, 50 * CREDIT]),  # floor
)
WANTED = st.sampled_from(
    [Requirements(), Requirements(cpu_milli=2_000), Requirements(gpus=1), Requirements(vram_mb=10_000, gpus=1)]
)


def profile(number: int, card: tuple[str, int] | None, region: str, *, owner: str, cores: int) -> NodeProfile:
    gpus = () if card is None else (Gpu(name=card[0], tier=card[0], vram_mb=card[1]),)
    capacity = Capacity(cpu_milli=cores, ram_mb=65_536, disk_mb=100_000, gpus=gpus)
    return NodeProfile(
        node_id=f"n{number}", name=f"n{number}", owner=owner, region=region, level=Level.NAMESPACE, capacity=capacity
    )


@given(nodes=st.lists(NODE, max_size=8), wanted=WANTED, ceiling=st.sampled_from([0, 6 * CREDIT, 25 * CREDIT, 10**12]))
def test_the_columns_agree_with_the_nodes(
    nodes: list[tuple[tuple[str, int] | None, str, str, int, bool, int | None]], wanted: Requirements, ceiling: int
) -> None:
    market = Market(first_table(Economy.MARKET))
    market.spots[Zone("rtx-4090", "in")] = 30 * CREDIT
    fleet = Fleet()
    fleet.set_prices(market)
    shape = Shape(wanted, ME, ceiling=ceiling)
    able: Counter[tuple[object, bool]] = Counter()
    agreed, now = Counter(able), Counter(able)
    for number, (card, region, owner, cores, takes_work, floor) in enumerate(nodes):
        node = profile(number, card, region, owner=owner, cores=cores)
        fleet.upsert(node)
        fleet.set_available(node.node_id, takes_work)
        fleet.set_floor(node.node_id, floor)
        enough_cards = not wanted.gpus or (card is not None and card[1] >= wanted.vram_mb)
        if cores < wanted.cpu_milli or not enough_cards:
            continue
        offer = market.offer(shape, node)
        own = owner == ME
        least = market.floor_in(offer.zone.tier, node_tier=node.capacity.tier, floor=floor or 0)
        pays = own or (offer.price <= ceiling and least <= market.table.net_of(offer.spot))
        key = (offer, own)
        able[key] += 1
        agreed[key] += pays
        now[key] += pays and takes_work
    seen = outlook(fleet, market, shape)
    assert {(group.offer, group.own): group.able for group in seen.groups} == dict(able)
    assert {(s.offer, s.own): (s.agreed, s.now) for s in seen.groups} == {key: (agreed[key], now[key]) for key in able}
    assert (seen.nodes, seen.able, seen.now) == (len(nodes), able.total(), now.total())
    prices = [group.offer.price for group in seen.groups]
    assert prices == sorted(prices)
    likely = seen.likely()
    assert bool(likely) == bool(able)
    assert all(group.now for group in likely) or not seen.now


def test_an_empty_fleet_offers_nothing() -> None:
    seen = outlook(Fleet(), Market(first_table(Economy.MARKET)), Shape(Requirements(), ME))
    assert (seen.nodes, seen.able, seen.now, seen.likely()) == (0, 0, 0, [])


@pytest.mark.parametrize(
    ("values", "half", "most"),
    [([7], 7, 7), ([1, 2], 1, 2), ([1, 2, 3], 2, 3), (list(range(1, 11)), 5, 9), (list(range(1, 101)), 50, 90)],
)
def test_percentiles_are_values_that_occurred(values: list[int], half: int, most: int) -> None:
    assert (percentile(values, 50), percentile(values, 90)) == (half, most)
