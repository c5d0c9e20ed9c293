"""Results that were due for a check and had none: given out after a while, checked when somebody can, paid after that.

Until then their pay does not mature (`held_until_ms`); what else their owners earn does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from computepool.core.jobs.lifecycle import JobState
from computepool.core.placement.gates import could_run
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.specs import KnownSpec
from computepool.hub.jobs.transitions import Effects, Settlement
from computepool.hub.settlement import after_commit, follow_ups, result_rows
from computepool.hub.settlement.verification import recheck_rows, rechecks, verification
from computepool.hub.settlement.verification.recheck_rows import HeldResult
from computepool.hub.snapshot import Snapshot, write

_BATCH = 500


async def accept(hub: Hub) -> None:
    """A result that could have been checked and was not, because no other owner's node took it, is given out after a while."""
    before_ms = hub.now_ms() - round(hub.settings.verify_wait_s * 1000)
    found = await hub.store.read(
        lambda connection: result_rows.unconfirmed(connection, before_ms=before_ms, limit=_BATCH)
    )
    if found:
        unit = partial(_accept_alone, job_ids=found, before_ms=before_ms)
        await after_commit.follow(hub, await write(hub, unit))


def _accept_alone(tx: Tx, snapshot: Snapshot, *, job_ids: list[str], before_ms: int) -> Settlement:
    effects = Effects()
    for job in job_rows.lock_jobs(tx, job_ids).values():
        if job.state != JobState.QUEUED or job.queued_at_ms > before_ms:
            continue  # somebody took it meanwhile
        verification.believe_first(tx, snapshot, job, effects=effects)
    return follow_ups.follow(tx, snapshot, effects)


async def start_checks(hub: Hub) -> Sequence[str]:
    """Have some of those run again whose pay is held, where another owner's node that takes work now could do it.

    A few at a time, in turn: those that nobody can run must not keep the others waiting.
    """
    limit, after = hub.settings.recheck_max, hub.settlement.held_looked_at
    rows = await hub.store.read(
        lambda connection: recheck_rows.held(
            connection,
            kind=recheck_rows.KIND,
            verdict=verification.VerificationVerdict.ALONE.value,
            after=after,
            limit=limit,
        )
    )
    hub.settlement.held_looked_at = rows[-1].id if len(rows) == limit else ""
    specs = await hub.jobs.specs.load({row.spec_digest for row in rows})
    able = {
        row.id: (_spoken(hub, row), row.charge)
        for row in rows
        if _somebody_could(hub, row, specs[row.spec_digest])
    }
    if not able:
        return ()
    settlement = await write(hub, partial(_start, spoken=able))
    await after_commit.follow(hub, settlement)
    return settlement.requeued


def _somebody_could(hub: Hub, row: HeldResult, spec: KnownSpec) -> bool:
    """Not where it uses the network: what it found there may have changed since, and it would do there again what it did."""
    if spec.spec.net:
        return False
    fleet, owners = hub.nodes.registry.fleet, ",".join(_spoken(hub, row))
    shape = shape_of(spec.requirements, row.account_id, ceiling=row.ceiling, avoid_owners=owners)
    rows = slice(0, fleet.rows)
    return bool((could_run(fleet, shape, rows) & fleet.table.available[rows]).any())


def _start(tx: Tx, snapshot: Snapshot, *, spoken: Mapping[str, tuple[list[str], int]]) -> Settlement:
    """`spoken`: by job, the owners whose word would decide nothing, and what its run cost."""
    effects = Effects()
    jobs = job_rows.lock_jobs(tx, spoken)
    for job_id in recheck_rows.without_hub_job(tx.connection, sorted(jobs), kind=recheck_rows.KIND):
        owners, charge = spoken[job_id]
        rechecks.send(tx, snapshot, jobs[job_id], number=1, owners=owners, charge=charge, effects=effects)
    return effects.settlement()


def _spoken(hub: Hub, row: HeldResult) -> list[str]:
    """Owners whose word would decide nothing: whose result it is, first, and who came to another one."""
    tied = hub.settlement.ties.owners((row.account_id, row.spec_digest), most=hub.settings.verify_ties_max)
    others = {*filter(None, row.avoid_owners.split(",")), *tied} - {row.owner_id}
    return [row.owner_id, *sorted(others)]
