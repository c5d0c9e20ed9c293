"""Renewing leases, taking back what silent nodes held, and not doing so right after a start."""

from __future__ import annotations

from functools import partial

from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, TERMINAL, AttemptState, JobState, Reason
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity import rows as account_rows
from computepool.hub.jobs import attempt_rows, transitions
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.attempt_rows import OwnedAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoint_rows
from computepool.hub.jobs.transitions import Effects, Settlement
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settlement import after_commit, follow_ups
from computepool.hub.settlement.verification import verification
from computepool.hub.snapshot import Snapshot, write

_BATCH = 1_000
_HUB_FRESH_MS = 30_000
HUB_BEAT_MS = 10_000


async def on_boot(hub: Hub) -> None:
    """Nobody loses a lease because the hub was away, unless another hub was there all the time."""
    grace_ms = hub.nodes.registry.rules.boot_grace_ms(hub.nodes.registry.interval_ms)
    hub_id, address = hub.process.hub_id, hub.settings.address

    def unit(tx: Tx) -> None:
        others = account_rows.other_hubs(tx.connection, hub_id=hub_id, since_ms=tx.now_ms - _HUB_FRESH_MS)
        account_rows.beat_hub(tx, hub_id=hub_id, address=address)
        if not others:
            attempt_rows.extend_all_leases(tx, until_ms=tx.now_ms + grace_ms)

    await hub.store.write(unit)


async def beat(hub: Hub) -> None:
    await hub.store.write(
        partial(account_rows.beat_hub, hub_id=hub.process.hub_id, address=hub.settings.address)
    )


async def note_seen(hub: Hub) -> None:
    """The store learns now and then who is here: other hubs and people ask it."""
    seen = {session.node_id: session.seen_ms for session in hub.nodes.registry.sessions}
    await hub.store.write(lambda tx: node_rows.touch_nodes(tx, seen))


async def renew(hub: Hub) -> None:
    """One batched statement per interval for all nodes: their leases last from the last word they sent."""
    now_ms = hub.now_ms()
    by_node = [
        (session.node_id, session.seen_ms, _still_allowed(hub, session, now_ms))
        for session in hub.nodes.registry.sessions
        if session.attempts
    ]
    for start in range(0, len(by_node), _BATCH):
        part = by_node[start : start + _BATCH]
        dead = await hub.store.write(partial(_renew, part=part, lease_ms=hub.nodes.registry.lease_ms))
        for node_id, attempt_id in dead:
            hub.nodes.registry.cancel(node_id, attempt_id)


def _still_allowed(hub: Hub, session: NodeSession, now_ms: int) -> list[str]:
    """A node that does not stop a job at its time limit gets no more time: the lease runs out, and the job goes elsewhere."""
    slack_ms = 2 * hub.nodes.registry.lease_ms
    allowed = []
    for attempt in session.attempts.values():
        known = hub.jobs.specs.peek(attempt.grant.spec)
        limit_ms = None if known is None else known.spec.timeout_s * 1000 + slack_ms
        if limit_ms is None or now_ms - attempt.since_ms <= limit_ms:
            allowed.append(attempt.id)
    return allowed


