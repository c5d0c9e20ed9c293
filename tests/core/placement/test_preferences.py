"""What a job may prefer: nodes that are cheap, or nodes that are fast."""

from __future__ import annotations

from typing import Any

import pytest

from computepool.core.isolation import Level
from computepool.core.money.market import Market
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import PriceTable, Zone
from computepool.core.placement.explain import preview
from computepool.core.resources import CHEAPEST, FASTEST, Capacity, Gpu, NodeProfile, Requirements, Shape
from tests.core.fleets import chosen, fleet_of

CENT = CREDIT // 100


def node(
    name: str, region: str = "", *, owner: str = "owner", tier: str = "", cores: int = 8, **capacity: Any
) -> NodeProfile:
    cards = (Gpu(name=tier, tier=tier, vram_mb=24_000),) if tier else ()
    has = Capacity(cpu_milli=cores * 1000, ram_mb=32_000, disk_mb=100_000, gpus=cards, **capacity)
    return NodeProfile(
        node_id=name, name=name, owner=owner, capacity=has, region=region, level=Level.NAMESPACE, tags=frozenset({name})
    )


def market(**spots: int) -> Market:
    """By region, for cores."""
    made = Market(PriceTable(spot_range=100))
    made.spots = {Zone("cpu", region): spot for region, spot in spots.items()}
    return made


def shape(prefer: str, **wanted: Any) -> Shape:
    return Shape(Requirements(prefer=prefer, **wanted), "ann")


def test_the_cheapest_zone_wins_although_its_node_fits_worse_and_the_own_node_is_free() -> None:
    fleet = fleet_of(
        node("dear", "us", cores=1), node("cheap", "in", cores=64), market=market(us=100 * CENT, **{"in": 90 * CENT})
    )
    assert chosen(fleet, shape("")) == ["dear"]
    fleet = fleet_of(
        node("dear", "us", cores=1), node("cheap", "in", cores=64), market=market(us=100 * CENT, **{"in": 90 * CENT})
    )
    assert chosen(fleet, shape(CHEAPEST)) == ["cheap"]
    fleet.upsert(node("own", "us", owner="ann"))
    assert chosen(fleet, shape(CHEAPEST)) == ["own"]


def test_a_price_that_moves_is_followed_at_once() -> None:
    fleet = fleet_of(node("a", "us"), node("b", "in"), market=market(us=50 * CENT, **{"in": 100 * CENT}))
    assert chosen(fleet, shape(CHEAPEST)) == ["a"]
    fleet.set_prices(market(us=200 * CENT, **{"in": 100 * CENT}))
    assert chosen(fleet, shape(CHEAPEST)) == ["b"]
    assert [verdict.profile.name for verdict in preview(fleet, shape(CHEAPEST), 2)] == ["b", "a"]


@pytest.mark.parametrize("wanted", [{}, {"gpus": 1}, {"vram_mb": 2_000}])
def test_the_fastest_node_wins_although_it_fits_worse(wanted: dict[str, Any]) -> None:
    slow, fast = node("slow", tier="rtx-3060", cpu_tier="cpu-slow", cores=1), node("fast", tier="h100", cores=64)
    assert chosen(fleet_of(slow, fast), shape(FASTEST, **wanted)) == ["fast"]


@pytest.mark.parametrize("prefer", [CHEAPEST, FASTEST])
def test_preferred_tags_and_gates_outrank_a_preference(prefer: str) -> None:
    fleet = fleet_of(node("a", "us", tier="h100"), node("b", "in"), market=market(us=50 * CENT, **{"in": 60 * CENT}))
    assert chosen(fleet, shape(prefer, tags=frozenset({"b"}))) == ["b"]
    if prefer == FASTEST:
        assert chosen(fleet, shape(prefer, prefer_tags=frozenset({"b"}))) == ["b"]


def test_extreme_prices_stay_within_the_bands() -> None:
    fleet = fleet_of(node("a", "us"), node("b", "in"), market=market(us=10**14, **{"in": 1}))
    assert chosen(fleet, shape(CHEAPEST, prefer_tags=frozenset({"b"}))) == ["b"]
