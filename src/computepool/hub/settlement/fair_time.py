"""Billable times of runs, beside what other owners' nodes took for the same job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from computepool.core.money.pricing import charge_of
from computepool.core.money.run_times import Timed, TimeTolerance, allowed_ms
from computepool.hub.db.session import Tx
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints
from computepool.hub.jobs.running.checkpoints import Contribution
from computepool.hub.jobs.transitions import Effects
from computepool.hub.money.holds import RunCharge
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot


class BilledRun(Protocol):
    """As much of a reported run as its bill is about."""

    bill: RunCharge
    parts: tuple[Contribution, ...]
    tier: str
    narrow: bool

    @property
    def bills(self) -> list[RunCharge]: ...

    @property
    def is_its_own(self) -> bool: ...


Run = TypeVar("Run", bound=BilledRun)


def cap_bills(
    tx: Tx, snapshot: Snapshot, job: JobRow, *, agreeing: Sequence[Run], effects: Effects
) -> list[Run]:
    """Bill agreeing runs for no longer than each other allows; returns those that took their time beyond all reason.

    Only where the pool chose who ran it: else a submitter's friend could say that it took no time. And not where the job
    may use the network, whose speed is not the node's own.
    """
    if len(agreeing) < 2 or any(run.narrow for run in agreeing) or checkpoints.spec_of(tx, snapshot, job).net:
        return []
    within, beyond = _tolerances(snapshot.settings)
    times = [_time(job, run) for run in agreeing]
    allowed = [allowed_ms(times, place, within) for place in range(len(times))]
    shortest = min(range(len(times)), key=lambda place: allowed[place])
    effects.timed.append((job.spec_digest, replace(times[shortest], ms=allowed[shortest])))
    for run, ms in zip(agreeing, allowed, strict=True):
        _cap(run, ms)
    return [
        run
        for run, time, ms in zip(agreeing, times, allowed, strict=True)
        if run.is_its_own and time.ms > beyond.most(ms)
    ]


def cap_held(
    tx: Tx, snapshot: Snapshot, job: JobRow, *, agreeing: Sequence[AttemptRow]
) -> tuple[RunCharge | None, bool]:
    """What the first of the attempts should have cost by the time that the others took, whose pay is still held; None: what
    it did. And whether it took its time beyond all reason.
    """
    if not job.held_until_ms or checkpoints.spec_of(tx, snapshot, job).net:
        return None, False
    within, beyond = _tolerances(snapshot.settings)
    items, first = max(1, job.bundled), agreeing[0]
    times = [Timed(ms=each.billed_ms or 0, tier=each.zone_tier, items=items) for each in agreeing]
    ms = allowed_ms(times, 0, within)
    if ms >= times[0].ms:
        return None, False
    charge = RunCharge(
        owner_id=first.owner_id,
        price_version=first.price_version,
        price=first.price,
        billed_ms=ms,
        charge=charge_of(first.price, ms),
    )
    return charge, times[0].ms > beyond.most(ms)


def _tolerances(settings: Settings) -> tuple[TimeTolerance, TimeTolerance]:
    """Within which a time is paid, and beyond which it is padded."""
    return (
        TimeTolerance(
            percent=round(settings.bill_tolerance * 100), grace_ms=round(settings.bill_grace_s * 1000)
        ),
        TimeTolerance(
            percent=round(settings.padding_factor * 100), grace_ms=round(settings.padding_grace_s * 1000)
        ),
    )


def _time(job: JobRow, run: BilledRun) -> Timed:
    """With what it went on from."""
    return Timed(ms=sum(bill.billed_ms for bill in run.bills), tier=run.tier, items=max(1, job.bundled))


def _cap(run: BilledRun, allowed_ms: int) -> None:
    """What earlier attempts contributed stays as it is: its share was bounded by their progress."""
    before_ms = sum(part.bill.billed_ms for part in run.parts)
    billed_ms = max(0, min(run.bill.billed_ms, allowed_ms - before_ms))
    if billed_ms < run.bill.billed_ms:
        run.bill = replace(run.bill, billed_ms=billed_ms, charge=charge_of(run.bill.price, billed_ms))


def is_long(snapshot: Snapshot, job: JobRow, run: BilledRun) -> bool:
    """Whether it took far longer than the program's earlier runs: then somebody else has to run it, too."""
    settings = snapshot.settings
    within = TimeTolerance(
        percent=round(settings.padding_factor * 100), grace_ms=round(settings.bill_grace_s * 1000)
    )
    return snapshot.run_times.is_long(job.spec_digest, _time(job, run), within)
