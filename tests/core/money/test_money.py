"""Amounts as people write them: read exactly, printed exactly, and refused when they are anything else."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import BadRequest
from computepool.core.money.money import AMOUNT_MAX, CREDIT, format_credits, parse_credits, round_down, round_up

AMOUNTS = st.integers(min_value=0, max_value=AMOUNT_MAX)

WRITTEN = [
    ("0", 0),
    ("12", 12 * CREDIT),
    ("12.5", 12_500_000),
    (" 0.25 ", 250_000),
    ("0.000001", 1),
    ("007", 7 * CREDIT),
    ("9000000000", AMOUNT_MAX),
    ("0.1", 100_000),
    ("1.005", 1_005_000),
]


@pytest.mark.parametrize(("text", "amount"), WRITTEN)
def test_what_is_typed_is_what_moves(text: str, amount: int) -> None:
    assert parse_credits(text) == amount


REFUSED = [
    *("", " ", ".", "1.", ".5", "-1", "+1", "1e3", "1E3", "nan", "NaN", "inf", "-inf", "infinity", "0x10"),
    *("1,000", "1_000", "1 000", "0.0000001", "1.0000000", "12345678901", "9000000000.000001", "₹5", "5 INR"),
    *("١٢", "１２", "1\n2", "1.2.3", "true", "None", "1/2", "50%"),
]


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_credits(text, field="amount")
    assert refused.value.field == "amount"
    assert refused.value.detail.endswith(".")


PRINTED = [
    (0, "0.00"),
    (1, "0.000001"),
    (CREDIT, "1.00"),
    (12_500_000, "12.50"),
    (-1, "-0.000001"),
    (-12_500_000, "-12.50"),
    (1_234_567 * CREDIT, "1,234,567.00"),
    (AMOUNT_MAX, "9,000,000,000.00"),
]


@pytest.mark.parametrize(("amount", "text"), PRINTED)
def test_people_see_all_of_an_amount(amount: int, text: str) -> None:
    assert format_credits(amount) == text


@given(AMOUNTS)
def test_what_is_printed_can_be_read_back(amount: int) -> None:
    assert parse_credits(format_credits(amount).replace(",", "")) == amount
    assert parse_credits(format_credits(amount, decimals=0).replace(",", "")) == amount


@given(AMOUNTS, st.integers(min_value=0, max_value=6))
def test_a_debt_is_printed_like_its_amount(amount: int, decimals: int) -> None:
    sign = "-" if amount else ""
    assert format_credits(-amount, decimals=decimals) == sign + format_credits(amount, decimals=decimals)


@pytest.mark.parametrize(
    ("amount", "down", "up"),
    [
        (0, "0.00", "0.00"),
        (1, "0.000001", "0.000001"),
        (3_701, "0.0037", "0.0038"),
        (99_999, "0.099", "0.10"),
        (128_999, "0.12", "0.13"),
        (5_600_001, "5.60", "5.61"),
        (-3_701, "-0.0038", "-0.0037"),
    ],
)
def test_rounding_keeps_two_digits_that_say_something(amount: int, down: str, up: str) -> None:
    assert (format_credits(round_down(amount)), format_credits(round_up(amount))) == (down, up)


@given(AMOUNTS)
def test_nothing_is_rounded_to_nothing(amount: int) -> None:
    assert 0 <= round_down(amount) <= amount <= round_up(amount)
    assert bool(round_down(amount)) is bool(amount)
