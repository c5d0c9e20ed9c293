"""Graphs of jobs: those that are connected with one job, or with the jobs of a group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from graphlib import TopologicalSorter

from computepool.core.jobs.lifecycle import When
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import dependency_rows, rows as job_rows
from computepool.hub.jobs.dependency_rows import Dependency
from computepool.hub.jobs.jobs import require_owned
from computepool.protocol.jobs.views import GraphEdge, GraphJob, GraphView

#: Edges in one graph, for each job that it may have.
_EDGES_PER_JOB = 20


async def of_job(hub: Hub, principal: Principal, job_id: str) -> GraphView:
    """The jobs that this one is connected with, over others or directly."""

    def load(connection: Connection) -> GraphView:
        require_owned(principal, job_rows.get_job(connection, job_id))
        return _graph(connection, principal, [job_id], most=hub.settings.graph_jobs_max)

    return await hub.store.read(load)


async def of_group(hub: Hub, principal: Principal, group_id: str) -> GraphView:
    """The jobs of a group that come before or after others, with these. The caller may read the group."""

    def load(connection: Connection) -> GraphView:
        most = hub.settings.graph_jobs_max
        connected = dependency_rows.connected_in_group(connection, group_id, limit=most + 1)
        return _graph(connection, principal, connected, most=most)

    return await hub.store.read(load)


def _graph(connection: Connection, principal: Principal, first: Sequence[str], *, most: int) -> GraphView:
    found = dict.fromkeys(first[:most])
    frontier, more = list(found), len(first) > most
    while frontier and not more:
        near = dependency_rows.around(connection, frontier, limit=most * _EDGES_PER_JOB)
        reached = dict.fromkeys(job_id for edge in near for job_id in (edge.after_id, edge.job_id))
        frontier = [job_id for job_id in reached if job_id not in found]
        more = len(found) + len(frontier) > most
        found |= dict.fromkeys(frontier[: most - len(found)])
    rows = {row.id: row for row in job_rows.get_jobs(connection, sorted(found))}
    # An administrator's job may come after one of somebody else.
    shown = {job_id: row for job_id, row in rows.items() if access.may_manage(principal, row.account_id)}
    limit = most * _EDGES_PER_JOB
    edges = dependency_rows.between(connection, sorted(shown), limit=limit + 1)
    return GraphView(
        jobs=[
            GraphJob.from_attributes(shown[job_id], when=shown[job_id].run_when or When.SUCCESS)
            for job_id in _in_order(shown, edges)
        ],
        edges=[GraphEdge.from_attributes(edge) for edge in edges[:limit]],
        more=more or len(edges) > limit,
    )


def _in_order(job_ids: Collection[str], edges: Iterable[Dependency]) -> list[str]:
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(sorted(job_ids), ()))
    for edge in edges:
        sorter.add(edge.job_id, edge.after_id)
    return list(sorter.static_order())
