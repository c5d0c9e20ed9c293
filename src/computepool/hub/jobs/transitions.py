"""Transitions that several use cases share, each inside the caller's transaction: end jobs, requeue them, free dependents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from computepool.core.jobs import dependencies as rules
from computepool.core.jobs.dependencies import Consequence, Ending
from computepool.core.jobs.lifecycle import TERMINAL, AttemptState, JobState, Reason, When
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
    if job.hub_job is not None:
        tx.ended_hub_jobs.append(job.id)
    for attempt in attempt_rows.live_attempts_of_job(tx.connection, job.id):
        attempt_rows.end_attempt(tx, attempt.id, state=AttemptState.CANCELLED, reason=Reason.CANCELLED_BY_USER)
        stop(tx, attempt.node_id, attempt.id)
    if job.comparing is not None:  # nobody needs that comparison any more, and the submitter need not pay for it
        cancel(tx, [job.comparing], actor="hub", reason=Reason.CANCELLED_BY_USER)
    follow_ended(tx, {rules.ending_of(state, reason) or Ending.FAILED: [job.id]})
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


def release_dependents(tx: JobTx, job_ids: Sequence[str]) -> None:
    """These jobs have succeeded: free or end what waited for them."""
    follow_ended(tx, {Ending.SUCCEEDED: job_ids})


def follow_ended(tx: JobTx, ended: Mapping[Ending, Sequence[str]]) -> None:
    """Free or end what waited for these jobs, and what waits for that: by a loop, because recursion over a long chain would
    exhaust the stack. The number of statements does not depend on how many jobs waited."""
    pending = [(ending, list(job_ids)) for ending, job_ids in ended.items()]
    while pending:
        ending, job_ids = pending.pop()
        counts = Counter(row.job_id for row in dependency_rows.dependents(tx.connection, job_ids))
        if not counts:
            continue
        rows = job_rows.lock_jobs(tx, counts)
        steps: dict[Consequence, list[str]] = {}
        for job_id, row in rows.items():
            steps.setdefault(rules.consequence(When(row.run_when or When.SUCCESS), ending), []).append(job_id)
        freed = dependency_rows.free(tx, found) if (found := steps.get(Consequence.START)) else []
        for job_id in _count_down(tx, counts, steps.get(Consequence.COUNT, ())):
            last = rules.last_consequence(When(rows[job_id].run_when or When.SUCCESS))
            (freed if last is Consequence.START else steps.setdefault(last, [])).append(job_id)
        _requeue_freed(tx, sorted(freed))
        for step, reason in rules.REASONS.items():
            if step in steps:
                gone = _end_unstarted(tx, {job_id: rows[job_id] for job_id in steps[step]}, reason=reason)
                pending.append((rules.ENDINGS[step], gone))


def _count_down(tx: JobTx, counts: Mapping[str, int], job_ids: Iterable[str]) -> list[str]:
    """`counts`: how many of the jobs that ended each came after. Returns those that wait for no other any more."""
    by_count: dict[int, list[str]] = {}
    for job_id in job_ids:
        by_count.setdefault(counts[job_id], []).append(job_id)
    return [
        job_id
        for count, dependents in by_count.items()
        for job_id, left in dependency_rows.count_down(tx, dependents, count).items()
        if not left
    ]


def _requeue_freed(tx: JobTx, job_ids: Sequence[str]) -> None:
    if job_ids:
        tx.memory.requeued += job_ids
        tx.touch("queue", *(f"job:{job_id}" for job_id in job_ids))


def _end_unstarted(tx: JobTx, rows: Mapping[str, JobRow], *, reason: Reason) -> list[str]:
    """Cancel those of the locked jobs that are unfinished; returns these."""
    ended = job_rows.finish_all(tx, rows, state=JobState.CANCELLED, reason=reason)
    for job in map(rows.__getitem__, ended):
        job_event(tx, job, JobState.CANCELLED, actor="hub", reason=reason)
        holds.release(tx, job)
    tx.memory.finished += ended
    return ended


def requeue(tx: JobTx, job: JobRow, *, attempt_no: int, reason: Reason, actor: str, **changes: Any) -> None:
    """Put the job back into the queue, unless it has moved on since this attempt."""
    if job_rows.requeue(tx, job.id, attempt_no=attempt_no, reason=reason.value, **changes):
        job_event(tx, job, JobState.QUEUED, actor=actor, reason=reason)
        tx.memory.requeued.append(job.id)
        tx.touch("queue")
