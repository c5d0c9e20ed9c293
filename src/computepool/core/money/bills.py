"""A job's bill as text: from the price table to the amounts paid, with every step as it was computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from computepool.core.money.money import format_credits as _money
from computepool.core.money.pricing import HOUR_MS, MILLI, PERCENT, PPM, PriceTable, Zone
from computepool.core.resources import CPU_TIER, CPU_TIERS
from computepool.core.words import pluralize

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The price agreed when the attempt was placed, and the resulting charge."""

    zone: Zone
    spot: int
    units: int
    price: int
    table: PriceTable
    node_name: str
    billed_ms: int
    charge: int
    own: bool = False  #: the node belongs to the submitter, and is free

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
    """Every factor, in order of multiplication. The submitter's own node has none."""
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
        BillLine("spot", bill.spot, _spot_text(bill, reference)),
        BillLine("units", None, f"× {units_text(bill.units, zone)}"),
        BillLine("price", bill.price, f"= {_money(bill.price)} per hour for the whole job"),
        BillLine("time", None, f"× {seconds(bill.billed_ms)}"),
        BillLine("charge", bill.charge, f"= {_money(bill.charge)}, rounded down"),
        BillLine("fee", bill.fee, f"− {_money(bill.fee)}, {percentage(table.fee_ppm)} for the platform"),
        BillLine("pay", bill.pay, f"= {_money(bill.pay)} for the owner of {bill.node_name}"),
    ]


def _spot_text(bill: Bill, reference: int) -> str:
    if bill.spot == reference or not reference:
        return f"{_money(bill.spot)} per {unit_name(bill.zone)}-hour was the spot price"
    ratio = bill.spot * PERCENT // reference
    return f"{_money(bill.spot)} per {unit_name(bill.zone)}-hour was the spot price, {rate(ratio)} × the reference"


def usage_phrase(bill: Bill) -> str:
    what = units_text(bill.units, bill.zone)
    if bill.zone.tier != CPU_TIER:
        what += f" of {bill.zone.tier}"
    if bill.zone.region:
        what += f", region {bill.zone.region},"
    return (
        f"{seconds(bill.billed_ms)} on {bill.node_name} at {_money(bill.price)} per hour "
        f"({what} at the spot price of {_money(bill.spot)})"
    )


def paid_sentence(bill: Bill, *, part: bool = False) -> str:
    """For the owner of the node. `part`: another node resumed from this run's checkpoint and delivered the result."""
    if not bill.price:
        return f"You were paid nothing: {bill.node_name} ran this job at a price of 0."
    what = usage_phrase(bill) + (", up to the checkpoint that was used," if part else "")
    return (
        f"You were paid {_money(bill.pay)} credits: {what} is {_money(bill.charge)}, "
        f"less the platform's {percentage(bill.table.fee_ppm)} ({_money(bill.fee)})."
    )


def charged_sentence(
    bill: Bill, *, hold: int, others: Sequence[Bill] = (), parts: Sequence[Bill] = (), yours: bool = True
) -> str:
    """For the submitter. `others`: the runs that confirmed the result; `parts`: earlier attempts that runs resumed from.

    `yours`: the reader is the submitter, not an administrator.
    """
    more = (*others, *parts)
    total = bill.charge + sum(other.charge for other in more)
    back = f"{_money(hold - total)} of the {_money(hold)} on hold were refunded"
    if more:
        runs = " and ".join(usage_phrase(run) for run in (bill, *more))
        fees = bill.fee + sum(other.fee for other in more)
        return (
            f"This job cost {_money(total)} credits, because {_reasons(len(others), len(parts))}: {runs}; "
            f"{_money(total - fees)} went to the nodes' owners, {_money(fees)} to the platform, and {back}."
        )
    if not bill.price:
        free = f"This job cost nothing: {bill.node_name} ran it at a price of 0"
        if bill.own:
            owner = "your" if yours else "its submitter's"
            free = f"This job was free: {bill.node_name} is {owner} own node"
        return f"{free}; {back}." if hold else f"{free}."
    return (
        f"This job cost {_money(bill.charge)} credits: {usage_phrase(bill)}; {_money(bill.pay)} went to the node's owner, "
        f"{_money(bill.fee)} ({percentage(bill.table.fee_ppm)}) to the platform, and {back}."
    )


def _reasons(others: int, parts: int) -> str:
    confirmed = f"its result was confirmed on {pluralize(others, 'more node')}"
    resumed = f"it resumed from {'checkpoints' if parts > 1 else 'a checkpoint'} of earlier attempts"
    return " and ".join([*([confirmed] if others else []), *([resumed] if parts else [])])


def unit_name(zone: Zone) -> str:
    return "core" if zone.tier in CPU_TIERS else "card"


def units_text(units: int, zone: Zone) -> str:
    """`1 card`, `0.5 cores`, `2 cores`."""
    whole, part = divmod(units, MILLI)
    number = f"{whole}.{part:03d}".rstrip("0").rstrip(".")
    return f"{number} {unit_name(zone)}{'' if units == MILLI else 's'}"


def rate(hundredths: int) -> str:
    return f"{hundredths // PERCENT}.{hundredths % PERCENT:02d}"


def percentage(ppm: int) -> str:
    """`20 %`, `12.5 %`."""
    whole, part = divmod(ppm * PERCENT, PPM)
    digits = f"{part:06d}".rstrip("0")
    return f"{whole}.{digits} %" if digits else f"{whole} %"


def seconds(ms: int) -> str:
    """Exact. Longer times are also given in minutes or hours."""
    exact = f"{ms // 1000:,}.{ms % 1000:03d} s"
    if ms < 2 * _MINUTE_MS:
        return exact
    minutes = ms // _MINUTE_MS
    duration = f"{minutes} min" if ms < HOUR_MS else f"{minutes // 60} h {minutes % 60} min"
    return f"{exact} ({duration})"
