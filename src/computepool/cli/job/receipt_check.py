"""Offline verification of a receipt: its signature, its arithmetic, and the ledger rows it contains.

Each check is a sentence that says what holds or what does not. The arithmetic is the hub's (core/money).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from computepool.core.errors import ComputePoolError
from computepool.core.money import bills, ledger, pricing
from computepool.core.money.ledger import Kind
from computepool.core.money.money import format_credits as _money
from computepool.core.money.pricing import Economy, PriceTable, Zone
from computepool.core.words import pluralize
from computepool.protocol.money import receipts
from computepool.protocol.money.receipts import Receipt, ReceiptRun, ReceiptTransfer, SignedReceipt


@dataclass(frozen=True, slots=True)
class ReceiptCheck:
    ok: bool
    text: str


def check(document: dict[str, Any], *, trusted: Mapping[str, str]) -> list[ReceiptCheck]:
    """`trusted`: the hub's keys by name, from a source other than the receipt; may be empty."""
    receipt = SignedReceipt.model_validate(document).receipt
    return [
        *_signature(document, receipt, trusted),
        *(found for run in _runs(receipt) for part in (_price, _time, _amounts) for found in part(receipt, run)),
        *_refund(receipt),
        *_transfers(receipt),
        *_chain(receipt.transfers),
    ]


def _runs(receipt: Receipt) -> list[ReceiptRun]:
    return [receipt, *receipt.confirmed_by, *receipt.continued_from]


def _signature(document: dict[str, Any], receipt: Receipt, trusted: Mapping[str, str]) -> Iterator[ReceiptCheck]:
    try:
        signed = receipts.is_signed(document, receipt.key)
    except (ComputePoolError, ValueError):
        signed = False
    yield _either(
        signed,
        f"It was signed with key {receipt.kid} and has not changed since.",
        f"It was not signed with key {receipt.kid}, or was changed afterwards.",
    )
    if trusted:
        known = trusted.get(receipt.kid) == receipt.key
        yield _either(
            known,
            "That key is a known key of the hub.",
            "That key is not a known key of the hub: somebody else may have made this receipt.",
        )


def _price(receipt: Receipt, run: ReceiptRun) -> Iterator[ReceiptCheck]:
    table = run.prices
    reference = table.base * table.tier_rate * table.region_rate // (pricing.PERCENT * pricing.PERCENT)
    low, high = reference // table.spot_range, reference * table.spot_range
    made = (
        f"{_money(table.base)} × {bills.rate(table.tier_rate)} ({run.tier}) × {bills.rate(table.region_rate)} "
        f"({run.region or 'no region'}) = {_money(reference)} by price table {table.version}"
    )
    yield _either(
        low <= run.spot <= high,
        f"The spot price of {_money(run.spot)} lies between {_money(low)} and {_money(high)}, around {made}.",
        f"The spot price of {_money(run.spot)} is not between {_money(low)} and {_money(high)}, around {made}.",
    )
    own = run.owner == receipt.submitter
    price = 0 if own else pricing.price_of(run.spot, run.units)
    zone = Zone(run.tier, run.region)
    yield _either(
        run.price == price,
        "The node was the submitter's own, so the price was 0."
        if own
        else f"{bills.units_text(run.units, zone)} at that price: {_money(price)} per hour.",
        f"The price should be {_money(price)} per hour, but is {_money(run.price)}.",
    )
    yield _either(
        run.price <= receipt.max_price,
        f"That is within the limit of {_money(receipt.max_price)} per hour.",
        f"The price is above the limit of {_money(receipt.max_price)} per hour.",
    )


def _time(receipt: Receipt, run: ReceiptRun) -> Iterator[ReceiptCheck]:
    times = [run.leased_at_ms, run.started_at_ms, run.finished_at_ms]
    if run.billed_ms:  # if two hubs with different clocks lease and accept, nothing is billed
        times.append(receipt.accepted_at_ms)
    yield _either(
        times == sorted(times),
        "It was leased, started, finished and accepted in this order.",
        "Its times are out of order.",
    )
    most = max(0, min(receipt.accepted_at_ms - run.leased_at_ms, receipt.longest_ms))
    yield _either(
        0 <= run.billed_ms <= most,
        f"{bills.seconds(run.billed_ms)} were billed, no more than the hub saw and the time limit allows.",
        f"{bills.seconds(run.billed_ms)} were billed, but at most {bills.seconds(most)} are possible.",
    )
    number = run.attempt_id.removeprefix(f"{receipt.job_id}-")
    yield _either(
        number.isdecimal() and number != "0",
        f"Attempt {number} of the job was paid for.",
        "The attempt is not the job's.",
    )


def _amounts(_: Receipt, run: ReceiptRun) -> Iterator[ReceiptCheck]:
    charge = pricing.charge_of(run.price, run.billed_ms)
    yield _either(
        run.charge == charge,
        f"{_money(run.price)} per hour for that time, rounded down, is {_money(charge)}.",
        f"The charge should be {_money(charge)}, but is {_money(run.charge)}.",
    )
    table = PriceTable(economy=Economy(run.prices.economy), fee_ppm=run.prices.fee_ppm)
    fee = table.fee_of(run.charge)
    yield _either(
        (run.fee, run.pay) == (fee, run.charge - fee),
        f"The fee is {bills.percentage(run.prices.fee_ppm)} of it, {_money(fee)}; the owner receives {_money(run.pay)}.",
        f"The fee should be {_money(fee)} and the pay {_money(run.charge - fee)}.",
    )


