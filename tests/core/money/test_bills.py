"""Bills in words: the golden explanations, and that their numbers add up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from computepool.core.money import bills
from computepool.core.money.bills import Bill
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import Economy, Zone, charge_of, first_table

TABLE = replace(first_table(Economy.MARKET), version=3)
BILL = Bill(
    zone=Zone("rtx-4090", "eu"),
    spot=31 * CREDIT,
    units=1_000,
    price=31 * CREDIT,
    table=TABLE,
    node_name="attic-pc",
    billed_ms=12_345,
    charge=charge_of(31 * CREDIT, 12_345),
)


def test_every_factor_is_a_line() -> None:
    assert [f"{line.label:9} {line.text}" for line in bills.lines(BILL)] == [
        "base      10.00 per card-hour, by price table 3",
        "tier      × 3.00 for rtx-4090",
        "region    × 0.95 for eu",
        "reference = 28.50 per card-hour",
        "spot      31.00 per card-hour was the spot price, 1.08 × the reference",
        "units     × 1 card",
        "price     = 31.00 per hour for the whole job",
        "time      × 12.345 s",
        "charge    = 0.106304, rounded down",
        "fee       − 0.021261, 20 % for the platform",
        "pay       = 0.085043 for the owner of attic-pc",
    ]


def test_the_owner_is_told_why() -> None:
    assert bills.paid_sentence(BILL) == (
        "You were paid 0.085043 credits: 12.345 s on attic-pc at 31.00 per hour (1 card of rtx-4090, region eu, at the spot"
        " price of 31.00) is 0.106304, less the platform's 20 % (0.021261)."
    )


def test_the_submitter_is_told_where_it_went() -> None:
    assert bills.charged_sentence(BILL, hold=60 * CREDIT) == (
        "This job cost 0.106304 credits: 12.345 s on attic-pc at 31.00 per hour (1 card of rtx-4090, region eu, at the spot"
        " price of 31.00); 0.085043 went to the node's owner, 0.021261 (20 %) to the platform, and 59.893696 of the"
        " 60.00 on hold were refunded."
    )


def test_cores_are_called_cores() -> None:
    zone = Zone("cpu", "in")
    bill = replace(BILL, zone=zone, spot=5_600_000, units=2_500, price=14 * CREDIT, billed_ms=2 * 3_600_000 + 90_000)
    assert bills.usage_phrase(bill) == (
        "7,290.000 s (2 h 1 min) on attic-pc at 14.00 per hour (2.5 cores, region in, at the spot price of 5.60)"
    )
    assert bills.lines(bill)[4].text == "5.60 per core-hour was the spot price"


def test_nothing_is_said_to_cost_nothing() -> None:
    free = replace(BILL, price=0, charge=0)
    assert bills.charged_sentence(free, hold=5 * CREDIT) == (
        "This job cost nothing: attic-pc ran it at a price of 0; 5.00 of the 5.00 on hold were refunded."
    )
    assert bills.charged_sentence(free, hold=0) == "This job cost nothing: attic-pc ran it at a price of 0."
    own = replace(free, own=True)
    assert bills.charged_sentence(own, hold=0) == "This job was free: attic-pc is your own node."
    assert bills.charged_sentence(own, hold=5 * CREDIT, yours=False) == (
        "This job was free: attic-pc is its submitter's own node; 5.00 of the 5.00 on hold were refunded."
    )
    assert [line.label for line in bills.lines(own)] == ["time", "charge"]
    assert bills.lines(own)[-1].text == "0.00: the node belongs to the submitter"
    assert bills.paid_sentence(free) == "You were paid nothing: attic-pc ran this job at a price of 0."


@pytest.mark.parametrize(
    ("ppm", "said"), [(200_000, "20 %"), (125_000, "12.5 %"), (0, "0 %"), (1, "0.0001 %"), (999_999, "99.9999 %")]
)
def test_shares(ppm: int, said: str) -> None:
    assert bills.percentage(ppm) == said


@pytest.mark.parametrize(
    ("units", "said"), [(1_000, "1 card"), (334, "0.334 cards"), (8_000, "8 cards"), (1, "0.001 cards")]
)
def test_units(units: int, said: str) -> None:
    assert bills.units_text(units, Zone("h100", "")) == said


@given(charge=st.integers(0, 9 * 10**15), fee_ppm=st.integers(0, 999_999))
def test_pay_and_fee_are_the_charge(charge: int, fee_ppm: int) -> None:
    bill = replace(BILL, charge=charge, table=replace(TABLE, fee_ppm=fee_ppm))
    assert bill.pay + bill.fee == charge
    assert 0 <= bill.pay <= charge


def test_a_digest_names_the_content_of_a_table() -> None:
    assert TABLE.digest == replace(first_table(Economy.MARKET), version=3).digest
    assert TABLE.digest != replace(TABLE, fee_ppm=200_001).digest
