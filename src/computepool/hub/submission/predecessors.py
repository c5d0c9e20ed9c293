"""The jobs that new jobs come after, and those whose results they take as arguments.

They exist already, so no circle of jobs can be submitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from computepool.core.errors import BadRequest, Conflict
from computepool.core.jobs import dependencies as rules
from computepool.core.jobs.dependencies import Consequence, Ending
from computepool.core.jobs.lifecycle import CALLED, JobKind, JobState, Reason, When
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import Principal, may_manage
from computepool.hub.jobs import rows as job_rows, views
from computepool.hub.jobs.rows import JobRow
from computepool.hub.snapshot import Snapshot
from computepool.protocol.jobs.jobs import JobSpec, SubmitRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Predecessors:
    request: SubmitRequest
    pending: list[int]  #: by item, how many jobs it waits for

    def rows(self, job_ids: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {"job_id": job_id, "after_id": before, "is_argument": before in item.uses}
            for job_id, item in zip(job_ids, self.request.items, strict=True)
            for before in sorted({*self.request.after, *item.uses})
        ]


def check(tx: Tx, principal: Principal, request: SubmitRequest, *, snapshot: Snapshot) -> Predecessors:
    """With the jobs locked. Raises BadRequest or Conflict if the new ones could never start, or never have their arguments."""
    used = {job_id for item in request.items for job_id in item.uses}
    named = {*request.after, *used}
    if not named:
        return Predecessors(request=request, pending=[0] * len(request.items))
    rows = job_rows.lock_jobs(tx, named)
    for job_id in sorted(named):
        row = rows.get(job_id)
        if row is None or row.hub_job or not may_manage(principal, row.account_id):
            raise BadRequest(f"There is no job {job_id} of yours to wait for.", field=_field(job_id, request))
    _check_results(tx, [rows[job_id] for job_id in sorted(used)], snapshot=snapshot)
    pending = [_count_pending(request, {*request.after, *item.uses}, rows) for item in request.items]
    return Predecessors(request=request, pending=pending)


def _field(job_id: str, request: SubmitRequest) -> str:
    return "after" if job_id in request.after else "items"


def _count_pending(request: SubmitRequest, named: Iterable[str], rows: Mapping[str, JobRow]) -> int:
    before = {job_id: rules.ending_of(JobState(rows[job_id].state), Reason(rows[job_id].reason)) for job_id in named}
    first = rules.first_consequence(request.when, before.values())
    if first is Consequence.COUNT:
        return sum(ended is None for ended in before.values())
    if first is Consequence.START:
        return 0
    if request.when is When.FAILURE:
        raise Conflict(
            "None of these jobs failed; a job that runs only after a failure could never start.", field="after"
        )
    job_id = min(job_id for job_id, ended in before.items() if ended not in (None, Ending.SUCCEEDED))
    raise Conflict(
        f"Job {job_id} is {rows[job_id].state}; a job that depends on it could never start.",
        field=_field(job_id, request),
    )


def _check_results(tx: Tx, used: Sequence[JobRow], *, snapshot: Snapshot) -> None:
    sealed = {digest for digest, spec in _specs(tx, used, snapshot) if spec.seal_to is not None}
    for row in used:
        if problem := _problem(row, is_sealed=row.spec_digest in sealed):
            raise Conflict(f"The result of job {row.id} cannot be an argument: {problem}.", field="items")


def _specs(tx: Tx, used: Sequence[JobRow], snapshot: Snapshot) -> Iterator[tuple[str, JobSpec]]:
    missing = []
    for digest in sorted({row.spec_digest for row in used}):
        if (known := snapshot.specs.peek(digest)) is not None:
            yield digest, known.spec
        else:
            missing.append(digest)
    for digest, body in job_rows.get_specs(tx.connection, missing).items() if missing else ():
        yield digest, JobSpec.model_validate_json(body)


def _problem(row: JobRow, *, is_sealed: bool) -> str:
    """Why no node could use its result; empty if one can."""
    if JobKind(row.kind) not in CALLED:
        return f"a {row.kind} returns no value; use `after`, and pass its files as inputs"
    if (row.carried or 1) > 1 or row.bundled > 1:
        return "it ran several items of a map"
    if is_sealed:
        return "it is sealed, and only its submitter can open it"
    gone = views.unusable(row) if row.state == JobState.SUCCEEDED else ""
    return f"{gone}; submit that job again" if gone else ""
