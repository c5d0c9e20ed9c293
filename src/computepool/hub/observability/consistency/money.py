"""Rows that break a rule of money, found by reading a snapshot of the whole ledger.

The database itself refuses most violations by triggers, CHECKs and unique keys. Checking again from outside finds what was
written past them, and whether the rows agree with each other, with the jobs and with the payouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Subquery,
    and_,
    case,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    text,
    union_all,
)

from computepool.core.jobs.lifecycle import TERMINAL, AttemptState
from computepool.core.money import ledger
from computepool.core.money.ledger import BANK, FEES, GENESIS, OVERDRAWN, PROMO, Kind
from computepool.core.money.pricing import PriceTable, charge_of
from computepool.hub.db.money_tables import balances, transfers
from computepool.hub.db.tables import IS_OPEN, attempts, jobs, nodes
from computepool.hub.money import price_rows
from computepool.hub.observability.consistency.pool import InvariantRules, ids, was_used

RULES = InvariantRules()
_TERMINAL = sorted(state.value for state in TERMINAL)
#: Rows in memory at once while the whole ledger is read.
_STREAM_ROWS = 5_000
_PARTIES = (transfers.c.debit, transfers.c.credit)
_RESOLVING = [Kind.PAY.value, Kind.FEE.value, Kind.REFUND.value]
#: The accounts that each kind of transfer may go between; a final colon stands for any account of that sort. The last field
#: says whether both must belong to one owner.
_Sides: TypeAlias = tuple[Kind, str, str, bool]
_SIDES: tuple[_Sides, ...] = (
    (Kind.HOLD, "user:", "escrow:", True),
    (Kind.HOLD, "owner:", "escrow:", True),
    (Kind.PAY, "escrow:", "earn:", False),
    (Kind.FEE, "escrow:", FEES, False),
    (Kind.REFUND, "escrow:", "user:", True),
    (Kind.REFUND, "escrow:", "owner:", True),
    (Kind.TAKE_BACK, "earn:", "user:", False),
    (Kind.TAKE_BACK, FEES, "user:", False),
    (Kind.MATURE, "earn:", "owner:", True),
    (Kind.GRANT, PROMO, "user:", False),
    (Kind.TOP_UP, PROMO, "user:", False),
    (Kind.TOP_UP, BANK, "user:", False),
    (Kind.PAYOUT_RESERVE, "owner:", "payout:", False),
    (Kind.PAYOUT_PAID, "payout:", BANK, False),
    (Kind.PAYOUT_RETURN, "payout:", "owner:", False),
)


def ledger_name(prefix: str, column: ColumnElement[str]) -> ColumnElement[str]:
    """The name of a ledger account (or key) as core/money/ledger.py makes it."""
    return literal(prefix) + column


def _transfers(*broken: ColumnElement[bool]) -> Select[Any]:
    return select(transfers.c.seq).where(*broken).order_by(transfers.c.seq)


def _numbers(connection: Connection, statement: Select[Any]) -> list[str]:
    return [f"transfer {seq}" for seq in connection.execute(statement).scalars()]


def stream(connection: Connection, statement: Select[Any]) -> Iterator[Row[*tuple[Any, ...]]]:
    yield from connection.execute(statement, execution_options={"yield_per": _STREAM_ROWS})


# balances


@RULES.function("all balances add up to zero")
def sum_is_not_zero(connection: Connection) -> list[str]:
    total = int(connection.execute(select(func.sum(balances.c.balance))).scalar() or 0)
    return [f"{total} too {'much' if total > 0 else 'little'}"] if total else []


@RULES.statement("a balance is the sum of its transfers")
def wrong_balances() -> Select[Any]:
    """Every balance, recomputed; also one without a row, or without a transfer."""
    moves = union_all(
        select(balances.c.account, balances.c.balance.label("stored"), literal(0).label("moved")),
        select(transfers.c.credit, literal(0), transfers.c.amount),
        select(transfers.c.debit, literal(0), -transfers.c.amount),
    ).subquery()
    statement = select(moves.c.account).group_by(moves.c.account)
    return statement.having(func.sum(moves.c.stored) != func.sum(moves.c.moved))


@RULES.statement("only the bank and the promotion account may be overdrawn")
def overdrawn() -> Select[Any]:
    may = balances.c.account.in_(sorted(OVERDRAWN))
    broken = or_(balances.c.can_overdraw != may, and_(balances.c.balance < 0, ~may))
    return select(balances.c.account).where(broken)


# the chain


@RULES.function("each transfer's hash follows from the one before")
def broken_chain(connection: Connection) -> list[str]:
    """Compare each row with the hash stored before it, so that one changed row is one finding."""
    broken, previous = [], GENESIS
    for row in stream(connection, select(transfers).order_by(transfers.c.seq)):
        if ledger.chain_hash(previous, row._asdict()) != row.hash:
            broken.append(f"transfer {row.seq}")
        previous = row.hash
    return broken


@cache
def _with_previous() -> Subquery:
    def before(column: ColumnElement[int]) -> ColumnElement[int]:
        return func.lag(column, 1, 0).over(order_by=transfers.c.seq)

    return select(
        transfers.c.seq,
        transfers.c.at_ms,
        before(transfers.c.seq).label("seq_before"),
        before(transfers.c.at_ms).label("at_ms_before"),
    ).subquery()


@RULES.function("transfers are numbered without a gap")
def gaps_in_numbers(connection: Connection) -> list[str]:
    pairs = _with_previous()
    late = select(pairs.c.seq).where(pairs.c.seq != pairs.c.seq_before + 1).order_by(pairs.c.seq)
    return [f"before transfer {seq}" for seq in connection.execute(late).scalars()]


@RULES.statement("the ledger's time never goes back", read=_numbers)
def time_goes_back() -> Select[Any]:
    pairs = _with_previous()
    return select(pairs.c.seq).where(pairs.c.at_ms < pairs.c.at_ms_before).order_by(pairs.c.seq)


@RULES.statement("an idempotency key of the ledger is used once")
def keys_used_twice() -> Select[Any]:
    """The legs of a key are numbered 0, 1, 2 … and were written together."""
    legs, seq = transfers.c.leg, transfers.c.seq
    broken = or_(
        func.count(legs.distinct()) != func.count(),
        func.min(legs) != 0,
        func.max(legs) != func.count() - 1,
        func.max(seq) - func.min(seq) != func.count() - 1,
    )
    return select(transfers.c.tx_key).group_by(transfers.c.tx_key).having(broken)


# who pays whom


@RULES.statement("a transfer goes between accounts of its kind", read=_numbers)
def between_wrong_accounts() -> Select[Any]:
    return _transfers(not_(or_(*(_goes_between(sides) for sides in _SIDES))))


@cache
def _goes_between(allowed: _Sides) -> ColumnElement[bool]:
    kind, debit, credit, same = allowed
    sides = [transfers.c.kind == kind.value]
    for column, name in ((transfers.c.debit, debit), (transfers.c.credit, credit)):
        any_of = func.substr(column, 1, len(name)) == name
        sides.append(any_of if name.endswith(":") else column == name)
    if same:
        payer = func.substr(transfers.c.debit, len(debit) + 1)
        sides.append(payer == func.substr(transfers.c.credit, len(credit) + 1))
    return and_(*sides)


@RULES.statement("a job's money comes from and returns to its submitter", read=_numbers)
def strays() -> Select[Any]:
    """A job's money comes from and returns to its submitter, under a key that names the job."""
    held = exists().where(
        jobs.c.id == func.substr(transfers.c.tx_key, 6),  # after hold:
        transfers.c.credit == ledger_name("escrow:", jobs.c.account_id),
    )
    used = exists().where(
        transfers.c.job_id == jobs.c.id,
        transfers.c.tx_key == ledger_name("settle:", jobs.c.id),
        transfers.c.debit == ledger_name("escrow:", jobs.c.account_id),
    )
    back = exists().where(
        transfers.c.job_id == jobs.c.id,
        transfers.c.tx_key == ledger_name("takeback:", jobs.c.id),
        transfers.c.credit == ledger_name("user:", jobs.c.account_id),
    )
    holds, uses = transfers.c.kind == Kind.HOLD.value, transfers.c.kind.in_(_RESOLVING)
    backs = transfers.c.kind == Kind.TAKE_BACK.value
    return _transfers(or_(and_(holds, ~held), and_(uses, ~used), and_(backs, ~back)))


