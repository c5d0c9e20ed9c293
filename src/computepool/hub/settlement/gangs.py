"""Gangs: what the end of one member's attempt means for the others. All run, or none does."""

from __future__ import annotations

from collections.abc import Sequence

from computepool.core.jobs.lifecycle import TERMINAL, AttemptState, JobState, Reason
from computepool.hub.jobs import attempt_rows, gang_rows, rows as job_rows, transitions
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx, job_event
from computepool.protocol.base import TEXT_MAX

_LOST_LATE = "Another of its nodes was lost after a part of its members had finished."


def follow_member(tx: JobTx, job_id: str) -> None:
    """A member was queued again, or ended without success: the others follow it."""
    cause = job_rows.lock_jobs(tx, [job_id])[job_id]
    assert cause.gang is not None
    ids = gang_rows.member_ids(tx.connection, [cause.gang])[cause.gang]
    members = [member for member in job_rows.lock_jobs(tx, ids).values() if JobState(member.state) not in TERMINAL]
    if cause.state != JobState.QUEUED:
        _end(tx, members, after=cause)
    elif any(row.state == JobState.SUCCEEDED for row in gang_rows.members(tx.connection, cause.gang)):
        # Those that have finished cannot take part once more.
        for member in members:
            _stop(tx, member, Reason.GANG_MEMBER_LOST)
            reason = Reason(member.reason) if member.id == job_id else Reason.GANG_MEMBER_LOST
            transitions.finish(tx, member, JobState.FAILED, actor="hub", reason=reason, error=_LOST_LATE)
    else:
        _begin_again(tx, members, with_=cause)


def _begin_again(tx: JobTx, members: Sequence[JobRow], *, with_: JobRow) -> None:
    """All members count the same failures, so that a gang is retried as often as one job."""
    shared = {
        "job_faults": max(member.job_faults for member in members),
        "node_faults": max(member.node_faults for member in members),
    }
    waiting = gang_rows.wait_of(tx.connection, with_.id)
    for member in members:
        _stop(tx, member, Reason.GANG_MEMBER_LOST)
        held = member.state != JobState.QUEUED
        if held and job_rows.requeue(
            tx,
            member.id,
            attempt_no=member.attempt_no,
            reason=Reason.GANG_MEMBER_LOST.value,
            waits_on=member.started_at_ms is None,
        ):
            job_event(tx, member, JobState.QUEUED, actor="hub", reason=Reason.GANG_MEMBER_LOST)
            tx.memory.requeued.append(member.id)
        gang_rows.set_wait(tx, member.id, waiting, **shared)


def _end(tx: JobTx, members: Sequence[JobRow], *, after: JobRow) -> None:
    state = JobState(after.state)
    reason, details = Reason(after.reason), {}
    if state is JobState.FAILED:
        state, reason = JobState.CANCELLED, Reason.GANG_MEMBER_FAILED
        details["error"] = f"Rank {after.item} ({after.id}) failed: {after.error or after.reason}"[:TEXT_MAX]
    for member in members:
        _stop(tx, member, Reason.GANG_MEMBER_FAILED)
        transitions.finish(tx, member, state, actor="hub", reason=reason, **details)


def _stop(tx: JobTx, member: JobRow, reason: Reason) -> None:
    """End its attempt, which is not its node's fault."""
    for attempt in attempt_rows.live_attempts_of_job(tx.connection, member.id):
        attempt_rows.end_attempt(tx, attempt.id, state=AttemptState.CANCELLED, reason=reason)
        transitions.stop(tx, attempt.node_id, attempt.id)
