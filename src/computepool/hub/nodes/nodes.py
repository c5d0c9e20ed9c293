"""Nodes: their view, why they have no work, and the state that their owner sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from computepool.core.errors import Conflict
from computepool.core.fleet.node_status import NodeStatus, status_sentence
from computepool.core.isolation import Level
from computepool.core.placement import explain
from computepool.core.places import place_of
from computepool.core.resources import NodeState
from computepool.core.trust import hardware as rules
from computepool.core.trust.hardware import Truth
from computepool.core.trust.reputation import NEWCOMER, Reputation
from computepool.core.trust.tiers import region_of
from computepool.core.trust.uptime import Span
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access, authenticator
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import attempt_rows
from computepool.hub.nodes import node_status, rows as node_rows, uptime
from computepool.hub.nodes.owner import owner_rules, price_floors
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.trust import hardware, hardware_messages, hardware_rows, reputation, reputation_rows
from computepool.protocol.nodes.nodes import NodeView, NodeWhyRow, NodeWhyView
from computepool.protocol.nodes.profile import Profile

_AT_WORK = {NodeStatus.OWNER_ONLY, NodeStatus.FLOOR_ABOVE_PRICE, NodeStatus.WORKING, NodeStatus.READY}
_RESTING = set(NodeStatus) - _AT_WORK


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """Stored facts about some nodes beside their rows."""

    reputations: dict[str, Reputation]
    truths: dict[str, Truth]
    spans: dict[str, list[Span]]
    shared: bool  #: other hubs serve this database too (node_status.py)


def load_background(hub: Hub, connection: Connection, node_ids: Sequence[str]) -> NodeHistory:
    return NodeHistory(
        reputation_rows.load(connection, node_ids),
        hardware_rows.load(connection, node_ids),
        uptime.load(hub, connection, node_ids),
        node_status.other_hubs_serve(hub, connection),
    )


def view(hub: Hub, row: NodeRow, principal: Principal | None, *, background: NodeHistory) -> NodeView:
    known = background.reputations.get(row.id, NEWCOMER)
    profile = Profile.model_validate_json(row.profile)
    mine = access.may_manage(principal, row.account_id)
    penalised = bool(known.banned_at_ms or known.penalised_at_ms)
    session = hub.nodes.registry.get(row.id)
    free = hub.nodes.registry.fleet[row.id].free() if session is not None else None
    running = sum(1 for attempt in session.attempts.values() if attempt.running) if session is not None else 0
    trusted = reputation.view(hub, known)
    found = hardware.current_truth(hub, row.id, profile, stored=background.truths.get(row.id))
    stated = None if profile.place is None else (profile.place.lat, profile.place.lon)
    in_force = rules.truthful(profile.capacity(), found)
    described = replace(profile.node_profile(node_id=row.id, owner=row.account_id), capacity=in_force)
    status = node_status.of_node(hub, row, described, banned=known.is_banned(hub.now_ms()), shared=background.shared)
    return NodeView.from_attributes(
        row,
        owner=row.account_id,
        status=status,
        online=status.is_online,
        profile=profile if mine else profile.model_copy(update={"trusted": []}),
        tier=in_force.tier,
        last_seen_ms=session.seen_ms if session is not None else row.last_seen_ms,
        running=running,
        leased=(len(session.attempts) - running) if session is not None else 0,
        cores_free=None if free is None else free.cpu_milli / 1000,
        ram_free_mb=None if free is None else free.ram_mb,
        cool_off_until_ms=row.cool_off_until_ms or None,
        reliability=trusted.score,
        reputation=trusted,
        hardware=hardware_messages.view(found, profile.tiers()),
        can_manage=mine,
        can_pardon=penalised and principal is not None and principal.is_admin,
        region=region_of(profile.region),
        place=place_of(profile.region, row.id, stated=stated).label,
        floor=price_floors.in_force(row) if mine else None,
        floor_is_default=mine and row.floor is None and row.owner_floor is not None,
        uptime=uptime.view(hub, row, background.spans.get(row.id, ()), online=status.is_online),
    )


async def get(hub: Hub, principal: Principal, node_id: str) -> NodeView:
    def load(connection: Connection) -> tuple[NodeRow | None, NodeHistory]:
        return node_rows.get_node(connection, node_id), load_background(hub, connection, [node_id])

    row, background = await hub.store.read(load)
    seen = view(hub, access.require_found(row, what="node"), principal, background=background)
    level = Level.parse(seen.profile.isolation)
    return seen.model_copy(update={"sentence": _sentence(hub, seen), "sandbox": level.meaning})


async def set_state(hub: Hub, principal: Principal, node_id: str, *, state: NodeState) -> NodeView:
    """Set the state that the owner wants. It takes effect here at once, and on other hubs by notification."""

    def unit(tx: Tx) -> None:
        node_rows.lock_node(tx, node_id)
        row = manageable(tx.connection, principal, node_id)
        if row.state == NodeState.REVOKED:
            raise Conflict("This node was revoked; enrol it again.")
        if node_rows.set_state(tx, node_id=node_id, before=row.state, after=state.value) and row.state != state:
            steps = {"action": f"node.{state.value}", "before": row.state, "after": state.value}
            node_rows.emit_change(tx, row, actor=principal.account_id, **steps)
        tx.touch(f"node:{node_id}", authenticator.KEYS_TOPIC)

    await hub.store.write(unit)
    follow_state(hub, node_id, state)
    hub.jobs.queue.wake()
    return await get(hub, principal, node_id)


def follow_state(hub: Hub, node_id: str, state: NodeState) -> None:
    session = hub.nodes.registry.get(node_id)
    if session is None:
        return
    session.state = state
    hub.nodes.registry.refresh(session, hub.now_ms())
    session.wake()
    if state is NodeState.REVOKED:
        hub.nodes.registry.on_node_lost(node_id)


def manageable(connection: Connection, principal: Principal, node_id: str) -> NodeRow:
    return access.require_owned(principal, node_rows.get_node(connection, node_id), what="node")


async def reconcile(hub: Hub, node_id: str) -> None:
    """Apply changes that another hub made to a node that polls this hub, and cancel attempts that are no longer live."""
    session = hub.nodes.registry.get(node_id)
    if session is None:
        return

    def load(connection: Connection) -> tuple[NodeRow | None, set[str], Reputation]:
        held = attempt_rows.live_attempts(connection, [node_id]).get(node_id, [])
        live = {attempt.id for attempt in held}
        known = reputation_rows.load(connection, [node_id])
        return node_rows.get_node(connection, node_id), live, known.get(node_id, NEWCOMER)

    held, before = set(session.attempts), session.state
    row, live, known = await hub.store.read(load)
    for attempt_id in sorted(held - live):
        hub.nodes.registry.cancel(node_id, attempt_id)
    if row is None:
        return
    if row.state != session.state and session.state is before:  # else it was changed meanwhile
        follow_state(hub, node_id, NodeState(row.state))
    hub.nodes.registry.rest(node_id, row.cool_off_until_ms, now_ms=hub.now_ms())
    price_floors.push(hub, [node_id], price_floors.in_force(row))
    owner_rules.follow(hub, row)
    reputation.update_fleet(hub, {node_id: known})
    await hardware.refresh(hub, [node_id])


async def why(hub: Hub, principal: Principal, node_id: str) -> NodeWhyView:
    """Why this node has no work: its own state, or each waiting shape and what the node lacks for it."""
    view = await get(hub, principal, node_id)
    access.check_owner(principal, view.owner, what="node")  # the answer reveals what others have queued
    resting = _not_working(hub, view)
    rows = [] if resting else explain.explain_node(hub.nodes.registry.fleet, node_id, hub.jobs.queue.backlog.shapes())
    if resting or not view.status.takes_jobs or view.status is NodeStatus.WORKING:
        sentence = resting or view.sentence
    elif rows:
        sentence = "Jobs are waiting, but this node does not meet their requirements; see each row."
    else:
        sentence = "No job is waiting: the queue is empty."
    shown = [NodeWhyRow(shape=row.shape, queued=row.queued, reason=row.reason) for row in rows]
    trusted = "" if view.reputation is None else reputation.sentence(view.reputation)
    found = "" if view.hardware is None else view.hardware.sentence
    return NodeWhyView(node_id=node_id, sentence=sentence, reputation=trusted, hardware=found, rows=shown)


def _sentence(hub: Hub, view: NodeView) -> str:
    """The node's status for anybody; about its price floor only for those who may see it."""
    session = hub.nodes.registry.get(view.id)
    if view.status is NodeStatus.FLOOR_ABOVE_PRICE and view.can_manage and session is not None:
        return price_floors.describe(hub, session.profile, view.floor)
    rest_ms = (view.cool_off_until_ms or 0) - hub.now_ms()
    return status_sentence(
        view.status, jobs=view.running + view.leased, rest_s=rest_ms // 1000, faults=view.consecutive_faults
    )


def _not_working(hub: Hub, view: NodeView) -> str:
    """What keeps the node from all work, or an empty text."""
    if view.status in _RESTING:
        return view.sentence
    return "" if hub.nodes.registry.get(view.id) else "The node polls another hub of this pool; ask there."
