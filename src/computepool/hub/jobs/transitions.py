"""Transitions that several use cases share, each inside the caller's transaction: finish a job, free what waited for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any

from computepool.core.jobs.lifecycle import (
    CONTESTED,
    NODE_FAULTS,
    TERMINAL,
    AfterFailure,
    AttemptState,
    FailureHistory,
    JobState,
    Reason,
    RetryLimits,
    after_failure,
)
from computepool.core.money.run_times import Timed
from computepool.core.trust.ties import Program
from computepool.hub.artifacts.storage_quota import StorageChanges
from computepool.hub.db.session import Tx
from computepool.hub.jobs import attempt_rows, dependency_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints, child_rows
from computepool.hub.money import holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a transaction came to, for the hub's memory to follow after the commit (settlement/after_commit.py)."""

    requeued: Sequence[str] = ()
    finished: Sequence[str] = ()
    ended: Sequence[tuple[str, str]] = ()  #: (node, attempt) that must stop
    over: Sequence[tuple[str, str]] = ()  #: (node, attempt) that its node reported
    resting: Mapping[str, int] = field(default_factory=dict)  #: nodes that cool off, with until when (ms)
    varying: Set[Program] = frozenset()  #: programs whose results are never the same twice
    ties: Sequence[tuple[Program, Sequence[str]]] = ()  #: owners who disagreed; none: agreed
    timed: Sequence[tuple[str, Timed]] = ()  #: agreeing runs, by program
    storage: StorageChanges = field(default_factory=StorageChanges)


NOTHING = Settlement()


@dataclass(slots=True)
class Effects:
    """A settlement in the making, and what is left to do for it in the same transaction (follow_ups.py)."""

    requeued: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    over: list[tuple[str, str]] = field(default_factory=list)
    hub_jobs: list[str] = field(default_factory=list)  #: that are over
    penalised: list[str] = field(default_factory=list)  #: nodes whose result was proven wrong
    #: Jobs that ran, may have submitted others, and did not succeed.
    ended_parents: list[str] = field(default_factory=list)
    resting: dict[str, int] = field(default_factory=dict)
    varying: set[Program] = field(default_factory=set)
    ties: list[tuple[Program, Sequence[str]]] = field(default_factory=list)
    timed: list[tuple[str, Timed]] = field(default_factory=list)
    storage: StorageChanges = field(default_factory=StorageChanges)

    def settlement(self) -> Settlement:
        return Settlement(**{each.name: getattr(self, each.name) for each in fields(Settlement)})


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
    """Every transition is recorded, and whoever watches the job or its group is woken."""
    final = after not in (JobState.QUEUED, JobState.LEASED, JobState.RUNNING)
    tx.emit(
        actor=actor,
        action=f"job.{after.value}",
        final=final,
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=attempt,
        node_id=node or job.node_id,
        group_id=job.group_id,
        before=before or job.state,
        after=after.value,
        reason=reason.value,
    )
    tx.touch(f"job:{job.id}", "events")
    if final and job.group_id is not None:
        tx.touch(f"group:{job.group_id}")
        if job.watched:
            tx.closing.add(job.group_id)  # collector.py looks whether it is complete


def finish(
    tx: Tx, job: JobRow, state: JobState, *, actor: str, reason: Reason, effects: Effects, **changes: Any
) -> bool:
    """End a job that did not succeed; what depends on it ends too."""
    if not job_rows.finish(tx, job.id, state=state, reason=reason, **changes):
        return False
    job_event(tx, job, state, actor=actor, reason=reason)
    holds.release(tx, job)
    checkpoints.drop(tx, job)
    effects.finished.append(job.id)
    if job.hub_job is not None:
        effects.hub_jobs.append(job.id)
    _end_attempts(tx, job, effects)
    _end_comparison(tx, job, effects)
    fail_dependents(tx, [job.id], effects)
    if job.attempt_no:
        effects.ended_parents.append(job.id)
    return True


def end_children(tx: Tx, parent_ids: Sequence[str], effects: Effects) -> None:
    """What they submitted ends with them, unless it was to go on by itself."""
    found = child_rows.attached(tx.connection, parent_ids)
    for child in job_rows.lock_jobs(tx, found).values() if found else ():
        if JobState(child.state) not in TERMINAL:
            finish(tx, child, JobState.CANCELLED, actor="hub", reason=Reason.PARENT_ENDED, effects=effects)


def _end_comparison(tx: Tx, job: JobRow, effects: Effects) -> None:
    """Nobody needs the answer any more, and the submitter need not pay for it."""
    if job.comparing is None:
        return
    reason = Reason.CANCELLED_BY_USER
    for hub_job in job_rows.lock_jobs(tx, [job.comparing]).values():
        finish(tx, hub_job, JobState.CANCELLED, actor="hub", reason=reason, effects=effects)


