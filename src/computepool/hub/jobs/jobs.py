"""Reading jobs, and waiting for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

from computepool.core.errors import Conflict, NotFound
from computepool.core.ids import time_of
from computepool.core.jobs.lifecycle import TERMINAL, JobState, When
from computepool.core.resources import Requirements
from computepool.core.trust.verification import VerificationVerdict
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import attempt_rows, dependency_rows, gang_rows, rows as job_rows, views
from computepool.hub.jobs.rows import FullJobRow, JobRow
from computepool.hub.jobs.running import checkpoint_rows, checkpoints, child_rows
from computepool.hub.lookup import name_rows
from computepool.hub.settlement.verification import recheck_rows
from computepool.protocol.gangs import GangMember
from computepool.protocol.jobs.checkpoints import CheckpointDetail
from computepool.protocol.jobs.filters import JobFilter
from computepool.protocol.jobs.jobs import JobSpec
from computepool.protocol.jobs.views import CorrectedResult, JobDetail, JobPage, JobResult, JobView, OutputFile

#: Rows that one query reads at most, and one request: a search that finds little stops there and returns a cursor.
_WINDOW = 20_000
_SCANNED_MAX = 500_000
_CHILDREN_SHOWN = 100
#: Kinds of jobs that are compared with the fleet for one list: each comparison may read every node.
_KINDS_MAX = 5

_Row = TypeVar("_Row", bound=JobRow)
AnyJob = TypeVar("AnyJob", bound=JobView)


def require_owned(principal: Principal, row: _Row | None) -> _Row:
    return access.require_owned(principal, row, what="job")


async def load(hub: Hub, principal: Principal, job_id: str) -> JobRow:
    """Raises NotFound if it is not the caller's."""
    return require_owned(principal, await hub.store.read(partial(job_rows.get_job, job_id=job_id)))


async def get(hub: Hub, principal: Principal, job_id: str, *, wait_ms: int, seen: str | None) -> JobDetail:
    """With `wait_ms`, wait until the job's state differs from `seen`, or the job is finished."""

    async def look() -> tuple[JobRow, bool]:
        row = await load(hub, principal, job_id)
        return row, JobState(row.state) in TERMINAL or (seen is not None and row.state != seen)

    row = await hub.long_poll(look, f"job:{job_id}", wait_ms=wait_ms)
    known = (await hub.jobs.specs.load([row.spec_digest]))[row.spec_digest]
    detail = await hub.store.read(partial(_detail, principal=principal, job_id=job_id, spec=known.spec))
    return _with_warnings(hub, [detail])[0]


def _detail(connection: Connection, *, principal: Principal, job_id: str, spec: JobSpec) -> JobDetail:
    row = require_owned(principal, job_rows.get_job(connection, job_id))
    attempts = attempt_rows.get_attempts(connection, row.id)
    names = {attempt.node_id: attempt.node_name for attempt in attempts}
    checkpoint = None if row.checkpoint_no is None else checkpoint_rows.get(connection, row.id)
    before = dependency_rows.get(connection, row.id)
    return JobDetail.from_attributes(
        row,
        **views.job_fields(row, node_name=names.get(row.node_id or ""), principal=principal),
        spec=spec,
        after=[each.after_id for each in before],
        when=row.run_when or When.SUCCESS,
        uses=[each.after_id for each in before if each.is_argument],
        tries=[views.attempt_view(attempt) for attempt in attempts],
        outputs=_outputs(connection, row.id),
        corrected=_correction(connection, row),
        checkpoint=None if checkpoint is None else checkpoints.view(checkpoint),
        parent_id=child_rows.parents(connection, [row.id]).get(row.id),
        children=child_rows.direct(connection, row.id, limit=_CHILDREN_SHOWN),
        gang=[] if row.gang is None else _gang(connection, row.gang),
    )


def _gang(connection: Connection, gang: str) -> list[GangMember]:
    found = gang_rows.members(connection, gang)
    return [GangMember.from_attributes(member, rank=member.item, job_id=member.id) for member in found]


def _outputs(connection: Connection, job_id: str) -> list[OutputFile]:
    return views.output_files(artifact_rows.outputs_of(connection, [job_id]).get(job_id, []))


