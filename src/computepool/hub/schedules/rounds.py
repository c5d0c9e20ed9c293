"""Rounds: what each hub does about schedules every second. Exactly one submission per tick, whichever hubs run or die.

A tick is passed by a guarded write that also adds its run, in the state `starting`. The hub then submits the run under an
idempotency key of its own, and notes the jobs. If it dies in between, another hub takes the run over after a while: the
same key submits nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable

from pydantic import ValidationError

from computepool.core.errors import BadRequest, ComputePoolError, Forbidden, Unavailable
from computepool.core.jobs.lifecycle import TERMINAL, JobState
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import Principal, Role
from computepool.hub.identity.idempotency import Remembered
from computepool.hub.jobs import rows as job_rows
from computepool.hub.schedules import rows
from computepool.hub.schedules.rows import RunRow, ScheduleRow
from computepool.hub.schedules.ticks import cron_of
from computepool.hub.settings import Settings
from computepool.hub.settlement import cancel
from computepool.hub.submission import submit
from computepool.protocol.jobs.jobs import SubmitRequest

_log = logging.getLogger(__name__)
#: Schedules, and runs, that one round handles.
_BATCH = 100
#: Runs whose jobs count as "the run before": those that were submitted last.
_BEFORE_MAX = 20
_ROUTE = "schedule"


async def run(hub: Hub) -> None:
    for row in await hub.store.read(rows.due, hub.now_ms(), limit=_BATCH):
        await _alone(_tick(hub, row), row.id)
    for open_run in await hub.store.read(rows.open_runs, limit=_BATCH):
        await _alone(_continue(hub, open_run), open_run.schedule_id)


async def _alone(work: Awaitable[None], schedule_id: str) -> None:
    """A schedule that fails must not keep the others from running."""
    try:
        await work
    except Unavailable as error:
        _log.warning("schedule.delayed: %s: %s", schedule_id, error.detail)
    except Exception:  # noqa: BLE001 - whatever it is, it concerns this schedule
        _log.exception("schedule.broken: %s", schedule_id)


async def _tick(hub: Hub, row: ScheduleRow) -> None:
    try:
        started = await hub.store.write(_pass, row, settings=hub.settings)
    except BadRequest as error:  # for example a time zone that no longer exists
        await hub.store.write(_pause, row, reason=error.detail)
        return
    if started is not None:
        await start(hub, row, started)


def _pass(tx: Tx, row: ScheduleRow, *, settings: Settings) -> RunRow | None:
    """Pass the due tick. Returns the run to submit now; None if there is none, or if another hub was faster."""
    assert row.next_at_ms is not None
    cron, now_ms = cron_of(row.cron, row.tz), tx.now_ms
    following = cron.after(now_ms)
    if not rows.advance(tx, row, next_at_ms=following[0] if following else None):
        return None
    tick_ms = max(row.next_at_ms, cron.latest(now_ms) or 0)
    state, reason = _decide(tx, row, tick_ms=tick_ms, settings=settings)
    return _add_run(tx, row, tick_ms=tick_ms, state=state, reason=reason, kept=settings.schedule_runs_max)


def _decide(tx: Tx, row: ScheduleRow, *, tick_ms: int, settings: Settings) -> tuple[str, str]:
    """The state of the tick's run, and the reason if it is not submitted."""
    if row.missed == "skip" and tx.now_ms - tick_ms > settings.schedule_grace_s * 1000:
        return rows.MISSED, "no hub ran at this time"
    if row.overlap == "replace" or not unfinished_jobs(tx.connection, row.id):
        return rows.STARTING, ""
    if row.overlap == "skip":
        return rows.SKIPPED, "the run before had not finished"
    waiting = rows.runs_in(tx.connection, row.id, [rows.WAITING], limit=settings.schedule_waiting_max)
    if len(waiting) >= settings.schedule_waiting_max:
        return rows.SKIPPED, f"{len(waiting)} runs wait already"
    return rows.WAITING, ""


def _add_run(tx: Tx, row: ScheduleRow, *, tick_ms: int, state: str, reason: str, kept: int) -> RunRow | None:
    if not rows.insert_run(tx, row.id, tick_ms=tick_ms, state=state, reason=reason, kept=kept):
        return None
    if state in (rows.SKIPPED, rows.MISSED):
        data = {"schedule_id": row.id, "tick_ms": tick_ms}
        tx.emit(actor="hub", action=f"schedule.{state}", account_id=row.account_id, reason=reason, data=data)
    return rows.get_run(tx.connection, row.id, tick_ms) if state == rows.STARTING else None


