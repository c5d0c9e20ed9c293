"""Leases: renewed while their nodes speak, expired when they fall silent, and extended after a start of the hub."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, TERMINAL, AttemptState, JobState, Reason
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity import rows as account_rows
from computepool.hub.jobs import attempt_rows, rows as job_rows, transitions
from computepool.hub.jobs.attempt_rows import OwnedAttempt, job_id_of
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoint_rows
from computepool.hub.jobs.transactions import JobTx, MemoryChanges, attempt_event
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settlement import after_commit, follow_ups, retries
from computepool.hub.settlement.verification import verification

_BATCH = 1_000
HUB_BEAT_MS = 10_000


async def on_boot(hub: Hub) -> None:
    """Extend all leases: no node loses one because the hub was away, unless another hub was there all the time."""
    grace_ms = hub.nodes.registry.rules.boot_grace_ms(hub.nodes.registry.interval_ms)
    hub_id, address = hub.process.hub_id, hub.settings.address

    def unit(tx: Tx) -> None:
        others = account_rows.other_hubs(tx.connection, hub_id=hub_id, since_ms=tx.now_ms - account_rows.HUB_FRESH_MS)
        account_rows.beat_hub(tx, hub_id=hub_id, address=address)
        if not others:
            attempt_rows.extend_all_leases(tx, until_ms=tx.now_ms + grace_ms)

    await hub.store.write(unit)


async def beat(hub: Hub) -> None:
    await hub.store.write(account_rows.beat_hub, hub_id=hub.process.hub_id, address=hub.settings.address)


async def note_seen(hub: Hub) -> None:
    """Record when each node was last heard of, for other hubs and for people."""
    await hub.store.write(node_rows.touch_nodes, _last_seen(hub))


def _last_seen(hub: Hub) -> dict[str, int]:
    return {session.node_id: session.seen_ms for session in hub.nodes.registry.sessions}


async def renew(hub: Hub) -> None:
    """Extend the leases of all nodes in a few statements per interval; a lease counts from the node's last message."""
    now_ms = hub.now_ms()
    by_node = [
        (session.node_id, session.seen_ms, _still_allowed(hub, session, now_ms))
        for session in hub.nodes.registry.sessions
        if session.attempts
    ]
    for start in range(0, len(by_node), _BATCH):
        part = by_node[start : start + _BATCH]
        dead = await hub.store.write(_renew, part=part, lease_ms=hub.nodes.registry.lease_ms)
        for node_id, attempt_id in dead:
            hub.nodes.registry.cancel(node_id, attempt_id)


def _still_allowed(hub: Hub, session: NodeSession, now_ms: int) -> list[str]:
    """Attempts whose leases may be renewed. If a node does not stop a job at its time limit, the lease runs out and the job goes
    elsewhere."""
    slack_ms = 2 * hub.nodes.registry.lease_ms
    allowed = []
    for attempt in session.attempts.values():
        known = hub.jobs.specs.peek(attempt.grant.spec)
        limit_ms = None if known is None else known.spec.timeout_s * 1000 + slack_ms
        if limit_ms is None or now_ms - attempt.since_ms <= limit_ms:
            allowed.append(attempt.id)
    return allowed


