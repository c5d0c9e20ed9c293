"""Reads of the ledger: statements, maturing earnings, the leaderboard, one job's transfers. Writes are in booking.py.

An account's money is in four ledger accounts; the indexes (debit, seq) and (credit, seq) answer every query about them.
Sequence numbers and times grow together, so a span of time is a range of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    Subquery,
    bindparam,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    union_all,
)

from computepool.core.jobs.lifecycle import JobState
from computepool.core.money import ledger
from computepool.core.money.ledger import Kind
from computepool.hub.db import dialect
from computepool.hub.db.money_tables import balances, transfers
from computepool.hub.db.queries import any_row
from computepool.hub.db.tables import IS_HELD, attempts, jobs
from computepool.hub.db.typed_rows import TypedRow
from computepool.protocol.jobs.filters import StatementFilter

_MATURE, _PAY, _FEE, _TAKE_BACK = (kind.value for kind in (Kind.MATURE, Kind.PAY, Kind.FEE, Kind.TAKE_BACK))
_LAST = select(func.max(transfers.c.seq))
_AT = select(transfers.c.at_ms).where(transfers.c.seq == bindparam("number"))


class TransferRow(TypedRow, of=transfers):
    seq: int
    tx_key: str
    leg: int
    debit: str
    credit: str
    amount: int
    kind: str
    job_id: str | None
    ref: str | None
    at_ms: int
    hash: str


def balance_names(account_id: str) -> tuple[str, str, str, str]:
    return (ledger.user(account_id), ledger.escrow(account_id), ledger.earn(account_id), ledger.owner(account_id))


def get_balances(connection: Connection, account_id: str) -> dict[str, int]:
    """By ledger account; an unused one holds nothing."""
    names = balance_names(account_id)
    rows = connection.execute(select(balances).where(balances.c.account.in_(names)))
    return dict.fromkeys(names, 0) | {row.account: row.balance for row in rows}


# statements


def statement(
    connection: Connection, account_id: str, filters: StatementFilter, *, before: int | None, limit: int
) -> list[TransferRow]:
    """Newest first. Each index gives its newest few rows, and the newest of those are the page."""
    picked = _sides(connection, account_id, filters, before=before, limit=limit)
    rows = connection.execute(select(*picked.columns).distinct().order_by(picked.c.seq.desc()).limit(limit))
    return TransferRow.all(rows)


def sums(connection: Connection, account_id: str, filters: StatementFilter) -> list[dict[str, Any]]:
    """Totals by kind. A transfer between two balances of the account is neither a gain nor a loss."""
    picked = _sides(connection, account_id, filters, before=None, limit=None)
    distinct = select(*picked.columns).distinct().subquery()
    names = balance_names(account_id)
    into, out_of = distinct.c.credit.in_(names), distinct.c.debit.in_(names)
    gained = case((into & ~out_of, distinct.c.amount), else_=0)
    lost = case((out_of & ~into, distinct.c.amount), else_=0)
    totals = select(
        distinct.c.kind,
        func.count().label("transfers"),
        func.sum(distinct.c.amount, type_=BigInteger).label("moved"),
        func.sum(gained, type_=BigInteger).label("gained"),
        func.sum(lost, type_=BigInteger).label("lost"),
    ).group_by(distinct.c.kind)
    return [row._asdict() for row in connection.execute(totals.order_by(distinct.c.kind))]


def _sides(
    connection: Connection, account_id: str, filters: StatementFilter, *, before: int | None, limit: int | None
) -> Subquery:
    conditions = _conditions(connection, filters, before=before)
    parts: list[Select[Any]] = []
    for name in balance_names(account_id):
        for side in (transfers.c.debit, transfers.c.credit):
            part = TransferRow.select().where(side == name, *conditions)
            if limit is not None:
                part = part.order_by(transfers.c.seq.desc()).limit(limit)
            # SQLite accepts a LIMIT in one part of a UNION only inside a subquery.
            parts.append(select(part.subquery()))
    return union_all(*parts).subquery()


def _conditions(connection: Connection, filters: StatementFilter, *, before: int | None) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if before is not None:
        found.append(transfers.c.seq < before)
    if filters.since_ms is not None:
        found.append(transfers.c.seq >= first_at(connection, filters.since_ms))
    if filters.until_ms is not None:
        found.append(transfers.c.seq < first_at(connection, filters.until_ms))
    if filters.kinds:
        found.append(transfers.c.kind.in_(filters.kinds))
    return found


def first_at(connection: Connection, at_ms: int) -> int:
    """The number of the first transfer at or after that time; one past the last if there is none."""
    low, high = 1, (connection.execute(_LAST).scalar() or 0) + 1
    while low < high:
        middle = (low + high) // 2
        if connection.execute(_AT, {"number": middle}).scalar_one() >= at_ms:
            high = middle
        else:
            low = middle + 1
    return low


def by_keys(connection: Connection, keys: Sequence[str]) -> list[TransferRow]:
    """The legs booked under these keys, in order."""
    return TransferRow.fetch(connection, dialect.among(connection, transfers.c.tx_key, keys), order=transfers.c.seq)


def hashes(connection: Connection, numbers: Sequence[int]) -> dict[int, str]:
    """The hash of each of these transfers; number 0 stands for the beginning of the chain."""
    rows = connection.execute(select(transfers.c.seq, transfers.c.hash).where(transfers.c.seq.in_(list(numbers))))
    return {0: ledger.GENESIS} | {row.seq: row.hash for row in rows}


# earnings


def earners(connection: Connection) -> list[str]:
    """Accounts whose earnings have not all matured. Scans all balances, because databases order names differently."""
    prefix = ledger.earn("")
    rows = connection.execute(
        select(balances.c.account).where(balances.c.account.startswith(prefix), balances.c.balance > 0)
    )
    return sorted(row.account.removeprefix(prefix) for row in rows)


def earners_between(connection: Connection, *, first: int, before: int) -> list[str]:
    rows = connection.execute(
        select(transfers.c.credit)
        .where(transfers.c.seq >= first, transfers.c.seq < before, transfers.c.kind == _PAY)
        .distinct()
    )
    return sorted(row.credit.removeprefix(ledger.earn("")) for row in rows)


def last_matured(connection: Connection, account_id: str) -> int:
    """The last transfer that a maturing has covered; 0: none."""
    matured = (
        select(transfers.c.ref)
        .where(
            transfers.c.debit == ledger.earn(account_id),
            transfers.c.kind == _MATURE,
            transfers.c.job_id.is_(None),  # pay held for a check matures job by job
        )
        .order_by(transfers.c.seq.desc())
        .limit(1)
    )
    return int(connection.execute(matured).scalar() or 0)


def sum_earned(connection: Connection, account_id: str, *, after: int, before: int) -> tuple[int, int]:
    """The amount earned by the transfers between these numbers, and the number of the last; (0, 0): nothing."""
    pays = _pays(account_id).where(transfers.c.seq > after, transfers.c.seq < before).subquery()
    row = connection.execute(
        select(func.sum(pays.c.amount, type_=BigInteger).label("amount"), func.max(pays.c.seq).label("last"))
    ).one()
    return (int(row.amount or 0), int(row.last or 0))


def next_earned(connection: Connection, account_id: str, *, after: int) -> TransferRow | None:
    pays = _pays(account_id).where(transfers.c.seq > after)
    return TransferRow.first(connection.execute(pays.order_by(transfers.c.seq).limit(1)))


def unconfirmed_pay(connection: Connection, account_id: str) -> int:
    """The amount earned that is held until a check."""
    paid = (transfers.c.tx_key == literal("settle:") + jobs.c.id) & (transfers.c.kind == _PAY)
    statement = (
        select(func.sum(transfers.c.amount, type_=BigInteger))
        .select_from(jobs.join(transfers, paid))
        .where(IS_HELD, jobs.c.taken_back.is_(None), transfers.c.credit == ledger.earn(account_id))
    )
    return int(connection.execute(statement).scalar() or 0)


def _pays(account_id: str) -> Select[Any]:
    """Without pay that was taken back, and pay that is or was held. The transaction writes the job before the transfer, so
    the job's row is current."""
    apart = or_(jobs.c.taken_back.is_not(None), jobs.c.held_until_ms.is_not(None))
    taken_back = exists().where(jobs.c.id == transfers.c.job_id, apart)
    return TransferRow.select().where(
        transfers.c.credit == ledger.earn(account_id), transfers.c.kind == _PAY, ~taken_back
    )


