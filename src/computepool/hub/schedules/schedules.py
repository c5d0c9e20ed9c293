"""Schedules of an account: add, list, show, pause, resume, run by hand, remove."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from computepool.core.errors import BadRequest, Conflict, NotFound, TooLarge
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, write_once
from computepool.hub.jobs import rows as job_rows
from computepool.hub.nodes import hosts
from computepool.hub.schedules import rounds, rows
from computepool.hub.schedules.rows import RunRow, ScheduleRow
from computepool.hub.schedules.ticks import cron_of
from computepool.hub.secrets import job_secrets
from computepool.protocol.jobs.jobs import SubmitRequest
from computepool.protocol.schedules import (
    ScheduleDetail,
    SchedulePage,
    ScheduleRequest,
    ScheduleRun,
    ScheduleRunPage,
    ScheduleView,
)

LABEL = "schedule:"
_NEXT = 3
_RUNS_SHOWN = 20


async def add(hub: Hub, principal: Principal, given: ScheduleRequest, *, remembered: Remembered) -> ScheduleView:
    settings, account, schedule_id = hub.settings, principal.account_id, new_id(hub.clock, "sched")
    cron = cron_of(given.cron, given.tz)
    cron.check(hub.now_ms(), interval_min_s=settings.schedule_interval_min_s)
    request = await _prepare(hub, principal, given)
    text = request.model_dump_json(exclude_defaults=True)
    if len(text.encode()) > settings.schedule_max_bytes:
        raise TooLarge(
            f"A schedule may take {settings.schedule_max_bytes} bytes; send large code or data as input files."
        )

    def unit(tx: Tx) -> ScheduleView:
        if rows.has_name(tx.connection, account, given.name):
            raise Conflict(f"You have a schedule {given.name} already; choose another name.", field="name")
        if rows.count_of_account(tx.connection, account) >= settings.schedules_max:
            raise TooLarge(f"An account may have {settings.schedules_max} schedules; remove one first.")
        _keep_artifacts(tx, request, account=account, schedule_id=schedule_id)
        plain = {word: getattr(given, word) for word in ("name", "cron", "tz", "overlap", "missed")}
        next_at_ms = cron.after(tx.now_ms)[0]
        rows.insert(tx, id=schedule_id, account_id=account, request=text, next_at_ms=next_at_ms, **plain)
        tx.emit_own(account, "schedule.created", schedule_id=schedule_id, name=given.name)
        row = rows.get(tx.connection, schedule_id)
        assert row is not None
        return _view(tx.connection, row)

    return await write_once(hub, remembered, unit, model=ScheduleView)


async def _prepare(hub: Hub, principal: Principal, given: ScheduleRequest) -> SubmitRequest:
    """What its runs submit, with ids instead of names, which may change their meaning."""
    request, spec = given.request, given.request.spec
    if request.after or request.group_id or any(item.key or item.replaces for item in request.items):
        raise BadRequest("A schedule's jobs cannot wait for others, nor belong to a group.", field="request")
    needs = await hosts.resolve(hub, principal.account_id, spec.needs, at="request.spec.needs")
    if spec.has_secrets:
        spec = await job_secrets.resolve(hub, principal.account_id, spec, is_child=False)
    labels = [*spec.labels, f"{LABEL}{given.name}"]
    return request.model_copy(update={"spec": spec.model_copy(update={"needs": needs, "labels": labels})})


def _keep_artifacts(tx: Tx, request: SubmitRequest, *, account: str, schedule_id: str) -> None:
    """Keep the files of its jobs for as long as it exists."""
    compare = request.compare_function
    named = [file.digest for file in request.spec.inputs] + [item.payload_artifact for item in request.items]
    named += [request.spec.function_artifact, None if compare is None else compare.function_artifact]
    digests = sorted({digest for digest in named if digest})
    for digest in digests:
        if not artifact_rows.may_read(tx.connection, digest=digest, account_id=account):
            raise BadRequest(f"Artifact {digest} is not on the hub; upload it first.", field="request.spec.inputs")
    shared = {"account_id": account, "job_id": "", "role": "kept", "name": f"{LABEL}{schedule_id}"}
    if digests:
        artifact_rows.refer(tx, [{"digest": digest, **shared} for digest in digests])


async def page(hub: Hub, principal: Principal, *, after: str | None, limit: int) -> SchedulePage:
    def load(connection: Connection) -> list[ScheduleView]:
        found = rows.of_account(connection, principal.account_id, after=after, limit=limit)
        return [_view(connection, row) for row in found]

    found = await hub.store.read(load)
    return SchedulePage(schedules=found, next=found[-1].id if len(found) == limit else None)


async def get(hub: Hub, principal: Principal, schedule_id: str) -> ScheduleDetail:
    def load(connection: Connection) -> ScheduleDetail:
        row = _require(connection, principal, schedule_id)
        runs = _runs(connection, rows.runs_of(connection, row.id, limit=_RUNS_SHOWN))
        request = SubmitRequest.model_validate_json(row.request)
        return ScheduleDetail(
            **_view(connection, row).model_dump(), spec=request.spec, jobs=len(request.items), runs=runs
        )

    return await hub.store.read(load)


async def runs(hub: Hub, principal: Principal, schedule_id: str, *, before: int | None, limit: int) -> ScheduleRunPage:
    def load(connection: Connection) -> list[ScheduleRun]:
        row = _require(connection, principal, schedule_id)
        return _runs(connection, rows.runs_of(connection, row.id, before=before, limit=limit))

    found = await hub.store.read(load)
    return ScheduleRunPage(runs=found, next=str(found[-1].tick_ms) if len(found) == limit else None)


async def pause(hub: Hub, principal: Principal, schedule_id: str) -> ScheduleView:
    """Runs that wait are not submitted before it is resumed; jobs continue."""
    return await _set_state(hub, principal, schedule_id, state=rows.PAUSED)


async def resume(hub: Hub, principal: Principal, schedule_id: str) -> ScheduleView:
    """From now on: ticks that have passed meanwhile are not made up for."""
    return await _set_state(hub, principal, schedule_id, state=rows.ACTIVE)


async def _set_state(hub: Hub, principal: Principal, schedule_id: str, *, state: str) -> ScheduleView:
    def unit(tx: Tx) -> ScheduleView:
        row = _require(tx.connection, principal, schedule_id)
        active = state == rows.ACTIVE
        following = cron_of(row.cron, row.tz).after(tx.now_ms) if active else []
        if rows.set_state(tx, row.id, state=state, next_at_ms=following[0] if following else None):
            what = "schedule.resumed" if active else "schedule.paused"
            actor, data = principal.account_id, {"schedule_id": row.id}
            tx.emit(actor=actor, action=what, account_id=row.account_id, data=data)
        return _view(tx.connection, _require(tx.connection, principal, schedule_id))

    return await hub.store.write(unit)


async def run_now(hub: Hub, principal: Principal, schedule_id: str, *, remembered: Remembered) -> ScheduleRun:
    """Submit a run now, whatever else runs. Works for a paused schedule, too."""
    kept = hub.settings.schedule_runs_max

    def unit(tx: Tx) -> ScheduleRun:
        row = _require(tx.connection, principal, schedule_id)
        if not rows.insert_run(tx, row.id, tick_ms=tx.now_ms, state=rows.STARTING, by_hand=True, kept=kept):
            raise Conflict("The schedule runs at this very moment; try again.")
        return ScheduleRun(tick_ms=tx.now_ms, by_hand=True, state=rows.STARTING)

    made = await write_once(hub, remembered, unit, model=ScheduleRun)

    def load(connection: Connection) -> tuple[ScheduleRow, RunRow | None]:
        return _require(connection, principal, schedule_id), rows.get_run(connection, schedule_id, made.tick_ms)

    row, run = await hub.store.read(load)
    if run is not None and run.state == rows.STARTING:
        await rounds.start(hub, row, run)
    _, run = await hub.store.read(load)
    return made if run is None else (await hub.store.read(_runs, [run]))[0]


async def remove(hub: Hub, principal: Principal, schedule_id: str) -> None:
    """Its jobs continue."""

    def unit(tx: Tx) -> None:
        row = _require(tx.connection, principal, schedule_id)
        rows.remove(tx, row.id)
        artifact_rows.drop_named(tx, account_id=row.account_id, role="kept", name=f"{LABEL}{row.id}")
        data = {"schedule_id": row.id, "name": row.name}
        tx.emit(actor=principal.account_id, action="schedule.removed", account_id=row.account_id, data=data)

    await hub.store.write(unit)


def _require(connection: Connection, principal: Principal, schedule_id: str) -> ScheduleRow:
    row = rows.get(connection, schedule_id)
    if row is None or not access.may_manage(principal, row.account_id):
        raise NotFound("There is no such schedule, or it is not yours.")
    return row


def _view(connection: Connection, row: ScheduleRow) -> ScheduleView:
    newest = _runs(connection, rows.runs_of(connection, row.id, limit=1))
    following = [] if row.next_at_ms is None else [row.next_at_ms]
    if following:
        following += cron_of(row.cron, row.tz).after(following[0], _NEXT - 1)
    return ScheduleView.from_attributes(row, next_ms=following, last=newest[0] if newest else None)


def _runs(connection: Connection, found: Sequence[RunRow]) -> list[ScheduleRun]:
    ids = {run.tick_ms: json.loads(run.job_ids) for run in found}
    every = sorted({job_id for job_ids in ids.values() for job_id in job_ids})
    states = {job.id: job.state for job in job_rows.get_jobs(connection, every)} if every else {}
    made = []
    for run in found:
        counts = Counter(states[job_id] for job_id in ids[run.tick_ms] if job_id in states)
        outcome = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        made.append(ScheduleRun.from_attributes(run, job_ids=ids[run.tick_ms], outcome=outcome))
    return made