@RULES.statement("only owners whose results count are paid", read=_numbers)
def paid_to_others() -> Select[Any]:
    """Only owners of nodes that contributed to the accepted result are paid for a job. A node's owner never changes."""
    earned = exists().where(
        jobs.c.id == transfers.c.job_id,
        jobs.c.accepted_attempt.is_not(None),
        attempts.c.job_id == jobs.c.id,
        attempts.c.charge > 0,
        or_(attempts.c.state == AttemptState.SUCCEEDED.value, was_used()),
        nodes.c.id == attempts.c.node_id,
        nodes.c.account_id == attempts.c.owner_id,
        transfers.c.credit == ledger_name("earn:", nodes.c.account_id),
    )
    return _transfers(transfers.c.kind == Kind.PAY.value, ~earned)


# holds


def _total(what: ColumnElement[bool]) -> ColumnElement[int]:
    """The total amount of the transfers for which the condition holds."""
    return func.sum(case((what, transfers.c.amount), else_=0))


@cache
def _hold_usage() -> Subquery:
    """How each job's hold was used."""
    kind = transfers.c.kind
    back_earned = and_(kind == Kind.REFUND.value, func.substr(transfers.c.credit, 1, 6) == "owner:")
    return (
        select(
            transfers.c.job_id,
            func.sum(transfers.c.amount).label("used"),
            _total(kind == Kind.PAY.value).label("pay"),
            _total(kind == Kind.FEE.value).label("fee"),
            _total(back_earned).label("back_earned"),
        )
        .where(kind.in_(_RESOLVING))
        .group_by(transfers.c.job_id)
        .subquery()
    )


