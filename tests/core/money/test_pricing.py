"""What things cost: the table of the design to the last digit, and the arithmetic for every other number."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import BadRequest
from computepool.core.money import pricing
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.core.money.pricing import (
    HOUR_MS,
    Economy,
    PriceTable,
    Zone,
    affordable_ms,
    billed_ms,
    charge_of,
    first_table,
    price_of,
    units_of,
    zone_of,
)
from computepool.core.resources import Capacity, Gpu, Requirements

TABLE = PriceTable()


def node_of(tier: str) -> Capacity:
    return Capacity(cpu_milli=1000, ram_mb=1000, disk_mb=1000, gpus=(Gpu(name=tier, tier=tier, vram_mb=8000),))


# The numbers of the design, as credits per unit-hour in the region that counts once.
GOLDEN = [
    *(("rtx-5090", 30), ("rtx-4090", 30), ("rtx-3090", 25), ("rtx-4070", 25)),
    *(("rtx-3080", 20), ("rtx-3060", 20), ("rtx-2070", 20)),
    *(("gtx-1080ti", 15), ("gtx-1080", 15), ("gtx-1660", 13), ("gpu", 10), ("never-heard-of", 10), ("cpu", 8)),
]
RATES = [
    *(("us", 100), ("uk", 100), ("gb", 100), ("in", 70), ("india", 70), ("eu", 95), ("de", 95), ("france", 95)),
    *(("jp", 100), ("br", 100), ("", 100)),
]


@pytest.mark.parametrize(("tier", "credits"), GOLDEN)
@pytest.mark.parametrize(("region", "rate"), RATES)
def test_the_golden_table(tier: str, credits: int, region: str, rate: int) -> None:
    """Multiplier and rate each once: the region's is not squared, and nothing else takes part."""
    assert TABLE.reference(Zone(tier, region)) == credits * CREDIT * rate // 100


def test_the_ratio_the_old_text_had_wrong() -> None:
    """A 4090 in India earns 1.4 times a 1080 Ti in the United Kingdom; 2.1 is its multiplier, not the ratio."""
    indian = TABLE.reference(Zone("rtx-4090", "in"))
    british = TABLE.reference(Zone("gtx-1080ti", "uk"))
    assert Fraction(indian, british) == Fraction(14, 10)
    assert Fraction(TABLE.net_of(indian), TABLE.net_of(british)) == Fraction(14, 10)
    assert Fraction(indian, TABLE.base) == Fraction(21, 10)


def test_the_other_numbers_of_the_design() -> None:
    assert (TABLE.fee_ppm, TABLE.payout_min) == (200_000, 500 * CREDIT)
    assert TABLE.bounds(Zone("rtx-4090", "us")) == (7_500_000, 120 * CREDIT)


def test_a_region_changes_the_price_of_a_whole_job_by_its_rate_once() -> None:
    wanted = Requirements(gpus=2)
    for region, rate in RATES:
        zone = zone_of(wanted, node_of("rtx-3090"), region=region)
        price = price_of(TABLE.reference(zone), units_of(wanted))
        assert charge_of(price, HOUR_MS) == 2 * 25 * CREDIT * rate // 100


@pytest.mark.parametrize(
    ("wanted", "card_mb", "zone", "units"),
    [
        (Requirements(cpu_milli=500), 0, "cpu", 500),
        (Requirements(cpu_milli=4000), 24_000, "cpu", 4000),
        (Requirements(cpu_milli=9000, gpus=1), 24_000, "rtx-4090", 1000),
        (Requirements(gpus=2), 24_000, "rtx-4090", 2000),
        (Requirements(gpus=1, vram_mb=6_000), 24_000, "rtx-4090", 250),
        (Requirements(gpus=1, vram_mb=6_001), 24_000, "rtx-4090", 251),
        (Requirements(gpus=2, vram_mb=12_000), 24_000, "rtx-4090", 1000),
        (Requirements(gpus=1, vram_mb=30_000), 24_000, "rtx-4090", 1000),
        (Requirements(gpus=1, vram_mb=6_000), 0, "rtx-4090", 1000),
    ],
)
def test_a_job_pays_for_what_it_uses(wanted: Requirements, card_mb: int, zone: str, units: int) -> None:
    assert zone_of(wanted, node_of("rtx-4090"), region="us").tier == zone
    assert units_of(wanted, card_mb=card_mb) == units


def test_a_time_bank_counts_hours_and_nothing_else() -> None:
    table = first_table(Economy.TIME_BANK)
    zones = [Zone(tier, region) for tier, _ in GOLDEN for region, _ in RATES]
    assert {table.reference(zone) for zone in zones} == {CREDIT}
    assert {table.bounds(zone) for zone in zones} == {(CREDIT, CREDIT)}
    assert table.fee_of(12_345_678) == 0


def test_without_an_economy_everything_is_free() -> None:
    table = first_table(Economy.NONE)
    assert table.reference(Zone("h100", "us")) == 0
    assert affordable_ms(price_of(0, 64_000), 0) is None


# the table


