"""Jobs and groups that a running job submits, through the node that runs it.

The node acts for an attempt while it holds that attempt, and needs no key of the submitter's. So a lying node can do no more in
the submitter's name than the job itself could: submit a limited number of jobs, at a limited total cost, and read those. Both
limits apply to the whole tree of jobs. They were set with the job that a person submitted (the *root*), and are checked in
the transaction that submits, with the root's row locked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from computepool.core.errors import BadRequest, Conflict, Forbidden, InsufficientCredits, NotFound
from computepool.core.isolation import Level
from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, TERMINAL, AttemptState, JobState
from computepool.core.money.money import format_credits
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import NodePrincipal, Principal, Role
from computepool.hub.identity.idempotency import Remembered
from computepool.hub.jobs import attempt_rows, rows as job_rows
from computepool.hub.jobs.attempt_rows import job_id_of
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import child_rows
from computepool.hub.settings import Settings
from computepool.protocol.jobs.children import ChildrenRequest
from computepool.protocol.jobs.jobs import JobSpec, SubmitRequest

_UNDECLARED = "This job must not submit jobs: it was submitted without children=N (--children N)."


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A running job, in whose name its node asks for something."""

    job: JobRow
    attempt_id: str
    node_id: str
    spec: JobSpec
    root_id: str
    root_spec: JobSpec
    depth: int
    budget: int  #: of the whole tree
    on_own_node: bool  #: of its submitter, who can trust that node
    principal: Principal  #: its submitter, with the role to submit alone
    detaches: bool = False  #: what it submits continues when it ends

    def remembered_call(self, route: str, seq: int, body: bytes) -> Remembered:
        """The same for all attempts of the job: when a later attempt repeats the call, nothing is submitted again."""
        digest = hashlib.sha256(body).hexdigest()
        key = f"{self.job.id}:{seq}:{digest[:32]}"
        account = self.principal.account_id
        return Remembered(account_id=account, route=f"attempts/{route}", key=key, request_hash=digest)


async def parent_of(hub: Hub, node: NodePrincipal, attempt_id: str) -> Parent:
    """Raises NotFound if this node does not hold the attempt, Forbidden if the job did not declare that it submits jobs."""
    parent = await hub.store.read(lambda connection: _load(connection, node, attempt_id))
    if not parent.spec.children:
        raise Forbidden(_UNDECLARED)
    return parent


def _load(connection: Connection, node: NodePrincipal, attempt_id: str) -> Parent:
    job = held_job(connection, node, attempt_id)
    place = child_rows.get(connection, job.id)
    root = job if place is None else job_rows.get_job(connection, place.root_id)
    assert root is not None
    bodies = job_rows.get_specs(connection, {job.spec_digest, root.spec_digest})
    account = account_rows.get_account(connection, job.account_id)
    assert account is not None
    roles = frozenset(account.roles.split(",")) & {Role.SUBMITTER.value, Role.ADMIN.value}
    if not roles:
        raise Forbidden("The job's account may no longer submit jobs.")
    root_spec = JobSpec.model_validate_json(bodies[root.spec_digest])
    return Parent(
        job=job,
        attempt_id=attempt_id,
        node_id=node.node_id,
        spec=JobSpec.model_validate_json(bodies[job.spec_digest]),
        root_id=root.id,
        root_spec=root_spec,
        depth=0 if place is None else place.depth,
        budget=root.hold * root_spec.children if root_spec.children_budget is None else root_spec.children_budget,
        on_own_node=node.owner == job.account_id,
        # Never as an administrator, who could see the jobs of others.
        principal=Principal(account_id=account.id, name=account.name, roles=frozenset({Role.SUBMITTER.value})),
    )


def held_job(connection: Connection, node: NodePrincipal, attempt_id: str) -> JobRow:
    """The job of an attempt that runs on this node."""
    job_id = job_id_of(attempt_id)
    found = [row for row in attempt_rows.get_attempts(connection, job_id) if row.id == attempt_id]
    job = job_rows.get_job(connection, job_id)
    if not found or job is None or found[0].node_id != node.node_id:
        raise NotFound("This node holds no such attempt.")
    if AttemptState(found[0].state) not in LIVE_ATTEMPT or JobState(job.state) in TERMINAL:
        raise Conflict("This attempt has ended.")
    return job


# what it may submit


