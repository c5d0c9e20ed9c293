"""Submitting, looking at, waiting for and cancelling jobs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from computepool.core.errors import BadRequest, Conflict, NotFound
from computepool.core.ids import time_of
from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts import storage_quota
from computepool.hub.artifacts.inline_rows import size_of
from computepool.hub.artifacts.rows import OutputRow
from computepool.hub.clock import new_ids
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import collector
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, once
from computepool.hub.jobs import attempt_rows, dependency_rows, quotas, views
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.attempt_rows import NamedAttempt
from computepool.hub.jobs.rows import FullJobRow, JobRow
from computepool.hub.jobs.running import checkpoint_rows, checkpoints, child_rows
from computepool.hub.jobs.running.child_rows import ChildJob
from computepool.hub.lookup import name_rows
from computepool.hub.money import holds, quotes
from computepool.hub.money.quotes import Terms
from computepool.hub.scheduling import feasibility
from computepool.hub.settlement.verification import comparators, rechecks, verification
from computepool.hub.settlement.verification.comparators import RequestedComparison
from computepool.hub.snapshot import Snapshot, take
from computepool.protocol.jobs.checkpoints import CheckpointDetail
from computepool.protocol.jobs.filters import JobFilter
from computepool.protocol.jobs.jobs import (
    CheckpointView,
    JobDetail,
    JobPage,
    JobResult,
    SubmitReply,
    SubmitRequest,
    spec_digest,
)
from computepool.protocol.jobs.packed import is_packed

#: Jobs looked at in one read, and in one request: a search that finds little gives up here and can be gone on with.
_WINDOW = 20_000
_LOOKED_AT_MAX = 500_000
_CHILDREN_SHOWN = 100


#: Looks, in the transaction that submits them, whether these jobs may be, with what is set aside for them.
Admit = Callable[[Tx, list[str], int], None]


async def submit(
    hub: Hub,
    principal: Principal,
    request: SubmitRequest,
    *,
    remembered: Remembered,
    admit: Admit | None = None,
) -> tuple[SubmitReply, bool]:
    """One spec, one job per item; all of them or none. The second value is false when it was answered before."""
    if request.spec.children > hub.settings.children_max:
        raise BadRequest(f"A job may submit {hub.settings.children_max} jobs at most.", field="spec.children")
    body = request.spec.body()
    digest = spec_digest(body)
    if len({item.key for item in request.items if item.key}) != sum(1 for item in request.items if item.key):
        raise BadRequest("Two items have the same key.", field="items")
    known = hub.specs.add(digest, body, request.spec)
    job_ids = new_ids(hub.clock, "job", len(request.items))
    policy = verification.policy_of(hub, _verify(request), request.confidence)
    asked = comparators.asked_by(hub, request, policy)
    terms = await quotes.terms(
        hub,
        known.requirements,
        principal.account_id,
        timeout_s=request.spec.timeout_s,
        items=len(request.items),
        max_price=request.max_price,
        budget=request.budget,
        policy=policy,
    )
    refuse = request.impossible == "refuse"
    warning = await feasibility.warning(hub, known.requirements, principal.account_id, refuse=refuse)
    submission = _Submission(
        take(hub, [principal.account_id]),
        principal,
        request,
        digest=digest,
        body=body,
        job_ids=job_ids,
        terms=terms,
        compare=asked,
        admit=admit,
    )
    await storage_quota.reserve_submission(hub, principal.account_id, size=submission.size)
    fresh = False
    try:
        reply, fresh = await _write(hub, submission, remembered)
    finally:
        storage_quota.end_submission(hub, principal.account_id, size=submission.size, is_kept=fresh)
    return (reply.model_copy(update={"warning": warning}) if warning else reply), fresh


async def _write(hub: Hub, submission: _Submission, remembered: Remembered) -> tuple[SubmitReply, bool]:
    account = submission.principal.account_id
    used = {"jobs": len(submission.job_ids), "cost": submission.terms.hold_total}
    await quotas.reserve(hub, account, **used)
    fresh = False
    try:
        reply = await hub.store.write(
            lambda tx: once(tx, remembered, lambda: submission.insert(tx), model=SubmitReply)
        )
        fresh = reply.job_ids == submission.job_ids
    finally:
        if not fresh:
            quotas.give_back(hub, account, **used)
    return reply, fresh


def _verify(request: SubmitRequest) -> str | None:
    """Two runs of a sealed job never look alike to the hub, so nothing can be compared."""
    if request.spec.seal_to is None:
        return request.verify
    if (
        request.verify not in (None, "none")
        or request.confidence
        or request.compare
        or request.compare_function
    ):
        raise BadRequest(
            "A sealed result cannot be checked by the hub, which cannot read it: leave verify and compare out.",
            field="spec.seal_to",
        )
    return "none"


class _Submission:
    """The rows of one submission; `insert` may run more than once (see hub/db/session.py)."""

    def __init__(
        self,
        snapshot: Snapshot,
        principal: Principal,
        request: SubmitRequest,
        *,
        digest: str,
        body: str,
        job_ids: list[str],
        terms: Terms,
        compare: RequestedComparison,
        admit: Admit | None = None,
    ) -> None:
        self.admit = admit
        self.snapshot, self.principal, self.request = snapshot, principal, request
        self.digest, self.body, self.job_ids, self.terms = digest, body, job_ids, terms
        self.compare = compare
        #: Bytes that the database keeps of it, at most: a program that is known already costs nothing more.
        self.size = size_of(body) + sum(size_of(item.payload) for item in request.items)
        if compare.spec is not None:
            self.size += size_of(compare.spec.body())

    def insert(self, tx: Tx) -> SubmitReply:
        request, account = self.request, self.principal.account_id
        # Jobs before groups, as everywhere (hub/db/session.py).
        if self.admit is not None:
            self.admit(tx, self.job_ids, self.terms.hold_total)
        pending = self._check_after(tx)
        watched = self._join_group(tx)
        self._check_artifacts(tx)
        earned = holds.place(tx, account, self.job_ids, each=self.terms.hold_each)
        job_rows.insert_spec(tx, digest=self.digest, body=self.body, account_id=account)
        if (spec := self.compare.spec) is not None:
            job_rows.insert_spec(tx, digest=spec_digest(spec.body()), body=spec.body(), account_id=account)
        job_rows.insert_jobs(tx, self._rows(tx, pending=len(pending), earned=earned, watched=watched))
        storage_quota.check_submission(tx, account, size=self.size, snapshot=self.snapshot)
        self._take_units(tx)
        dependency_rows.insert(
            tx,
            [{"job_id": job_id, "after_id": after} for job_id in self.job_ids for after in sorted(pending)],
        )
        reason = Reason.WAITING_FOR_JOBS if pending else Reason.SUBMITTED
        for job_id in self.job_ids:
            tx.emit(
                actor=account,
                action="job.queued",
                account_id=account,
                job_id=job_id,
                group_id=request.group_id,
                after=JobState.QUEUED.value,
                reason=reason.value,
            )
        tx.touch("queue", "events")
        return SubmitReply(
            job_ids=self.job_ids,
            group_id=request.group_id,
            hold=self.terms.hold_total,
            max_price=self.terms.ceiling,
            verify=str(self.terms.policy),
            own_node=self.terms.own_node,
        )

    def _rows(self, tx: Tx, *, pending: int, earned: list[int], watched: bool) -> list[dict[str, Any]]:
        request = self.request
        shared = {
            "account_id": self.principal.account_id,
            "group_id": request.group_id,
            "item_count": len(request.items),
            "name": request.spec.name,
            "kind": request.spec.kind.value,
            "spec_digest": self.digest,
            "priority": request.priority,
            "retries": request.retries,
            "state": JobState.QUEUED.value,
            "reason": (Reason.WAITING_FOR_JOBS if pending else Reason.WAITING_FOR_NODE).value,
            "attempt_no": 0,
            "job_faults": 0,
            "node_faults": 0,
            "deps_pending": pending,
            "ready_at_ms": tx.now_ms,
            "queued_at_ms": tx.now_ms,
            "created_at_ms": tx.now_ms,
            "expires_at_ms": tx.now_ms + round(request.ttl_s * 1000),
            "ceiling": self.terms.ceiling,
            "hold": self.terms.hold_each,
            "longest_ms": math.ceil(request.spec.timeout_s * 1000),
            "verify": str(self.terms.policy),
            "runs": self.terms.policy.runs,
            "compare": self.compare.wish.row(),
            "watched": watched,
        }
        return [
            shared
            | {
                "id": job_id,
                "item": index,
                "key": item.key,
                "payload": item.payload,
                "payload_artifact": item.payload_artifact,
                "bundled": item.bundled,
                "carried": item.bundled if is_packed(item.payload) else 1,
                "hold_earned": earned[index],
            }
            for index, (job_id, item) in enumerate(zip(self.job_ids, request.items, strict=True))
        ]

    def _take_units(self, tx: Tx) -> None:
        taken: Counter[str] = Counter()
        for item in self.request.items:
            if item.replaces is not None:
                taken[item.replaces] += item.bundled
        if taken and self.request.group_id is not None:
            job_rows.take_units(tx, self.request.group_id, taken)

    def _join_group(self, tx: Tx) -> bool:
        """Whether the group is one of those of which it is noted when they are complete."""
        if self.request.group_id is None:
            return False
        keys = [item.key for item in self.request.items if item.key is not None]
        return collector.join(tx, self.request.group_id, keys=keys, account_id=self.principal.account_id)

    def _check_after(self, tx: Tx) -> set[str]:
        """The jobs this one really has to wait for."""
        wanted = set(self.request.after)
        rows = job_rows.lock_jobs(tx, wanted) if wanted else {}
        for job_id in sorted(wanted):
            row = rows.get(job_id)
            if row is None or row.errand or not self._may_follow(row):
                raise BadRequest(f"There is no job {job_id} of yours to wait for.", field="after")
            if JobState(row.state) in TERMINAL and row.state != JobState.SUCCEEDED:
                raise Conflict(
                    f"Job {job_id} has {row.state}; what comes after it could never start.", field="after"
                )
        return {job_id for job_id, row in rows.items() if row.state != JobState.SUCCEEDED}

    def _may_follow(self, row: JobRow) -> bool:
        return self.principal.is_admin or bool(row.account_id == self.principal.account_id)

    def _check_artifacts(self, tx: Tx) -> None:
        """Every artifact a job needs is here, readable by its submitter, and kept for the job from now on."""
        needed = [
            ("input", file.name, file.digest, job_id)
            for file in self.request.spec.inputs
            for job_id in self.job_ids
        ]
        for name, spec in (("function", self.request.spec), ("compare", self.compare.spec)):
            if spec is not None and spec.function_artifact:
                needed += [("function", name, spec.function_artifact, job_id) for job_id in self.job_ids]
        for job_id, item in zip(self.job_ids, self.request.items, strict=True):
            if item.payload_artifact:
                needed.append(("payload", "payload", item.payload_artifact, job_id))
        account = self.principal.account_id
        for digest in sorted({digest for _, _, digest, _ in needed}):
            if not artifact_rows.may_read(tx.connection, digest=digest, account_id=account):
                raise BadRequest(f"Artifact {digest} is not on the hub; upload it first.", field="inputs")
        artifact_rows.refer(
            tx,
            [
                {"digest": digest, "account_id": account, "job_id": job_id, "role": role, "name": name}
                for role, name, digest, job_id in needed
            ],
        )


# looking


_Row = TypeVar("_Row", bound=JobRow)


def owned(principal: Principal, row: _Row | None) -> _Row:
    access.check_owner(principal, row.account_id if row is not None else None, what="job")
    assert row is not None
    return row


async def get(hub: Hub, principal: Principal, job_id: str, *, wait_ms: int, seen: str | None) -> JobDetail:
    """The job as it is; with `wait_ms`, not before its state differs from `seen` (or it is finished)."""
    deadline_ms = hub.now_ms() + wait_ms
    while True:
        with hub.signals.watch(f"job:{job_id}") as watch:
            row = owned(
                principal, await hub.store.read(lambda connection: job_rows.get_job(connection, job_id))
            )
            left_ms = deadline_ms - hub.now_ms()
            over = left_ms <= 0 or hub.stopping or JobState(row.state) in TERMINAL
            if over or (seen is not None and row.state != seen):
                return await _detail(hub, principal, job_id)
            await watch.wait(left_ms / 1000)


_Found: TypeAlias = tuple[
    JobRow,
    list[str],
    list[NamedAttempt],
    list[OutputRow],
    tuple[FullJobRow, Sequence[OutputRow]] | None,
    CheckpointView | None,
    ChildJob | None,
    list[str],
]


async def _detail(hub: Hub, principal: Principal, job_id: str) -> JobDetail:
    def load(connection: Connection) -> _Found:
        row = owned(principal, job_rows.get_job(connection, job_id))
        return (
            row,
            dependency_rows.get(connection, job_id),
            attempt_rows.get_attempts(connection, job_id),
            artifact_rows.outputs_of(connection, [job_id]).get(job_id, []),
            rechecks.corrected(connection, row),
            _checkpoint(connection, row),
            child_rows.get(connection, job_id),
            child_rows.direct(connection, job_id, limit=_CHILDREN_SHOWN),
        )

    row, after, attempts, outputs, corrected, checkpoint, place, children = await hub.store.read(load)
    known = (await hub.specs.load([row.spec_digest]))[row.spec_digest]
    found = views.job_detail(
        row,
        spec=known.spec,
        after=after,
        attempts=attempts,
        outputs=outputs,
        corrected=corrected,
        checkpoint=checkpoint,
        principal=principal,
    ).model_copy(update={"parent_id": None if place is None else place.parent_id, "children": children})
    return feasibility.noted(hub, [found])[0]


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
    deadline_ms = hub.now_ms() + wait_ms
    while True:
        with hub.signals.watch(f"job:{job_id}") as watch:
            row = owned(
                principal, await hub.store.read(lambda connection: job_rows.get_job_full(connection, job_id))
            )
            if JobState(row.state) in TERMINAL:
                break
            left_ms = deadline_ms - hub.now_ms()
            if left_ms <= 0 or hub.stopping:
                raise Conflict(f"The job is not finished: it is {row.state}.")
            await watch.wait(left_ms / 1000)
    outputs = await hub.store.read(lambda connection: artifact_rows.outputs_of(connection, [job_id]))
    return views.job_result(row, seq=0, outputs=outputs)


async def page(
    hub: Hub, principal: Principal, *, wanted: JobFilter, everybody: bool, after: str | None, limit: int
) -> JobPage:
    """Newest first. Others' jobs are for administrators, and only where they want them."""
    whose = None if principal.is_admin and everybody else principal.account_id
    if whose is not None and wanted.account_id not in (None, whose):
        return JobPage(jobs=[])
    own = replace(wanted, account_id=whose or wanted.account_id)
    rows: list[JobRow] = []
    at, looked = after, 0
    while len(rows) < limit and looked < _LOOKED_AT_MAX:
        found, at = await _older(hub, own, before=at, limit=limit - len(rows))
        rows += found
        looked += _WINDOW
        if at is None:
            break
    known = await hub.store.read(lambda connection: _names(connection, rows, principal))
    jobs = [
        views.job_view(row, node_name=known.get(row.node_id or ""), principal=principal).model_copy(
            update={"account_name": known.get(row.account_id)}
        )
        for row in rows
    ]
    return JobPage(
        jobs=feasibility.noted(hub, jobs), next=at, searched_to_ms=None if at is None else time_of(at)
    )


async def _older(
    hub: Hub, wanted: JobFilter, *, before: str | None, limit: int
) -> tuple[Sequence[JobRow], str | None]:
    async with hub.searches if job_rows.is_search(wanted) else nullcontext():
        return await hub.store.read(
            lambda connection: job_rows.list_jobs(
                connection, wanted, before=before, limit=limit, window=_WINDOW
            )
        )


def _names(connection: Connection, rows: Sequence[JobRow], principal: Principal) -> dict[str, str]:
    return name_rows.of(
        connection,
        accounts={row.account_id for row in rows} if principal.is_admin else (),
        nodes={row.node_id for row in rows if row.node_id},
        whose=access.scope(principal),
    )
