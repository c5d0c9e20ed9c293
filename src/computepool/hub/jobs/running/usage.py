"""Resource usage of attempts over time: recorded from polls and reports, and saved now and then and at the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from computepool.core.errors import Unavailable
from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, AttemptState
from computepool.core.series import Series
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.fleet.registry import LiveAttempt, NodeSession
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import attempt_rows, jobs, rows as job_rows
from computepool.hub.jobs.attempt_rows import NamedAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.state import WatchedAttempt
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.protocol.nodes.mesh import AttemptUsage, JobUsage, LoadNow
from computepool.protocol.nodes.nodes import LoadModel, Report, RunningAttempt
from computepool.protocol.nodes.profile import Profile

_POINTS_LEAST = 2  #: that make a curve
_SAVED_AT_ONCE = 200


def record(hub: Hub, session: NodeSession, running: Iterable[RunningAttempt]) -> None:
    """Record what a poll reports of attempts that the node really holds."""
    for report in running:
        if report.load is not None and (attempt := session.attempts.get(report.attempt_id)) is not None:
            _note(hub, session.node_id, attempt, loads=[*report.earlier, report.load])


async def observe(hub: Hub, node_id: str, reports: Iterable[Report]) -> None:
    """Save the usage of attempts that end, with the last of it from the reports, before they are settled: whoever sees that a
    job has ended sees all of its usage. Most reports are of short jobs, which have none."""
    session = hub.nodes.registry.get(node_id)
    if session is None:
        return
    ending: dict[str, WatchedAttempt] = {}
    for report in reports:
        if (attempt := session.attempts.get(report.attempt_id)) is None:
            continue
        if report.loads:
            _note(hub, node_id, attempt, loads=report.loads, since_ms=report.ended_ago_ms)
        if attempt.id in hub.jobs.usages:
            ending[attempt.id] = hub.jobs.usages[attempt.id]
    if ending:
        await _save(hub, ending)


def _note(hub: Hub, node_id: str, attempt: LiveAttempt, *, loads: Sequence[LoadModel], since_ms: int = 0) -> None:
    """`since_ms`: how long ago the node wrote this down."""
    watched = hub.jobs.usages.get(attempt.id)
    if watched is None:
        if len(hub.jobs.usages) >= hub.settings.usage_series_max:
            return
        watched = WatchedAttempt(node_id, attempt.job_id, Series(hub.settings.usage_points_max), saved_ms=hub.now_ms())
        hub.jobs.usages[attempt.id] = watched
    now_ms = hub.now_ms()
    for load in loads:
        # The node may report any age, but no load is from before the node had the attempt.
        at_ms = max(attempt.since_ms, now_ms - since_ms - load.ago_ms)
        values = (load.cpu_percent, load.rss_mb, load.processes, load.gpu_percent, load.vram_mb)
        watched.series.add(at_ms, values)
    watched.node_id, watched.last, watched.last_ms, watched.changed = node_id, loads[-1], now_ms, True


async def save(hub: Hub, *, everything: bool = False) -> None:
    """Save and forget attempts that have ended; save long ones now and then, in case the hub is killed."""
    now_ms, often_ms = hub.now_ms(), round(hub.settings.usage_save_s * 1000)
    ended = {id_ for id_, watched in hub.jobs.usages.items() if not _lives(hub, id_, watched)}
    due = [
        id_
        for id_, watched in hub.jobs.usages.items()
        if everything or id_ in ended or now_ms - watched.saved_ms >= often_ms
    ]
    for start in range(0, len(due), _SAVED_AT_ONCE):
        part = {id_: hub.jobs.usages[id_] for id_ in due[start : start + _SAVED_AT_ONCE] if id_ in hub.jobs.usages}
        await _save(hub, part)
        for id_ in part.keys() & ended:
            del hub.jobs.usages[id_]


def _lives(hub: Hub, attempt_id: str, watched: WatchedAttempt) -> bool:
    session = hub.nodes.registry.get(watched.node_id)
    return session is not None and attempt_id in session.attempts


async def _save(hub: Hub, part: dict[str, WatchedAttempt]) -> None:
    unmerged = [id_ for id_, watched in part.items() if not watched.merged]
    if unmerged:
        stored = await hub.store.read(lambda connection: attempt_rows.usage_of(connection, unmerged))
        for id_ in unmerged:
            if id_ in stored:
                earlier = Series.unpack(json.loads(stored[id_]), hub.settings.usage_points_max)
                part[id_].series = part[id_].series.after(earlier)
            part[id_].merged = True
    rows = []
    for id_, watched in part.items():
        watched.saved_ms = hub.now_ms()
        if watched.changed and len(watched.series) >= _POINTS_LEAST:
            body = json.dumps(watched.series.pack(), separators=(",", ":"))
            rows.append((id_, watched.job_id, body))
            watched.changed = False
    if not rows:
        return
    try:
        await hub.store.write(lambda tx: attempt_rows.put_usage(tx, rows))
    except Unavailable:
        for id_, _, _ in rows:
            part[id_].changed = True
        raise


async def prune(hub: Hub) -> None:
    keep_ms = round(hub.settings.usage_keep_s * 1000)
    await hub.store.write(lambda tx: attempt_rows.prune_usage(tx, before_ms=tx.now_ms - keep_ms))


# views


async def of_job(hub: Hub, principal: Principal, job_id: str) -> JobUsage:
    def load(connection: Connection) -> tuple[JobRow, list[NamedAttempt], dict[str, str], NodeRow | None]:
        job = jobs.require_owned(principal, job_rows.get_job(connection, job_id))
        attempts = attempt_rows.get_attempts(connection, job_id)
        node = node_rows.get_node(connection, attempts[-1].node_id) if attempts else None
        return job, attempts, attempt_rows.usage_of_job(connection, job_id), node

    job, attempts, stored, node = await hub.store.read(load)
    needs = (await hub.jobs.specs.load([job.spec_digest]))[job.spec_digest].requirements
    return JobUsage(
        job_id=job_id,
        cores=needs.cpu_milli / 1000,
        ram_mb=needs.ram_mb if node is None else needs.ram_on(Profile.model_validate_json(node.profile).capacity()),
        gpus=needs.gpus,
        vram_mb=needs.vram_mb,
        every_ms=hub.nodes.registry.interval_ms,
        attempts=[_attempt(hub, row, stored.get(row.id)) for row in attempts],
    )


def _attempt(hub: Hub, row: NamedAttempt, stored: str | None) -> AttemptUsage:
    series, watched = _series(hub, row.id, stored), hub.jobs.usages.get(row.id)
    live = AttemptState(row.state) in LIVE_ATTEMPT
    now = None
    if live and watched is not None and watched.last is not None:
        now = LoadNow(at_ms=watched.last_ms, **watched.last.model_dump(exclude={"ago_ms"}))
    return AttemptUsage.from_attributes(
        row,
        attempt_id=row.id,
        live=live,
        step_ms=series.step_ms,
        at_ms=list(series.times),
        cpu_percent=series.column("cpu_percent") or [],
        rss_mb=series.column("rss_mb") or [],
        processes=series.column("processes") or [],
        gpu_percent=series.column("gpu_percent"),
        vram_mb=series.column("vram_mb"),
        now=now,
    )


def _series(hub: Hub, attempt_id: str, stored: str | None) -> Series:
    watched = hub.jobs.usages.get(attempt_id)
    if watched is not None and (watched.merged or stored is None):
        return watched.series
    if stored is None:
        return Series(0)
    kept = Series.unpack(json.loads(stored), hub.settings.usage_points_max)
    return kept if watched is None else watched.series.after(kept)
