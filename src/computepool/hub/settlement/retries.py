"""Retries: what becomes of a job whose newest attempt failed."""

from __future__ import annotations

from typing import Any

from computepool.core.jobs.lifecycle import CONTESTED, NODE_FAULTS, JobState, Reason
from computepool.core.jobs.settlement import FailureHistory, after_failure
from computepool.hub.jobs import attempt_rows, transitions
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.settlement.verification import verification


def retry_or_fail(
    tx: JobTx, job: JobRow, attempt: AttemptRow, *, reason: Reason, actor: str, jitter: float, **details: Any
) -> bool:
    """Try the job again, or give it up. The attempt's own row must be written already. True if it was given up.

    `details`: error and exit code of the attempt. A job that has a result which nobody confirmed gets that instead.
    """
    history = _history(tx, job, reason)
    decision = after_failure(reason, history, tx.snapshot.settings.retry_limits(job.retries), jitter=jitter)
    counts = {"job_faults": history.job_faults, "node_faults": history.node_faults}
    if decision.state is JobState.FAILED:
        if verification.believe_first(tx, job):
            return False
        return transitions.finish(tx, job, JobState.FAILED, actor=actor, reason=decision.reason, **counts, **details)
    transitions.requeue(
        tx,
        job,
        attempt_no=attempt.number,
        reason=decision.reason,
        actor=actor,
        ready_at_ms=tx.now_ms + decision.delay_ms,
        avoid_node=attempt.node_id if decision.avoid_node else "",
        **counts,
    )
    return False


def _history(tx: JobTx, job: JobRow, reason: Reason) -> FailureHistory:
    node_fault = reason in NODE_FAULTS
    owners = attempt_rows.owners_failed(tx.connection, job.id, [fault.value for fault in NODE_FAULTS])
    contested = reason in CONTESTED and not job.results
    unable = attempt_rows.unable(tx.connection, job.id) if contested else ()
    return FailureHistory(
        job_faults=job.job_faults + (not node_fault),
        node_faults=job.node_faults + node_fault,
        owners_failed=len(owners),
        owners_unable=len({attempt.owner_id for attempt in unable}),
    )
