"""Faults of nodes: when an attempt that failed counts against its node, and how long the node cools off.

A node that says it could not run a job may be broken, or the job may be poison. Only the owner's own job counts at once.
A stranger's counts when another node has done it, unless its submitter had a hand in that run: else one free job could
make any node cool off, or spoil its record.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from computepool.core.jobs.lifecycle import CONTESTED, AttemptState, Reason
from computepool.core.trust.reputation import FAULT_ACTION, cool_off_ms
from computepool.hub.db.session import Tx
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs.attempt_rows import AttemptRow, UnableAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transitions import Effects
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot


def counts_at_once(reason: Reason, attempt: AttemptRow, job: JobRow) -> bool:
    return reason not in CONTESTED or attempt.owner_id == job.account_id


def cool_off_until(settings: Settings, faults: int, now_ms: int) -> int:
    rest_ms = cool_off_ms(
        faults,
        limit=settings.breaker_faults,
        base_ms=round(settings.breaker_base_s * 1000),
        max_ms=round(settings.breaker_max_s * 1000),
    )
    return now_ms + rest_ms if rest_ms else 0


def blame_unable(
    tx: Tx,
    snapshot: Snapshot,
    job: JobRow,
    *,
    owners: AbstractSet[str],
    chosen_by_pool: bool,
    trusted: bool,
    effects: Effects,
) -> None:
    """The job was done by nodes of `owners`, so those that could not run it may be at fault.

    They cool off where the pool chose who did it, and their records show it (core/trust/reputation.py) where that result was
    also subject to checks: a friend's node may claim anything.
    """
    proven = chosen_by_pool and job.account_id not in owners
    for attempt in attempt_rows.unable(tx.connection, job.id):
        is_own = attempt.owner_id == job.account_id
        if proven and not is_own:
            faults = node_rows.count_fault(tx, attempt.node_id)
            until_ms = cool_off_until(snapshot.settings, faults, tx.now_ms)
            if until_ms:
                node_rows.cool_off(tx, attempt.node_id, until_ms)
                effects.resting[attempt.node_id] = until_ms
                tx.touch(f"node:{attempt.node_id}")
        if is_own or (proven and trusted):
            _emit_fault(tx, job, attempt)


def _emit_fault(tx: Tx, job: JobRow, attempt: UnableAttempt) -> None:
    tx.emit(
        actor="hub",
        action=FAULT_ACTION,
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=attempt.id,
        node_id=attempt.node_id,
        after=AttemptState.FAILED.value,
        reason=attempt.reason,
    )