def _correction(connection: Connection, job: JobRow) -> CorrectedResult | None:
    """The right result of a job whose own was wrong, from the hub job that checked it."""
    if job.verdict != VerificationVerdict.REFUTED or job.hub_job is not None:
        return None
    right = recheck_rows.find_recheck(connection, job.id, recheck_rows.RECHECKS_MAX)
    if right is None:
        return None
    return CorrectedResult.from_attributes(right, outputs=_outputs(connection, right.id))


def _with_warnings(hub: Hub, jobs: Sequence[AnyJob]) -> list[AnyJob]:
    """The same jobs; the status of those that wait for a node says so if no connected node can run them.

    Lists ask for this, so only a few kinds of jobs are compared, and the answers are cached until the fleet changes.
    """
    fleet, backlog = hub.nodes.registry.fleet, hub.jobs.queue.backlog
    known: dict[tuple[Requirements, str], bool] = {}
    found = []
    for job in jobs:
        hopeless = False
        if len(fleet) and job.status == views.FOR_A_NODE and job.id in backlog:
            shape = backlog.shape_of(job.id)
            key = (shape.requirements, shape.account)
            if key not in known and len(known) < _KINDS_MAX:
                known[key] = hub.money.ceilings.is_possible(fleet, key[0], account=key[1], now_ms=hub.now_ms())
            hopeless = not known.get(key, True)
        found.append(job.model_copy(update={"status": views.NO_NODE}) if hopeless else job)
    return found


async def checkpoint(hub: Hub, principal: Principal, job_id: str) -> CheckpointDetail:
    """With the files, which the submitter may fetch."""
    await load(hub, principal, job_id)
    kept = await hub.store.read(lambda connection: checkpoint_rows.get(connection, job_id))
    if kept is None:
        raise NotFound("This job has no checkpoint: it has saved none yet, or it has ended.")
    return checkpoints.detail(kept)


async def result(hub: Hub, principal: Principal, job_id: str, *, wait_ms: int) -> JobResult:
    async def look() -> tuple[FullJobRow, bool]:
        row = require_owned(
            principal, await hub.store.read(lambda connection: job_rows.get_job_full(connection, job_id))
        )
        return row, JobState(row.state) in TERMINAL

    row = await hub.long_poll(look, f"job:{job_id}", wait_ms=wait_ms)
    if JobState(row.state) not in TERMINAL:
        raise Conflict(f"The job is not finished: it is {row.state}.")
    outputs = await hub.store.read(lambda connection: artifact_rows.outputs_of(connection, [job_id]))
    return views.job_result(row, seq=0, outputs=outputs)


async def page(
    hub: Hub, principal: Principal, *, filters: JobFilter, everybody: bool, after: str | None, limit: int
) -> JobPage:
    """Newest first. Only administrators see the jobs of others, and only if they ask for them (`everybody`)."""
    account_id = None if principal.is_admin and everybody else principal.account_id
    if account_id is not None and filters.account_id not in (None, account_id):
        return JobPage(jobs=[])
    filters = replace(filters, account_id=account_id or filters.account_id)
    rows: list[JobRow] = []
    cursor, scanned = after, 0
    while len(rows) < limit and scanned < _SCANNED_MAX:
        found, cursor = await _search(hub, filters, before=cursor, limit=limit - len(rows))
        rows += found
        scanned += _WINDOW
        if cursor is None:
            break
    names, parents = await hub.store.read(
        lambda connection: (
            _names(connection, rows, principal),
            child_rows.parents(connection, [row.id for row in rows]),
        )
    )
    jobs = [
        views.job_view(row, node_name=names.get(row.node_id or ""), principal=principal).model_copy(
            update={"account_name": names.get(row.account_id), "parent_id": parents.get(row.id)}
        )
        for row in rows
    ]
    searched_to_ms = None if cursor is None else time_of(cursor)
    return JobPage(jobs=_with_warnings(hub, jobs), next=cursor, searched_to_ms=searched_to_ms)


async def _search(
    hub: Hub, filters: JobFilter, *, before: str | None, limit: int
) -> tuple[Sequence[JobRow], str | None]:
    async with hub.jobs.searches if job_rows.is_search(filters) else nullcontext():
        return await hub.store.read(
            lambda connection: job_rows.list_jobs(connection, filters, before=before, limit=limit, window=_WINDOW)
        )


def _names(connection: Connection, rows: Sequence[JobRow], principal: Principal) -> dict[str, str]:
    return name_rows.of(
        connection,
        accounts={row.account_id for row in rows} if principal.is_admin else (),
        nodes={row.node_id for row in rows if row.node_id},
        whose=access.scope(principal),
    )