def _renew(tx: Tx, part: list[tuple[str, int, list[str]]], *, lease_ms: int) -> list[tuple[str, str]]:
    """Grouped by second, so that nodes that spoke together share a statement. Returns what is no longer alive.

    Rounded up: no lease is shorter than its node was told.
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
    """Attempts whose lease ended, whichever hub gave them; jobs that waited longer than their time to live, or for a host."""
    now_ms = hub.now_ms()
    settlements: list[Settlement] = []
    rows = await hub.store.read(
        lambda connection: attempt_rows.overdue_attempts(connection, now_ms=now_ms, limit=_BATCH)
    )
    spoken_for = _spoken_for(hub, now_ms) if rows else set()
    ids = [row.id for row in rows if row.id not in spoken_for]
    if ids:
        lost = partial(end_attempts, attempt_ids=ids, reason=Reason.LEASE_LOST)
        settlements.append(await write(hub, lost))
    stale = await hub.store.read(
        lambda connection: job_rows.overdue_jobs(connection, now_ms=now_ms, limit=_BATCH)
    )
    before_ms = now_ms - round(hub.settings.move_wait_s * 1000)
    stranded = await hub.store.read(
        lambda connection: checkpoint_rows.stranded(connection, before_ms=before_ms, limit=_BATCH)
    )
    if stale or stranded:
        expire = partial(_expire_jobs, job_ids=stale, stranded=stranded, before_ms=before_ms)
        settlements.append(await write(hub, expire))
    for settlement in settlements:  # not before: what waits again, and for too long, must not be placed first
        await after_commit.follow(hub, settlement)


def _spoken_for(hub: Hub, now_ms: int) -> set[str]:
    """Held by nodes that spoke within a lease. What they were told holds, also where the store has yet to hear of it."""
    silent_ms = now_ms - hub.nodes.registry.lease_ms
    return {
        attempt_id
        for session in hub.nodes.registry.sessions
        if session.attempts and session.seen_ms >= silent_ms
        for attempt_id in _still_allowed(hub, session, now_ms)
    }


def end_attempts(tx: Tx, snapshot: Snapshot, *, attempt_ids: list[str], reason: Reason) -> Settlement:
    """Live attempts are over without a report: their jobs wait again, or fail if nodes kept being lost under them."""
    effects = Effects()
    jobs = job_rows.lock_jobs(tx, {id_.rpartition("-")[0] for id_ in attempt_ids})
    for attempt in attempt_rows.lock_attempts(tx, attempt_ids).values():
        job = jobs.get(attempt.job_id)
        if job is None or AttemptState(attempt.state) not in LIVE_ATTEMPT:
            continue
        if reason is Reason.LEASE_LOST and attempt.lease_until_ms >= tx.now_ms:
            continue  # renewed since it was read
        _end_attempt(tx, snapshot, attempt, job=job, reason=reason, effects=effects)
    return follow_ups.follow(tx, snapshot, effects)


def _end_attempt(
    tx: Tx, snapshot: Snapshot, attempt: OwnedAttempt, *, job: JobRow, reason: Reason, effects: Effects
) -> None:
    if not attempt_rows.end_attempt(tx, attempt.id, state=AttemptState.EXPIRED, reason=reason):
        return
    effects.ended.append((attempt.node_id, attempt.id))
    tx.touch(f"node:{attempt.node_id}")
    tx.emit(
        actor="hub",
        action="attempt.expired",
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=attempt.id,
        node_id=attempt.node_id,
        before=attempt.state,
        after=AttemptState.EXPIRED.value,
        reason=reason.value,
    )
    if JobState(job.state) in TERMINAL or job.attempt_no != attempt.number:
        return
    limits = snapshot.settings.retry_limits(job.retries)
    failure = transitions.judge_failure(tx, job, reason=reason, limits=limits, jitter=0.5)
    if failure.gives_up and verification.believe_first(tx, snapshot, job, effects=effects):
        return
    number, node_id = attempt.number, attempt.node_id
    transitions.apply_failure(
        tx, job, failure, attempt_no=number, node_id=node_id, actor="hub", effects=effects
    )


def _expire_jobs(
    tx: Tx, snapshot: Snapshot, *, job_ids: list[str], stranded: list[str], before_ms: int
) -> Settlement:
    effects = Effects()
    for job in job_rows.lock_jobs(tx, stranded).values():
        if job.state == JobState.QUEUED and job.pinned and job.queued_at_ms < before_ms:
            error = f"The host {job.pinned}, where it wanted to go on, did not take it in time."
            reason = Reason.HOST_NOT_REACHED
            transitions.finish(
                tx, job, JobState.FAILED, actor="hub", reason=reason, effects=effects, error=error
            )
    for job in job_rows.lock_jobs(tx, job_ids).values():
        waits = job.state == JobState.QUEUED and not job.pinned and job.expires_at_ms < tx.now_ms
        if not waits or verification.believe_first(tx, snapshot, job, effects=effects):
            continue
        reason = Reason.NOT_CONFIRMED if job.results else Reason.QUEUED_TOO_LONG
        transitions.finish(tx, job, JobState.EXPIRED, actor="hub", reason=reason, effects=effects)
    return follow_ups.follow(tx, snapshot, effects)


async def on_stop(hub: Hub) -> None:
    """A hub that stops on purpose says so, and whom it heard last: others need not wait to miss it."""
    seen, hub_id = (
        {session.node_id: session.seen_ms for session in hub.nodes.registry.sessions},
        hub.process.hub_id,
    )

    def unit(tx: Tx) -> None:
        node_rows.touch_nodes(tx, seen)
        account_rows.remove_hub(tx, hub_id=hub_id)

    await hub.store.write(unit)
