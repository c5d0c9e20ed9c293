"""Looking at jobs, and waiting for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeVar

from computepool.core.errors import Conflict, NotFound
from computepool.core.ids import time_of
from computepool.core.jobs.lifecycle import TERMINAL, JobState
from computepool.core.resources import Requirements
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts.rows import OutputRow
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import attempt_rows, dependency_rows, views
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import FullJobRow, JobRow
from computepool.hub.jobs.running import checkpoint_rows, checkpoints, child_rows
from computepool.hub.lookup import name_rows
from computepool.hub.settlement.verification import recheck_rows
from computepool.protocol.jobs.checkpoints import CheckpointDetail
from computepool.protocol.jobs.filters import JobFilter
from computepool.protocol.jobs.jobs import CheckpointView, JobDetail, JobPage, JobResult, JobView

#: Jobs looked at in one read, and in one request: a search that finds little gives up here and can be gone on with.
_WINDOW = 20_000
_LOOKED_AT_MAX = 500_000
_CHILDREN_SHOWN = 100
#: Kinds of jobs that are looked up for one list: each may take a look at every node.
_KINDS_MAX = 5


_Row = TypeVar("_Row", bound=JobRow)
AnyJob = TypeVar("AnyJob", bound=JobView)


def owned(principal: Principal, row: _Row | None) -> _Row:
    return access.owned(principal, row, what="job")


async def get(hub: Hub, principal: Principal, job_id: str, *, wait_ms: int, seen: str | None) -> JobDetail:
    """The job as it is; with `wait_ms`, not before its state differs from `seen` (or it is finished)."""

    async def look() -> tuple[JobRow, bool]:
        row = owned(principal, await hub.store.read(lambda connection: job_rows.get_job(connection, job_id)))
        return row, JobState(row.state) in TERMINAL or (seen is not None and row.state != seen)

    row = await hub.long_poll(look, f"job:{job_id}", wait_ms=wait_ms)
    return await _detail(hub, principal, row)


async def _detail(hub: Hub, principal: Principal, job: JobRow) -> JobDetail:
    known = (await hub.jobs.specs.load([job.spec_digest]))[job.spec_digest]

    def load(connection: Connection) -> JobDetail:
        row = owned(principal, job_rows.get_job(connection, job.id))
        found = views.job_detail(
            row,
            spec=known.spec,
            after=dependency_rows.get(connection, row.id),
            attempts=attempt_rows.get_attempts(connection, row.id),
            outputs=artifact_rows.outputs_of(connection, [row.id]).get(row.id, []),
            corrected=_correction(connection, row),
            checkpoint=_checkpoint(connection, row),
            principal=principal,
        )
        children = child_rows.direct(connection, row.id, limit=_CHILDREN_SHOWN)
        parents = child_rows.parents(connection, [row.id])
        return found.model_copy(update={"parent_id": parents.get(row.id), "children": children})

    return _with_notes(hub, [await hub.store.read(load)])[0]


def _correction(connection: Connection, job: JobRow) -> tuple[FullJobRow, Sequence[OutputRow]] | None:
    """The hub job with the right result of a job whose own was wrong, and its files."""
    if job.verdict != views.REFUTED or job.hub_job is not None:
        return None
    right = recheck_rows.last_recheck(connection, job.id)
    return (
        None if right is None else (right, artifact_rows.outputs_of(connection, [right.id]).get(right.id, []))
    )


def _with_notes(hub: Hub, jobs: Sequence[AnyJob]) -> list[AnyJob]:
    """The same jobs; of those that wait for a node, it is said where no connected one could run them.

    Lists ask for it, so only a few kinds of jobs are looked up, and what was found is kept while the fleet stays the same.
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
                known[key] = hub.money.ceilings.is_possible(
                    fleet, key[0], account=key[1], now_ms=hub.now_ms()
                )
            hopeless = not known.get(key, True)
        found.append(job.model_copy(update={"status": views.NO_NODE}) if hopeless else job)
    return found


def _checkpoint(connection: Connection, row: JobRow) -> CheckpointView | None:
    if row.checkpoint_no is None:
        return None
    kept = checkpoint_rows.get(connection, row.id)
    return None if kept is None else checkpoints.view(kept)


async def checkpoint(hub: Hub, principal: Principal, job_id: str) -> CheckpointDetail:
    """Where the job goes on from, with the files: the submitter may fetch them."""
    row = await hub.store.read(lambda connection: job_rows.get_job(connection, job_id))
    owned(principal, row)
    kept = await hub.store.read(lambda connection: checkpoint_rows.get(connection, job_id))
    if kept is None:
        raise NotFound("This job has no checkpoint: it saved none yet, or it is over.")
    return checkpoints.detail(kept)


async def check_visible(hub: Hub, principal: Principal, job_id: str) -> None:
    owned(principal, await hub.store.read(lambda connection: job_rows.get_job(connection, job_id)))


async def result(hub: Hub, principal: Principal, job_id: str, *, wait_ms: int) -> JobResult:
    async def look() -> tuple[FullJobRow, bool]:
        found = await hub.store.read(lambda connection: job_rows.get_job_full(connection, job_id))
        row = owned(principal, found)
        return row, JobState(row.state) in TERMINAL

    row = await hub.long_poll(look, f"job:{job_id}", wait_ms=wait_ms)
    if JobState(row.state) not in TERMINAL:
        raise Conflict(f"The job is not finished: it is {row.state}.")
    outputs = await hub.store.read(lambda connection: artifact_rows.outputs_of(connection, [job_id]))
    return views.job_result(row, seq=0, outputs=outputs)


async def page(
    hub: Hub, principal: Principal, *, filters: JobFilter, everybody: bool, after: str | None, limit: int
) -> JobPage:
    """Newest first. Others' jobs are for administrators, and only where they want them."""
    whose = None if principal.is_admin and everybody else principal.account_id
    if whose is not None and filters.account_id not in (None, whose):
        return JobPage(jobs=[])
    own = replace(filters, account_id=whose or filters.account_id)
    rows: list[JobRow] = []
    at, looked = after, 0
    while len(rows) < limit and looked < _LOOKED_AT_MAX:
        found, at = await _older(hub, own, before=at, limit=limit - len(rows))
        rows += found
        looked += _WINDOW
        if at is None:
            break
    ids = [row.id for row in rows]
    known, parents = await hub.store.read(
        lambda connection: (_names(connection, rows, principal), child_rows.parents(connection, ids))
    )
    jobs = [
        views.job_view(row, node_name=known.get(row.node_id or ""), principal=principal).model_copy(
            update={"account_name": known.get(row.account_id), "parent_id": parents.get(row.id)}
        )
        for row in rows
    ]
    return JobPage(jobs=_with_notes(hub, jobs), next=at, searched_to_ms=None if at is None else time_of(at))


async def _older(
    hub: Hub, filters: JobFilter, *, before: str | None, limit: int
) -> tuple[Sequence[JobRow], str | None]:
    async with hub.jobs.searches if job_rows.is_search(filters) else nullcontext():
        return await hub.store.read(
            lambda connection: job_rows.list_jobs(
                connection, filters, before=before, limit=limit, window=_WINDOW
            )
        )


def _names(connection: Connection, rows: Sequence[JobRow], principal: Principal) -> dict[str, str]:
    return name_rows.of(
        connection,
        accounts={row.account_id for row in rows} if principal.is_admin else (),
        nodes={row.node_id for row in rows if row.node_id},
        whose=access.scope(principal),
    )