@pytest.mark.parametrize("economy", Economy)
def test_a_table_survives_its_own_writing(economy: Economy) -> None:
    table = dataclasses.replace(first_table(economy), version=7)
    assert pricing.from_json(pricing.to_json(table)) == table


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("base", -1), ("base", 10**13), ("fee_ppm", -1), ("fee_ppm", 1_000_000), ("spot_range", 0)),
        *(("tiers", {"cpu": 0}), ("tiers", {"cpu": -5}), ("regions", {"in": 100_001}), ("spot_range", 101)),
    ],
)
def test_a_senseless_table_is_refused_and_says_where(field: str, value: Any) -> None:
    with pytest.raises(BadRequest) as refused:
        dataclasses.replace(TABLE, **{field: value})
    assert refused.value.field == field


# every number

PRICES = st.integers(min_value=0, max_value=AMOUNT_MAX)
AMOUNTS = st.integers(min_value=0, max_value=AMOUNT_MAX)
TIMES = st.integers(min_value=0, max_value=90 * 24 * HOUR_MS)
TABLES = st.builds(
    PriceTable,
    base=st.integers(min_value=0, max_value=pricing.BASE_MAX),
    fee_ppm=st.integers(min_value=0, max_value=pricing.PPM - 1),
    spot_range=st.integers(min_value=1, max_value=100),
)


@given(PRICES, TIMES)
def test_a_charge_is_never_rounded_up(price: int, ms: int) -> None:
    exact = Fraction(price * ms, HOUR_MS)
    charge = charge_of(price, ms)
    assert type(charge) is int
    assert charge == AMOUNT_MAX if exact >= AMOUNT_MAX else 0 <= exact - charge < 1


@given(PRICES, TIMES, st.integers(min_value=0, max_value=10**9))
def test_more_never_costs_less(price: int, ms: int, more: int) -> None:
    assert charge_of(price, ms) <= charge_of(price, ms + more)
    assert charge_of(price, ms) <= charge_of(price + more, ms)
    assert price_of(price, 1000) <= price_of(price + more, 1000) <= price_of(price + more, 1001)


@given(st.integers(min_value=1, max_value=AMOUNT_MAX), st.integers(min_value=0, max_value=AMOUNT_MAX - 1))
def test_money_lasts_to_the_last_millisecond(price: int, amount: int) -> None:
    lasts = affordable_ms(price, amount)
    assert lasts is not None
    assert charge_of(price, lasts) <= amount < charge_of(price, lasts + 1)


@pytest.mark.soak
@given(AMOUNTS)
def test_what_costs_nothing_lasts_for_ever(amount: int) -> None:
    assert affordable_ms(0, amount) is None


@given(TABLES, AMOUNTS)
def test_the_fee_takes_the_crumb_and_never_more(table: PriceTable, gross: int) -> None:
    fee, exact = table.fee_of(gross), Fraction(gross * table.fee_ppm, pricing.PPM)
    assert 0 <= fee - exact < 1
    assert table.net_of(gross) + fee == gross
    assert table.net_of(gross) >= 0


@given(AMOUNTS)
def test_the_fee_is_a_fifth(charge: int) -> None:
    assert 0 <= TABLE.fee_of(charge) - Fraction(charge, 5) < 1


@given(AMOUNTS, st.integers(min_value=0, max_value=10**6))
def test_who_charges_more_nets_no_less(gross: int, more: int) -> None:
    assert TABLE.net_of(gross) <= TABLE.net_of(gross + more)


@given(TABLES, st.sampled_from([tier for tier, _ in GOLDEN]), st.sampled_from([place for place, _ in RATES]))
def test_the_reference_lies_between_the_bounds(table: PriceTable, tier: str, region: str) -> None:
    zone = Zone(tier, region)
    low, high = table.bounds(zone)
    assert 0 <= low <= min(table.reference(zone), AMOUNT_MAX) <= high <= AMOUNT_MAX


TIMESTAMPS = st.integers(min_value=0, max_value=2**43)


@given(reported=st.integers(-(2**60), 2**60), leased=TIMESTAMPS, accepted=TIMESTAMPS, longest=TIMES)
def test_a_node_is_believed_only_within_the_hubs_own_clock(
    reported: int, leased: int, accepted: int, longest: int
) -> None:
    billed = billed_ms(reported_ms=reported, leased_at_ms=leased, accepted_at_ms=accepted, longest_ms=longest)
    assert billed >= 0
    assert billed <= max(0, reported)
    assert billed <= max(0, accepted - leased)
    assert billed <= longest


@given(
    cores=st.integers(min_value=1, max_value=10**7),
    gpus=st.integers(min_value=0, max_value=64),
    vram=st.integers(min_value=0, max_value=2**20),
    card_mb=st.integers(min_value=0, max_value=2**20),
)
def test_a_job_never_pays_for_more_than_whole_cards(cores: int, gpus: int, vram: int, card_mb: int) -> None:
    wanted = Requirements(cpu_milli=cores, gpus=max(gpus, 1 if vram else 0), vram_mb=vram)
    units = units_of(wanted, card_mb=card_mb)
    assert 0 < units <= units_of(wanted)
