"""Explanations of a job's cost, and of what a node's owner was paid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from computepool.core.errors import NotFound
from computepool.core.jobs.lifecycle import TERMINAL, AttemptState, JobState
from computepool.core.money import bills
from computepool.core.money.bills import Bill
from computepool.core.money.money import format_credits, free_or_reserved
from computepool.core.money.pricing import PriceTable, Zone, billed_ms, charge_of
from computepool.core.words import pluralize
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import attempt_rows, rows as job_rows
from computepool.hub.jobs.attempt_rows import NamedAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.money import price_rows
from computepool.protocol.money.credits import CostLine, CostView

_ENDED = {
    JobState.FAILED: "failed, so ",
    JobState.CANCELLED: "was cancelled, so ",
    JobState.EXPIRED: "expired, so ",
    JobState.SUCCEEDED: "has no price: ",
}


@dataclass(frozen=True, slots=True)
class PaidAttempt:
    attempt: NamedAttempt
    bill: Bill
    part: bool = False  #: another attempt resumed from its checkpoint; only the part before that is paid


@dataclass(slots=True)
class JobMoney:
    """What the store knows about one job's money."""

    job: JobRow
    attempts: list[NamedAttempt] = field(default_factory=list)
    #: The accepted run first, then those that confirmed it, then the parts they resumed from.
    paid: list[PaidAttempt] = field(default_factory=list)

    @property
    def runs(self) -> list[PaidAttempt]:
        return [paid for paid in self.paid if not paid.part]

    @property
    def parts(self) -> list[PaidAttempt]:
        return [paid for paid in self.paid if paid.part]


def load(connection: Connection, job_id: str) -> JobMoney | None:
    job = job_rows.get_job(connection, job_id)
    if job is None:
        return None
    money = JobMoney(job, attempts=attempt_rows.get_attempts(connection, job_id))
    runs = [row for row in money.attempts if row.charge is not None and row.price_version]
    resumed = {row.resumed_no for row in runs}
    for row in sorted(runs, key=lambda row: (row.number in resumed, row.number != job.accepted_attempt, row.number)):
        bill = _bill(row, price_rows.get(connection, row.price_version), own=row.owner_id == job.account_id)
        money.paid.append(PaidAttempt(row, bill, part=row.number in resumed))
    return money


def _bill(row: NamedAttempt, table: PriceTable, *, own: bool) -> Bill:
    return Bill(
        zone=Zone(row.zone_tier, row.zone_region),
        spot=row.spot,
        units=row.units,
        price=row.price,
        table=table,
        node_name=row.node_name,
        billed_ms=row.billed_ms or 0,
        charge=row.charge or 0,
        own=own,
    )


async def explain(hub: Hub, principal: Principal, job_id: str) -> CostView:
    money = visible(principal, await hub.store.read(load, job_id))
    if _is_submitter(principal, money):
        yours = principal.account_id == money.job.account_id
        return _to_submitter(money, now_ms=hub.now_ms(), yours=yours)
    return _to_owner(money, principal.account_id)


def visible(principal: Principal, money: JobMoney | None) -> JobMoney:
    """What the submitter, administrators, and owners of the nodes that tried the job may see."""
    if money is not None:
        owners = {attempt.owner_id for attempt in money.attempts}
        if _is_submitter(principal, money) or principal.account_id in owners:
            return money
    raise NotFound("There is no such job, or it is not yours.")


def _is_submitter(principal: Principal, money: JobMoney) -> bool:
    return principal.is_admin or principal.account_id == money.job.account_id


def _to_submitter(money: JobMoney, *, now_ms: int, yours: bool) -> CostView:
    job = money.job
    own: dict[str, Any] = {"role": "submitter", "max_price": job.ceiling, "hold": job.hold}
    if money.paid:
        first, *others = money.runs
        sentence = bills.charged_sentence(
            first.bill,
            hold=job.hold,
            others=[other.bill for other in others],
            parts=[part.bill for part in money.parts],
            yours=yours,
        )
        more = _unpaid_sentence(len(money.attempts) - len(money.paid)) + _returned_sentence(job, "came")
        own |= {"refund": job.hold - (job.charge or 0), "total": job.charge, "runs": len(money.runs)}
        return _billed_view(money, first, sentence + more, **own)
    if JobState(job.state) in TERMINAL:
        back = f"; the {format_credits(job.hold)} credits on hold were refunded" if job.hold else ""
        sentence = f"The job {_ENDED[JobState(job.state)]}it cost nothing{back}."
        return _view(money, sentence, settled=True, charge=0, total=0, refund=job.hold, **own)
    return _view(money, _unsettled_sentence(money), settled=False, so_far=_cost_so_far(money, now_ms), **own)


