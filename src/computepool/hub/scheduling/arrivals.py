"""Arrivals: a node's first poll at this hub, or after it or the hub restarted, with its profile and the attempts it holds.

After a restart of the hub all nodes arrive at once. Those that arrive while others are being registered share one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from computepool.core.errors import NotFound
from computepool.core.jobs.lifecycle import AttemptState, Reason
from computepool.core.places import place_of
from computepool.core.resources import NodeState
from computepool.core.trust.hardware import Truth
from computepool.core.trust.reputation import NEWCOMER, Reputation
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.fleet.registry import Lane, LiveAttempt, NodeSession
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs.attempt_rows import LiveAttemptRow
from computepool.hub.jobs.running import checkpoints
from computepool.hub.jobs.running.checkpoint_rows import CheckpointRow
from computepool.hub.jobs.specs import KnownSpec
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.nodes import group_homes, rows as node_rows, uptime_rows
from computepool.hub.nodes.joining import enrolment
from computepool.hub.nodes.owner import owner_rules, price_floors
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.scheduling import leases
from computepool.hub.scheduling.grants import grant_of
from computepool.hub.settlement import after_commit, follow_ups
from computepool.hub.trust import hardware, hardware_rows, reputation, reputation_rows
from computepool.protocol.nodes.nodes import NextRequest
from computepool.protocol.nodes.profile import Profile


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A node as it describes itself."""

    node_id: str
    boot_id: str
    profile: Profile
    holding: frozenset[str]

    def row(self) -> dict[str, str]:
        name, profile = self.profile.name, self.profile.model_dump_json()
        return {"node": self.node_id, "new_name": name, "new_profile": profile, "boot": self.boot_id}


@dataclass(slots=True)
class _Stored:
    """What the store knows of nodes that arrive together, by node."""

    rows: dict[str, NodeRow]
    live: dict[str, list[LiveAttemptRow]]
    checkpoints: dict[str, CheckpointRow]  #: by attempt
    truths: dict[str, Truth]


async def arrive(hub: Hub, node: NodePrincipal, request: NextRequest, *, profile: Profile) -> NodeSession:
    enrolment.check_profile(hub, profile)
    arrival = NodeDescription(node.node_id, request.boot_id, profile, frozenset(request.holding))
    return await hub.nodes.arriving.ask(node.node_id, arrival, partial(_admit, hub))


async def _admit(hub: Hub, arrivals: list[NodeDescription]) -> list[NodeSession | Exception]:
    stored, changed = await follow_ups.write(hub, partial(_record, arrivals=arrivals))
    try:
        return await _register_all(hub, arrivals, stored=stored)
    finally:
        await after_commit.follow(hub, changed)


async def _register_all(hub: Hub, arrivals: list[NodeDescription], *, stored: _Stored) -> list[NodeSession | Exception]:
    digests = {attempt.spec_digest for live in stored.live.values() for attempt in live}
    specs = await hub.jobs.specs.load(digests)
    found: list[NodeSession | Exception] = []
    for arrival in arrivals:
        if arrival.node_id in stored.rows:
            found.append(_register(hub, arrival, stored=stored, specs=specs))
        else:
            found.append(NotFound("This node is not enrolled here."))
    sessions = [session for session in found if isinstance(session, NodeSession)]
    await refresh(hub, sessions)
    for session in sessions:
        session.home_due = session.home_due or bool(session.result_deliveries)
    return found


# in the transaction


def _record(tx: JobTx, *, arrivals: Sequence[NodeDescription]) -> _Stored:
    node_ids = sorted(arrival.node_id for arrival in arrivals)
    rows = {row.id: row for row in node_rows.get_nodes(tx.connection, node_ids)}
    enrolled = [arrival for arrival in arrivals if arrival.node_id in rows]
    restarted = [arrival for arrival in enrolled if rows[arrival.node_id].boot_id != arrival.boot_id]
    live = attempt_rows.live_attempts(tx.connection, node_ids)
    if lost := _lost_attempts(restarted, live):
        leases.end_attempts(tx, attempt_ids=lost, reason=Reason.NODE_RESTARTED)
        follow_ups.run(tx)  # these may end further attempts of these nodes
        live = attempt_rows.live_attempts(tx.connection, node_ids)
    gap_ms = round(tx.snapshot.settings.uptime_gap_s * 1000)
    uptime_rows.arrive(tx, [rows[arrival.node_id] for arrival in enrolled], gap_ms=gap_ms)
    node_rows.set_profiles(tx, [arrival.row() for arrival in enrolled])
    for arrival in restarted:
        row = rows[arrival.node_id]
        tx.emit(actor=row.id, action="node.online", node_id=row.id, account_id=row.account_id)
    held = [attempt for attempts in live.values() for attempt in attempts]
    return _Stored(
        rows, live, checkpoints.adopted_checkpoints(tx.connection, held), hardware_rows.load(tx.connection, node_ids)
    )