def _refund(receipt: Receipt) -> Iterator[ReceiptCheck]:
    total = sum(run.charge for run in _runs(receipt))
    yield _either(
        receipt.refund == receipt.hold - total >= 0,
        f"{_money(receipt.hold)} were put on hold, and {_money(receipt.refund)} were refunded.",
        f"The hold of {_money(receipt.hold)} minus {_money(total)} is not the refund of {_money(receipt.refund)}.",
    )
    ids = [run.attempt_id for run in _runs(receipt)]
    runs = [receipt, *receipt.confirmed_by]
    yield _either(
        len(set(ids)) == len(ids) and len({run.owner for run in runs}) == len(runs),
        "Every run was on another owner's node." if len(runs) > 1 else "One run was paid for.",
        "One run or one owner occurs twice.",
    )
    if receipt.continued_from:
        most, billed = receipt.longest_ms * len(runs), sum(run.billed_ms for run in _runs(receipt))
        yield _either(
            billed <= most,
            f"With the {pluralize(len(receipt.continued_from), 'earlier attempt')} that the run resumed from, no more was billed "
            "than the time limit allows.",
            f"All attempts together were billed {bills.seconds(billed)}, above the time limit.",
        )


def _transfers(receipt: Receipt) -> Iterator[ReceiptCheck]:
    settled = [row for row in receipt.transfers if row.tx_key == f"settle:{receipt.job_id}"]
    held = [row for row in receipt.transfers if row.kind == Kind.HOLD]
    yield _either(
        _sides(settled) == _expected_sides(receipt)
        and _once(settled)
        and len(settled) + len(held) == len(receipt.transfers),
        "The transfers are exactly these amounts, between these accounts, once.",
        "The transfers are not these amounts between these accounts.",
    )
    about = all((row.job_id, row.ref) == (receipt.job_id, receipt.attempt_id) for row in settled)
    yield _either(
        about and all(row.at_ms == receipt.accepted_at_ms for row in settled),
        "They are about this job and attempt, and were made when the result was accepted.",
        "They are about another job or attempt, or were made at another time.",
    )
    whole = receipt.hold * receipt.jobs
    yield _either(
        sum(row.amount for row in held) == whole and all(_is_hold(row, receipt) for row in held) and _once(held),
        f"{_money(whole)} were put on hold for the {pluralize(receipt.jobs, 'job')} of the submission.",
        "The hold does not match the ledger.",
    )


def _sides(rows: list[ReceiptTransfer]) -> dict[tuple[str, str, str], int]:
    """Amounts by kind and accounts. A refund may go to two balances of the submitter, which count as one."""
    found = defaultdict[tuple[str, str, str], int](int)
    for row in rows:
        target = "back" if row.kind == Kind.REFUND and row.credit in _own(row.debit) else row.credit
        found[row.kind, row.debit, target] += row.amount
    return found


def _own(escrow: str) -> tuple[str, str]:
    account = escrow.partition(":")[2]
    return ledger.user(account), ledger.owner(account)


def _expected_sides(receipt: Receipt) -> dict[tuple[str, str, str], int]:
    source = ledger.escrow(receipt.submitter)
    parts = defaultdict[tuple[str, str, str], int](int)
    for run in _runs(receipt):
        parts[Kind.PAY.value, source, ledger.earn(run.owner)] += run.pay
        parts[Kind.FEE.value, source, ledger.FEES] += run.fee
    parts[Kind.REFUND.value, source, "back"] = receipt.refund
    return {key: amount for key, amount in parts.items() if amount}


def _once(rows: list[ReceiptTransfer]) -> bool:
    """Whether the rows are the legs of one transfer: numbered from 0, and consecutive in the ledger."""
    return all(row.leg == number and row.seq == rows[0].seq + number for number, row in enumerate(rows))


def _is_hold(row: ReceiptTransfer, receipt: Receipt) -> bool:
    escrow = ledger.escrow(receipt.submitter)
    return (
        row.tx_key == f"hold:{row.job_id}"
        and row.debit in _own(escrow)
        and row.credit == escrow
        and row.at_ms <= receipt.accepted_at_ms
    )


def _chain(rows: list[ReceiptTransfer]) -> Iterator[ReceiptCheck]:
    broken = [row.seq for row in rows if ledger.chain_hash(row.previous, row.model_dump()) != row.hash]
    yield _either(
        not broken and bool(rows),
        f"Each of the {len(rows)} ledger rows has the hash of its content.",
        f"Ledger row {broken[0] if broken else '?'} does not have the hash of its content.",
    )
    linked = all(
        later.previous == row.hash if later.seq == row.seq + 1 else later.seq > row.seq for row, later in pairwise(rows)
    )
    numbers = f"{rows[0].seq} to {rows[-1].seq}" if rows else "none"
    yield _either(
        linked,
        f"They are linked in the ledger's chain (rows {numbers}).",
        "They do not follow each other in the ledger's chain.",
    )


def _either(ok: bool, holds: str, fails: str) -> ReceiptCheck:
    return ReceiptCheck(ok, holds if ok else fails)
