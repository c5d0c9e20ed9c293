"""Cancelling jobs."""

from __future__ import annotations

from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import jobs, transitions, views
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transitions import Effects, Settlement
from computepool.hub.settlement import after_commit, follow_ups
from computepool.hub.snapshot import Snapshot, write
from computepool.protocol.jobs.jobs import JobView


async def cancel(hub: Hub, principal: Principal, job_id: str) -> JobView:
    """Cancelling a finished job changes nothing and says how it ended."""

    def unit(tx: Tx, snapshot: Snapshot) -> tuple[JobRow, Settlement]:
        effects, actor = Effects(), principal.account_id
        row = jobs.owned(principal, job_rows.lock_jobs(tx, [job_id]).get(job_id))
        if JobState(row.state) not in TERMINAL:
            reason = Reason.CANCELLED_BY_USER
            transitions.finish(tx, row, JobState.CANCELLED, actor=actor, reason=reason, effects=effects)
            row = job_rows.get_job(tx.connection, job_id) or row
        return row, follow_ups.follow(tx, snapshot, effects)

    row, settlement = await write(hub, unit)
    await after_commit.follow(hub, settlement)
    return views.job_view(row, node_name=None, principal=principal)