@RULES.statement("a finished job's hold is used up exactly")
def holds_not_used_up() -> Select[Any]:
    used = _hold_usage()
    statement = select(jobs.c.id).select_from(jobs.outerjoin(used, used.c.job_id == jobs.c.id))
    broken = func.coalesce(used.c.used, 0) != jobs.c.hold
    return statement.where(jobs.c.state.in_(_TERMINAL), broken)


@RULES.statement("an unfinished job's hold is untouched")
def holds_used_early() -> Select[Any]:
    spent = exists().where(transfers.c.tx_key == ledger_name("settle:", jobs.c.id))
    return select(jobs.c.id).where(IS_OPEN, spent)


@RULES.statement("transfers into escrow match the holds of all jobs")
def holds_not_taken() -> Select[Any]:
    """By account: the transfers into escrow equal the holds of its jobs, from purchased and from earned credits."""
    holds = transfers.c.kind == Kind.HOLD.value
    earned = case((func.substr(transfers.c.debit, 1, 6) == "owner:", transfers.c.amount), else_=0)
    moves = union_all(
        select(
            ledger_name("escrow:", jobs.c.account_id).label("account"),
            jobs.c.hold.label("amount"),
            jobs.c.hold_earned.label("earned"),
        ),
        select(transfers.c.credit, -transfers.c.amount, -earned).where(holds),
    ).subquery()
    broken = or_(func.sum(moves.c.amount) != 0, func.sum(moves.c.earned) != 0)
    return select(moves.c.account).group_by(moves.c.account).having(broken)


