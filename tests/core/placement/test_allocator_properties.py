"""What must hold for every fleet and every shape, held against the plain oracle."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings, strategies as st

from computepool.core.fleet.fleet import Fleet
from computepool.core.placement.allocator import Search, eligible, place
from computepool.core.resources import Shape
from tests.core.fleet_oracle import (
    FLOORS,
    Dice,
    Pair,
    PlainNode,
    check_not_overcommitted,
    check_reservation,
    loaded_fleets,
    markets,
    may_start,
    profiles,
    shapes,
)

#: Random values cost more than what is tested; the bulk tests make up for the number.
FEWER = settings(max_examples=40)


@pytest.mark.soak
@FEWER
@given(loaded_fleets(), shapes)
def test_gates_agree_with_the_oracle(pair: Pair, shape: Shape) -> None:
    assert pair.eligible_ids(eligible(pair.fleet, shape)) == may_start(pair.nodes.values(), shape)


@pytest.mark.parametrize("seed", range(10))
def test_gates_agree_with_the_oracle_in_bulk(seed: int) -> None:
    for number in range(30):
        dice = Dice(1_000 * seed + number)
        pair = dice.fleet()
        for _ in range(20):
            shape = dice.shape()
            expected = may_start(pair.nodes.values(), shape)
            assert pair.eligible_ids(eligible(pair.fleet, shape)) == expected, (seed, number, shape)
            placed = place(pair.fleet, shape)
            assert {placement.node_id for placement in placed} <= expected
            assert bool(placed) == bool(expected)
            for placement in placed:
                node = pair.nodes[placement.node_id]
                check_reservation(node, shape.requirements, placement.reservation)
                pair.fleet.release(placement.node_id, placement.reservation)


@FEWER
@given(loaded_fleets(), st.lists(st.tuples(shapes, st.integers(1, 4)), min_size=1, max_size=5))
def test_no_placement_violates_a_minimum_or_overcommits(pair: Pair, jobs: list[tuple[Shape, int]]) -> None:
    for shape, count in jobs:
        for _ in range(count):
            allowed = may_start(pair.nodes.values(), shape)
            placements = place(pair.fleet, shape)
            assert bool(placements) == bool(allowed), "it is placed exactly when a node may run it"
            for placement in placements:
                assert placement.node_id in allowed
                node = pair.nodes[placement.node_id]
                check_reservation(node, shape.requirements, placement.reservation)
                node.held.append(placement.reservation)
                check_not_overcommitted(node)


@pytest.mark.soak
@FEWER
@given(loaded_fleets(), shapes, st.integers(1, 12))
def test_a_batch_places_what_single_calls_would(pair: Pair, shape: Shape, count: int) -> None:
    single, batched = copy.deepcopy(pair.fleet), pair.fleet
    one_by_one = [placement for _ in range(count) for placement in place(single, shape)]
    assert place(batched, shape, count) == one_by_one
    if len(one_by_one) < count:
        assert not eligible(batched, shape).any(), "a batch that stops early leaves nothing unused"


@pytest.mark.soak
@FEWER
@given(loaded_fleets(), shapes, shapes, st.integers(1, 3))
def test_searches_may_take_turns(pair: Pair, first: Shape, second: Shape, expected: int) -> None:
    """Two searches over one fleet never take the same capacity, and stop only when nothing fits."""
    searches = [(first, Search(pair.fleet, first, expected)), (second, Search(pair.fleet, second, expected))]
    while searches:
        shape, search = searches.pop(0)
        allowed = may_start(pair.nodes.values(), shape)
        placement = search.place()
        assert bool(placement) == bool(allowed)
        if placement:
            node = pair.nodes[placement.node_id]
            check_reservation(node, shape.requirements, placement.reservation)
            node.held.append(placement.reservation)
            check_not_overcommitted(node)
            if len(node.held) < 20:  # a job that asks for nothing would go on for ever
                searches.append((shape, search))


@pytest.mark.soak
@FEWER
@given(st.data())
def test_remembered_rankings_follow_every_change(data: st.DataObject) -> None:
    """After any change a warm fleet decides as a fresh one does."""
    pair = Pair(Fleet(), {})
    fleet, nodes, prices = pair.fleet, pair.nodes, None
    watched = data.draw(st.lists(shapes, min_size=1, max_size=3))
    for _ in range(data.draw(st.integers(1, 8))):
        profile = data.draw(profiles())
        node_id = profile.node_id
        change = data.draw(
            st.sampled_from(["upsert", "upsert", "remove", "reliability", "available", "floor", "prices"])
        )
        if change == "remove":
            fleet.remove(node_id)
            nodes.pop(node_id, None)
        elif change == "reliability":
            fleet.set_reliability(node_id, data.draw(st.floats(0, 1)))
        elif change == "available" and node_id in nodes:
            nodes[node_id].available = data.draw(st.booleans())
            fleet.set_available(node_id, nodes[node_id].available)
        elif change == "floor" and node_id in nodes:
            pair.set_floor(node_id, data.draw(st.sampled_from(FLOORS)))
        elif change == "prices":
            prices = data.draw(markets)
            pair.follow(prices)
        else:
            fleet.upsert(profile)
            nodes.setdefault(node_id, PlainNode(profile, prices=prices)).profile = profile
        for shape in watched:
            cold = copy.deepcopy(fleet)
            cold.rankings.clear()
            expected = place(cold, shape)
            placements = place(fleet, shape)
            assert placements == expected
            assert {p.node_id for p in placements} <= may_start(nodes.values(), shape)
            for placement in placements:
                fleet.release(placement.node_id, placement.reservation)
