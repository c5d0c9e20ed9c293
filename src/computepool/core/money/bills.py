"""A job's bill in words and numbers: from the price table to what was paid, each step as it was really computed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from computepool.core.money import pricing
from computepool.core.money.money import format_credits
from computepool.core.money.pricing import PERCENT, PPM, PriceTable, Zone
from computepool.core.resources import CPU_TIER, CPU_TIERS

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What was agreed when the attempt was placed, and what came of it."""

    zone: Zone
    spot: int
    units: int
    price: int
    table: PriceTable
    node_name: str
    billed_ms: int
    charge: int
    own: bool = False  #: the node belongs to the submitter, who pays nothing for it

    @property
    def fee(self) -> int:
        return self.table.fee_of(self.charge)

    @property
    def pay(self) -> int:
        return self.charge - self.fee


@dataclass(frozen=True, slots=True)
class BillLine:
    label: str
    amount: int | None
    text: str


def lines(bill: Bill) -> list[BillLine]:
    """Every factor, in the order in which they were multiplied. On one's own node there is none."""
    if bill.own and not bill.price:
        free = f"{_money(bill.charge)}: the node belongs to the submitter"
        return [BillLine("time", None, seconds(bill.billed_ms)), BillLine("charge", bill.charge, free)]
    table, zone = bill.table, bill.zone
    unit = unit_name(zone)
    reference = table.reference(zone)
    tier, region = table.tier_rate(zone.tier), table.region_rate(zone.region)
    return [
        BillLine("base", table.base, f"{_money(table.base)} per {unit}-hour, by price table {table.version}"),
        BillLine("tier", None, f"× {rate(tier)} for {zone.tier}"),
        BillLine("region", None, f"× {rate(region)} for {zone.region or 'no region'}"),
        BillLine("reference", reference, f"= {_money(reference)} per {unit}-hour"),
        BillLine("spot", bill.spot, _spot_words(bill, reference)),
        BillLine("units", None, f"× {units_words(bill.units, zone)}"),
        BillLine("price", bill.price, f"= {_money(bill.price)} per hour for the whole job"),
        BillLine("time", None, f"× {seconds(bill.billed_ms)}"),
        BillLine("charge", bill.charge, f"= {_money(bill.charge)}, rounded down"),
        BillLine("fee", bill.fee, f"− {_money(bill.fee)}, {share(table.fee_ppm)} for the platform"),
        BillLine("pay", bill.pay, f"= {_money(bill.pay)} for the owner of {bill.node_name}"),
    ]


def _spot_words(bill: Bill, reference: int) -> str:
    if bill.spot == reference or not reference:
        return f"{_money(bill.spot)} per {unit_name(bill.zone)}-hour was the spot price"
    ratio = bill.spot * PERCENT // reference
    return f"{_money(bill.spot)} per {unit_name(bill.zone)}-hour was the spot price, {rate(ratio)} × the reference"


def how(bill: Bill) -> str:
    """For the middle of a sentence."""
    what = units_words(bill.units, bill.zone)
    if bill.zone.tier != CPU_TIER:
        what += f" of {bill.zone.tier}"
    if bill.zone.region:
        what += f", region {bill.zone.region},"
    return (
        f"{seconds(bill.billed_ms)} on {bill.node_name} at {_money(bill.price)} per hour "
        f"({what} at the spot price of {_money(bill.spot)})"
    )


def paid_sentence(bill: Bill, *, part: bool = False) -> str:
    """To the owner of the node. `part`: another node went on from its checkpoint, and came to the result."""
    if not bill.price:
        return f"You were paid nothing: {bill.node_name} did this job at a price of 0."
    what = f"{how(bill)}, up to the checkpoint that was used," if part else how(bill)
    return (
        f"You were paid {_money(bill.pay)} credits: {what} is {_money(bill.charge)}, "
        f"less the platform's {share(bill.table.fee_ppm)} ({_money(bill.fee)})."
    )


def charged_sentence(
    bill: Bill, *, hold: int, others: Sequence[Bill] = (), parts: Sequence[Bill] = (), yours: bool = True
) -> str:
    """To the submitter. `others`: the runs that confirmed the result; `parts`: what the runs went on from.

    `yours`: whoever reads it is the submitter, and no administrator.
    """
    more = (*others, *parts)
    total = bill.charge + sum(other.charge for other in more)
    back = f"{_money(hold - total)} of the {_money(hold)} on hold were refunded"
    if more:
        runs = " and ".join(how(run) for run in (bill, *more))
        fees = bill.fee + sum(other.fee for other in more)
        return (
            f"This job cost {_money(total)} credits, because {_why_more(len(others), len(parts))}: {runs}; "
            f"{_money(total - fees)} went to the nodes' owners, {_money(fees)} to the platform, and {back}."
        )
    if not bill.price:
        free = f"This job cost nothing: {bill.node_name} did it at a price of 0"
        if bill.own:
            whose = "your" if yours else "its submitter's"
            free = f"This job was free: {bill.node_name} is {whose} own node"
        return f"{free}; {back}." if hold else f"{free}."
    return (
        f"This job cost {_money(bill.charge)} credits: {how(bill)}; {_money(bill.pay)} went to the node's owner, "
        f"{_money(bill.fee)} ({share(bill.table.fee_ppm)}) to the platform, and {back}."
    )


def _why_more(others: int, parts: int) -> str:
    confirmed = f"its result was confirmed on {others} more node{'s' if others > 1 else ''}"
    continued = f"it went on from {'checkpoints' if parts > 1 else 'a checkpoint'} of earlier tries"
    return " and ".join([*([confirmed] if others else []), *([continued] if parts else [])])


def unit_name(zone: Zone) -> str:
    return "core" if zone.tier in CPU_TIERS else "card"


def units_words(units: int, zone: Zone) -> str:
    """`1 card`, `0.5 cores`, `2 cores`."""
    whole, part = divmod(units, pricing.MILLI)
    number = f"{whole}.{part:03d}".rstrip("0").rstrip(".")
    return f"{number} {unit_name(zone)}{'' if units == pricing.MILLI else 's'}"


def rate(hundredths: int) -> str:
    return f"{hundredths // PERCENT}.{hundredths % PERCENT:02d}"


def share(ppm: int) -> str:
    """`20 %`, `12.5 %`."""
    whole, part = divmod(ppm * PERCENT, PPM)
    digits = f"{part:06d}".rstrip("0")
    return f"{whole}.{digits} %" if digits else f"{whole} %"


def seconds(ms: int) -> str:
    """Exact; longer times also as people say them."""
    exact = f"{ms // 1000:,}.{ms % 1000:03d} s"
    if ms < 2 * _MINUTE_MS:
        return exact
    minutes = ms // _MINUTE_MS
    duration = f"{minutes} min" if ms < _HOUR_MS else f"{minutes // 60} h {minutes % 60} min"
    return f"{exact} ({duration})"


def table_digest(table: PriceTable) -> str:
    """Names a version of the price table by its content."""
    return hashlib.sha256(pricing.to_json(table).encode()).hexdigest()


def _money(amount: int) -> str:
    return format_credits(amount)