def narrow(parent: Parent, requested: ChildrenRequest) -> SubmitRequest:
    """The request, limited to what the parent itself may do: its node may have invented the request."""
    request, spec, own = requested.request, requested.request.spec, parent.spec
    if not set(spec.net) <= set(own.net):
        raise Forbidden("A job may list only hosts that it may reach itself.", field="spec.net")
    if spec.allow_pickle and not own.allow_pickle:
        raise Forbidden("Only a job with allow_pickle may submit one.", field="spec.allow_pickle")
    if spec.seal_to not in (None, own.seal_to):
        raise Forbidden("A job may seal results only to its own key.", field="spec.seal_to")
    if not _artifacts(request) <= _artifacts_of(own) | {parent.job.payload_artifact}:
        raise Forbidden(
            "A job may pass on only its own inputs; send data below 256 KiB as arguments.", field="spec.inputs"
        )
    if any(item.replaces is not None for item in request.items):
        raise BadRequest("A running job cannot replace items.", field="items")
    in_own_group = request.group_id is not None and request.group_id == parent.job.group_id
    if in_own_group and any(item.key is not None for item in request.items):
        raise Forbidden("A job cannot give other jobs keys of its own group.", field="items")
    terms = _share(parent, request) if request.budget is None else {}
    priority = min(request.priority, parent.job.priority)
    return request.model_copy(update={"spec": _require_sandbox(parent, spec), "priority": priority, **terms})


def _require_sandbox(parent: Parent, spec: JobSpec) -> JobSpec:
    """A foreign node may have invented the request, and the submitter's own nodes would run it without a sandbox."""
    needs = spec.needs
    requested = Level.PROCESS if needs.isolation is None else Level.parse(needs.isolation)
    if parent.on_own_node or requested >= Level.NAMESPACE:
        return spec
    return spec.model_copy(update={"needs": needs.model_copy(update={"isolation": Level.NAMESPACE.label})})


def _share(parent: Parent, request: SubmitRequest) -> dict[str, int]:
    """An equal part of the tree's budget for each job, so that as many as declared can be submitted."""
    share = parent.budget * len(request.items) // max(1, parent.root_spec.children)
    return {"budget": share} if share >= len(request.items) else {"max_price": 0}


def _artifacts_of(spec: JobSpec) -> set[str | None]:
    return {spec.function_artifact, *(file.digest for file in spec.inputs)}


def _artifacts(request: SubmitRequest) -> set[str | None]:
    compare = request.compare_function
    named = {None if compare is None else compare.function_artifact}
    return (_artifacts_of(request.spec) | named | {item.payload_artifact for item in request.items}) - {None}


def admit(tx: Tx, parent: Parent, request: SubmitRequest, *, job_ids: list[str], hold: int, settings: Settings) -> None:
    """Record the jobs as the parent's children, in the transaction that submits them. `hold`: of all of them together."""
    _lock(tx, parent)
    root_id, budget = parent.root_id, parent.budget
    if parent.depth >= settings.children_depth_max:
        raise Forbidden(f"Jobs may submit jobs {settings.children_depth_max} levels deep at most.")
    count, cost = child_rows.tree_usage(tx.connection, root_id)
    most = min(parent.root_spec.children, settings.children_max)
    if count + len(job_ids) > most:
        raise Conflict(f"This job may submit {most} jobs in all (children=); {count} have been submitted.")
    if hold and cost + hold > budget:
        raise InsufficientCredits(
            f"The jobs that this one submits may cost {format_credits(budget)} credits together (children_budget=);"
            f" {format_credits(max(0, budget - cost))} are left, and {format_credits(hold)} would be put on hold."
            " Give them a smaller budget.",
            field="budget",
        )
    before = sorted({*request.after, *(job_id for item in request.items for job_id in item.uses)})
    outside = set(before) - child_rows.of_root(tx.connection, root_id, before)
    group_id = request.group_id
    is_own_group = group_id is None or group_id == parent.job.group_id
    if outside or not (is_own_group or child_rows.root_of_group(tx.connection, group_id or "") == root_id):
        raise NotFound("A job may name only jobs and groups that it created itself.")
    child_rows.insert_jobs(
        tx, job_ids, parent_id=parent.job.id, root_id=root_id, depth=parent.depth + 1, detached=parent.detaches
    )


def _lock(tx: Tx, parent: Parent) -> None:
    """Raises Conflict if the attempt has ended since it was read."""
    job_rows.lock_jobs(tx, {parent.root_id, parent.job.id})
    attempt = attempt_rows.lock_attempts(tx, [parent.attempt_id]).get(parent.attempt_id)
    if attempt is None or AttemptState(attempt.state) not in LIVE_ATTEMPT:
        raise Conflict("This attempt has ended.")


def admit_group(tx: Tx, parent: Parent, *, group_id: str, settings: Settings) -> None:
    _lock(tx, parent)
    most = min(parent.root_spec.children, settings.children_max)
    if child_rows.count_groups(tx.connection, parent.root_id) >= most:
        raise Conflict(f"This job may create {most} groups in all (children=).")
    child_rows.insert_group(tx, group_id, root_id=parent.root_id)


# what it may read


async def check_jobs(hub: Hub, parent: Parent, job_ids: Collection[str]) -> None:
    ordered = sorted(job_ids)
    found = await hub.store.read(lambda connection: child_rows.of_root(connection, parent.root_id, ordered))
    if found != set(ordered):
        raise NotFound("This job submitted no such job.")


async def check_group(hub: Hub, parent: Parent, group_id: str) -> None:
    root = await hub.store.read(lambda connection: child_rows.root_of_group(connection, group_id))
    if root != parent.root_id:
        raise NotFound("This job created no such group.")
