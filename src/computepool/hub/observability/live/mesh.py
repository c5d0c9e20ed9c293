"""The mesh as everybody signed in may watch it: counters, and where the nodes are. Answered from memory."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Collection, Iterator

from computepool.core.fleet.node_record import NodeRecord
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.places import place_of
from computepool.core.resources import NodeProfile
from computepool.core.trust.tiers import family_of
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import rows as job_rows
from computepool.hub.money import ledger_rows
from computepool.hub.nodes import node_status
from computepool.hub.nodes import rows as node_rows
from computepool.hub.observability.live import rows as mesh_rows
from computepool.hub.observability.live.memory import BODIES_MAX, NodeFacts, NodeLine, RemoteNode
from computepool.hub.observability.live.rows import MINUTE_MS, NodeElsewhere, SettledMinute
from computepool.protocol.nodes.mesh import MeshNode, MeshNodes, MeshView
from computepool.protocol.nodes.nodes import Profile

_HOUR_MINUTES = 60
#: Polls of nodes must not wait for a long list.
_LINES_AT_ONCE = 250
#: A look at a queue of millions takes a while; it is done for so small a part of the time.
_COUNT_SHARE = 20
_ELSEWHERE_MS = 10_000
_ELSEWHERE_MAX = 20_000
_GZIP_LEVEL = 4


async def show(hub: Hub) -> MeshView:
    await _look(hub)
    assert hub.observability.mesh.view is not None
    return hub.observability.mesh.view


async def nodes_json(
    hub: Hub, principal: Principal, *, packed: bool, known: Collection[str]
) -> tuple[str, bytes | None]:
    """The list's tag, and the list as JSON, `packed` with gzip; nothing where the tag is known already.

    Lines are made again only for nodes that changed.
    """
    await _look(hub)
    # Both now: while a list is packed, the next one may be made.
    version = _version(hub)
    tag = f'W/"{version}.{principal.account_id}"'
    if tag in known:
        return tag, None
    key = version, f"{principal.account_id}{'.gz' if packed else ''}"
    body = hub.observability.mesh.bodies.get(key)
    if body is None:
        body = _body(hub, principal.account_id, version)
        if packed:
            plain = body
            body = await hub.process.in_thread(lambda: gzip.compress(plain, _GZIP_LEVEL, mtime=0))
        hub.observability.mesh.bodies[key] = body
        while len(hub.observability.mesh.bodies) > BODIES_MAX:
            hub.observability.mesh.bodies.popitem(last=False)
    return tag, body


def _version(hub: Hub) -> str:
    return f"{hub.process.hub_id}-{hub.observability.mesh.number}"


def _body(hub: Hub, account_id: str, version: str) -> bytes:
    lines = hub.observability.mesh.lines.values()
    placed = sum(1 for line in lines if line.facts.place.lat is not None)
    whole = MeshNodes(version=version, at_ms=hub.observability.mesh.listed_ms, placed=placed, nodes=[])
    head = whole.model_dump_json().encode().removesuffix(b"]}")
    rows = (line.head + (b"true}" if line.facts.profile.owner == account_id else b"false}") for line in lines)
    return head + b",".join(rows) + b"]}"


# looking


async def _look(hub: Hub) -> None:
    """At most once in a while, however many ask."""
    mesh, age_ms = hub.observability.mesh, round(hub.settings.mesh_age_s * 1000)
    async with mesh.lock:
        now_ms = hub.now_ms()
        if mesh.view is not None and 0 <= now_ms - mesh.looked_ms < age_ms:
            return
        await _count(hub, now_ms)
        await _look_elsewhere(hub, now_ms)
        mesh.view = await _list(hub, now_ms)
        mesh.looked_ms = now_ms


async def _count(hub: Hub, now_ms: int) -> None:
    """What only the store knows of the whole pool."""
    mesh, settled = hub.observability.mesh, hub.observability.mesh.settled
    since_ms = now_ms - _HOUR_MINUTES * MINUTE_MS
    count = now_ms >= mesh.count_again_ms or now_ms < mesh.counted_ms

    def load(connection: Connection) -> tuple[dict[str, int], int, int, list[SettledMinute]]:
        states = job_rows.count_states(connection) if count else {}
        enrolled = node_rows.count_nodes(connection) if count else 0
        upto, rows = mesh_rows.settled(connection, after=settled.upto, since_ms=since_ms)
        return states, enrolled, upto, list(rows)

    states, enrolled, settled.upto, rows = await hub.store.read(load)
    if count:
        mesh.queued, mesh.enrolled = states.get("queued", 0), enrolled
        mesh.running = states.get("running", 0)
        mesh.counted_ms = hub.now_ms()
        mesh.count_again_ms = mesh.counted_ms + _COUNT_SHARE * (mesh.counted_ms - now_ms)
    for row in rows:
        amount, jobs = settled.minutes.get(row.minute, (0, 0))
        settled.minutes[row.minute] = amount + int(row.amount), jobs + row.jobs
    for minute in [minute for minute in settled.minutes if (minute + 1) * MINUTE_MS <= since_ms]:
        del settled.minutes[minute]


async def _look_elsewhere(hub: Hub, now_ms: int) -> None:
    """Nodes that poll other hubs of this pool are known by the store's word, as far as it goes."""
    mesh = hub.observability.mesh
    if 0 <= now_ms - mesh.elsewhere_ms < _ELSEWHERE_MS and mesh.elsewhere_ms:
        return
    mesh.elsewhere_ms = now_ms
    since_ms = now_ms - hub.nodes.registry.rules.offline_after_ms(hub.nodes.registry.interval_ms)

    def load(connection: Connection) -> list[NodeElsewhere]:
        if not node_status.other_hubs_serve(hub, connection):
            return []
        return list(mesh_rows.seen_elsewhere(connection, since_ms=since_ms, limit=_ELSEWHERE_MAX))

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
    """Bring the lines up to date, and add everything up on the way."""
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
        mesh.bodies.clear()
    mesh.lines = found
    return totals.view(hub, now_ms)


