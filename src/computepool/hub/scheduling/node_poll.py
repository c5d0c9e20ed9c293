"""The nodes' long poll: heartbeat, renewal of leases, and request for work in one."""

from __future__ import annotations

from asyncio import Future
from typing import Any

from computepool.core.errors import Unauthenticated
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows, rows as job_rows
from computepool.hub.jobs.running import usage
from computepool.hub.jobs.transactions import job_event
from computepool.hub.nodes import group_homes
from computepool.hub.scheduling import arrivals, departures
from computepool.protocol.nodes.nodes import Grant, NextReply, NextRequest
from computepool.protocol.tokens import JobToken, sign_job_token

_TOKEN_LIFE_S = 24 * 3600


async def next_(
    hub: Hub, node: NodePrincipal, request: NextRequest, *, poll: bool = True, address: str | None = None
) -> NextReply:
    """A poll waits while there is no news for the node; a heartbeat (`poll=False`) does not, and gets no work."""
    session = hub.nodes.registry.get(node.node_id)
    if session is None or session.boot_id != request.boot_id or request.profile is not None:
        if request.profile is None:
            return reply_to(hub, None, address=address, reregister=True)
        session = await arrivals.arrive(hub, node, request, profile=request.profile)
    mine = receive(hub, session, request, poll=poll)
    await _note_running(hub, session, request)
    if poll and not request.claim:
        # It may be this node's last poll: jobs that were just chosen for it are delivered now, or they wait until their
        # leases end.
        async with hub.jobs.queue.placing:
            pass
    quiet = not has_news(session) and not hub.process.stopping
    if poll and request.wait_ms and quiet and session.polls == mine:
        await _park(hub, session, request.wait_ms)
        if session.state is NodeState.REVOKED:
            raise Unauthenticated("This node's key was revoked by its owner or the operator.")
    if poll and session.home_due and session.polls == mine:
        await group_homes.load(hub, session)
    if poll and session.polls != mine:
        return reply_to(hub, None, address=address)  # the node has begun a newer poll: nobody reads this reply
    reply = news(hub, session, request, address=address, deliver=poll)
    if poll and request.stopping:
        await departures.stop(hub, session)
    if request.profile is not None:
        hub.jobs.queue.wake()
    return reply


def receive(hub: Hub, session: NodeSession, request: NextRequest, *, poll: bool) -> int:
    """Record what the node says; returns the number of the poll. Only the node's newest poll gets news."""
    now_ms = hub.now_ms()
    session.seen_ms = now_ms
    holding = set(request.holding)
    session.cancel.update(id_ for id_ in holding if id_ not in session.attempts)
    if request.cached is not None:
        warm = {item.key: item.took_ms for item in request.cached.items}
        hub.nodes.registry.fleet.set_warm(session.node_id, warm)
    if not poll:
        # Heartbeats, unlike polls, may overtake the reply that carries a grant.
        return session.polls
    session.wake()
    session.waiter = None  # of an older poll, whose connection is gone
    session.polls += 1
    session.polled_ms = now_ms
    if session.state is NodeState.ACTIVE:  # otherwise it asks for no work because the hub told it so
        session.claims = request.claim
    hub.nodes.registry.refresh(session, now_ms)
    waiting = set(session.outgoing)
    for attempt in session.attempts.values():
        if attempt.delivered and attempt.id not in holding and attempt.id not in waiting:
            # The reply that carried it was lost: deliver it again.
            attempt.delivered = False
            session.outgoing.append(attempt.id)
    return session.polls


def has_news(session: NodeSession) -> bool:
    unmeasured = session.measure and not session.measure_sent
    return bool(session.outgoing or session.cancel or unmeasured or session.home_due)


async def _park(hub: Hub, session: NodeSession, wait_ms: int) -> None:
    """Wait until there is news, the time is over, or the node begins a newer poll."""
    waiter, slot = begin_wait(hub, session, wait_ms)
    try:
        await waiter
    finally:
        end_wait(hub, session, waiter, slot=slot)


def begin_wait(hub: Hub, session: NodeSession, wait_ms: int) -> tuple[Future[None], int]:
    timeout_s = min(wait_ms, hub.nodes.registry.interval_ms) / 1000
    session.waiter, slot = hub.nodes.parking.park(timeout_s)
    return session.waiter, slot