# the leaderboard


def credits_moved(connection: Connection, *, since: int) -> tuple[dict[str, int], dict[str, int]]:
    """Earned and paid (including the fee) by account since that transfer, less what was taken back."""
    back = transfers.c.kind == _TAKE_BACK
    signed = case((back, -transfers.c.amount), else_=transfers.c.amount)
    total = func.sum(signed, type_=BigInteger).label("amount")
    # Group by an expression, not the column: SQLite would walk that column's index through all of history.
    lender = case((back, transfers.c.debit), else_=transfers.c.credit).label("name")
    payer = func.substr(transfers.c.credit, len(ledger.user("")) + 1)
    borrower = case((back, literal(ledger.escrow("")) + payer), else_=transfers.c.debit).label("name")
    recent = transfers.c.seq >= since
    earned = select(lender, total).where(recent, transfers.c.kind.in_((_PAY, _TAKE_BACK)))
    paid = select(borrower, total).where(recent, transfers.c.kind.in_((_PAY, _FEE, _TAKE_BACK)))
    return (
        _by_account(connection, earned.group_by("name"), ledger.earn("")),
        _by_account(connection, paid.group_by("name"), ledger.escrow("")),
    )


def _by_account(connection: Connection, statement: Select[Any], prefix: str) -> dict[str, int]:
    rows = connection.execute(statement)
    return {row.name.removeprefix(prefix): int(row.amount) for row in rows if row.name.startswith(prefix)}


