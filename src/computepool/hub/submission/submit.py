"""Submits jobs: checks and prices them, writes them in one transaction with their holds, and queues them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from computepool.core.errors import BadRequest, ComputePoolError
from computepool.core.jobs.lifecycle import JobState, Reason, When
from computepool.core.money.terms import Terms
from computepool.hub.artifacts import rows as artifact_rows, storage_quota
from computepool.hub.artifacts.inline_rows import size_of
from computepool.hub.clock import new_ids
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.groups import collector
from computepool.hub.identity import idempotency
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, once
from computepool.hub.jobs import dependency_rows, quotas, rows as job_rows
from computepool.hub.jobs.comparison import Comparison
from computepool.hub.jobs.queue import NewJobs
from computepool.hub.jobs.running import children
from computepool.hub.jobs.running.children import Parent
from computepool.hub.money import holds
from computepool.hub.nodes import hosts
from computepool.hub.scheduling import explanations
from computepool.hub.scheduling.dispatch import Dispatcher
from computepool.hub.secrets import job_secrets
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot, take
from computepool.hub.submission import images, predecessors, quotes, verification
from computepool.hub.volumes import publication
from computepool.protocol.jobs.children import ChildrenRequest
from computepool.protocol.jobs.jobs import LINKS_MAX, JobSpec, SubmitReply, SubmitRequest, spec_digest


async def submit(
    hub: Hub, principal: Principal, request: SubmitRequest, *, remembered: Remembered, parent: Parent | None = None
) -> SubmitReply:
    """One spec, one job per item; all of them or none. `parent`: the running job that submits them."""
    try:
        needs = await hosts.resolve(hub, principal.account_id, request.spec.needs, at="spec.needs")
        if needs is not request.spec.needs:
            request = request.model_copy(update={"spec": request.spec.model_copy(update={"needs": needs})})
        if request.spec.has_secrets:
            spec = await job_secrets.resolve(hub, principal.account_id, request.spec, is_child=parent is not None)
            request = request.model_copy(update={"spec": spec})
        if (spec := await images.resolve(hub, request.spec)) is not request.spec:
            request = request.model_copy(update={"spec": spec})
        submission, warning = await _prepare(hub, principal, request, parent=parent)
        # The client may disconnect, but what is committed must be counted and reach a node.
        writing = asyncio.ensure_future(_write(hub, submission, remembered))
        writing.add_done_callback(_retrieve)
        reply = await asyncio.shield(writing)
    except ComputePoolError:
        # If the same request was answered before, its host or all nodes that could run it may have gone since.
        if (known := await idempotency.find(hub, remembered, model=SubmitReply)) is not None:
            return known
        raise
    return reply.model_copy(update={"warning": warning}) if warning else reply


def _retrieve(writing: asyncio.Future[SubmitReply]) -> None:
    """So that the event loop does not report an error for which nobody waits any more."""
    if not writing.cancelled():
        writing.exception()


async def submit_children(
    hub: Hub, parent: Parent, requested: ChildrenRequest, *, remembered: Remembered
) -> SubmitReply:
    """Submit jobs for a running job, within its limits and in its submitter's name."""
    if requested.request.spec.volumes:
        raise BadRequest("A job that another job submits cannot mount volumes.", field="spec.volumes")
    request = children.narrow(parent, requested)
    parent = replace(parent, detaches=requested.detached)
    return await submit(hub, parent.principal, request, remembered=remembered, parent=parent)


async def _prepare(
    hub: Hub, principal: Principal, request: SubmitRequest, *, parent: Parent | None
) -> tuple[_Submission, str]:
    """What is to be written, and a warning if no connected node could run it."""
    if request.spec.nodes > 1:
        request = _expand(request, hub.settings)
    if request.spec.children > hub.settings.children_max:
        raise BadRequest(f"A job may submit {hub.settings.children_max} jobs at most.", field="spec.children")
    if len({item.key for item in request.items if item.key}) != sum(1 for item in request.items if item.key):
        raise BadRequest("Two items have the same key.", field="items")
    _check_links(request)
    account, body = principal.account_id, request.spec.body()
    known = hub.jobs.specs.add(spec_digest(body), body, request.spec)
    job_ids = new_ids(hub.clock, "job", len(request.items))
    policy = verification.policy_of(request, hub.settings)
    comparison, compare_spec = verification.comparison_of(request, policy, hub.settings)
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
    warning = await explanations.warning(hub, known.requirements, account, refuse=refuse)
    warning = warning or quotes.quorum_warning(hub, known.requirements, account=account, agreed=terms)
    submission = _Submission(
        snapshot=take(hub, [account]),
        principal=principal,
        request=request,
        digest=known.digest,
        body=body,
        job_ids=job_ids,
        terms=terms,
        comparison=comparison,
        compare_spec=compare_spec,
        parent=parent,
    )
    return submission, warning


