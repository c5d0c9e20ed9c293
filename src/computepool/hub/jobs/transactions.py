"""Transactions that change jobs: what they may know, what they record, and what the hub's memory follows after the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Protocol, TypeVar

from computepool.core.errors import NotFound
from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason
from computepool.core.money.run_times import Timed
from computepool.core.trust.ties import Program
from computepool.hub.artifacts import storage_quota
from computepool.hub.artifacts.storage_quota import StorageChanges
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows, rows as job_rows
from computepool.hub.jobs.attempt_rows import OwnedAttempt, job_id_of
from computepool.hub.jobs.rows import JobRow
from computepool.hub.snapshot import Snapshot, Unanswered, take
from computepool.protocol.jobs.jobs import JobSpec

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class MemoryChanges:
    """What a transaction changed, for the hub's memory to follow after the commit (settlement/after_commit.py)."""

    requeued: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    stopped: list[tuple[str, str]] = field(default_factory=list)  #: (node, attempt) pairs that the node must stop
    reported: list[tuple[str, str]] = field(default_factory=list)  #: (node, attempt) pairs that the node reported
    cool_offs: dict[str, int] = field(default_factory=dict)  #: by node, until when it gets no work (ms)
    varying: set[Program] = field(default_factory=set)  #: programs whose results differ from run to run
    ties: list[tuple[Program, Sequence[str]]] = field(default_factory=list)  #: owners who disagreed; none: they agreed
    timed: list[tuple[str, Timed]] = field(default_factory=list)  #: run times on which owners agreed, by program
    storage: StorageChanges = field(default_factory=StorageChanges)


@dataclass(slots=True)
class JobTx(Tx):
    """A transaction with a snapshot of the hub's memory before it, and the settlement for that memory after it."""

    snapshot: Snapshot = field(kw_only=True)
    memory: MemoryChanges = field(default_factory=MemoryChanges, kw_only=True)
    #: Standard output that arrived with the reports and is not stored yet, by attempt.
    unsaved_output: dict[str, str] = field(default_factory=dict, kw_only=True)
    # What is left to do in this transaction (settlement/follow_ups.py).
    ended_hub_jobs: list[str] = field(default_factory=list, kw_only=True)
    penalised: list[str] = field(default_factory=list, kw_only=True)  #: nodes whose result was proven wrong
    #: Jobs that ran, so may have submitted others, and did not succeed.
    ended_parents: list[str] = field(default_factory=list, kw_only=True)
    #: Members of gangs that were queued again, or ended without success: this concerns the other members.
    broken_gangs: list[str] = field(default_factory=list, kw_only=True)

    @classmethod
    def of(cls, tx: Tx, snapshot: Snapshot) -> JobTx:
        """It shares with `tx` everything that is noted for the commit."""
        return cls(**{each.name: getattr(tx, each.name) for each in fields(tx)}, snapshot=snapshot)

    def spec(self, digest: str) -> JobSpec:
        known = self.snapshot.specs.peek(digest)
        if known is not None:
            return known.spec
        return JobSpec.model_validate_json(job_rows.get_specs(self.connection, [digest])[digest])


async def write(hub: Hub, unit: Callable[[JobTx], T], snapshot: Snapshot | None = None) -> T:
    """Run the unit durably; once more with the answer whenever it asks something that the snapshot does not know."""
    snapshot = snapshot or take(hub)
    while True:
        try:
            return await hub.store.write(partial(_run, unit, snapshot))
        except Unanswered as missing:
            snapshot = snapshot.with_answers(hub, [missing.question])


def _run(unit: Callable[[JobTx], T], snapshot: Snapshot, tx: Tx) -> T:
    return unit(JobTx.of(tx, snapshot))


async def write_stored(hub: Hub, unit: Callable[[JobTx], T], snapshot: Snapshot) -> T:
    """`write`, for a unit of which memory follows only the storage that it used."""
    reply, changes = await write(hub, lambda tx: (unit(tx), tx.memory.storage), snapshot)
    storage_quota.apply(hub, changes)
    return reply


def lock_attempt(tx: Tx, node: NodePrincipal, attempt_id: str) -> tuple[JobRow, OwnedAttempt]:
    """An attempt of this node, with its job; it may have ended. Raises NotFound."""
    job_id = job_id_of(attempt_id)
    # Jobs before attempts, as everywhere.
    job = job_rows.lock_jobs(tx, [job_id]).get(job_id)
    attempt = attempt_rows.lock_attempts(tx, [attempt_id]).get(attempt_id)
    if job is None or attempt is None or attempt.node_id != node.node_id:
        raise NotFound("This node holds no such attempt.")
    return job, attempt


def job_event(
    tx: Tx,
    job: JobRow,
    after: JobState,
    *,
    actor: str,
    reason: Reason,
    attempt: str | None = None,
    node: str | None = None,
    before: JobState | None = None,
) -> None:
    """Record a transition, and wake whoever watches the job or its group."""
    final = after in TERMINAL
    tx.emit(
        actor=actor,
        action=f"job.{after.value}",
        final=final,
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=attempt,
        node_id=node or job.node_id,
        group_id=job.group_id,
        before=job.state if before is None else before.value,
        after=after.value,
        reason=reason.value,
    )
    tx.touch(f"job:{job.id}")
    if final and job.group_id is not None:
        tx.touch(f"group:{job.group_id}")
        if job.watched:
            tx.changed_groups.add(job.group_id)  # collector.py checks whether the group is complete


class _Attempt(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def node_id(self) -> str: ...


def attempt_event(tx: Tx, job: JobRow, attempt: _Attempt, *, action: str, actor: str = "hub", **details: Any) -> None:
    """Record something about an attempt that is no transition of its job."""
    tx.emit(
        actor=actor,
        action=action,
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=attempt.id,
        node_id=attempt.node_id,
        **details,
    )