def time_moved(connection: Connection, *, since_id: str) -> list[dict[str, tuple[int, int]]]:
    """Lent and borrowed by account since that job: (ms, jobs) that its nodes ran for others, and others' nodes for it."""
    return [_time_by(connection, column, since_id) for column in (attempts.c.owner_id, jobs.c.account_id)]


def _time_by(connection: Connection, column: ColumnElement[str], since_id: str) -> dict[str, tuple[int, int]]:
    accepted = (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.accepted_attempt)
    statement = (
        select(column, func.sum(attempts.c.billed_ms, type_=BigInteger), func.count())
        .select_from(jobs.join(attempts, accepted))
        .where(jobs.c.id >= since_id, attempts.c.owner_id != jobs.c.account_id)
        .group_by(column)
    )
    return {account: (int(ms or 0), count) for account, ms, count in connection.execute(statement)}


def any_account_has_credits(connection: Connection) -> bool:
    """Whether anyone but the platform has a balance."""
    theirs = or_(*(balances.c.account.like(f"{kind}:%") for kind in ("user", "escrow", "earn", "owner", "payout")))
    return any_row(connection, theirs, balances.c.balance > 0)


# history for quotes


def run_times(
    connection: Connection, account_id: str, *, spec_digest: str | None, name: str | None, among: int, limit: int
) -> list[int]:
    """How long the account's latest jobs of this spec (or name) ran, in ms, out of its last `among` jobs."""
    recent = (
        select(jobs.c.spec_digest, jobs.c.name, jobs.c.state, jobs.c.started_at_ms, jobs.c.finished_at_ms)
        .where(jobs.c.account_id == account_id, jobs.c.hub_job.is_(None))
        .order_by(jobs.c.id.desc())
        .limit(among)
        .subquery()
    )
    found = select((recent.c.finished_at_ms - recent.c.started_at_ms).label("ms")).where(
        recent.c.state == JobState.SUCCEEDED.value, recent.c.finished_at_ms >= recent.c.started_at_ms
    )
    found = found.where(recent.c.name == name if spec_digest is None else recent.c.spec_digest == spec_digest)
    return [row.ms for row in connection.execute(found.limit(limit))]


def waits(connection: Connection, zones: Sequence[tuple[str, str]], *, since_id: str, among: int) -> list[int]:
    """How long recent jobs waited for a node of these zones, in ms."""
    recent = (
        select(
            attempts.c.zone_tier,
            attempts.c.zone_region,
            attempts.c.number,
            (attempts.c.leased_at_ms - jobs.c.queued_at_ms).label("ms"),
        )
        .select_from(attempts.join(jobs, jobs.c.id == attempts.c.job_id))
        .where(attempts.c.id >= since_id, jobs.c.hub_job.is_(None))
        .order_by(attempts.c.id.desc())
        .limit(among)
        .subquery()
    )
    rows = connection.execute(select(recent).where(recent.c.number == 1))
    matching = set(zones)
    return [max(0, row.ms) for row in rows if (row.zone_tier, row.zone_region) in matching]