def _facts(hub: Hub) -> Iterator[tuple[str, NodeFacts, int]]:
    """With how many of its cards are used."""
    registry, lines, now_ms = hub.nodes.registry, hub.observability.mesh.lines, hub.now_ms()
    for session in registry.sessions:
        node_id = session.node_id
        if registry.get(node_id) is session:  # it may have gone while others were looked at
            record = registry.fleet.node_at(registry.fleet.row_of(node_id) or 0)
            status = registry.status(session, now_ms)
            known = lines.get(node_id)
            facts = _facts_of(session, record, status, known=None if known is None else known.facts)
            yield node_id, facts, sum(card.jobs > 0 for card in record.cards)
    for node_id, other in hub.observability.mesh.elsewhere.items():
        if registry.get(node_id) is None:
            yield node_id, other.facts, 0


def _facts_of(
    session: NodeSession, record: NodeRecord, status: NodeStatus, *, known: NodeFacts | None
) -> NodeFacts:
    """`known`, as long as it is still so: of thousands of nodes hardly any changes in a second."""
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
    """The line up to whose it is."""
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
        vram_mb=_vram_mb(profile),
        running=facts.running,
        mine=False,
    )
    return node.model_dump_json().encode().removesuffix(b"false}")


def _vram_mb(profile: NodeProfile) -> int:
    return sum(gpu.vram_mb for gpu in profile.capacity.gpus)


class _Totals:
    def __init__(self) -> None:
        self.nodes = self.cpu_milli = self.cpu_busy = self.gpus = self.gpus_busy = self.vram_mb = 0

    def add(self, facts: NodeFacts, cards_busy: int) -> None:
        capacity = facts.profile.capacity
        self.nodes += facts.status is not NodeStatus.UNRESPONSIVE
        self.cpu_milli += capacity.cpu_milli
        self.gpus += len(capacity.gpus)
        self.vram_mb += _vram_mb(facts.profile)
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
    """Accounts keep their names, so each is read once."""
    known = hub.observability.mesh.owner_names
    owners = {session.profile.owner for session in hub.nodes.registry.sessions}
    owners |= {other.facts.profile.owner for other in hub.observability.mesh.elsewhere.values()}
    missing = sorted(owners - known.keys())
    if missing:
        known |= await hub.store.read(lambda connection: ledger_rows.get_names(connection, missing))
