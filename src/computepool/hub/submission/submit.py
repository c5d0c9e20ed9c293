"""Submitting jobs: checked, priced, and written in one transaction with what is set aside for them; then they are queued."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

from computepool.core.errors import BadRequest, ComputePoolError, Conflict
from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason
from computepool.core.money.terms import Terms
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts import storage_quota
from computepool.hub.artifacts.inline_rows import size_of
from computepool.hub.clock import new_ids
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.groups import collector
from computepool.hub.identity import idempotency
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, once
from computepool.hub.jobs import dependency_rows, quotas
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import children
from computepool.hub.jobs.running.children import Parent
from computepool.hub.money import holds
from computepool.hub.nodes import mesh_version
from computepool.hub.scheduling import feasibility
from computepool.hub.snapshot import Snapshot, take
from computepool.hub.submission import quotes, verification
from computepool.hub.submission.verification import RequestedComparison
from computepool.protocol.jobs.children import ChildrenRequest
from computepool.protocol.jobs.jobs import LINKS_MAX, SubmitReply, SubmitRequest, spec_digest
from computepool.protocol.jobs.packed import is_packed


async def submit(
    hub: Hub,
    principal: Principal,
    request: SubmitRequest,
    *,
    remembered: Remembered,
    parent: Parent | None = None,
) -> SubmitReply:
    """One spec, one job per item; all of them or none. `parent`: the running job that submits them."""
    try:
        request = await mesh_version.of_this(hub, principal.account_id, request)
        submission, warning = await _prepare(hub, principal, request, parent=parent)
        reply, fresh = await _write(hub, submission, remembered)
    except ComputePoolError:
        # Since the same request was answered its host may be gone, or all nodes that could run it.
        if (known := await idempotency.find(hub, remembered, model=SubmitReply)) is not None:
            return known
        raise
    if fresh:  # else the jobs may be anywhere by now, and must not be put into the queue again
        await _enqueue(hub, submission)
    return reply.model_copy(update={"warning": warning}) if warning else reply


async def submit_children(
    hub: Hub, parent: Parent, requested: ChildrenRequest, *, remembered: Remembered
) -> SubmitReply:
    """Jobs that a running job submits: within its limits, and in its submitter's name."""
    request = children.narrow(parent, requested)
    parent = replace(parent, detaches=requested.detached)
    return await submit(hub, parent.principal, request, remembered=remembered, parent=parent)


async def _prepare(
    hub: Hub, principal: Principal, request: SubmitRequest, *, parent: Parent | None
) -> tuple[_Submission, str]:
    """What is to be written, and a warning where no connected node could run it."""
    if request.spec.children > hub.settings.children_max:
        raise BadRequest(f"A job may submit {hub.settings.children_max} jobs at most.", field="spec.children")
    if len({item.key for item in request.items if item.key}) != sum(1 for item in request.items if item.key):
        raise BadRequest("Two items have the same key.", field="items")
    _check_links(request)
    account, body = principal.account_id, request.spec.body()
    known = hub.jobs.specs.add(spec_digest(body), body, request.spec)
    job_ids = new_ids(hub.clock, "job", len(request.items))
    policy = verification.policy_of(request, hub.settings)
    compare = verification.comparison_of(request, policy, hub.settings)
    terms = await quotes.terms(
        hub,
        known.requirements,
        account,
        timeout_s=request.spec.timeout_s,
        items=len(request.items),
        max_price=request.max_price,
        budget=request.budget,
        policy=policy,
    )
    refuse = request.impossible == "refuse"
    warning = await feasibility.warning(hub, known.requirements, account, refuse=refuse)
    submission = _Submission(
        take(hub, [account]),
        principal,
        request,
        digest=known.digest,
        body=body,
        job_ids=job_ids,
        terms=terms,
        compare=compare,
        parent=parent,
    )
    return submission, warning


def _check_links(request: SubmitRequest) -> None:
    """A list of a thousand for each of a thousand jobs is a short request, and a million rows."""
    links = len(request.items) * (len(request.spec.inputs) + len(request.after))
    if links > LINKS_MAX:
        raise BadRequest(
            f"The jobs of a submission may have {LINKS_MAX} input files and jobs to wait for together; these have {links}. "
            "Send many files as one archive; to wait for many jobs, wait for one job that comes after them.",
            field="items",
        )


async def _write(hub: Hub, submission: _Submission, remembered: Remembered) -> tuple[SubmitReply, bool]:
    """The second value is false when it was answered before."""
    account, size = submission.principal.account_id, submission.size
    await storage_quota.reserve_submission(hub, account, size=size)
    fresh = False
    try:
        reply, fresh = await _write_within_quotas(hub, submission, remembered)
    finally:
        storage_quota.end_submission(hub, account, size=size, is_kept=fresh)
    return reply, fresh


async def _write_within_quotas(
    hub: Hub, submission: _Submission, remembered: Remembered
) -> tuple[SubmitReply, bool]:
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


async def _enqueue(hub: Hub, submission: _Submission) -> None:
    request = submission.request
    if request.after:
        await hub.jobs.queue.load()
        return
    hub.jobs.queue.submitted(
        submission.job_ids,
        spec_digest=submission.digest,
        account_id=submission.principal.account_id,
        priority=request.priority,
        ceiling=submission.terms.ceiling,
    )


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
        parent: Parent | None,
    ) -> None:
        self.snapshot, self.principal, self.request = snapshot, principal, request
        self.digest, self.body, self.job_ids, self.terms = digest, body, job_ids, terms
        self.compare, self.parent = compare, parent
        #: Bytes that the database keeps of it, at most: a program that is known already costs nothing more.
        self.size = size_of(body) + sum(size_of(item.payload) for item in request.items)
        if compare.spec is not None:
            self.size += size_of(compare.spec.body())

    def insert(self, tx: Tx) -> SubmitReply:
        request, account = self.request, self.principal.account_id
        # Jobs before groups, as everywhere (hub/db/session.py).
        if self.parent is not None:
            hold, settings = self.terms.hold_total, self.snapshot.settings
            children.admit(tx, self.parent, request, job_ids=self.job_ids, hold=hold, settings=settings)
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
        required = set(self.request.after)
        rows = job_rows.lock_jobs(tx, required) if required else {}
        for job_id in sorted(required):
            row = rows.get(job_id)
            if row is None or row.hub_job or not self._may_follow(row):
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