def _expand(request: SubmitRequest, settings: Settings) -> SubmitRequest:
    """A gang is one item for each of its members; the first, rank 0, has the key."""
    nodes = request.spec.nodes
    if nodes > settings.gang_nodes_max:
        raise BadRequest(f"A job may run on {settings.gang_nodes_max} nodes at most.", field="spec.nodes")
    if len(request.items) > 1:
        raise BadRequest("A job on several nodes is submitted alone, as one item.", field="items")
    [first] = request.items
    if first.replaces is not None or first.bundled > 1:
        raise BadRequest("A job on several nodes is one item.", field="items")
    others = [first.model_copy(update={"key": None})] * (nodes - 1)
    return request.model_copy(update={"items": [first, *others]})


def _check_links(request: SubmitRequest) -> None:
    """A short request can name a thousand files for each of a thousand jobs, which makes a million rows."""
    links = len(request.items) * (len(request.spec.inputs) + len(request.after))
    links += sum(len(item.uses) for item in request.items)
    if links > LINKS_MAX:
        raise BadRequest(
            f"All jobs of a submission together may name {LINKS_MAX} input files and jobs to wait for; these name {links}. "
            "Send many files as one archive; to wait for many jobs, wait for one job that depends on them.",
            field="items",
        )


class _Written(NamedTuple):
    reply: SubmitReply
    is_fresh: bool  #: otherwise the request was answered before, and its jobs must not be queued again
    is_queued: bool  #: or leased already


async def _write(hub: Hub, submission: _Submission, remembered: Remembered) -> SubmitReply:
    """Within the account's quotas, which count the submission from now on, or no longer if nothing is written."""
    account, size = submission.principal.account_id, submission.size
    jobs, cost = len(submission.job_ids), submission.terms.hold_total
    await storage_quota.reserve_submission(hub, account, size=size)
    reserved = fresh = False
    try:
        await quotas.reserve(hub, account, jobs=jobs, cost=cost)
        reserved = True
        written = await _insert(hub, submission, remembered)
        fresh = written.is_fresh
    finally:
        storage_quota.end_submission(hub, account, size=size, is_kept=fresh)
        if reserved:
            quotas.end_submission(hub, account, jobs=jobs, cost=cost, is_kept=fresh)
    if fresh and not written.is_queued:
        if submission.comes_after:
            await hub.jobs.queue.load()
        else:
            hub.jobs.queue.add_submitted(submission.new_jobs)
            hub.jobs.queue.wake()
    return written.reply


async def _insert(hub: Hub, submission: _Submission, remembered: Remembered) -> _Written:
    def unit(tx: Tx) -> tuple[SubmitReply, bool]:
        reply = once(tx, remembered, lambda: submission.insert(tx), model=SubmitReply)
        return reply, reply.job_ids == submission.job_ids

    if not submission.comes_after and (placed := await Dispatcher(hub).submit(submission.new_jobs, unit)):
        return _Written(*placed, is_queued=True)
    return _Written(*await hub.store.write(unit), is_queued=False)