def _cost_so_far(money: JobMoney, now_ms: int) -> int | None:
    """What the current run would cost if it succeeded now; None: nothing runs."""
    run = money.attempts[-1] if money.attempts else None
    if run is None or run.state != AttemptState.RUNNING or run.started_at_ms is None:
        return None
    ran_ms = billed_ms(
        reported_ms=now_ms - run.started_at_ms,
        leased_at_ms=run.leased_at_ms,
        accepted_at_ms=now_ms,
        longest_ms=money.job.longest_ms,
    )
    return min(money.job.hold, charge_of(run.price, ran_ms))


def _returned_sentence(job: JobRow, moved: str) -> str:
    """Pay and fee are taken back together, or not at all."""
    if not job.taken_back:
        return ""
    if job.verdict == "refuted":
        return f" The result was proven wrong afterwards, and all of it {moved} back."
    back = format_credits(job.taken_back)
    return f" Another owner's node confirmed the result in far less time, and {back} of it {moved} back."


def _unsettled_sentence(money: JobMoney) -> str:
    job = money.job
    held = f"{format_credits(job.hold)} credits are on hold" if job.hold else "nothing is on hold"
    newest = money.attempts[-1] if money.attempts and job.state != JobState.QUEUED else None
    if newest is not None and newest.owner_id == job.account_id:
        return free_or_reserved(job.hold)
    rate = f"; it costs {format_credits(newest.price)} per hour on its current node" if newest is not None else ""
    most = f", and at most {format_credits(job.ceiling)} per hour" if newest is None and job.ceiling else ""
    return f"Nothing has been charged yet: {held}{rate}{most}. Only a result is paid for."


def _unpaid_sentence(tries: int) -> str:
    if not tries:
        return ""
    return f" {pluralize(tries, 'other attempt', 'other attempts')} cost nothing: only results that count are paid for."


def _to_owner(money: JobMoney, account_id: str) -> CostView:
    if mine := [paid for paid in money.paid if paid.attempt.owner_id == account_id]:
        paid_sentences = " ".join(bills.paid_sentence(paid.bill, part=paid.part) for paid in mine)
        return _billed_view(money, mine[0], paid_sentences + _returned_sentence(money.job, "went"), role="owner")
    tried = [attempt for attempt in money.attempts if attempt.owner_id == account_id][-1]
    settled = JobState(money.job.state) in TERMINAL
    if tried.state in ("leased", "running"):
        sentence = f"Not paid yet: your node holds this job at {format_credits(tried.price)} per hour."
    else:
        sentence = (
            f"You were paid nothing: your node's attempt {tried.id} ended as {tried.state} "
            f"({tried.reason.replace('_', ' ')}), and only a result that counts is paid for."
        )
    return _view(money, sentence, settled=settled, role="owner", attempt_id=tried.id, price=tried.price)


def _billed_view(money: JobMoney, paid: PaidAttempt, sentence: str, **more: Any) -> CostView:
    bill = paid.bill
    table, zone = bill.table, bill.zone
    return CostView.from_attributes(
        bill,
        job_id=money.job.id,
        state=JobState(money.job.state),
        sentence=sentence,
        settled=True,
        attempt_id=paid.attempt.id,
        tier=zone.tier,
        region=zone.region,
        price_version=table.version,
        base=table.base,
        tier_rate=table.tier_rate(zone.tier),
        region_rate=table.region_rate(zone.region),
        reference=table.reference(zone),
        fee_ppm=table.fee_ppm,
        lines=[CostLine.from_attributes(line) for line in bills.lines(bill)],
        **more,
    )


def _view(money: JobMoney, sentence: str, **fields: Any) -> CostView:
    return CostView(job_id=money.job.id, state=JobState(money.job.state), sentence=sentence, **fields)
