"""The price gate: who is considered at today's prices, what people are told, and when waiting jobs are tried again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from computepool.core.fleet.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.money.market import Market
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.core.money.pricing import PriceTable, Zone
from computepool.core.placement.allocator import eligible, place
from computepool.core.placement.backlog import Backlog
from computepool.core.placement.explain import explain, explain_node, preview
from computepool.core.placement.gates import GATES, cheapest
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape
from tests.core.fleet_oracle import FLOORS, Pair, PlainPrices, loaded_fleets, markets, shapes
from tests.core.fleets import fleet_of

PRICE = next(gate for gate in GATES if gate.name == "price")
CPU_IN = Zone("cpu", "in")


def node(node_id: str, *, gpus: tuple[tuple[str, int], ...] = (), **fields: object) -> NodeProfile:
    cards = tuple(Gpu(name=tier, tier=tier, vram_mb=mb) for tier, mb in gpus)
    capacity = Capacity(cpu_milli=8_000, ram_mb=32_000, disk_mb=500_000, gpus=cards)
    defaults = {"name": node_id, "owner": "owner", "level": Level.NAMESPACE, "region": "in"}
    return NodeProfile(node_id=node_id, capacity=capacity, **{**defaults, **fields})  # type: ignore[arg-type]


def market_of(spots: dict[Zone, int] | None = None, **table: object) -> Market:
    market = Market(PriceTable(**table))  # type: ignore[arg-type]
    market.spots = spots or {}
    return market


def shape(ceiling: int | None = None, account: str = "ann", **wanted: object) -> Shape:
    return Shape(Requirements(**wanted), account, ceiling=ceiling)  # type: ignore[arg-type]


def passing(fleet: Fleet, wanted: Shape) -> set[str]:
    return {fleet.node_at(row).profile.node_id for row in np.flatnonzero(eligible(fleet, wanted)).tolist()}


@settings(max_examples=150)
@given(loaded_fleets(), markets, st.data())
def test_the_gate_and_the_offer_never_disagree(pair: Pair, prices: PlainPrices, data: st.DataObject) -> None:
    """Also with ceilings that are a price, and a crumb less: the gate divides where the offer multiplies."""
    pair.follow(prices)
    wanted = data.draw(shapes)
    market = pair.fleet.prices.market
    assert market is not None
    offers = {node_id: market.offer(wanted, plain.profile) for node_id, plain in pair.nodes.items()}
    near = sorted({max(0, offer.price + by) for offer in offers.values() for by in (-1, 0, 1)})
    ceiling = data.draw(st.sampled_from([None, AMOUNT_MAX, *near]))
    wanted = Shape(wanted.requirements, wanted.account, wanted.avoid_node, ceiling)
    rows = np.arange(pair.fleet.rows)
    passed = PRICE.passes(pair.fleet, wanted, rows)
    for node_id, plain in pair.nodes.items():
        offer, own = offers[node_id], plain.profile.owner == wanted.account
        tier = plain.profile.capacity.tier
        floor = market.floor_in(offer.zone.tier, node_tier=tier, floor=plain.floor or 0)
        agreed = floor <= market.table.net_of(offer.spot) and (ceiling is None or offer.price <= ceiling)
        row = pair.fleet[node_id].row
        assert row is not None
        assert (passed is None or bool(passed[row])) == (own or agreed)
        assert not own or offer.price == 0


@pytest.mark.soak
@settings(max_examples=60)
@given(loaded_fleets(), markets, shapes)
def test_no_trade_beyond_a_floor_or_a_ceiling(pair: Pair, prices: PlainPrices, wanted: Shape) -> None:
    pair.follow(prices)
    market = pair.fleet.prices.market
    assert market is not None
    for placement in place(pair.fleet, wanted, 3):
        plain = pair.nodes[placement.node_id]
        offer = market.offer(wanted, plain.profile)
        assert wanted.ceiling is None or offer.price <= wanted.ceiling
        if plain.profile.owner != wanted.account and offer.zone.tier == plain.profile.capacity.tier:
            assert market.table.net_of(offer.spot) >= (plain.floor or 0)


@pytest.mark.soak
@settings(max_examples=60)
@given(st.lists(markets, min_size=1, max_size=4), loaded_fleets(), st.data())
def test_following_prices_is_being_made_with_them(history: list[PlainPrices], pair: Pair, data: st.DataObject) -> None:
    """Whatever came before: floors and prices of the end are all that counts."""
    assume(pair.nodes)
    for prices in history:
        pair.follow(prices)
        node_id = data.draw(st.sampled_from(sorted(pair.nodes)))
        pair.set_floor(node_id, data.draw(st.sampled_from(FLOORS)))
    fresh = Pair(Fleet(), pair.nodes)
    for plain in pair.nodes.values():
        fresh.fleet.upsert(plain.profile)
        fresh.fleet.set_floor(plain.profile.node_id, plain.floor)
    fresh.follow(history[-1])
    wanted = data.draw(shapes)
    assert _price_verdicts(pair, wanted) == _price_verdicts(fresh, wanted)
    assert pair.fleet.prices.floors == sum(plain.floor is not None for plain in pair.nodes.values())


def _price_verdicts(pair: Pair, wanted: Shape) -> dict[str, bool]:
    rows = np.flatnonzero(pair.fleet.table.live[: pair.fleet.rows])
    passed = PRICE.passes(pair.fleet, wanted, rows)
    ids = [pair.fleet.node_at(row).profile.node_id for row in rows.tolist()]
    return dict(zip(ids, [True] * len(ids) if passed is None else passed.tolist(), strict=True))


def test_a_pool_without_a_market_has_no_price_gate() -> None:
    fleet = Fleet()
    fleet.upsert(node("a"))
    fleet.set_floor("a", AMOUNT_MAX)
    assert passing(fleet, shape(ceiling=0)) == {"a"}


def test_ceiling_zero_means_own_nodes_only() -> None:
    fleet = fleet_of(node("mine", owner="ann"), node("theirs"), market=market_of())
    assert passing(fleet, shape(ceiling=0)) == {"mine"}
    fleet.set_floor("mine", AMOUNT_MAX)
    assert passing(fleet, shape(ceiling=0)) == {"mine"}, "an owner's floor does not stand against the owner"


def test_a_floor_is_met_after_the_fee() -> None:
    fleet = fleet_of(node("a"), market=market_of({CPU_IN: 7 * CREDIT}))
    fleet.set_floor("a", 5_600_000)  # 7.00 less 20 %
    assert passing(fleet, shape()) == {"a"}
    fleet.set_floor("a", 5_600_001)
    assert passing(fleet, shape()) == set()
    fleet.set_floor("a", None)
    assert passing(fleet, shape()) == {"a"}


def test_a_floor_of_a_gpu_node_is_scaled_for_jobs_without_one() -> None:
    table = PriceTable()
    fleet = fleet_of(node("a", gpus=(("rtx-4090", 24_000),)), market=Market(table))
    market = Market(table)
    card, core = market.spot(Zone("rtx-4090", "in")), market.spot(CPU_IN)
    assert market.floor_in("cpu", node_tier="rtx-4090", floor=table.net_of(card)) <= table.net_of(core)
    fleet.set_floor("a", table.net_of(card))
    assert passing(fleet, shape()) == passing(fleet, shape(gpus=1)) == {"a"}
    fleet.set_floor("a", table.net_of(card) * 101 // 100)
    assert passing(fleet, shape()) == passing(fleet, shape(gpus=1)) == set()


def test_a_share_of_a_card_costs_a_share() -> None:
    zone = Zone("rtx-4090", "in")
    fleet = fleet_of(
        node("small", gpus=(("rtx-4090", 12_000),)),
        node("large", gpus=(("rtx-4090", 24_000),)),
        market=market_of({zone: 20 * CREDIT}),
    )
    assert passing(fleet, shape(vram_mb=12_000, ceiling=10 * CREDIT)) == {"large"}
    assert passing(fleet, shape(vram_mb=12_000, ceiling=10 * CREDIT - 1)) == set()
    assert passing(fleet, shape(vram_mb=12_000, ceiling=20 * CREDIT)) == {"small", "large"}


def test_a_removed_node_takes_its_floor_with_it() -> None:
    fleet = fleet_of(node("a"), market=market_of())
    fleet.set_floor("a", AMOUNT_MAX)
    fleet.remove("a")
    fleet.upsert(node("b"))
    assert fleet.prices.floors == 0
    assert passing(fleet, shape()) == {"b"}, "the row is used again, its floor is not"


def test_a_node_that_moves_pays_the_price_of_its_new_region() -> None:
    market = market_of({CPU_IN: 7 * CREDIT, Zone("cpu", "us"): 20 * CREDIT})
    fleet = fleet_of(node("a", region="us"), market=market)
    assert passing(fleet, shape(ceiling=8 * CREDIT)) == set()
    fleet.upsert(node("a", region="india"))
    assert passing(fleet, shape(ceiling=8 * CREDIT)) == {"a"}


def test_extreme_tables_stay_within_64_bits() -> None:
    table = {"base": 10**12, "tiers": {"cpu": 100_000, "gpu": 100_000}, "regions": {"in": 100_000}, "spot_range": 100}
    market = market_of({CPU_IN: 10**30}, **table)
    fleet = fleet_of(node("a"), market=market)
    assert market.spot(CPU_IN) == AMOUNT_MAX
    assert passing(fleet, shape(ceiling=AMOUNT_MAX - 1)) == set()
    assert passing(fleet, shape(ceiling=AMOUNT_MAX)) == {"a"}


def test_waiting_jobs_are_tried_again_when_a_price_falls_or_a_floor_is_met() -> None:
    market = market_of({CPU_IN: 10 * CREDIT})
    fleet = fleet_of(node("a"), node("b"), market=market)
    fleet.set_floor("b", 9 * CREDIT)
    backlog = Backlog()
    backlog.add("cheap", shape(ceiling=9 * CREDIT), age_key="0")
    backlog.add("pinned", shape(node="b"), age_key="1")
    assert backlog.take(fleet, 10) == []
    assert not backlog.can_take_more(fleet)

    fleet.set_prices(market)
    assert not backlog.can_take_more(fleet), "the same prices open nothing"

    market.spots = {CPU_IN: 9 * CREDIT}
    fleet.set_prices(market)
    assert [job for job, _ in backlog.take(fleet, 10)] == ["cheap"]

    market.spots = {CPU_IN: 12 * CREDIT}  # 9.60 after the fee
    fleet.set_prices(market)
    assert [job for job, _ in backlog.take(fleet, 10)] == ["pinned"]


def test_a_lower_floor_opens_a_node_at_once() -> None:
    fleet = fleet_of(node("a"), market=market_of())
    fleet.set_floor("a", 100 * CREDIT)
    backlog = Backlog()
    backlog.add("job", shape(), age_key="0")
    assert backlog.take(fleet, 10) == []
    fleet.set_floor("a", 1)
    assert [job for job, _ in backlog.take(fleet, 10)] == ["job"]


def test_prices_leave_rankings_alone() -> None:
    market = market_of({CPU_IN: 7 * CREDIT})
    fleet = fleet_of(node("a"), market=market)
    place(fleet, shape(ceiling=7 * CREDIT))
    version = fleet.version
    (ranking,) = fleet.rankings.values()
    market.spots = {CPU_IN: 8 * CREDIT}
    fleet.set_prices(market)
    assert place(fleet, shape(ceiling=7 * CREDIT)) == []
    assert len(place(fleet, shape(ceiling=8 * CREDIT))) == 1
    assert (fleet.version, list(fleet.rankings.values())) == (version, [ranking])


def test_words_for_a_ceiling_below_the_price() -> None:
    fleet = fleet_of(
        *(node(f"n{number}") for number in range(3)),
        market=market_of({CPU_IN: 8 * CREDIT, Zone("cpu", "us"): 9 * CREDIT}),
    )
    fleet.upsert(node("far", region="us"))
    wanted = shape(ceiling=5 * CREDIT)
    why = explain(fleet, wanted)
    assert why.sentence == (
        "Waiting: it pays at most 5.00/h, and the price is 8.00/h in cpu/in; with --max-price 8.00 it could start now on 3 nodes."
    )
    assert not why.unsatisfiable
    (change,) = why.changes
    assert (change.change, change.ceiling, change.nodes) == ("max-price 5.00 → 8.00", 8 * CREDIT, 3)
    (failed,) = preview(fleet, wanted, 1)[0].failed
    assert failed.text == "needs a price of at most 5.00/h (8.00/h in cpu/in)"


def test_a_suggested_ceiling_is_a_whole_hundredth() -> None:
    fleet = fleet_of(node("a"), market=market_of({CPU_IN: 8_001_234}))
    (change,) = explain(fleet, shape(ceiling=1)).changes
    assert change.ceiling == 8_010_000


def test_words_for_a_floor_above_the_price() -> None:
    fleet = fleet_of(node("a"), node("b"), market=market_of({CPU_IN: 8 * CREDIT}))
    fleet.set_floor("a", 7 * CREDIT)
    fleet.set_floor("b", 9 * CREDIT)
    wanted = shape(ceiling=10 * CREDIT)
    why = explain(fleet, wanted)
    assert why.sentence == (
        "Waiting: the owners of the nodes that fit want more than the spot price pays; "
        "2 nodes could run it once the price moves."
    )
    assert why.changes == (), "a floor is not the submitter's to change"
    pinned = replace(wanted, requirements=replace(wanted.requirements, node="a"))
    assert explain(fleet, pinned).sentence == (
        "Waiting: a's owner wants 7.00/h for a core, cpu/in pays 6.40/h after the fee; it could run this once the price moves."
    )
    (verdict,) = explain_node(fleet, "a", {wanted: 4})
    assert verdict.reason == (
        "needs a price of at most 10.00/h (its owner wants 7.00/h for a core, cpu/in pays 6.40/h after the fee)"
    )


def test_words_for_own_nodes_only() -> None:
    fleet = fleet_of(node("a"), market=market_of({CPU_IN: 8 * CREDIT}))
    assert explain(fleet, shape(ceiling=0)).sentence == (
        "Waiting: it pays nothing, and the price is 8.00/h in cpu/in; with --max-price 8.00 it could start now on 1 node."
    )


def test_price_and_size_can_change_together() -> None:
    fleet = fleet_of(node("a"), market=market_of({CPU_IN: CREDIT * 4}))
    (change, *_) = explain(fleet, shape(cpu_milli=16_000, ceiling=CREDIT)).changes
    assert change.change == "16 cores → 8 cores and max-price 1.00 → 32.00"


@pytest.mark.parametrize("count", [1, 5])
def test_the_cheapest_offer_is_found_among_classes(count: int) -> None:
    market = market_of({CPU_IN: 9 * CREDIT, Zone("cpu", "us"): 8 * CREDIT})
    fleet = fleet_of(*(node(f"in{number}") for number in range(count)), node("us", region="us"), market=market)
    offer = cheapest(fleet, shape(), np.arange(fleet.rows))
    assert offer is not None
    assert (offer.zone, offer.price) == (Zone("cpu", "us"), 8 * CREDIT)
