"""Who pays whom: whatever is held is split to the last microcredit, and nothing comes from nowhere."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import InvariantViolation
from computepool.core.money import ledger
from computepool.core.money.ledger import BANK, CHAINED, FEES, GENESIS, PROMO, Kind, Leg, Split, chain_hash
from computepool.core.money.money import AMOUNT_MAX
from computepool.core.money.pricing import PPM, PriceTable

TABLE = PriceTable()
AMOUNTS = st.integers(min_value=0, max_value=AMOUNT_MAX)
FEES_PPM = st.integers(min_value=0, max_value=PPM - 1)


@st.composite
def holds(draw: st.DrawFn) -> tuple[int, int, int]:
    """A hold, what of it is charged, and what of it was earned."""
    held = draw(AMOUNTS)
    part = st.integers(min_value=0, max_value=held)
    return held, draw(part), draw(part)


@given(holds(), FEES_PPM)
def test_a_hold_is_used_up_exactly(hold: tuple[int, int, int], fee_ppm: int) -> None:
    held, charge, earned = hold
    table = PriceTable(fee_ppm=fee_ppm)
    parts = ledger.split(held=held, charge=charge, table=table)
    assert min(parts.pay, parts.fee, parts.refund) >= 0
    assert parts.pay + parts.fee == charge
    assert parts.pay + parts.fee + parts.refund == held
    assert 0 <= parts.fee - Fraction(charge * fee_ppm, PPM) < 1
    changes = ledger.deltas(ledger.settle("sam", owner_id="pia", parts=parts, earned=earned))
    assert sum(changes.values()) == 0
    assert changes.get("escrow:sam", 0) == -held
    assert changes.get("earn:pia", 0) == parts.pay
    assert changes.get(FEES, 0) == parts.fee
    # Purchased credits are spent first, so earned ones come back first.
    assert changes.get("owner:sam", 0) == min(earned, parts.refund)


@given(holds())
def test_a_hold_that_is_released_leaves_everything_as_it_was(hold: tuple[int, int, int]) -> None:
    held, _, earned = hold
    legs = ledger.hold("sam", amount=held, earned=earned)
    legs += ledger.release("sam", amount=held, earned=earned)
    assert not any(ledger.deltas(legs).values())


@given(holds())
def test_a_hold_takes_from_both_purses_what_it_says(hold: tuple[int, int, int]) -> None:
    held, _, earned = hold
    changes = ledger.deltas(ledger.hold("sam", amount=held, earned=earned))
    assert changes.get("user:sam", 0) == earned - held
    assert changes.get("owner:sam", 0) == -earned
    assert changes.get("escrow:sam", 0) == held


@given(AMOUNTS, st.integers(min_value=1, max_value=2**70))
def test_a_charge_above_the_hold_is_a_broken_rule(held: int, more: int) -> None:
    for charge in (held + more, -more):
        with pytest.raises(InvariantViolation):
            ledger.split(held=held, charge=charge, table=TABLE)


MAKERS: list[Callable[[int], list[Leg]]] = [
    lambda amount: ledger.hold("sam", amount=amount, earned=0),
    lambda amount: ledger.release("sam", amount=amount, earned=0),
    lambda amount: ledger.settle("sam", owner_id="pia", parts=Split(pay=amount, fee=amount, refund=amount), earned=0),
    lambda amount: ledger.mature("pia", amount),
    lambda amount: ledger.grant("sam", amount),
    lambda amount: ledger.top_up("sam", amount, source=BANK),
    lambda amount: ledger.top_up("sam", amount, source=PROMO),
    lambda amount: ledger.reserve_payout("pia", payout_id="p", amount=amount),
    lambda amount: ledger.pay_out("p", amount),
    lambda amount: ledger.return_payout("pia", payout_id="p", amount=amount),
]


@pytest.mark.parametrize("make", MAKERS)
@given(amount=AMOUNTS)
def test_money_neither_appears_nor_vanishes(make: Callable[[int], list[Leg]], amount: int) -> None:
    legs = make(amount)
    assert sum(ledger.deltas(legs).values()) == 0
    assert all(leg.amount > 0 and leg.debit != leg.credit for leg in legs)
    assert bool(legs) == bool(amount), "a leg of nothing is left out"


@pytest.mark.parametrize("make", MAKERS)
@given(amount=st.one_of(st.integers(max_value=-1), st.integers(min_value=AMOUNT_MAX + 1)))
def test_no_transfer_is_negative_or_beyond_all_bounds(make: Callable[[int], list[Leg]], amount: int) -> None:
    with pytest.raises(InvariantViolation):
        make(amount)


def test_more_earnings_than_the_hold_are_refused() -> None:
    with pytest.raises(InvariantViolation):
        ledger.hold("sam", amount=1, earned=2)


def test_only_the_outside_is_ever_overdrawn() -> None:
    assert {PROMO, BANK} == ledger.OVERDRAWN


# the chain

WORDS = st.one_of(st.none(), st.text(alphabet=st.characters(exclude_characters="\n"), max_size=8))
ROWS = st.fixed_dictionaries(dict.fromkeys(CHAINED, st.one_of(WORDS, st.integers())))


@given(ROWS, st.sampled_from(CHAINED), st.one_of(WORDS, st.integers()))
def test_whatever_is_changed_changes_the_hash(row: dict[str, object], name: str, value: object) -> None:
    other = row | {name: value}
    said = {key: "" if row[key] is None else str(row[key]) for key in CHAINED}
    then = {key: "" if other[key] is None else str(other[key]) for key in CHAINED}
    assert (chain_hash(GENESIS, row) == chain_hash(GENESIS, other)) == (said == then)


@given(ROWS, ROWS)
def test_the_order_of_transfers_is_in_the_hash(first: dict[str, object], second: dict[str, object]) -> None:
    one = chain_hash(chain_hash(GENESIS, first), second)
    two = chain_hash(chain_hash(GENESIS, second), first)
    same = chain_hash(GENESIS, first) == chain_hash(GENESIS, second)
    assert (one == two) == same


def test_every_kind_has_its_own_word() -> None:
    assert len({kind.value for kind in Kind}) == len(Kind) == 11