def _end_attempts(tx: Tx, job: JobRow, effects: Effects) -> None:
    for attempt in attempt_rows.live_attempts_of_job(tx.connection, job.id):
        attempt_rows.end_attempt(
            tx, attempt.id, state=AttemptState.CANCELLED, reason=Reason.CANCELLED_BY_USER
        )
        effects.ended.append((attempt.node_id, attempt.id))
        tx.touch(f"node:{attempt.node_id}")


def fail_dependents(tx: Tx, job_ids: Sequence[str], effects: Effects) -> None:
    """A chain of any length, without recursion: a long one must not exhaust the stack."""
    pending = list(job_ids)
    while pending:
        waiting = {row.job_id for row in dependency_rows.dependents(tx.connection, pending)}
        if not waiting:
            return
        rows, reason = job_rows.lock_jobs(tx, waiting), Reason.DEPENDENCY_FAILED
        pending = job_rows.finish_all(tx, rows, state=JobState.CANCELLED, reason=reason)
        for job in map(rows.__getitem__, pending):
            job_event(tx, job, JobState.CANCELLED, actor="hub", reason=reason)
            holds.release(tx, job)
        effects.finished += pending


def release_dependents(tx: Tx, job_ids: Sequence[str], effects: Effects) -> None:
    """Thousands may wait for one job: none of them costs a statement of its own."""
    counts = Counter(row.job_id for row in dependency_rows.dependents(tx.connection, job_ids))
    if not counts:
        return
    job_rows.lock_jobs(tx, counts)
    alike: dict[int, list[str]] = {}  #: by how many of those that ended they come after
    for job_id, count in counts.items():
        alike.setdefault(count, []).append(job_id)
    for count, dependents in alike.items():
        released = dependency_rows.release(tx, dependents, count)
        free = sorted(job_id for job_id, pending in released.items() if not pending)
        effects.requeued += free
        if free:
            tx.touch("queue", *(f"job:{job_id}" for job_id in free))


@dataclass(frozen=True, slots=True)
class Failure:
    """What follows from an attempt that did not succeed."""

    decision: AfterFailure
    history: FailureHistory

    @property
    def gives_up(self) -> bool:
        return self.decision.state is JobState.FAILED


def judge_failure(tx: Tx, job: JobRow, *, reason: Reason, limits: RetryLimits, jitter: float) -> Failure:
    """The job's newest attempt did not succeed: try again, or give up."""
    node_fault = reason in NODE_FAULTS
    # The failed attempt's own row is already written, so its owner is among these.
    owners = attempt_rows.owners_failed(tx.connection, job.id, [fault.value for fault in NODE_FAULTS])
    contested = reason in CONTESTED and not job.results
    unable = attempt_rows.unable(tx.connection, job.id) if contested else ()
    history = FailureHistory(
        job_faults=job.job_faults + (not node_fault),
        node_faults=job.node_faults + node_fault,
        owners_failed=len(owners),
        owners_unable=len({attempt.owner_id for attempt in unable}),
    )
    return Failure(after_failure(reason, history, limits, jitter=jitter), history)


def apply_failure(
    tx: Tx,
    job: JobRow,
    failure: Failure,
    *,
    attempt_no: int,
    node_id: str,
    actor: str,
    effects: Effects,
    **details: Any,
) -> bool:
    """True: it was given up. `details`: error and exit_code of the attempt."""
    decision = failure.decision
    changes: dict[str, Any] = {
        "job_faults": failure.history.job_faults,
        "node_faults": failure.history.node_faults,
        "reason": decision.reason,
        "actor": actor,
        "effects": effects,
    }
    if failure.gives_up:
        return finish(tx, job, JobState.FAILED, **changes, **details)
    ready_at_ms, avoid = tx.now_ms + decision.delay_ms, node_id if decision.avoid_node else ""
    requeue(tx, job, attempt_no=attempt_no, ready_at_ms=ready_at_ms, avoid_node=avoid, **changes)
    return False


def requeue(
    tx: Tx, job: JobRow, *, attempt_no: int, reason: Reason, actor: str, effects: Effects, **changes: Any
) -> None:
    """The job waits again, unless it has moved on since this attempt."""
    if job_rows.requeue(tx, job.id, attempt_no=attempt_no, reason=reason.value, **changes):
        job_event(tx, job, JobState.QUEUED, actor=actor, reason=reason)
        effects.requeued.append(job.id)
        tx.touch("queue")
