"""What a submission may cost at most: ceilings nobody named, and the money set aside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import BadRequest
from computepool.core.fleet.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.money.market import Market
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.core.money.pricing import Economy, Zone, charge_of, first_table
from computepool.core.money.terms import LARGE_FLEET, Ceilings, agree, default_ceiling, likely_places, places_at
from computepool.core.placement.gates import could_run
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape
from tests.core.fleets import fleet_of

HOUR_MS = 3_600_000
GPU = Requirements(gpus=1)


def node(number: int, *, tier: str = "", vram_mb: int = 0, region: str = "us", cores: int = 8) -> NodeProfile:
    gpus = (Gpu(name=tier, tier=tier, vram_mb=vram_mb),) if tier else ()
    return NodeProfile(
        node_id=f"node{number}",
        name=f"node{number}",
        owner="owner",
        region=region,
        level=Level.NAMESPACE,
        capacity=Capacity(cpu_milli=cores * 1000, ram_mb=65_536, disk_mb=100_000, gpus=gpus),
    )


def places_of(made: Fleet, wanted: Requirements) -> dict[Zone, int]:
    return places_at(made, wanted, np.flatnonzero(could_run(made, Shape(wanted, "me"), slice(0, made.rows))))


def ceiling(market: Market, made: Fleet, wanted: Requirements) -> int:
    places = places_of(made, wanted) or likely_places(market, wanted)
    return default_ceiling(market, places.items())


def test_the_default_ceiling_is_twice_the_highest_price_the_job_could_meet() -> None:
    market = Market(first_table(Economy.MARKET))
    made = fleet_of(node(1, tier="rtx-4090", vram_mb=24_576), node(2, tier="rtx-3060", vram_mb=12_288, region="in"))
    assert ceiling(market, made, GPU) == 60 * CREDIT  # 2 × 10 × 3.0 × 1.0
    assert ceiling(market, made, Requirements(cpu_milli=2000)) == 32 * CREDIT  # 2 × 10 × 0.8 × 1.0 × 2 cores
    only_in = Requirements(gpus=1, regions=frozenset({"in"}))
    assert ceiling(market, made, only_in) == 28 * CREDIT  # 2 × 10 × 2.0 × 0.7


def test_it_follows_the_spot_price_up_to_what_a_price_can_become() -> None:
    market = Market(first_table(Economy.MARKET))
    made = fleet_of(node(1, tier="rtx-4090", vram_mb=24_576))
    market.spots[Zone("rtx-4090", "us")] = 45 * CREDIT
    assert ceiling(market, made, GPU) == 90 * CREDIT
    market.spots[Zone("rtx-4090", "us")] = 110 * CREDIT
    assert ceiling(market, made, GPU) == 120 * CREDIT  # four times the reference


def test_part_of_a_card_counts_where_it_is_the_greatest_share() -> None:
    market = Market(first_table(Economy.MARKET))
    made = fleet_of(
        node(1, tier="rtx-4090", vram_mb=24_000),
        node(2, tier="rtx-4090", vram_mb=12_000),  # a card that says less than its sisters
    )
    assert places_of(made, Requirements(vram_mb=6_000)) == {Zone("rtx-4090", "us"): 500}
    assert ceiling(market, made, Requirements(vram_mb=6_000)) == 30 * CREDIT


def test_without_a_node_that_could_run_it_known_prices_decide_then_the_reference() -> None:
    market = Market(first_table(Economy.MARKET))
    wanted = Requirements(gpus=2, tiers=frozenset({"h100"}), regions=frozenset({"in"}))
    assert ceiling(market, fleet_of(), wanted) == 170 * CREDIT  # 2 × 10 × 6.0 × 0.7 × 2 cards = 168
    market.spots[Zone("h100", "us")] = 100 * CREDIT
    assert ceiling(market, fleet_of(), wanted) == 170 * CREDIT  # the wrong region
    market.spots[Zone("h100", "in")] = 50 * CREDIT
    assert ceiling(market, fleet_of(), wanted) == 200 * CREDIT
    market.spots[Zone("cpu", "us")] = 30 * CREDIT
    assert ceiling(market, fleet_of(), GPU) == 200 * CREDIT  # of the cards' zones; a core's price is no card's
    assert ceiling(market, fleet_of(), Requirements()) == 32 * CREDIT


@pytest.mark.parametrize(("economy", "expected"), [(Economy.NONE, 0), (Economy.TIME_BANK, CREDIT)])
def test_other_economies_need_no_rule_of_their_own(economy: Economy, expected: int) -> None:
    market = Market(first_table(economy))
    assert ceiling(market, fleet_of(node(1, tier="h100", vram_mb=80_000)), GPU) == expected
    assert ceiling(market, fleet_of(), GPU) == expected


def remembered(known: Ceilings, made: Fleet, market: Market, *, now_ms: int = 0) -> int:
    return known.find(made, market, Requirements(), account="me", now_ms=now_ms)


def test_what_is_remembered_follows_the_fleet_and_the_prices() -> None:
    known, made, market = Ceilings(), fleet_of(node(1, region="in")), Market(first_table(Economy.MARKET))
    assert remembered(known, made, market) == 12_000_000
    assert remembered(known, made, market, now_ms=10**9) == 12_000_000
    made.upsert(node(2, region="us"))
    assert remembered(known, made, market) == 16 * CREDIT
    market.spots[Zone("cpu", "us")] = 9 * CREDIT
    assert remembered(known, made, market) == 18 * CREDIT
    market.spots.update({Zone("cpu", "us"): 5 * CREDIT, Zone("cpu", "in"): 6 * CREDIT})
    assert remembered(known, made, market) == 12 * CREDIT
    market.table = replace(market.table, version=2, base=2 * CREDIT)
    assert remembered(known, made, market) == 6_400_000  # the spot price follows the new bounds: 4 × 2 × 0.8
    made.remove("node1")
    made.remove("node2")
    assert remembered(known, made, market) == 6_400_000  # the zones still have prices


def test_in_a_large_fleet_the_places_may_be_a_second_old() -> None:
    known, market = Ceilings(), Market(first_table(Economy.MARKET))
    made = fleet_of(*(node(number, region="in") for number in range(LARGE_FLEET)))
    assert remembered(known, made, market) == 12_000_000
    made.upsert(node(LARGE_FLEET, region="us"))
    assert remembered(known, made, market, now_ms=999) == 12_000_000
    assert remembered(known, made, market, now_ms=1_000) == 16 * CREDIT


@given(
    price=st.integers(0, 10**12),
    ms=st.integers(0, 7 * 24 * HOUR_MS),
    items=st.integers(1, 1000),
    budget=st.none() | st.integers(1, AMOUNT_MAX),
)
def test_a_hold_covers_the_longest_run_or_is_the_share_of_the_budget(
    price: int, ms: int, items: int, budget: int | None
) -> None:
    longest = charge_of(price, ms)
    share = longest if budget is None else min(longest, budget // items)
    if share * items > AMOUNT_MAX or (longest and not share):
        with pytest.raises(BadRequest):
            agree(ceiling=price, timeout_ms=ms, items=items, budget=budget)
        return
    made = agree(ceiling=price, timeout_ms=ms, items=items, budget=budget)
    assert made.hold_each == longest or (budget is not None and made.hold_each == budget // items < longest)
    assert made.hold_total == made.hold_each * items <= AMOUNT_MAX
    assert budget is None or made.hold_total <= budget


def test_a_budget_that_leaves_nothing_for_each_job_is_refused() -> None:
    with pytest.raises(BadRequest, match="leaves nothing for each of 3 jobs"):
        agree(ceiling=CREDIT, timeout_ms=HOUR_MS, items=3, budget=2)


def test_a_hold_no_transfer_could_move_is_refused() -> None:
    with pytest.raises(BadRequest, match="more than one transfer may move"):
        agree(ceiling=AMOUNT_MAX, timeout_ms=HOUR_MS, items=2, budget=None)
