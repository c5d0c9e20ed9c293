"""The long poll: what a node says of itself, and what it is given to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from computepool.core.errors import NotFound, Unauthenticated
from computepool.core.jobs.lifecycle import AttemptState, JobState, Reason
from computepool.core.places import place_of
from computepool.core.resources import NodeState
from computepool.core.trust.hardware import Truth
from computepool.core.trust.reputation import NEWCOMER, Reputation
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.fleet.registry import Lane, NodeSession
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows, transitions
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.attempt_rows import LiveAttemptRow
from computepool.hub.jobs.running import checkpoints, usage
from computepool.hub.jobs.running.checkpoint_rows import CheckpointRow
from computepool.hub.jobs.specs import KnownSpec
from computepool.hub.jobs.transitions import NOTHING, Settlement
from computepool.hub.nodes import group_homes, mesh_version, own_node, uptime
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.owner import owner_rules, price_floors
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.scheduling import leases
from computepool.hub.scheduling.grants import grant_of
from computepool.hub.settlement import after_commit
from computepool.hub.snapshot import Snapshot, write
from computepool.hub.trust import hardware, hardware_rows, reputation, reputation_rows
from computepool.protocol.nodes.nodes import Grant, NextReply, NextRequest, Profile
from computepool.protocol.tokens import JobToken, sign_job_token

_TOKEN_LIFE_S = 24 * 3600


async def next_(hub: Hub, node: NodePrincipal, request: NextRequest, *, poll: bool = True) -> NextReply:
    """Heartbeat, renewal and claim in one. A poll parks while there is nothing to say; a heartbeat only renews."""
    session = hub.nodes.registry.get(node.node_id)
    if session is None or session.boot_id != request.boot_id or request.profile is not None:
        if request.profile is None:
            return _reply(hub, None, reregister=True)
        session = await _arrive(hub, node, request, profile=request.profile)
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
        return _reply(hub, None)  # a newer poll of the same node came: nobody listens to this one
    reply = owner_rules.with_rules(_reply(hub, session, deliver=poll), session, request)
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


_Arrived: TypeAlias = tuple[NodeRow, list[LiveAttemptRow], dict[str, CheckpointRow], Settlement, Truth | None]


async def _arrive(hub: Hub, node: NodePrincipal, request: NextRequest, *, profile: Profile) -> NodeSession:
    """First word of a node to this hub (or since its restart): learn its profile and what it should be holding."""
    mesh_version.check_node(hub, profile)

    def unit(tx: Tx, snapshot: Snapshot) -> _Arrived:
        row = node_rows.get_node(tx.connection, node.node_id)
        if row is None:
            raise NotFound("This node is not enrolled here.")
        uptime.arrive(tx, row, settings=snapshot.settings)
        node_rows.set_profile(
            tx,
            node_id=node.node_id,
            name=profile.name,
            profile=profile.model_dump_json(),
            boot_id=request.boot_id,
        )
        settlement = NOTHING
        if row.boot_id != request.boot_id:
            # The agent restarted: whatever it held and does not hold now died with it.
            held = {attempt.id for attempt in attempt_rows.live_attempts(tx.connection, node_id=node.node_id)}
            lost = sorted(held - set(request.holding))
            if lost:
                settlement = leases.end_attempts(tx, snapshot, attempt_ids=lost, reason=Reason.NODE_RESTARTED)
            tx.emit(actor=node.node_id, action="node.online", node_id=node.node_id, account_id=row.account_id)
            tx.touch("events")
        truth = hardware_rows.load(tx.connection, [node.node_id]).get(node.node_id)
        live = attempt_rows.live_attempts(tx.connection, node_id=node.node_id)
        return row, live, checkpoints.adopted(tx.connection, live), settlement, truth

    row, live, kept, settlement, truth = await write(hub, unit)
    specs = await hub.jobs.specs.load({attempt.spec_digest for attempt in live})
    known = hub.nodes.registry.get(node.node_id)
    if known is not None and known.boot_id != request.boot_id:
        hub.nodes.registry.on_node_lost(node.node_id)
        known = None
    session = hub.nodes.registry.on_node_seen(
        profile.node_profile(node_id=node.node_id, owner=row.account_id),
        boot_id=request.boot_id,
        state=NodeState(row.state),
        cool_off_until_ms=row.cool_off_until_ms,
        now_ms=hub.now_ms(),
    )
    stated = None if profile.place is None else (profile.place.lat, profile.place.lon)
    session.place = place_of(profile.region, node.node_id, stated=stated)
    hardware.arrive(hub, session, profile, stored=truth)
    price_floors.push(hub, [node.node_id], price_floors.holding(row))
    owner_rules.follow(hub, row)
    if known is None:
        # Nothing is awaited before: a session that does not know what its node runs would have all of it stopped.
        holding = set(request.holding)
        _adopt(hub, session, live, specs=specs, holding=holding, kept=kept, owner=row.account_id)
    await refresh(hub, session)
    session.home_due = session.home_due or bool(session.result_deliveries)
    await after_commit.follow(hub, settlement)
    return session


async def refresh(hub: Hub, session: NodeSession) -> None:
    """What the store says now: its owner may have changed rules or floor, or paused it, while it arrived."""
    node_id, before = session.node_id, session.state
    session.home_due = False

    def load(connection: Connection) -> tuple[NodeRow | None, Reputation, list[str]]:
        known = reputation_rows.load(connection, [node_id]).get(node_id, NEWCOMER)
        return node_rows.get_node(connection, node_id), known, group_homes.waiting(connection, node_id)

    row, known, session.result_deliveries = await hub.store.read(load)
    reputation.follow(hub, {node_id: known})
    if row is None:
        return
    price_floors.push(hub, [node_id], price_floors.holding(row))
    owner_rules.follow(hub, row)
    if session.state is before:  # else somebody was quicker, who knows better
        session.state = NodeState(row.state)


def _adopt(
    hub: Hub,
    session: NodeSession,
    live: Sequence[LiveAttemptRow],
    *,
    specs: dict[str, KnownSpec],
    holding: set[str],
    kept: dict[str, CheckpointRow],
    owner: str,
) -> None:
    """Attempts this node holds by the store's knowledge, from before this hub knew it."""
    lanes: dict[str, Lane] = {}
    for attempt in live:
        known = specs[attempt.spec_digest]
        if attempt.lane not in lanes:
            shape = shape_of(
                known.requirements,
                attempt.shown_account,
                ceiling=attempt.ceiling,
                avoid_owners=attempt.avoid_owners,
                # Pinned to another one, it is about to leave.
                pinned=attempt.pinned if attempt.pinned == session.node_id else "",
                own=attempt.shown_account == owner,
            )
            since_ms = attempt.lane_since_ms or attempt.leased_at_ms
            lanes[attempt.lane] = hub.nodes.registry.adopt_lane(
                session.node_id, attempt.lane, shape=shape, since_ms=since_ms
            )
        hub.nodes.registry.hold(
            session,
            lanes[attempt.lane],
            grant_of(
                attempt,
                job_id=attempt.job_id,
                attempt_no=attempt.number,
                lane=attempt.lane,
                gpus=[int(index) for index in attempt.gpus.split(",") if index],
                price=attempt.price,
                kept=kept.get(attempt.id),
            ),
            since_ms=attempt.leased_at_ms,
            hub_job=attempt.hub_job is not None,
            delivered=attempt.id in holding,
            running=attempt.state == AttemptState.RUNNING,
        )


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
    hub: Hub, session: NodeSession | None, *, deliver: bool = False, reregister: bool = False
) -> NextReply:
    registry = hub.nodes.registry
    interval_ms = registry.interval_ms
    base = {
        "interval_ms": interval_ms,
        "lease_ms": registry.lease_ms,
        "fence_ms": registry.rules.self_fence_ms,
        "hub_time_ms": hub.now_ms(),
        "reregister": reregister,
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
