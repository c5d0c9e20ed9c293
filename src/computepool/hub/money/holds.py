"""Holds: a job's money is held at submission, split when its result is accepted, and released when there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from computepool.core.errors import InsufficientCredits
from computepool.core.money import ledger, pricing
from computepool.core.money.ledger import Kind
from computepool.core.money.money import format_credits
from computepool.core.money.pricing import PriceTable
from computepool.hub.db.session import Tx
from computepool.hub.identity import rows as account_rows
from computepool.hub.jobs.attempt_rows import AttemptRow, LiveAttemptRow
from computepool.hub.jobs.rows import JobRow, LeasedJob
from computepool.hub.jobs.running.checkpoint_rows import ChainLink
from computepool.hub.money import booking, ledger_rows, price_rows
from computepool.hub.money.ledger_rows import TransferRow
from computepool.hub.settlement.verification import recheck_rows


def place(tx: Tx, account_id: str, job_ids: list[str], *, each: int) -> list[int]:
    """Hold `each` for every job, or refuse all. Returns the part of each hold that comes from matured earnings."""
    total = each * len(job_ids)
    if not total:
        return [0] * len(job_ids)
    granted = booking.balance(tx, ledger.user(account_id))
    from_earned = max(0, total - granted)
    if from_earned:
        missing = from_earned - booking.balance(tx, ledger.owner(account_id))
        if missing > 0:
            raise InsufficientCredits(_shortfall(each, len(job_ids), missing=missing), field="max_price")
    legs = ledger.hold(account_id, amount=total, earned=from_earned)
    count = f"{len(job_ids)} jobs" if len(job_ids) > 1 else None
    booking.post(tx, f"hold:{job_ids[0]}", legs, job_id=job_ids[0], ref=count)
    # Earnings are spent last, so the last holds carry them.
    earned = []
    for _ in job_ids:
        earned.append(min(each, from_earned))
        from_earned -= earned[-1]
    return earned[::-1]


def _shortfall(each: int, jobs: int, *, missing: int) -> str:
    needed = f"{format_credits(each)} credits must be put on hold"
    if jobs > 1:
        needed += f" for each of {jobs} jobs, {format_credits(each * jobs)} in all"
    return (
        f"{needed}; {format_credits(missing)} are missing. Shorten the time limit, lower the price limit, "
        "set a budget, or top up."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCharge:
    """The cost of one run: fixed when it is reported, paid when its result is accepted."""

    owner_id: str
    price_version: int
    price: int
    billed_ms: int
    charge: int

    @classmethod
    def of(cls, attempt: AttemptRow | ChainLink, billed_ms: int, *, charge: int | None = None) -> RunCharge:
        """`charge`: where it is not the price of that time."""
        return cls(
            owner_id=attempt.owner_id,
            price_version=attempt.price_version,
            price=attempt.price,
            billed_ms=billed_ms,
            charge=pricing.charge_of(attempt.price, billed_ms) if charge is None else charge,
        )


def for_one_run(job: JobRow | LeasedJob | LiveAttemptRow) -> int:
    """A hold covers all the runs that may have to be paid for, in equal parts."""
    return job.hold // job.runs


def bill(tx: Tx, job: JobRow, *, attempt: AttemptRow, ran_ms: int, before: Sequence[RunCharge] = ()) -> RunCharge:
    """`before`: charges of the attempts it resumed from; together they share one time limit and one run's money."""
    billed_ms = pricing.billed_ms(
        reported_ms=ran_ms,
        leased_at_ms=attempt.leased_at_ms,
        accepted_at_ms=tx.now_ms,
        longest_ms=max(0, job.longest_ms - sum(part.billed_ms for part in before)),
    )
    return RunCharge.of(attempt, billed_ms)


def is_overspent(job: JobRow, bills: Iterable[RunCharge]) -> bool:
    """Whether one run cost more than its share of the hold. Nobody pays more than was held, so it has no result."""
    return sum(part.charge for part in bills) > for_one_run(job)


