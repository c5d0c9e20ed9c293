"""The long poll: what a node says of itself, and what it is given to do."""

from __future__ import annotations

import asyncio
from typing import Any

from computepool.core.errors import Unauthenticated
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows, transitions
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.running import usage
from computepool.hub.nodes import group_homes, own_node
from computepool.hub.nodes.owner import owner_rules
from computepool.hub.scheduling import arrivals
from computepool.protocol.nodes.nodes import Grant, NextReply, NextRequest
from computepool.protocol.tokens import JobToken, sign_job_token

_TOKEN_LIFE_S = 24 * 3600


async def next_(
    hub: Hub, node: NodePrincipal, request: NextRequest, *, poll: bool = True, address: str | None = None
) -> NextReply:
    """Heartbeat, renewal and claim in one. A poll parks while there is nothing to say; a heartbeat only renews."""
    session = hub.nodes.registry.get(node.node_id)
    if session is None or session.boot_id != request.boot_id or request.profile is not None:
        if request.profile is None:
            return _reply(hub, None, address=address, reregister=True)
        session = await arrivals.arrive(hub, node, request, profile=request.profile)
    mine = _receive(hub, session, request, poll=poll)
    await _note_running(hub, session, request)
    if poll and not request.claim:
        # It may be this node's last word: what was chosen for it before it said so is told now, or nobody runs it
        # until its lease ends.
        async with hub.jobs.queue.placing:
            pass
    quiet = not _has_news(session) and not hub.process.stopping
    if poll and request.wait_ms and quiet and session.polls == mine:
        await _park(hub, session, request.wait_ms)
        if session.state is NodeState.REVOKED:
            raise Unauthenticated("This node's key was revoked by its owner or the operator.")
    if poll and session.home_due and session.polls == mine:
        await group_homes.load(hub, session)
    if poll and session.polls != mine:
        return _reply(
            hub, None, address=address
        )  # a newer poll of the same node came: nobody listens to this one
    reply = _reply(hub, session, address=address, deliver=poll)
    reply = owner_rules.with_rules(reply, session, request)
    if poll and request.stopping:
        await own_node.stop(hub, session)
    if request.profile is not None:
        hub.jobs.queue.wake()
    return reply


def _receive(hub: Hub, session: NodeSession, request: NextRequest, *, poll: bool) -> int:
    """The number of the poll, which is the node's only one until a higher number is given."""
    now_ms = hub.now_ms()
    session.seen_ms = now_ms
    holding = set(request.holding)
    session.cancel.update(id_ for id_ in holding if id_ not in session.attempts)
    if not poll:
        # Only polls are sequential; a heartbeat may overtake the reply that carries a grant.
        return session.polls
    session.wake()
    session.waiter = None  # an older poll of the same node: its connection is gone
    session.polls += 1
    session.polled_ms = now_ms
    if (
        session.state is NodeState.ACTIVE
    ):  # else it does as it was told here, which says nothing of its own wish
        session.claims = request.claim
    hub.nodes.registry.refresh(session, now_ms)
    waiting = set(session.outgoing)
    for attempt in session.attempts.values():
        if attempt.delivered and attempt.id not in holding and attempt.id not in waiting:
            # The reply that carried it was lost on the way. It is still this node's: say it again.
            attempt.delivered = False
            session.outgoing.append(attempt.id)
    return session.polls


def _has_news(session: NodeSession) -> bool:
    unmeasured = session.measure and not session.measure_sent
    return bool(session.outgoing or session.cancel or unmeasured or session.home_due)


async def _park(hub: Hub, session: NodeSession, wait_ms: int) -> None:
    """Until there is news, the time is over, or a newer poll of the same node came."""
    session.waiter = asyncio.get_running_loop().create_future()
    waiter = session.waiter
    timeout_s = min(wait_ms, hub.nodes.registry.interval_ms) / 1000
    timer = asyncio.get_running_loop().call_later(timeout_s, _time_over, waiter)
    try:
        await waiter
    finally:
        timer.cancel()
        if session.waiter is waiter:
            session.waiter = None


def _time_over(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _note_running(hub: Hub, session: NodeSession, request: NextRequest) -> None:
    for report in request.running:
        if (attempt := session.attempts.get(report.attempt_id)) is not None:
            attempt.last_report = report
    usage.record(hub, session, request.running)
    started = [
        report.attempt_id
        for report in request.running
        if (attempt := session.attempts.get(report.attempt_id)) is not None and not attempt.running
    ]
    progress = {
        report.attempt_id: report.progress
        for report in request.running
        if report.progress is not None and report.attempt_id in session.attempts
    }
    if not started and not progress:
        return
    await hub.store.write(lambda tx: _write_running(tx, started, progress))
    for attempt_id in started:
        if (attempt := session.attempts.get(attempt_id)) is not None:
            attempt.running = True


def _write_running(tx: Tx, started: list[str], progress: dict[str, float]) -> None:
    if started:
        changed = attempt_rows.start_attempts(tx, sorted(started))
        jobs = {row.id: row for row in job_rows.get_jobs(tx.connection, [row.job_id for row in changed])}
        for row in changed:
            transitions.job_event(
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


def _reply(
    hub: Hub,
    session: NodeSession | None,
    *,
    address: str | None,
    deliver: bool = False,
    reregister: bool = False,
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
    """The grants, their specs, and one token that binds them all to this node."""
    if not grants:
        return {"grants": [], "specs": {}}  # said, because a default would be copied deeply for each poll
    now_s = hub.now_ms() // 1000
    token = JobToken(
        node_id=node_id,
        grants={grant.attempt_id: grant.digest() for grant in grants},
        issued_s=now_s,
        expires_s=now_s + _TOKEN_LIFE_S,
    )
    specs = {
        known.digest: known.body for grant in grants if (known := hub.jobs.specs.peek(grant.spec)) is not None
    }
    signed = sign_job_token(token, key=hub.identity.secrets.signing_key, kid=hub.identity.secrets.kid)
    return {"grants": grants, "specs": specs, "token": signed}
