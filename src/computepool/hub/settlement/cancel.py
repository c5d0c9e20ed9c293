"""Cancelling jobs."""

from __future__ import annotations

from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason
from computepool.hub.context import Hub
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import jobs, rows as job_rows, transitions, views
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.settlement import follow_ups
from computepool.protocol.jobs.views import JobView


async def cancel(hub: Hub, principal: Principal, job_id: str) -> JobView:
    """Cancel a job; a finished one stays as it is."""

    def unit(tx: JobTx) -> JobRow:
        row = jobs.require_owned(principal, job_rows.lock_jobs(tx, [job_id]).get(job_id))
        if JobState(row.state) in TERMINAL:
            return row
        reason = Reason.CANCELLED_BY_USER
        transitions.finish(tx, row, JobState.CANCELLED, actor=principal.account_id, reason=reason)
        return job_rows.get_job(tx.connection, job_id) or row

    row = await follow_ups.commit(hub, unit)
    return views.job_view(row, node_name=None, principal=principal)