def unfinished_jobs(connection: Connection, schedule_id: str) -> list[str]:
    """Jobs of earlier runs that have not finished; a run that is being submitted counts as one."""
    begun = rows.runs_in(connection, schedule_id, [rows.STARTING, rows.SUBMITTED], limit=_BEFORE_MAX)
    ids = [job_id for run in begun for job_id in json.loads(run.job_ids)]
    jobs = job_rows.get_jobs(connection, ids) if ids else []
    starting = [f"{schedule_id}@{run.tick_ms}" for run in begun if run.state == rows.STARTING]
    return starting + [job.id for job in jobs if JobState(job.state) not in TERMINAL]


async def _continue(hub: Hub, run: RunRow) -> None:
    """Start a run whose turn has come, or take over one whose hub died."""
    settings = hub.settings

    def unit(tx: Tx) -> ScheduleRow | None:
        row = rows.get(tx.connection, run.schedule_id)
        if run.state == rows.STARTING:
            ready = tx.now_ms - run.touched_at_ms >= settings.schedule_retry_s * 1000
        elif row is None or row.state != rows.ACTIVE:
            ready = False
        else:
            waiting = rows.runs_in(tx.connection, run.schedule_id, [rows.WAITING], limit=settings.schedule_waiting_max)
            ready = waiting[-1].tick_ms == run.tick_ms if waiting else False
            ready = ready and not unfinished_jobs(tx.connection, run.schedule_id)
        if not ready or not rows.change_run(tx, run, state=rows.STARTING, touched_at_ms=tx.now_ms):
            return None
        return row

    if run.state == rows.STARTING and hub.now_ms() - run.touched_at_ms < settings.schedule_retry_s * 1000:
        return  # the usual case: a hub is submitting it
    if (row := await hub.store.write(unit)) is not None:
        await start(hub, row, run)


async def start(hub: Hub, row: ScheduleRow, run: RunRow) -> None:
    """Submit a run in the state `starting`."""
    try:
        principal = await hub.store.read(_principal, row.account_id)
        request = SubmitRequest.model_validate_json(row.request)
        if row.overlap == "replace" and not run.by_hand:
            await _cancel_before(hub, principal, row.id)
        key = f"{row.id} {run.tick_ms}"
        remembered = Remembered(
            account_id=row.account_id, route=_ROUTE, key=key, request_hash=hashlib.sha256(key.encode()).hexdigest()
        )
        reply = await submit.submit(hub, principal, request, remembered=remembered)
    except Unavailable:
        raise  # the run stays, and a later round submits it
    except ComputePoolError as error:
        await hub.store.write(_fail, row, run, reason=error.detail, failures_max=hub.settings.schedule_failures_max)
    except ValidationError:
        reason = "The schedule was made under earlier rules; remove it and add it again."
        await hub.store.write(_fail, row, run, reason=reason, failures_max=hub.settings.schedule_failures_max)
    else:
        await hub.store.write(_note, row, run, job_ids=reply.job_ids)


def _principal(connection: Connection, account_id: str) -> Principal:
    """The account as a submitter. Never as an administrator, who could see the jobs of others."""
    account = account_rows.get_account(connection, account_id)
    if account is None or not {Role.SUBMITTER, Role.ADMIN} & set(account.roles.split(",")):
        raise Forbidden("The schedule's account may no longer submit jobs.")
    return Principal(account_id=account.id, name=account.name, roles=frozenset({Role.SUBMITTER.value}))


async def _cancel_before(hub: Hub, principal: Principal, schedule_id: str) -> None:
    for job_id in await hub.store.read(unfinished_jobs, schedule_id):
        if "@" not in job_id:
            await cancel.cancel(hub, principal, job_id)


def _note(tx: Tx, row: ScheduleRow, run: RunRow, *, job_ids: list[str]) -> None:
    if rows.end_run(tx, run, state=rows.SUBMITTED, job_ids=json.dumps(job_ids)):
        rows.note_success(tx, row.id)
        data = {"schedule_id": row.id, "tick_ms": run.tick_ms, "jobs": len(job_ids), "job_id": job_ids[0]}
        tx.emit(actor="hub", action="schedule.submitted", account_id=row.account_id, data=data)


def _fail(tx: Tx, row: ScheduleRow, run: RunRow, *, reason: str, failures_max: int) -> None:
    if not rows.end_run(tx, run, state=rows.FAILED, reason=reason):
        return
    data = {"schedule_id": row.id, "tick_ms": run.tick_ms}
    tx.emit(actor="hub", action="schedule.failed", account_id=row.account_id, reason=reason, data=data)
    failures = rows.note_failure(tx, row.id, reason)
    if failures >= failures_max:
        _pause(tx, row, reason=f"{failures} runs in a row could not be submitted: {reason}")


def _pause(tx: Tx, row: ScheduleRow, *, reason: str) -> None:
    if rows.set_state(tx, row.id, state=rows.PAUSED, reason=reason):
        data = {"schedule_id": row.id}
        tx.emit(actor="hub", action="schedule.paused", account_id=row.account_id, reason=reason, data=data)
