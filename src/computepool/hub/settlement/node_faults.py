"""Faults of nodes: when a failed attempt counts against its node, and how long the node cools off.

If a node says that it could not run a job, either the node is broken or the job is poison. Only the owner's own job counts
at once. Another submitter's job counts when a node has done it, unless the submitter had a hand in that run: otherwise one
free job could make any node cool off, or spoil its record.
"""

from __future__ import annotations

from computepool.core.jobs.lifecycle import AttemptState
from computepool.core.trust.reputation import FAULT_ACTION, cool_off_ms
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx, attempt_event
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settings import Settings
from computepool.hub.settlement.runs import Run


def cool_off_until(settings: Settings, faults: int, now_ms: int) -> int:
    rest_ms = cool_off_ms(
        faults,
        limit=settings.breaker_faults,
        base_ms=round(settings.breaker_base_s * 1000),
        max_ms=round(settings.breaker_max_s * 1000),
    )
    return now_ms + rest_ms if rest_ms else 0


def blame_unable(tx: JobTx, job: JobRow, *, done_by: Run, trusted: bool) -> None:
    """The job was done, so nodes that could not run it may be at fault.

    They cool off if the pool chose the node that did it. Their records show the fault (core/trust/reputation.py) if the
    result was also subject to checks (`trusted`): a node of the submitter's friend may claim anything.
    """
    proven = not done_by.attempt.narrow and job.account_id not in done_by.owners
    for attempt in attempt_rows.unable(tx.connection, job.id):
        is_own = attempt.owner_id == job.account_id
        if proven and not is_own:
            faults = node_rows.count_fault(tx, attempt.node_id)
            until_ms = cool_off_until(tx.snapshot.settings, faults, tx.now_ms)
            if until_ms:
                node_rows.set_node(tx, attempt.node_id, cool_off_until_ms=until_ms)
                tx.memory.cool_offs[attempt.node_id] = until_ms
                tx.touch(f"node:{attempt.node_id}")
        if is_own or (proven and trusted):
            after = AttemptState.FAILED.value
            attempt_event(tx, job, attempt, action=FAULT_ACTION, after=after, reason=attempt.reason)