def end_wait(hub: Hub, session: NodeSession, waiter: Future[None], *, slot: int) -> None:
    hub.nodes.parking.leave(waiter, slot)
    if session.waiter is waiter:
        session.waiter = None


async def _note_running(hub: Hub, session: NodeSession, request: NextRequest) -> None:
    started, progress = [], {}
    for report in request.running:
        attempt = session.attempts.get(report.attempt_id)
        if attempt is None:
            continue
        attempt.last_report = report
        if not attempt.running:
            started.append(attempt.id)
        if report.progress is not None:
            progress[attempt.id] = report.progress
    usage.record(hub, session, request.running)
    if not started and not progress:
        return
    await hub.store.write(_write_running, started, progress)
    for attempt_id in started:
        if (attempt := session.attempts.get(attempt_id)) is not None:
            attempt.running = True


def _write_running(tx: Tx, started: list[str], progress: dict[str, float]) -> None:
    if started:
        changed = attempt_rows.start_attempts(tx, sorted(started))
        jobs = {row.id: row for row in job_rows.get_jobs(tx.connection, [row.job_id for row in changed])}
        for row in changed:
            job_event(
                tx,
                jobs[row.job_id],
                JobState.RUNNING,
                actor=row.node_id,
                reason=Reason.STARTED,
                attempt=row.id,
                before=JobState.LEASED,
            )
    if progress:
        job_rows.set_progress(tx, progress)
        for attempt_id in progress:
            tx.touch(f"job:{attempt_id.rpartition('-')[0]}")


def news(
    hub: Hub, session: NodeSession, request: NextRequest, *, address: str | None, deliver: bool = True
) -> NextReply:
    """The reply with all news, and with the owner's rules if the agent has others."""
    reply = reply_to(hub, session, address=address, deliver=deliver)
    if session.rules_digest == request.rules:
        return reply
    # They arrive with the jobs they apply to, never later.
    return reply.model_copy(update={"rules": session.rules})


def reply_to(
    hub: Hub, session: NodeSession | None, *, address: str | None, deliver: bool = False, reregister: bool = False
) -> NextReply:
    registry = hub.nodes.registry
    interval_ms = registry.interval_ms
    base: dict[str, Any] = {
        "interval_ms": interval_ms,
        "lease_ms": registry.lease_ms,
        "fence_ms": registry.rules.self_fence_ms,
        "hub_time_ms": hub.now_ms(),
        "reregister": reregister,
        "seen_from": address,
    }
    if session is None:
        return NextReply(**base)
    cancel, session.cancel = sorted(session.cancel), set()
    grants: list[Grant] = []
    if deliver and session.outgoing:
        outgoing, session.outgoing = session.outgoing, []
        for attempt_id in outgoing:
            if (attempt := session.attempts.get(attempt_id)) is not None:
                attempt.delivered = True
                grants.append(attempt.grant)
    measure = session.measure if deliver and not session.measure_sent else None
    session.measure_sent = session.measure_sent or measure is not None
    return NextReply(
        **base,
        cancel=cancel,
        state=session.state.value,
        status=registry.status(session, base["hub_time_ms"]).value,
        measure=measure or None,
        result_deliveries=session.result_deliveries if deliver else None,
        **_grant_fields(hub, session.node_id, grants),
    )


def _grant_fields(hub: Hub, node_id: str, grants: list[Grant]) -> dict[str, Any]:
    """The grants, their specs, and one token that binds all of them to this node."""
    if not grants:
        return {"grants": [], "specs": {}}  # explicitly, because pydantic would deep-copy a default for each poll
    now_s = hub.now_ms() // 1000
    token = JobToken(
        node_id=node_id,
        grants={grant.attempt_id: grant.digest() for grant in grants},
        issued_s=now_s,
        expires_s=now_s + _TOKEN_LIFE_S,
    )
    specs = {known.digest: known.body for grant in grants if (known := hub.jobs.specs.peek(grant.spec)) is not None}
    signed = sign_job_token(token, key=hub.identity.secrets.signing_key, kid=hub.identity.secrets.kid)
    return {"grants": grants, "specs": specs, "token": signed}
