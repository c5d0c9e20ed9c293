"""The view of the queue: what each node that polls this hub runs, and which jobs wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from computepool.core.fleet.node_record import Free
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.placement import explain, gate_messages
from computepool.core.resources import Shape
from computepool.hub.context import Hub
from computepool.hub.fleet.registry import LiveAttempt, NodeSession
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.protocol.jobs.queueing import LeaseView, LoadView, QueueRow, QueueView, WaitingRow

#: Attempts listed for one node, and for all nodes together.
_LEASES_SHOWN = 100
_ROWS_READ = 2_000
_SHAPES_SHOWN = 50
_NODES_AT_ONCE = 50  #: so that polls need not wait for a long list


async def queue(hub: Hub, principal: Principal) -> bytes:
    """A QueueView as JSON. Jobs are listed only for their submitter and for administrators, but all are counted.

    The text of an idle node is cached.
    """
    shown = {
        session.node_id: _visible(session, principal) for session in hub.nodes.registry.sessions if session.attempts
    }
    job_ids = [attempt.job_id for attempts in shown.values() for attempt in attempts][:_ROWS_READ]
    rows = await hub.store.read(job_rows.get_jobs, job_ids) if job_ids else []
    jobs = {row.id: row for row in rows}
    nodes: list[bytes] = []
    for number, session in enumerate(hub.nodes.registry.sessions, start=1):
        if number % _NODES_AT_ONCE == 0:
            await asyncio.sleep(0)
        if hub.nodes.registry.get(session.node_id) is session:  # it may have left in the meantime
            nodes.append(_line(hub, session, shown.get(session.node_id, []), jobs=jobs))
    backlog = hub.jobs.queue.backlog
    view = QueueView(
        queued=len(backlog) - backlog.delayed,
        delayed=backlog.delayed,
        nodes=[],
        waiting=await _waiting_rows(hub, principal),
    )
    head, found, tail = view.model_dump_json().encode().partition(b'"nodes":[')
    return head + found + b",".join(nodes) + tail


def _line(hub: Hub, session: NodeSession, shown: list[LiveAttempt], *, jobs: dict[str, JobRow]) -> bytes:
    status = hub.nodes.registry.status(session, hub.now_ms())
    free = hub.nodes.registry.fleet[session.node_id].free()
    if session.attempts:
        return _row(hub, session, shown, status=status, free=free, jobs=jobs).model_dump_json().encode()
    fields = (session.profile, session.state, status, free)
    if session.idle_line is None or session.idle_line[0] != fields:
        text = _row(hub, session, [], status=status, free=free, jobs=jobs).model_dump_json().encode()
        head, _, tail = text.rpartition(b'"seen_ms":%d' % session.seen_ms)
        session.idle_line = fields, head, tail
    _, head, tail = session.idle_line
    return b'%b"seen_ms":%d%b' % (head, session.seen_ms, tail)


def _visible(session: NodeSession, principal: Principal) -> list[LiveAttempt]:
    """Running attempts first, then the oldest."""
    seen = [
        attempt
        for attempt in session.attempts.values()
        if principal.is_admin or (attempt.grant.account_id == principal.account_id and not attempt.hub_job)
    ]
    return sorted(seen, key=lambda attempt: (not attempt.running, attempt.since_ms, attempt.id))[:_LEASES_SHOWN]


def _row(
    hub: Hub, session: NodeSession, shown: list[LiveAttempt], *, status: NodeStatus, free: Free, jobs: dict[str, JobRow]
) -> QueueRow:
    profile, capacity = session.profile, session.profile.capacity
    running = sum(1 for attempt in session.attempts.values() if attempt.running)
    return QueueRow(
        node_id=session.node_id,
        name=profile.name,
        online=status.is_online,
        state=session.state.value,
        status=status,
        running=running,
        leased=len(session.attempts) - running,
        cores_free=free.cpu_milli / 1000,
        cores_total=capacity.cpu_milli / 1000,
        ram_free_mb=free.ram_mb,
        ram_total_mb=capacity.ram_mb,
        jobs=[attempt.job_id for attempt in shown],
        tags=sorted(profile.tags),
        mesh_version=profile.mesh_version,
        url=profile.url,
        seen_ms=session.seen_ms,
        leases=[_lease(hub, attempt, jobs.get(attempt.job_id)) for attempt in shown],
        hidden=len(session.attempts) - len(shown),
        load=_add_up(session.attempts.values()),
    )


def _lease(hub: Hub, attempt: LiveAttempt, job: JobRow | None) -> LeaseView:
    report = attempt.last_report
    load = None if report is None or report.load is None else LoadView(**report.load.model_dump())
    return LeaseView(
        attempt_id=attempt.id,
        job_id=attempt.job_id,
        name="" if job is None else job.name,
        key=None if job is None else job.key,
        group_id=None if job is None else job.group_id,
        state="running" if attempt.running else "leased",
        since_ms=attempt.since_ms,
        age_ms=max(0, hub.now_ms() - attempt.since_ms),
        lane=attempt.lane.id,
        cores=attempt.lane.shape.requirements.cpu_milli / 1000,
        cpu_ids=[] if report is None else report.cpu_ids,
        progress=None if report is None else report.progress,
        load=load,
    )


def _add_up(attempts: Iterable[LiveAttempt]) -> LoadView:
    loads = [
        attempt.last_report.load for attempt in attempts if attempt.last_report is not None and attempt.last_report.load
    ]
    return LoadView(
        cpu_percent=sum(load.cpu_percent for load in loads),
        rss_mb=sum(load.rss_mb for load in loads),
        processes=sum(load.processes for load in loads),
    )


async def _waiting_rows(hub: Hub, principal: Principal) -> list[WaitingRow]:
    shapes = {
        shape: count
        for shape, count in hub.jobs.queue.backlog.shapes().items()
        if principal.is_admin or shape.account == principal.account_id
    }
    most = sorted(shapes.items(), key=lambda item: -item[1])[:_SHAPES_SHOWN]
    rows = []
    for shape, count in most:  # each row reads all nodes
        rows.append(_waiting_row(hub, shape, count))
        await asyncio.sleep(0)
    return sorted(rows, key=lambda row: (row.able > 0, -row.queued))


def _waiting_row(hub: Hub, shape: Shape, count: int) -> WaitingRow:
    fleet = hub.nodes.registry.fleet
    found = explain.explain(fleet, explain.without_moot_price(fleet, shape))
    return WaitingRow(
        needs=gate_messages.describe(explain.with_node_names(hub.nodes.registry.fleet, shape).requirements),
        queued=count,
        able=found.able,
        sentence=found.sentence,
    )
