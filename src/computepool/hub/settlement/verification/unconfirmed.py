"""Results that were due for a check and had none: given out after a while, checked when a node can, and paid after that.

Until then their pay does not mature (`held_until_ms`); the other earnings of their owners do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from computepool.core.jobs.lifecycle import JobState
from computepool.core.placement.gates import could_run
from computepool.core.trust.verification import VerificationVerdict
from computepool.hub.context import Hub
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.specs import KnownSpec
from computepool.hub.jobs.transactions import JobTx, MemoryChanges, write
from computepool.hub.settlement import after_commit, follow_ups, result_rows
from computepool.hub.settlement.verification import recheck_rows, rechecks, verification
from computepool.hub.settlement.verification.recheck_rows import HeldResult

_BATCH = 500


async def accept(hub: Hub) -> None:
    """Give out results that could have been checked, but that no other owner's node took in time."""
    before_ms = hub.now_ms() - round(hub.settings.verify_wait_s * 1000)
    found = await hub.store.read(result_rows.unconfirmed_jobs, before_ms=before_ms, limit=_BATCH)
    if found:
        await follow_ups.commit(hub, partial(_accept_alone, job_ids=found, before_ms=before_ms))


def _accept_alone(tx: JobTx, *, job_ids: list[str], before_ms: int) -> None:
    for job in job_rows.lock_jobs(tx, job_ids).values():
        if job.state == JobState.QUEUED and job.queued_at_ms <= before_ms:  # else a node has taken it
            verification.believe_first(tx, job)


async def start_checks(hub: Hub) -> Sequence[str]:
    """Recheck some results whose pay is held, if another owner's node that takes work now could run their jobs.

    A few at a time, in turn: jobs that no node can run must not hold up the others.
    """
    limit, after = hub.settings.recheck_max, hub.settlement.held_looked_at
    alone = VerificationVerdict.ALONE.value
    rows = await hub.store.read(recheck_rows.held_results, verdict=alone, after=after, limit=limit)
    hub.settlement.held_looked_at = rows[-1].id if len(rows) == limit else ""
    specs = await hub.jobs.specs.load({row.spec_digest for row in rows})
    able = {
        row.id: (_excluded_owners(hub, row), row.charge)
        for row in rows
        if _is_checkable(hub, row, specs[row.spec_digest])
    }
    if not able:
        return ()
    changed = await write(hub, partial(_start, able=able))
    await after_commit.follow(hub, changed)
    return changed.requeued


def _is_checkable(hub: Hub, row: HeldResult, spec: KnownSpec) -> bool:
    """Not if it uses the network: what it found there may have changed, and it would repeat what it did there."""
    if spec.spec.net:
        return False
    fleet, owners = hub.nodes.registry.fleet, ",".join(_excluded_owners(hub, row))
    shape = shape_of(spec.requirements, row.account_id, ceiling=row.ceiling, avoid_owners=owners)
    rows = slice(0, fleet.rows)
    return bool((could_run(fleet, shape, rows) & fleet.table.available[rows]).any())


def _start(tx: JobTx, *, able: Mapping[str, tuple[list[str], int]]) -> MemoryChanges:
    """`able`: by job, the owners whose results would decide nothing, and what its run cost."""
    jobs = job_rows.lock_jobs(tx, able)
    for job_id in recheck_rows.without_hub_job(tx.connection, sorted(jobs), kind=recheck_rows.KIND):
        owners, charge = able[job_id]
        rechecks.send(tx, jobs[job_id], number=1, owners=owners, charge=charge)
    return tx.memory


def _excluded_owners(hub: Hub, row: HeldResult) -> list[str]:
    """Owners whose results would decide nothing: first the one who reported this result, then those who disagreed."""
    tied = hub.settlement.ties.owners((row.account_id, row.spec_digest), most=hub.settings.verify_ties_max)
    others = {*filter(None, row.avoid_owners.split(",")), *tied} - {row.owner_id}
    return [row.owner_id, *sorted(others)]