def _lost_attempts(restarted: Sequence[NodeDescription], live: dict[str, list[LiveAttemptRow]]) -> list[str]:
    """Attempts that a restarted agent held, and no longer holds."""
    return sorted(
        attempt.id
        for arrival in restarted
        for attempt in live.get(arrival.node_id, ())
        if attempt.id not in arrival.holding
    )


# in memory


def _register(hub: Hub, arrival: NodeDescription, *, stored: _Stored, specs: dict[str, KnownSpec]) -> NodeSession:
    """Nothing may be awaited here: if a session does not know what its node runs, it has all of that stopped."""
    registry, profile, row = hub.nodes.registry, arrival.profile, stored.rows[arrival.node_id]
    known = registry.get(row.id)
    if known is not None and known.boot_id != arrival.boot_id:
        registry.on_node_lost(row.id)
        known = None
    session = registry.on_node_seen(
        profile.node_profile(node_id=row.id, owner=row.account_id),
        boot_id=arrival.boot_id,
        state=NodeState(row.state),
        cool_off_until_ms=row.cool_off_until_ms,
        now_ms=hub.now_ms(),
    )
    stated = None if profile.place is None else (profile.place.lat, profile.place.lon)
    session.place = place_of(profile.region, row.id, stated=stated)
    hardware.on_node_described(hub, session, profile, stored=stored.truths.get(row.id))
    price_floors.push(hub, [row.id], price_floors.in_force(row))
    owner_rules.follow(hub, row)
    if known is None:
        _adopt(hub, session, arrival, stored=stored, specs=specs)
    return session


def _adopt(
    hub: Hub, session: NodeSession, arrival: NodeDescription, *, stored: _Stored, specs: dict[str, KnownSpec]
) -> None:
    """Give the session the attempts that its node holds, according to the store, since before this hub knew it."""
    owner = stored.rows[session.node_id].account_id
    lanes: dict[str, Lane] = {}
    for attempt in stored.live.get(session.node_id, ()):
        if attempt.lane not in lanes:
            requirements = specs[attempt.spec_digest].requirements
            shape = shape_of(
                requirements,
                attempt.shown_account,
                ceiling=attempt.ceiling,
                avoid_owners=attempt.avoid_owners,
                # A job that is pinned to another node is about to move there.
                pinned=attempt.pinned if attempt.pinned == session.node_id else "",
                own=attempt.shown_account == owner,
            )
            since_ms = attempt.lane_since_ms or attempt.leased_at_ms
            lanes[attempt.lane] = hub.nodes.registry.adopt_lane(
                session.node_id, attempt.lane, shape=shape, since_ms=since_ms
            )
        grant = grant_of(
            attempt,
            job_id=attempt.job_id,
            attempt_no=attempt.number,
            lane=attempt.lane,
            gpus=[int(index) for index in attempt.gpus.split(",") if index],
            price=attempt.price,
            checkpoint=stored.checkpoints.get(attempt.id),
        )
        hub.nodes.registry.hold(
            session,
            LiveAttempt(
                lanes[attempt.lane],
                grant,
                attempt.leased_at_ms,
                hub_job=attempt.hub_job is not None,
                running=attempt.state == AttemptState.RUNNING,
                delivered=attempt.id in arrival.holding,
            ),
        )


async def refresh(hub: Hub, sessions: Sequence[NodeSession]) -> None:
    """Read again what may have changed while the nodes arrived: their owners' rules and price floors, and their states."""
    if not sessions:
        return
    node_ids = [session.node_id for session in sessions]
    before = {session.node_id: session.state for session in sessions}
    for session in sessions:
        session.home_due = False

    def load(connection: Connection) -> tuple[dict[str, Reputation], list[NodeRow], dict[str, list[str]]]:
        known = reputation_rows.load(connection, node_ids)
        homes = group_homes.waiting_groups(connection, node_ids)
        return known, node_rows.get_nodes(connection, node_ids), homes

    known, found, homes = await hub.store.read(load)
    reputation.update_fleet(hub, {node_id: known.get(node_id, NEWCOMER) for node_id in node_ids})
    rows = {row.id: row for row in found}
    for session in sessions:
        session.result_deliveries = homes.get(session.node_id, [])
        row = rows.get(session.node_id)
        if row is None:
            continue
        price_floors.push(hub, [row.id], price_floors.in_force(row))
        owner_rules.follow(hub, row)
        if session.state is before[row.id]:  # otherwise memory has a newer state
            session.state = NodeState(row.state)