def _renew(tx: Tx, part: list[tuple[str, int, list[str]]], *, lease_ms: int) -> list[tuple[str, str]]:
    """One statement for all nodes that spoke in the same second; returns the (node, attempt) pairs that are no longer live.

    Seconds are rounded up, so that no lease is shorter than its node was told.
    """
    dead: list[tuple[str, str]] = []
    by_second: dict[int, list[tuple[str, str]]] = {}
    for node_id, seen_ms, attempt_ids in part:
        by_second.setdefault(-(-seen_ms // 1000), []).extend((node_id, id_) for id_ in attempt_ids)
    for second, held in sorted(by_second.items()):
        until_ms = second * 1000 + lease_ms
        alive = attempt_rows.renew_leases(tx, sorted(id_ for _, id_ in held), until_ms=until_ms)
        dead += [(node_id, id_) for node_id, id_ in held if id_ not in alive]
    return dead


async def expire_overdue(hub: Hub) -> None:
    """End attempts whose leases ended, whichever hub gave them, and jobs that waited for too long."""
    changes: list[MemoryChanges] = []
    try:
        await _expire_attempts(hub, changes)
        await _expire_waiting(hub, changes)
    finally:
        # Not before: a requeued job that has waited for too long must not be placed first.
        for changed in changes:
            await after_commit.follow(hub, changed)


async def _expire_attempts(hub: Hub, changes: list[MemoryChanges]) -> None:
    now_ms = hub.now_ms()
    rows = await hub.store.read(attempt_rows.overdue_attempts, now_ms=now_ms, limit=_BATCH)
    live = _recently_renewed(hub, now_ms) if rows else set()
    ids = [row.id for row in rows if row.id not in live]
    if ids:
        _, changed = await follow_ups.write(hub, partial(end_attempts, attempt_ids=ids, reason=Reason.LEASE_LOST))
        changes.append(changed)


async def _expire_waiting(hub: Hub, changes: list[MemoryChanges]) -> None:
    now_ms = hub.now_ms()
    stale = await hub.store.read(job_rows.overdue_jobs, now_ms=now_ms, limit=_BATCH)
    before_ms = now_ms - round(hub.settings.move_wait_s * 1000)
    stranded = await hub.store.read(checkpoint_rows.stranded_jobs, before_ms=before_ms, limit=_BATCH)
    if stale or stranded:
        expire = partial(_expire_jobs, job_ids=stale, stranded=stranded, before_ms=before_ms)
        _, changed = await follow_ups.write(hub, expire)
        changes.append(changed)


def _recently_renewed(hub: Hub, now_ms: int) -> set[str]:
    """Attempts of nodes that spoke within a lease. They keep what they were told, even if the store does not know it yet."""
    silent_ms = now_ms - hub.nodes.registry.lease_ms
    return {
        attempt_id
        for session in hub.nodes.registry.sessions
        if session.attempts and session.seen_ms >= silent_ms
        for attempt_id in _still_allowed(hub, session, now_ms)
    }


def end_attempts(tx: JobTx, *, attempt_ids: Sequence[str], reason: Reason) -> None:
    """End live attempts that will not report: their jobs are queued again, or fail after too many lost nodes."""
    jobs = job_rows.lock_jobs(tx, {job_id_of(id_) for id_ in attempt_ids})
    for attempt in attempt_rows.lock_attempts(tx, attempt_ids).values():
        job = jobs.get(attempt.job_id)
        if job is None or AttemptState(attempt.state) not in LIVE_ATTEMPT:
            continue
        if reason is Reason.LEASE_LOST and attempt.lease_until_ms >= tx.now_ms:
            continue  # renewed since it was read
        _end_attempt(tx, job, attempt, reason=reason)


def _end_attempt(tx: JobTx, job: JobRow, attempt: OwnedAttempt, *, reason: Reason) -> None:
    if not attempt_rows.end_attempt(tx, attempt.id, state=AttemptState.EXPIRED, reason=reason):
        return
    transitions.stop(tx, attempt.node_id, attempt.id)
    attempt_event(
        tx,
        job,
        attempt,
        action="attempt.expired",
        before=attempt.state,
        after=AttemptState.EXPIRED.value,
        reason=reason.value,
    )
    if JobState(job.state) not in TERMINAL and job.attempt_no == attempt.number:
        retries.retry_or_fail(tx, job, attempt, reason=reason, actor="hub", jitter=0.5)


def _expire_jobs(tx: JobTx, *, job_ids: list[str], stranded: list[str], before_ms: int) -> None:
    for job in job_rows.lock_jobs(tx, stranded).values():
        if job.state == JobState.QUEUED and job.pinned and job.queued_at_ms < before_ms:
            error = f"The host {job.pinned}, where it was to resume, did not take it in time."
            transitions.finish(tx, job, JobState.FAILED, actor="hub", reason=Reason.HOST_NOT_REACHED, error=error)
    for job in job_rows.lock_jobs(tx, job_ids).values():
        waits = job.state == JobState.QUEUED and not job.pinned and job.expires_at_ms < tx.now_ms
        if waits and not verification.believe_first(tx, job):
            reason = Reason.NOT_CONFIRMED if job.results else Reason.QUEUED_TOO_LONG
            transitions.finish(tx, job, JobState.EXPIRED, actor="hub", reason=reason)


async def on_stop(hub: Hub) -> None:
    """Record that this hub stops, and when it last heard of each node: other hubs need not wait until they miss it."""
    seen, hub_id = _last_seen(hub), hub.process.hub_id

    def unit(tx: Tx) -> None:
        node_rows.touch_nodes(tx, seen)
        account_rows.remove_hub(tx, hub_id=hub_id)

    await hub.store.write(unit)
