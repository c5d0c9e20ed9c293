"""The mesh for everybody who is signed in: key figures and the places of the nodes, answered from memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator

from computepool.core.fleet.node_record import NodeRecord
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.places import place_of
from computepool.core.trust.tiers import family_of
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import rows as job_rows
from computepool.hub.nodes import node_status, rows as node_rows
from computepool.hub.observability.live import rows as mesh_rows
from computepool.hub.observability.live.memory import MeshMemory, NodeFacts, NodeLine, RemoteNode
from computepool.hub.observability.live.rows import MINUTE_MS, NodeElsewhere, SettledMinute
from computepool.protocol.nodes.mesh import MeshNode, MeshNodes, MeshView
from computepool.protocol.nodes.profile import Profile

_HOUR_MINUTES = 60
#: Lines made before the event loop runs other tasks: polls must not wait for a long list.
_LINES_AT_ONCE = 250
#: MarketCount a queue of millions takes long, so the pause until the next count is so many times as long.
_COUNT_PAUSE = 20
_ELSEWHERE_MS = 10_000
_ELSEWHERE_MAX = 20_000


async def nodes_json(hub: Hub, principal: Principal, *, known: Collection[str]) -> tuple[str, bytes | None]:
    """The list's tag and the list as JSON; without a body if the tag is known already.

    Lines are made again only for nodes that changed.
    """
    await show(hub)
    version = _version(hub)
    tag = f'W/"{version}.{principal.account_id}"'
    if tag in known:
        return tag, None
    return tag, _body(hub.observability.mesh, principal.account_id, version)


def _version(hub: Hub) -> str:
    return f"{hub.process.hub_id}-{hub.observability.mesh.number}"


def _body(mesh: MeshMemory, account_id: str, version: str) -> bytes:
    lines = mesh.lines.values()
    placed = sum(1 for line in lines if line.facts.place.lat is not None)
    whole = MeshNodes(version=version, at_ms=mesh.listed_ms, placed=placed, nodes=[])
    head = whole.model_dump_json().encode().removesuffix(b"]}")
    rows = (line.head + (b"true}" if line.facts.profile.owner == account_id else b"false}") for line in lines)
    return head + b",".join(rows) + b"]}"


async def show(hub: Hub) -> MeshView:
    """Load the mesh, unless somebody did a moment ago."""
    mesh, age_ms = hub.observability.mesh, round(hub.settings.mesh_age_s * 1000)
    async with mesh.lock:
        now_ms = hub.now_ms()
        if mesh.view is None or not 0 <= now_ms - mesh.refreshed_ms < age_ms:
            await _count(hub, now_ms)
            await _load_elsewhere(hub, now_ms)
            mesh.view = await _list(hub, now_ms)
            mesh.refreshed_ms = now_ms
        return mesh.view


async def _count(hub: Hub, now_ms: int) -> None:
    """Load the numbers that only the store knows."""
    mesh, settled = hub.observability.mesh, hub.observability.mesh.settled
    since_ms = now_ms - _HOUR_MINUTES * MINUTE_MS
    count = now_ms >= mesh.count_again_ms or now_ms < mesh.counted_ms

    def load(connection: Connection) -> tuple[dict[str, int], int, int, list[SettledMinute]]:
        states = job_rows.count_states(connection) if count else {}
        enrolled = node_rows.count_nodes(connection) if count else 0
        upto, rows = mesh_rows.settled_minutes(connection, after=settled.upto, since_ms=since_ms)
        return states, enrolled, upto, list(rows)

    states, enrolled, settled.upto, rows = await hub.store.read(load)
    if count:
        mesh.queued, mesh.enrolled = states.get("queued", 0), enrolled
        mesh.running = states.get("running", 0)
        mesh.counted_ms = hub.now_ms()
        mesh.count_again_ms = mesh.counted_ms + _COUNT_PAUSE * (mesh.counted_ms - now_ms)
    for row in rows:
        amount, jobs = settled.minutes.get(row.minute, (0, 0))
        settled.minutes[row.minute] = amount + int(row.amount), jobs + row.jobs
    for minute in [minute for minute in settled.minutes if (minute + 1) * MINUTE_MS <= since_ms]:
        del settled.minutes[minute]


async def _load_elsewhere(hub: Hub, now_ms: int) -> None:
    """Load the nodes that poll other hubs of this pool."""
    mesh = hub.observability.mesh
    if 0 <= now_ms - mesh.elsewhere_ms < _ELSEWHERE_MS and mesh.elsewhere_ms:
        return
    mesh.elsewhere_ms = now_ms
    since_ms = now_ms - hub.nodes.registry.rules.lease_ms(hub.nodes.registry.interval_ms)

    def load(connection: Connection) -> list[NodeElsewhere]:
        if not node_status.other_hubs_serve(hub, connection):
            return []
        return list(mesh_rows.nodes_elsewhere(connection, since_ms=since_ms, limit=_ELSEWHERE_MAX))

    rows = await hub.store.read(load)
    mesh.elsewhere = {row.id: _elsewhere(hub, row, mesh.elsewhere.get(row.id)) for row in rows}


def _elsewhere(hub: Hub, row: NodeElsewhere, known: RemoteNode | None) -> RemoteNode:
    if known is None or known.text != row.profile:
        view = Profile.model_validate_json(row.profile)
        stated = None if view.place is None else (view.place.lat, view.place.lon)
        profile = view.node_profile(node_id=row.id, owner=row.account_id)
        place = place_of(view.region, row.id, stated=stated)
    else:
        profile, place = known.facts.profile, known.facts.place
    facts = NodeFacts(
        profile=profile,
        place=place,
        state=row.state,
        status=node_status.of_node(hub, row, profile, banned=row.banned, shared=True, jobs=row.running),
        running=row.running,
        cpu_free_milli=None,
    )
    return RemoteNode(row.profile, facts)


async def _list(hub: Hub, now_ms: int) -> MeshView:
    """Update the lines and add up the totals."""
    mesh = hub.observability.mesh
    await _load_names(hub)
    found: dict[str, NodeLine] = {}
    changed = False
    totals = _Totals()
    for number, (node_id, facts, cards_busy) in enumerate(_facts(hub), start=1):
        if number % _LINES_AT_ONCE == 0:
            await asyncio.sleep(0)
        totals.add(facts, cards_busy)
        line = mesh.lines.get(node_id)
        if line is None or (line.facts is not facts and line.facts != facts):
            changed = True
            line = NodeLine(facts, _head(node_id, facts, mesh.owner_names.get(facts.profile.owner, "")))
        found[node_id] = line
    if changed or found.keys() != mesh.lines.keys():
        mesh.number += 1
        mesh.listed_ms = now_ms
    mesh.lines = found
    return totals.view(hub, now_ms)


def _facts(hub: Hub) -> Iterator[tuple[str, NodeFacts, int]]:
    """The id, the facts and the number of busy cards of every node."""
    registry, lines, now_ms = hub.nodes.registry, hub.observability.mesh.lines, hub.now_ms()
    for session in registry.sessions:
        node_id = session.node_id
        if registry.get(node_id) is session:  # it may have left while others were listed
            record = registry.fleet[node_id]
            status = registry.status(session, now_ms)
            known = lines.get(node_id)
            facts = _facts_of(session, record, status, known=None if known is None else known.facts)
            yield node_id, facts, sum(card.jobs > 0 for card in record.cards)
    for node_id, other in hub.observability.mesh.elsewhere.items():
        if registry.get(node_id) is None:
            yield node_id, other.facts, 0


def _facts_of(session: NodeSession, record: NodeRecord, status: NodeStatus, *, known: NodeFacts | None) -> NodeFacts:
    """The known facts if they still hold: of thousands of nodes, hardly any changes within a second."""
    running = sum(attempt.running for attempt in session.attempts.values()) if session.attempts else 0
    cpu_free = max(0, record.profile.capacity.cpu_milli - record.cpu_milli)
    if (
        known is not None
        and known.status is status
        and known.cpu_free_milli == cpu_free
        and known.running == running
        and known.profile is session.profile
        and known.place is session.place
        and known.state == session.state.value
    ):
        return known
    return NodeFacts(
        profile=session.profile,
        place=session.place,
        state=session.state.value,
        status=status,
        running=running,
        cpu_free_milli=cpu_free,
    )


def _head(node_id: str, facts: NodeFacts, owner_name: str) -> bytes:
    """The line up to the value of `mine`."""
    profile, capacity = facts.profile, facts.profile.capacity
    node = MeshNode(
        id=node_id,
        name=profile.name,
        owner_name=owner_name,
        tier=capacity.tier,
        family=family_of(capacity.tier),
        region=profile.region,
        place=facts.place.label,
        lat=facts.place.lat,
        lon=facts.place.lon,
        state=facts.state,
        status=facts.status,
        takes_work=facts.status.takes_jobs,
        capacity=len(capacity.gpus) * 1000 or capacity.cpu_milli,
        cores=capacity.cpu_milli / 1000,
        cores_free=None if facts.cpu_free_milli is None else facts.cpu_free_milli / 1000,
        ram_mb=capacity.ram_mb,
        gpus=len(capacity.gpus),
        vram_mb=sum(gpu.vram_mb for gpu in capacity.gpus),
        running=facts.running,
        mine=False,
    )
    return node.model_dump_json().encode().removesuffix(b"false}")


class _Totals:
    def __init__(self) -> None:
        self.nodes = self.cpu_milli = self.cpu_busy = self.gpus = self.gpus_busy = self.vram_mb = 0

    def add(self, facts: NodeFacts, cards_busy: int) -> None:
        capacity = facts.profile.capacity
        self.nodes += facts.status is not NodeStatus.UNRESPONSIVE
        self.cpu_milli += capacity.cpu_milli
        self.gpus += len(capacity.gpus)
        self.vram_mb += sum(gpu.vram_mb for gpu in capacity.gpus)
        self.gpus_busy += cards_busy
        if facts.cpu_free_milli is not None:
            self.cpu_busy += max(0, capacity.cpu_milli - facts.cpu_free_milli)

    def view(self, hub: Hub, now_ms: int) -> MeshView:
        mesh = hub.observability.mesh
        paid = list(mesh.settled.minutes.values())
        return MeshView(
            at_ms=now_ms,
            version=_version(hub),
            nodes_online=self.nodes,
            nodes=mesh.enrolled,
            cores=self.cpu_milli / 1000,
            cores_busy=self.cpu_busy / 1000,
            gpus=self.gpus,
            gpus_busy=self.gpus_busy,
            vram_mb=self.vram_mb,
            running=mesh.running,
            queued=mesh.queued,
            settled_hour=sum(amount for amount, _ in paid),
            jobs_hour=sum(jobs for _, jobs in paid),
        )


async def _load_names(hub: Hub) -> None:
    """Load names of new owners. They never change, so each is read once."""
    known = hub.observability.mesh.owner_names
    owners = {session.profile.owner for session in hub.nodes.registry.sessions}
    owners |= {other.facts.profile.owner for other in hub.observability.mesh.elsewhere.values()}
    missing = sorted(owners - known.keys())
    if missing:
        known |= await hub.store.read(account_rows.get_names, missing)
