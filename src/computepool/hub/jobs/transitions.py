"""Transitions that several use cases share, each inside the caller's transaction: end jobs, requeue them, free dependents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from computepool.core.jobs.lifecycle import TERMINAL, AttemptState, JobState, Reason
from computepool.hub.jobs import attempt_rows, dependency_rows, rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints, child_rows
from computepool.hub.jobs.transactions import JobTx, job_event
from computepool.hub.money import holds


def finish(tx: JobTx, job: JobRow, state: JobState, *, actor: str, reason: Reason, **changes: Any) -> bool:
    """End a job that did not succeed, and what depends on it. False: it had ended already."""
    if not job_rows.finish(tx, job.id, state=state, reason=reason, **changes):
        return False
    job_event(tx, job, state, actor=actor, reason=reason)
    holds.release(tx, job)
    checkpoints.drop(tx, job)
    tx.memory.finished.append(job.id)
    if job.gang is not None:
        tx.broken_gangs.append(job.id)
    if job.hub_job is not None:
        tx.ended_hub_jobs.append(job.id)
    for attempt in attempt_rows.live_attempts_of_job(tx.connection, job.id):
        attempt_rows.end_attempt(tx, attempt.id, state=AttemptState.CANCELLED, reason=Reason.CANCELLED_BY_USER)
        stop(tx, attempt.node_id, attempt.id)
    if job.comparing is not None:  # nobody needs that comparison any more, and the submitter need not pay for it
        cancel(tx, [job.comparing], actor="hub", reason=Reason.CANCELLED_BY_USER)
    fail_dependents(tx, [job.id])
    if job.attempt_no:
        tx.ended_parents.append(job.id)
    return True


def cancel(tx: JobTx, job_ids: Sequence[str], *, actor: str, reason: Reason) -> None:
    """End those of the jobs that are unfinished."""
    for job in job_rows.lock_jobs(tx, job_ids).values():
        if JobState(job.state) not in TERMINAL:
            finish(tx, job, JobState.CANCELLED, actor=actor, reason=reason)


def stop(tx: JobTx, node_id: str, attempt_id: str) -> None:
    """Have the node stop this attempt, which has ended without a report."""
    tx.memory.stopped.append((node_id, attempt_id))
    tx.touch(f"node:{node_id}")


def end_children(tx: JobTx, parent_ids: Sequence[str]) -> None:
    """End the jobs that these jobs submitted, except those that were detached."""
    if found := child_rows.attached_jobs(tx.connection, parent_ids):
        cancel(tx, found, actor="hub", reason=Reason.PARENT_ENDED)


def fail_dependents(tx: JobTx, job_ids: Sequence[str]) -> None:
    """Cancel whatever comes after these jobs, by a loop: recursion over a long chain would exhaust the stack."""
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
        tx.memory.finished += pending


def release_dependents(tx: JobTx, job_ids: Sequence[str]) -> None:
    """Free what waited for these jobs. The number of statements does not depend on how many jobs waited."""
    counts = Counter(row.job_id for row in dependency_rows.dependents(tx.connection, job_ids))
    if not counts:
        return
    job_rows.lock_jobs(tx, counts)
    by_count: dict[int, list[str]] = {}  #: dependents, by how many of these jobs each came after
    for job_id, count in counts.items():
        by_count.setdefault(count, []).append(job_id)
    for count, dependents in by_count.items():
        released = dependency_rows.release(tx, dependents, count)
        free = sorted(job_id for job_id, pending in released.items() if not pending)
        tx.memory.requeued += free
        if free:
            tx.touch("queue", *(f"job:{job_id}" for job_id in free))


def requeue(tx: JobTx, job: JobRow, *, attempt_no: int, reason: Reason, actor: str, **changes: Any) -> None:
    """Put the job back into the queue, unless it has moved on since this attempt."""
    if job_rows.requeue(tx, job.id, attempt_no=attempt_no, reason=reason.value, **changes):
        job_event(tx, job, JobState.QUEUED, actor=actor, reason=reason)
        tx.memory.requeued.append(job.id)
        tx.touch("queue")
        if job.gang is not None:
            tx.broken_gangs.append(job.id)
