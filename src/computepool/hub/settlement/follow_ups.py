"""Follow-ups, in the same transaction, of jobs and hub jobs that ended and of results that were proven wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from computepool.hub.context import Hub
from computepool.hub.jobs import rows as job_rows, transactions, transitions
from computepool.hub.jobs.transactions import JobTx, MemoryChanges
from computepool.hub.settlement import after_commit, gangs, hub_jobs
from computepool.hub.settlement.verification import compare_jobs, probes, recheck_rows, rechecks, violations
from computepool.hub.snapshot import Snapshot

T = TypeVar("T")


async def commit(hub: Hub, unit: Callable[[JobTx], T]) -> T:
    """Run a unit that may end jobs, with its follow-ups, and bring the hub's memory in step with it."""
    reply, changed = await write(hub, unit)
    await after_commit.follow(hub, changed)
    return reply


async def write(hub: Hub, unit: Callable[[JobTx], T], snapshot: Snapshot | None = None) -> tuple[T, MemoryChanges]:
    """The same, but the caller brings memory in step (`after_commit.follow`)."""

    def whole(tx: JobTx) -> tuple[T, MemoryChanges]:
        reply = unit(tx)
        run(tx)
        return reply, tx.memory

    return await transactions.write(hub, whole, snapshot)


def run(tx: JobTx) -> None:
    """A follow-up can end or start further jobs, so this continues until nothing is left to do."""
    while tx.ended_hub_jobs or tx.penalised or tx.ended_parents or tx.broken_gangs:
        if tx.broken_gangs:
            gangs.follow_member(tx, tx.broken_gangs.pop(0))
        elif tx.ended_parents:
            parents, tx.ended_parents = tx.ended_parents, []
            transitions.end_children(tx, parents)
        elif tx.penalised:
            node_id = tx.penalised.pop(0)
            violations.notify_owner(tx, node_id)
            rechecks.start(tx, node_id)
        else:
            _follow_hub_job(tx, tx.ended_hub_jobs.pop(0))


def _follow_hub_job(tx: JobTx, job_id: str) -> None:
    hub_job = job_rows.get_job_full(tx.connection, job_id)
    assert hub_job is not None
    kind, _, _ = hub_jobs.parts(hub_job.hub_job)
    follow_up = {compare_jobs.KIND: compare_jobs.on_ended, recheck_rows.KIND: rechecks.on_ended}
    follow_up.get(kind, probes.on_ended)(tx, hub_job)
