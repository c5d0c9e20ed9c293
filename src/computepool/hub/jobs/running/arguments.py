"""Results of earlier jobs that are arguments of a running one, for the node that runs it."""

from __future__ import annotations

from computepool.core.errors import Conflict
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import dependency_rows, rows as job_rows, views
from computepool.hub.jobs.rows import FullJobRow
from computepool.hub.jobs.running import children
from computepool.protocol.nodes.arguments import ArgumentPage, ArgumentView

#: Results in one reply, each of which may have RESULT_INLINE_MAX bytes.
_PAGE = 16


async def page(hub: Hub, node: NodePrincipal, attempt_id: str, *, start: int) -> ArgumentPage:
    """The same for every attempt of the job: results that may differ would make honest nodes disagree."""
    rows, more = await hub.store.read(lambda connection: _load(connection, node, attempt_id, start=start))
    for row in rows:
        if problem := views.unusable(row):
            raise Conflict(f"The result of job {row.id} is one of the arguments, and {problem}.")
    views_ = [ArgumentView(job_id=row.id, result=row.result, result_artifact=row.result_artifact) for row in rows]
    return ArgumentPage(arguments=views_, next=start + len(rows) if more else None)


def _load(connection: Connection, node: NodePrincipal, attempt_id: str, *, start: int) -> tuple[list[FullJobRow], bool]:
    job = children.held_job(connection, node, attempt_id)
    if job.hub_job is not None:  # <kind>:<job id>:<number>; it may run that job again, with the same arguments
        about = job_rows.get_job(connection, job.hub_job.split(":")[1])
        if about is None or about.spec_digest != job.spec_digest:
            return [], False
        job = about
    used = dependency_rows.argument_ids(connection, job.id)
    end = start + _PAGE
    return job_rows.get_full(connection, used[start:end]), len(used) > end
