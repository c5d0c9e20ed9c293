"""Billable times of runs, limited by what nodes of other owners took for the same job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from computepool.core.money.pricing import charge_of
from computepool.core.money.run_times import Timed, TimeTolerance, allowed_ms
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.money.holds import RunCharge
from computepool.hub.settings import Settings
from computepool.hub.settlement.runs import Run


def cap_bills(tx: JobTx, job: JobRow, agreeing: Sequence[Run]) -> list[Run]:
    """Bill each agreeing run for no longer than the others allow; returns those that took far too long.

    Only where the pool chose the nodes: else a friend of the submitter could claim that the job took no time. And not
    where the job may use the network, because its speed is not the node's own.
    """
    if len(agreeing) < 2 or any(run.attempt.narrow for run in agreeing) or tx.spec(job.spec_digest).net:
        return []
    within, beyond = _tolerances(tx.snapshot.settings)
    times = [_time(job, run) for run in agreeing]
    allowed = [allowed_ms(times, place, within) for place in range(len(times))]
    shortest = min(range(len(times)), key=lambda place: allowed[place])
    tx.memory.timed.append((job.spec_digest, replace(times[shortest], ms=allowed[shortest])))
    for run, ms in zip(agreeing, allowed, strict=True):
        _cap(run, ms)
    return [
        run
        for run, time, ms in zip(agreeing, times, allowed, strict=True)
        if run.has_one_owner and time.ms > beyond.most(ms)
    ]


def cap_held(tx: JobTx, job: JobRow, agreeing: Sequence[AttemptRow]) -> tuple[RunCharge | None, bool]:
    """What the first attempt should have cost by the times of the others, if that is less than it did and its pay is still
    held; and whether it took far too long."""
    if not job.held_until_ms or tx.spec(job.spec_digest).net:
        return None, False
    within, beyond = _tolerances(tx.snapshot.settings)
    items = max(1, job.bundled)
    times = [Timed(ms=each.billed_ms or 0, tier=each.zone_tier, items=items) for each in agreeing]
    ms = allowed_ms(times, 0, within)
    if ms >= times[0].ms:
        return None, False
    return RunCharge.of(agreeing[0], ms), times[0].ms > beyond.most(ms)


def _tolerances(settings: Settings) -> tuple[TimeTolerance, TimeTolerance]:
    """The one within which a time is paid, and the one beyond which it is padded."""
    return (
        TimeTolerance(percent=round(settings.bill_tolerance * 100), grace_ms=round(settings.bill_grace_s * 1000)),
        TimeTolerance(percent=round(settings.padding_factor * 100), grace_ms=round(settings.padding_grace_s * 1000)),
    )


def _time(job: JobRow, run: Run) -> Timed:
    """Of the whole run, with the attempts that it resumed from."""
    return Timed(ms=sum(bill.billed_ms for bill in run.bills), tier=run.attempt.zone_tier, items=max(1, job.bundled))


def _cap(run: Run, allowed_ms: int) -> None:
    """Earlier attempts keep their shares, which their progress limits."""
    before_ms = sum(part.bill.billed_ms for part in run.parts)
    billed_ms = max(0, min(run.bill.billed_ms, allowed_ms - before_ms))
    if billed_ms < run.bill.billed_ms:
        run.bill = replace(run.bill, billed_ms=billed_ms, charge=charge_of(run.bill.price, billed_ms))


def is_long(tx: JobTx, job: JobRow, run: Run) -> bool:
    """Whether it took far longer than earlier runs of the program: then another owner's node has to run it, too."""
    settings = tx.snapshot.settings
    within = TimeTolerance(percent=round(settings.padding_factor * 100), grace_ms=round(settings.bill_grace_s * 1000))
    return tx.snapshot.run_times.is_long(job.spec_digest, _time(job, run), within)
