"""The spot rule: bounded, slow, in the right direction, at rest in balance, and the same again from the record."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.core.money.market import Market, next_spot
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.core.money.pricing import Economy, PriceTable, Zone, first_table

BOUNDS = (2 * CREDIT, 40 * CREDIT)
WIDE = (0, AMOUNT_MAX)
units = st.integers(0, 10**12)
bounds = st.tuples(st.integers(0, 10**9), st.integers(0, AMOUNT_MAX - 10**9)).map(lambda b: (b[0], b[0] + b[1]))


@given(st.integers(0, AMOUNT_MAX), units, units, bounds)
def test_bounds_always_hold(spot: int, capacity: int, demand: int, limits: tuple[int, int]) -> None:
    low, high = limits
    assert low <= next_spot(spot, capacity=capacity, demand=demand, bounds=limits) <= high


@given(st.integers(0, AMOUNT_MAX), units, units)
def test_a_step_is_at_most_five_percent(spot: int, capacity: int, demand: int) -> None:
    """Up to the next whole microcredit: a price of 3 must be able to move at all."""
    moved = next_spot(spot, capacity=capacity, demand=demand, bounds=WIDE)
    assert abs(moved - spot) <= max(1, -(-spot // 20))


@given(st.integers(0, AMOUNT_MAX - 10**15), units, units)
def test_demand_above_three_quarters_never_lowers_the_price(spot: int, capacity: int, demand: int) -> None:
    moved = next_spot(spot, capacity=capacity, demand=demand, bounds=WIDE)
    if 4 * demand > 3 * capacity:
        assert moved >= spot
    elif 4 * demand < 3 * capacity:
        assert moved <= spot
    else:
        assert moved == spot


@pytest.mark.soak
@given(st.integers(0, AMOUNT_MAX), units, units, st.integers(0, 10**9))
def test_more_demand_never_gives_a_lower_price(spot: int, capacity: int, demand: int, more: int) -> None:
    less = next_spot(spot, capacity=capacity, demand=demand, bounds=WIDE)
    assert less <= next_spot(spot, capacity=capacity, demand=demand + more, bounds=WIDE)


@given(st.integers(0, AMOUNT_MAX), st.integers(1, 10**12), units, st.integers(0, 10**9))
def test_more_capacity_never_gives_a_higher_price(spot: int, capacity: int, demand: int, more: int) -> None:
    scarce = next_spot(spot, capacity=capacity, demand=demand, bounds=WIDE)
    assert scarce >= next_spot(spot, capacity=capacity + more, demand=demand, bounds=WIDE)


@given(st.integers(*BOUNDS), st.integers(0, 10**9))
def test_balance_is_a_fixed_point(spot: int, quarter: int) -> None:
    assert next_spot(spot, capacity=4 * quarter, demand=3 * quarter, bounds=BOUNDS) == spot


@pytest.mark.parametrize(
    ("spot", "capacity", "demand", "expected"),
    [
        (10 * CREDIT, 1_000, 750, 10 * CREDIT),
        (10 * CREDIT, 1_000, 1_000, 10_166_660),  # a third over the target: a third of 5 %
        (10 * CREDIT, 1_000, 1_500, 10_500_000),
        (10 * CREDIT, 1_000, 900_000, 10_500_000),
        (10 * CREDIT, 1_000, 375, 9_750_000),
        (10 * CREDIT, 1_000, 0, 9_500_000),
        (10 * CREDIT, 0, 0, 10 * CREDIT),  # nobody there: nothing to say
        (10 * CREDIT, 0, 1, 10_500_000),
        (40 * CREDIT, 0, 1, 40 * CREDIT),
        (2 * CREDIT, 1_000, 0, 2 * CREDIT),
        (50 * CREDIT, 1_000, 750, 40 * CREDIT),  # a new price table moved the bounds
    ],
)
def test_by_hand(spot: int, capacity: int, demand: int, expected: int) -> None:
    assert next_spot(spot, capacity=capacity, demand=demand, bounds=BOUNDS) == expected


def test_the_smallest_prices_can_rise() -> None:
    spot = 1
    for _ in range(25):
        spot = next_spot(spot, capacity=4, demand=4, bounds=(0, 100))
    assert spot == 26


@st.composite
def books(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(net floor, units) of nodes and (gross ceiling, units) of jobs, per unit."""
    prices = st.integers(1 * CREDIT, 30 * CREDIT)
    amounts = st.integers(1, 20).map(lambda n: n * 1_000)
    floors = draw(st.lists(st.tuples(prices.map(lambda p: p * 4 // 5), amounts), min_size=1, max_size=30))
    ceilings = draw(st.lists(st.tuples(prices, amounts), min_size=1, max_size=30))
    return floors, ceilings


@given(books(), st.integers(*BOUNDS))
def test_constant_books_converge_to_their_crossing(
    book: tuple[list[tuple[int, int]], list[tuple[int, int]]], start: int
) -> None:
    """Supply grows and demand shrinks with the price: every step leads to where they cross, and there it stays."""
    floors, ceilings = book
    table = PriceTable()

    def excess(spot: int) -> tuple[int, int]:
        capacity = sum(amount for floor, amount in floors if floor <= table.net_of(spot))
        return capacity, sum(amount for ceiling, amount in ceilings if ceiling >= spot)

    dear = next((p for p in _candidates(floors, ceilings, table) if _too_dear(*excess(p))), BOUNDS[1])
    spot, near = start, False
    for _ in range(200):
        capacity, demand = excess(spot)
        moved = next_spot(spot, capacity=capacity, demand=demand, bounds=BOUNDS)
        if 4 * demand == 3 * capacity:
            assert moved == spot
        elif spot < dear:
            assert moved > spot or spot == BOUNDS[1]
        else:
            assert moved < spot or spot == BOUNDS[0]
        if near:
            assert dear * 95 // 100 - 1 <= moved <= dear * 105 // 100 + 1, "once there, it stays within a step"
        near = near or (spot < dear) != (moved < dear)
        spot = moved


def _candidates(floors: list[tuple[int, int]], ceilings: list[tuple[int, int]], table: PriceTable) -> list[int]:
    """Every price at which something changes, and one beside it."""
    gross = {-(-floor * 1_000_000 // (1_000_000 - table.fee_ppm)) for floor, _ in floors}
    edges = {BOUNDS[0], *gross, *(ceiling + 1 for ceiling, _ in ceilings)}
    return sorted(min(max(price, BOUNDS[0]), BOUNDS[1]) for price in edges)


def _too_dear(capacity: int, demand: int) -> bool:
    return 4 * demand <= 3 * capacity and (capacity > 0 or demand == 0)


@given(st.lists(st.tuples(units, units), min_size=1, max_size=50), st.integers(*BOUNDS))
def test_the_record_reproduces_every_price(history: list[tuple[int, int]], start: int) -> None:
    recorded, spot = [], start
    for capacity, demand in history:
        spot = next_spot(spot, capacity=capacity, demand=demand, bounds=BOUNDS)
        recorded.append((capacity, demand, spot))
    again = start
    for capacity, demand, price in recorded:
        again = next_spot(again, capacity=capacity, demand=demand, bounds=BOUNDS)
        assert again == price


@pytest.mark.parametrize("economy", [Economy.TIME_BANK, Economy.NONE])
def test_without_a_market_the_price_stands_still(economy: Economy) -> None:
    market = Market(first_table(economy))
    zone = Zone("rtx-4090", "in")
    price = market.spot(zone)
    assert price == (CREDIT if economy is Economy.TIME_BANK else 0)
    for demand in (0, 10**9):
        assert next_spot(price, capacity=1_000, demand=demand, bounds=market.table.bounds(zone)) == price


def test_a_recorded_price_is_held_within_the_bounds_of_the_table_in_force() -> None:
    market = Market(PriceTable())
    zone = Zone("cpu", "us")
    market.spots = {zone: 10**15}
    assert market.spot(zone) == market.table.bounds(zone)[1]
    market.spots = {zone: 0}
    assert market.spot(zone) == market.table.bounds(zone)[0]
    market.spots = {}
    assert market.spot(zone) == market.table.reference(zone)