def settle(tx: Tx, job: JobRow, *, bills: Sequence[RunCharge], ref: str, table: PriceTable) -> None:
    """Pay the owners of the runs that count, the accepted one first, in the transaction that accepts the result.

    `table`: the price table in force.
    """
    if not job.hold:
        return
    first, *more = bills
    others = [
        ledger.share(other.owner_id, charge=other.charge, table=_table(tx, other.price_version, today=table))
        for other in more
    ]
    agreed = _table(tx, first.price_version, today=table)
    parts = ledger.split(held=job.hold, charge=first.charge, table=agreed, others=others)
    legs = ledger.settle(job.account_id, owner_id=first.owner_id, parts=parts, earned=job.hold_earned, others=others)
    booking.post(tx, settle_key(job.id), legs, job_id=job.id, ref=ref)


def release(tx: Tx, job: JobRow) -> None:
    """Return the whole hold: the job ended without a result."""
    if job.hold:
        legs = ledger.release(job.account_id, amount=job.hold, earned=job.hold_earned)
        booking.post(tx, settle_key(job.id), legs, job_id=job.id)


def take_back(tx: Tx, job: JobRow, *, attempt: AttemptRow, kept: RunCharge | None = None) -> int:
    """Return the cost of the accepted result to the submitter, unless the pay has matured. Returns the amount.

    `kept`: the charge that the owner keeps, where the result was right and only its time was wrong.
    """
    # Until the commit, no hub can mature this owner's earnings.
    account_rows.lock_accounts(tx, [attempt.owner_id])
    parts = ledger_rows.by_keys(tx.connection, [settle_key(job.id)])
    earnings = ledger.earn(attempt.owner_id)
    pay = next((row for row in parts if row.kind == Kind.PAY and row.credit == earnings), None)
    if pay is None or _has_matured(tx, job, pay, owner_id=attempt.owner_id):
        return 0
    fee = sum(row.amount for row in parts if row.kind == Kind.FEE)
    charge = 0 if kept is None else kept.charge
    kept_fee = 0 if kept is None else price_rows.get(tx.connection, kept.price_version).fee_of(charge)
    legs = ledger.take_back(
        job.account_id, owner_id=attempt.owner_id, pay=pay.amount - (charge - kept_fee), fee=fee - kept_fee
    )
    booking.post(tx, take_back_key(job.id), legs, job_id=job.id, ref=attempt.id)
    amount = pay.amount + fee - charge
    recheck_rows.set_taken_back(tx, job.id, amount)
    return amount


def _has_matured(tx: Tx, job: JobRow, pay: TransferRow, *, owner_id: str) -> bool:
    """Whether it has matured, also by an earlier unit of the same transaction."""
    if job.held_until_ms is not None:  # held pay matures job by job
        return not job.held_until_ms
    earnings = ledger.earn(owner_id)
    maturing = any(
        row["kind"] == Kind.MATURE and row["debit"] == earnings and row["job_id"] is None for row in tx.before.transfers
    )
    return maturing or pay.seq <= ledger_rows.last_matured(tx.connection, owner_id)


def mature_held(tx: Tx, job: JobRow) -> dict[str, int]:
    """Mature pay that was held. Returns, by owner, the amount that can now be spent."""
    owed: Counter[str] = Counter()
    for row in ledger_rows.by_keys(tx.connection, [settle_key(job.id), take_back_key(job.id)]):
        if row.kind == Kind.PAY:
            owed[row.credit.removeprefix(ledger.earn(""))] += row.amount
        elif row.kind == Kind.TAKE_BACK and row.debit != ledger.FEES:
            owed[row.debit.removeprefix(ledger.earn(""))] -= row.amount
    legs = [leg for owner_id, amount in sorted(owed.items()) for leg in ledger.mature(owner_id, amount)]
    booking.post(tx, f"mature:{job.id}", legs, job_id=job.id)
    recheck_rows.hold_until(tx, job.id, 0)
    return owed


def take_back_key(job_id: str) -> str:
    return f"takeback:{job_id}"


def settle_key(job_id: str) -> str:
    """One key for both ways to end a hold: the ledger refuses whichever comes second."""
    return f"settle:{job_id}"


def _table(tx: Tx, version: int, *, today: PriceTable) -> PriceTable:
    """The one under which the attempt was leased."""
    return today if version == today.version else price_rows.get(tx.connection, version)
