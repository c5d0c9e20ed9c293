"""Payouts that do not agree with the ledger, found by reading a snapshot of all of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, exists, func, or_, select

from computepool.core.money.ledger import BANK, Kind
from computepool.hub.db.money_tables import IS_UNDECIDED, balances, payouts, transfers
from computepool.hub.money import price_rows
from computepool.hub.observability.consistency.money import ledger_name, stream
from computepool.hub.observability.consistency.pool import InvariantRules, ids

RULES = InvariantRules()
#: Hubs' clocks may differ by this much when one changes prices and another accepts a request.
_SKEW_MS = 60_000


@RULES.function("a payout is reserved once, and paid or returned once")
def wrong_payouts(connection: Connection) -> list[str]:
    """A payout is reserved in full; it goes to the bank when paid, and back to its owner when it failed or was rejected."""
    name, owner = ledger_name("payout:", payouts.c.id), ledger_name("owner:", payouts.c.account_id)
    reserved = _sum_of(Kind.PAYOUT_RESERVE, transfers.c.credit == name, transfers.c.debit == owner)
    paid = _sum_of(Kind.PAYOUT_PAID, transfers.c.debit == name)
    returned = _sum_of(Kind.PAYOUT_RETURN, transfers.c.debit == name, transfers.c.credit == owner)
    over = [
        case((payouts.c.state == "paid", payouts.c.amount), else_=0),
        case((payouts.c.state.in_(["failed", "rejected"]), payouts.c.amount), else_=0),
    ]
    broken = or_(reserved != payouts.c.amount, paid != over[0], returned != over[1])
    found = ids(connection, select(payouts.c.id).where(broken))
    known = exists().where(payouts.c.id == func.substr(balances.c.account, 8))
    unknown = select(balances.c.account).where(func.substr(balances.c.account, 1, 7) == "payout:", ~known)
    return found + ids(connection, unknown)


def _sum_of(kind: Kind, *which: ColumnElement[bool]) -> ColumnElement[int]:
    total = func.coalesce(func.sum(transfers.c.amount), 0)
    statement = select(total).where(transfers.c.kind == kind.value, *which)
    return statement.correlate(payouts).scalar_subquery()


@RULES.statement("a payout's account holds its amount until it is decided")
def payouts_in_flight() -> Select[Any]:
    """The account of a payout holds its amount until it is decided, and nothing afterwards."""
    there = func.coalesce(balances.c.balance, 0)
    expected = case((IS_UNDECIDED, payouts.c.amount), else_=0)
    joined = payouts.outerjoin(balances, balances.c.account == ledger_name("payout:", payouts.c.id))
    return select(payouts.c.id).select_from(joined).where(there != expected)


@RULES.statement("each provider reference belongs to one payout")
def repeated_references() -> Select[Any]:
    given = select(payouts.c.provider_ref).where(payouts.c.provider_ref.is_not(None))
    return given.group_by(payouts.c.provider_ref).having(func.count() > 1)


@RULES.function("no payout is below the minimum amount")
def small_payouts(connection: Connection) -> list[str]:
    """Payouts below the minimum of the price table that was in force when they were requested."""
    versions = reversed(price_rows.list_versions(connection))
    least = [(row.created_at_ms, row.table().payout_min) for row in versions]
    rows = stream(connection, select(payouts.c.id, payouts.c.amount, payouts.c.created_at_ms))
    return [row.id for row in rows if row.amount < _least_at(row.created_at_ms, least)]


def _least_at(at_ms: int, least: list[tuple[int, int]]) -> int:
    ends = [start_ms for start_ms, _ in least[1:]]
    in_force = [
        amount
        for (start_ms, amount), end_ms in zip(least, [*ends, None], strict=True)
        if start_ms - _SKEW_MS <= at_ms and (end_ms is None or at_ms < end_ms + _SKEW_MS)
    ]
    return min(in_force, default=0)


@RULES.function("the bank's account is what was paid in minus what was paid out")
def wrong_bank(connection: Connection) -> list[str]:
    """The bank's account must equal what was paid in minus what was paid out; compare it with the bank's own statement."""
    paid_in = select(func.sum(transfers.c.amount)).where(
        transfers.c.debit == BANK, transfers.c.kind == Kind.TOP_UP.value
    )
    paid_out = select(func.sum(payouts.c.amount)).where(payouts.c.state == "paid")
    stored = select(balances.c.balance).where(balances.c.account == BANK)
    numbers = [int(connection.execute(query).scalar() or 0) for query in (paid_in, paid_out, stored)]
    expected = numbers[1] - numbers[0]
    return [] if numbers[2] == expected else [f"{BANK} has {numbers[2]} and should have {expected}"]