@RULES.statement("escrow holds what unfinished jobs hold")
def wrong_escrow() -> Select[Any]:
    is_escrow = func.substr(balances.c.account, 1, 7) == "escrow:"
    sides = union_all(
        select(balances.c.account, balances.c.balance.label("amount")).where(is_escrow),
        select(ledger_name("escrow:", jobs.c.account_id), -jobs.c.hold).where(IS_OPEN),
    ).subquery()
    statement = select(sides.c.account).group_by(sides.c.account)
    return statement.having(func.sum(sides.c.amount) != 0)


# charges


class _PaidRun(NamedTuple):
    """One paid run of a job, or, without the run's number, a job that paid for none."""

    job_id: str
    hold: int
    hold_earned: int
    runs: int
    accepted: int | None
    cost: int | None
    number: int | None
    charge: int
    price: int
    billed_ms: int | None
    price_version: int
    resumed_no: int | None
    pay: int | None
    fee: int | None
    back_earned: int | None


@RULES.function("a charge is price times time, and its parts add up")
def wrong_charges(connection: Connection) -> list[str]:
    """A charge is the attempt's price times the billed time, divided as the attempt's price table says.

    Computed row by row in Python, because the products are too large for the databases' integers.
    """
    tables = {row.version: row.table() for row in price_rows.list_versions(connection)}
    used = _hold_usage()
    paid = and_(attempts.c.job_id == jobs.c.id, attempts.c.charge.is_not(None))
    joined = jobs.outerjoin(used, used.c.job_id == jobs.c.id).outerjoin(attempts, paid)
    columns = (
        *(jobs.c.id, jobs.c.hold, jobs.c.hold_earned, jobs.c.runs, jobs.c.accepted_attempt),
        *(jobs.c.charge.label("cost"), attempts.c.number, attempts.c.charge),
        *(attempts.c.price, attempts.c.billed_ms, attempts.c.price_version, attempts.c.resumed_no),
        *(used.c.pay, used.c.fee, used.c.back_earned),
    )
    statement = select(*columns).select_from(joined).where(jobs.c.state.in_(_TERMINAL)).order_by(jobs.c.id)
    by_job = groupby(map(_PaidRun._make, stream(connection, statement)), key=lambda run: run.job_id)
    return [job_id for job_id, rows in by_job if not _adds_up(list(rows), tables)]


def _adds_up(rows: list[_PaidRun], tables: Mapping[int, PriceTable]) -> bool:
    """`rows` are those of one job."""
    job, runs = rows[0], [row for row in rows if row.number is not None]
    pay, fee, back_earned = (int(part or 0) for part in (job.pay, job.fee, job.back_earned))
    paid_for = {run.number for run in runs}
    accepted = set() if job.accepted is None else {job.accepted}
    whole = paid_for - {run.resumed_no for run in runs}  # the others are parts that these resumed from
    if not accepted <= paid_for or bool(accepted) != bool(paid_for) or len(whole) > job.runs:
        return False
    charge = fees = 0
    for run in runs:
        table = tables.get(run.price_version)
        if run.price and (table is None or run.billed_ms is None):
            return False
        if run.charge != charge_of(run.price, run.billed_ms or 0):
            return False
        charge += run.charge
        fees += 0 if table is None else table.fee_of(run.charge)
    back = job.hold - charge
    return pay + fee == charge == (job.cost or 0) and fee == fees and back_earned == min(back, job.hold_earned)


@RULES.statement("nobody pays above their ceiling")
def above_the_ceiling() -> Select[Any]:
    over = select(attempts.c.id).join(jobs, jobs.c.id == attempts.c.job_id)
    return over.where(attempts.c.price > jobs.c.ceiling)


# taken back