@dataclass(kw_only=True)
class _Submission:
    """The rows of one submission. `insert` may run more than once (see hub/db/session.py)."""

    snapshot: Snapshot
    principal: Principal
    request: SubmitRequest
    digest: str
    body: str
    job_ids: list[str]
    terms: Terms
    comparison: Comparison
    compare_spec: JobSpec | None
    parent: Parent | None

    @cached_property
    def size(self) -> int:
        """Bytes that the database stores for it, at most: a spec that it has already takes no more space."""
        spec = self.compare_spec
        sizes = [size_of(self.body), 0 if spec is None else size_of(spec.body())]
        return sum(sizes) + sum(size_of(item.payload) for item in self.request.items)

    @property
    def comes_after(self) -> bool:
        return bool(self.request.after) or self.request.spec.takes_results

    @property
    def new_jobs(self) -> NewJobs:
        return NewJobs(
            job_ids=self.job_ids,
            spec_digest=self.digest,
            account_id=self.principal.account_id,
            priority=self.request.priority,
            ceiling=self.terms.ceiling,
            is_gang=self.request.spec.nodes > 1,
        )

    def insert(self, tx: Tx) -> SubmitReply:
        request, account = self.request, self.principal.account_id
        # Jobs before groups, as everywhere (hub/db/session.py).
        if self.parent is not None:
            hold, settings = self.terms.hold_total, self.snapshot.settings
            children.admit(tx, self.parent, request, job_ids=self.job_ids, hold=hold, settings=settings)
        before = predecessors.check(tx, self.principal, request, snapshot=self.snapshot)
        watched = self._join_group(tx)
        self._check_artifacts(tx)
        publication.mount(tx, account, request.spec, job_ids=self.job_ids)
        earned = holds.place(tx, account, self.job_ids, each=self.terms.hold_each)
        job_rows.insert_spec(tx, digest=self.digest, body=self.body, account_id=account)
        if (spec := self.compare_spec) is not None:
            job_rows.insert_spec(tx, digest=spec_digest(spec.body()), body=spec.body(), account_id=account)
        job_rows.insert_jobs(tx, self._rows(tx, pending=before.pending, earned=earned, watched=watched))
        storage_quota.check_submission(tx, account, size=self.size, snapshot=self.snapshot)
        self._take_items(tx)
        dependency_rows.insert(tx, before.rows(self.job_ids))
        for job_id, pending in zip(self.job_ids, before.pending, strict=True):
            tx.emit(
                actor=account,
                action="job.queued",
                account_id=account,
                job_id=job_id,
                group_id=request.group_id,
                after=JobState.QUEUED.value,
                reason=(Reason.WAITING_FOR_JOBS if pending else Reason.SUBMITTED).value,
            )
        tx.touch("queue")
        return SubmitReply(
            job_ids=self.job_ids,
            group_id=request.group_id,
            hold=self.terms.hold_total,
            max_price=self.terms.ceiling,
            verify=str(self.terms.policy),
            own_node=self.terms.own_node,
        )

    def _rows(self, tx: Tx, *, pending: list[int], earned: list[int], watched: bool) -> list[dict[str, Any]]:
        request = self.request
        shared = {
            **job_rows.new_row(tx, Reason.WAITING_FOR_NODE),
            "account_id": self.principal.account_id,
            "group_id": request.group_id,
            "item_count": len(request.items),
            "name": request.spec.name,
            "kind": request.spec.kind.value,
            "spec_digest": self.digest,
            "priority": request.priority,
            "retries": request.retries,
            "run_when": None if request.when is When.SUCCESS else request.when.value,
            "expires_at_ms": tx.now_ms + round(request.ttl_s * 1000),
            "ceiling": self.terms.ceiling,
            "hold": self.terms.hold_each,
            "longest_ms": math.ceil(request.spec.timeout_s * 1000),
            "verify": str(self.terms.policy),
            "runs": self.terms.policy.runs,
            "compare": self.comparison.row(),
            "watched": watched,
            "gang": self.job_ids[0] if request.spec.nodes > 1 else None,
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
                "carried": item.bundled if item.is_bundle else 1,
                "hold_earned": earned[index],
                "deps_pending": pending[index],
                **({"reason": Reason.WAITING_FOR_JOBS.value} if pending[index] else {}),
            }
            for index, (job_id, item) in enumerate(zip(self.job_ids, request.items, strict=True))
        ]

    def _take_items(self, tx: Tx) -> None:
        taken: Counter[str] = Counter()
        for item in self.request.items:
            if item.replaces is not None:
                taken[item.replaces] += item.bundled
        if self.request.group_id is not None:
            job_rows.take_items(tx, self.request.group_id, taken)

    def _join_group(self, tx: Tx) -> bool:
        """Whether the group is watched."""
        if self.request.group_id is None:
            return False
        keys = [item.key for item in self.request.items if item.key is not None]
        return collector.join(tx, self.request.group_id, keys=keys, account_id=self.principal.account_id)

    def _check_artifacts(self, tx: Tx) -> None:
        """Refer to all artifacts that the jobs need, if the hub has them and the submitter may read them."""
        needed = [
            ("input", file.name, file.digest, job_id) for file in self.request.spec.inputs for job_id in self.job_ids
        ]
        if (image := self.request.spec.image_artifact) is not None:
            needed += [("image", "image", image, job_id) for job_id in self.job_ids]
        for name, spec in (("function", self.request.spec), ("compare", self.compare_spec)):
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