@RULES.function("only pay for wrong results is taken back")
def wrong_take_backs(connection: Connection) -> list[str]:
    """For a result proven wrong, all pay and the fee are taken back from those who got them, and the job's row says so. If a
    result was confirmed while its pay was held, but took too long, only a part is.
    """
    used, back = _hold_usage(), _take_backs()
    joined = jobs.outerjoin(back, back.c.job_id == jobs.c.id).outerjoin(used, used.c.job_id == jobs.c.id)
    differs = func.coalesce(back.c.pay + back.c.fee, -1) != func.coalesce(jobs.c.taken_back, -1)
    pay, fee = func.coalesce(used.c.pay, 0), func.coalesce(used.c.fee, 0)
    refuted = func.coalesce(jobs.c.verdict, "") == "refuted"
    capped = and_(func.coalesce(jobs.c.verdict, "") == "confirmed", jobs.c.held_until_ms.is_not(None))
    unpaid = or_(and_(refuted, or_(back.c.pay != pay, back.c.fee != fee)), back.c.pay > pay, back.c.fee > fee)
    unproven = and_(back.c.job_id.is_not(None), ~or_(refuted, capped))
    jobs_found = select(jobs.c.id).select_from(joined).where(or_(differs, unpaid, unproven))
    earned = exists().where(
        attempts.c.job_id == transfers.c.job_id,
        attempts.c.charge > 0,
        transfers.c.debit == ledger_name("earn:", attempts.c.owner_id),
    )
    from_others = transfers.c.kind == Kind.TAKE_BACK.value, transfers.c.debit != FEES, ~earned
    return ids(connection, jobs_found) + _numbers(connection, _transfers(*from_others))


@cache
def _take_backs() -> Subquery:
    return (
        select(
            transfers.c.job_id,
            _total(transfers.c.debit != FEES).label("pay"),
            _total(transfers.c.debit == FEES).label("fee"),
        )
        .where(transfers.c.kind == Kind.TAKE_BACK.value)
        .group_by(transfers.c.job_id)
        .subquery()
    )


# earnings


@RULES.function("matured credits were earned before")
def matured_unearned(connection: Connection) -> list[str]:
    """Exactly the earnings up to the transfer that the newest maturing names have matured.

    Pay that was taken back never matures, and pay that was held for a check matures job by job.
    """
    columns = (*_PARTIES, transfers.c.seq, transfers.c.amount, transfers.c.ref, transfers.c.job_id)
    left: Counter[str] = Counter()
    taken_back = select(*columns).where(transfers.c.kind == Kind.TAKE_BACK.value)
    gone = Counter({(row.job_id, row.debit): row.amount for row in stream(connection, taken_back)})
    held = set(connection.execute(select(jobs.c.id).where(jobs.c.held_until_ms.is_not(None))).scalars())
    up_to: dict[str, int] = {}
    released: set[tuple[str, str]] = set()
    of_kind = select(*columns).order_by(transfers.c.seq)
    for row in stream(connection, of_kind.where(transfers.c.kind == Kind.MATURE.value)):
        left[row.debit] += row.amount
        if row.job_id is not None:
            released.add((row.job_id, row.debit))
        else:
            up_to[row.debit] = int(row.ref) if row.ref and row.ref.isdecimal() else 0
    for row in stream(connection, of_kind.where(transfers.c.kind == Kind.PAY.value)):
        paid = (row.job_id, row.credit)
        matured = paid in released if row.job_id in held else row.seq <= up_to.get(row.credit, 0)
        if matured:
            left[row.credit] -= row.amount - gone[paid]
    return sorted(account for account, amount in left.items() if amount)


# triggers


def missing_triggers(connection: Connection) -> list[str]:
    """The missing triggers of those that keep transfers from being changed."""
    if connection.dialect.name == "sqlite":
        expected = {"transfers_update", "transfers_delete"}
        found = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars()
    else:
        expected = {"transfers_change", "transfers_truncate"}
        enabled = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D'"
        found = connection.execute(text(enabled)).scalars()
    return sorted(expected - set(found))
