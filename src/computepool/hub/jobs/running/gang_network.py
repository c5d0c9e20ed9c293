"""The network between the members of a gang, as far as it passes the hub: a barrier at both ends, and a relay of packets.

All of it is soft state. After a restart of the hub, members come back with their next request, and what was lost on the way
is sent again by their programs' own connections. A member is who holds its attempt, so nobody else gets in; it may send
packets from its own address alone, and to members of its own gang alone.
"""

from __future__ import annotations

import base64

from computepool.core.errors import BadRequest, Conflict, NotFound
from computepool.core.jobs import gang_network
from computepool.core.jobs.lifecycle import JobState
from computepool.hub.context import Hub
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import gang_rows
from computepool.hub.jobs.running.gang_run import GangRun, Member
from computepool.protocol.gangs import BarrierReply, BarrierRequest, GangPeer

#: A member that sends packets has passed the first barrier, even if this hub did not see it.
_READY, _DONE = 1, 2
_PHASES = {"ready": _READY, "done": _DONE}
_KEY_BYTES = 32


async def wait(
    hub: Hub, node: NodePrincipal, attempt_id: str, *, request: BarrierRequest, wait_ms: int
) -> BarrierReply:
    """Wait until all members of the gang have got so far."""
    run, member = _find(hub, node, attempt_id)
    phase = _PHASES[request.phase]
    if member.phase < phase or member.lan != request.lan:
        member.phase, member.lan = max(member.phase, phase), request.lan
        hub.signals.fire([run.topic])

    async def look() -> tuple[list[int], bool]:
        _find(hub, node, attempt_id)  # it may have ended meanwhile
        behind = run.behind(phase)
        if behind and phase == _DONE:
            behind = await _without_finished(hub, run, behind)
        return behind, not behind

    behind = await hub.long_poll(look, run.topic, wait_ms=wait_ms)
    if behind:
        return BarrierReply(passed=False, waits_for=behind)
    peers = [GangPeer(rank=each.rank, lan=each.lan) for each in run.members.values() if each is not member]
    return BarrierReply(passed=True, peers=sorted(peers, key=lambda peer: peer.rank), key=run.key)


async def _without_finished(hub: Hub, run: GangRun, behind: list[int]) -> list[int]:
    """Members may have passed, and reported, before this hub was started."""
    if any(rank in run.members for rank in behind):
        return behind
    rows = await hub.store.read(gang_rows.members, run.id)
    finished = {row.item for row in rows if row.state == JobState.SUCCEEDED}
    return [rank for rank in behind if rank not in finished]


def send(hub: Hub, node: NodePrincipal, attempt_id: str, *, data: bytes) -> None:
    """Pass packets on to the members that they are addressed to. What is not valid in this network is dropped."""
    run, member = _find(hub, node, attempt_id)
    settings = hub.settings
    member.phase = max(member.phase, _READY)
    if member.sent + len(data) > settings.gang_relay_bytes_max:
        raise Conflict(f"This member has sent its {settings.gang_relay_bytes_max} bytes through the hub.")
    member.sent += len(data)
    woken = set()
    try:
        for packet in gang_network.unframe(data):
            ranks = gang_network.ranks_of(packet, run.size)
            if ranks is None or ranks[0] != member.rank:
                continue  # not from its own address, or to nobody in its gang
            target = run.members.get(ranks[1])
            if target is not None and target.put(packet, settings.gang_queue_bytes):
                woken.add(_topic(target))
    except ValueError as error:
        raise BadRequest(f"The packets cannot be read: {error}.") from error
    finally:
        hub.signals.fire(woken)


async def receive(hub: Hub, node: NodePrincipal, attempt_id: str, *, wait_ms: int) -> bytes:
    """The packets for this member, as soon as there are any."""
    _, member = _find(hub, node, attempt_id)
    member.phase = max(member.phase, _READY)

    async def look() -> tuple[None, bool]:
        return None, bool(member.packets)

    await hub.long_poll(look, _topic(member), wait_ms=wait_ms)
    _find(hub, node, attempt_id)
    return member.take()


def _topic(member: Member) -> str:
    return f"packets:{member.attempt_id}"


def _find(hub: Hub, node: NodePrincipal, attempt_id: str) -> tuple[GangRun, Member]:
    """Raises NotFound unless the node holds this attempt, of a gang, at this hub."""
    session = hub.nodes.registry.get(node.node_id)
    attempt = None if session is None else session.attempts.get(attempt_id)
    if attempt is None or attempt.grant.gang is None:
        raise NotFound("This node holds no such attempt of a job on several nodes.")
    grant, runs = attempt.grant, hub.jobs.gang_runs
    assert grant.gang is not None
    run = runs.get((grant.gang.id, grant.attempt_no))
    if run is None:
        _prune(hub)
        key = base64.b64encode(hub.clock.entropy(_KEY_BYTES)).decode()
        run = runs[grant.gang.id, grant.attempt_no] = GangRun(grant.gang.id, grant.items, key)
    member = run.members.get(grant.item)
    if member is None:
        member = run.members[grant.item] = Member(grant.item, node.node_id, attempt_id)
    return run, member


def _prune(hub: Hub) -> None:
    """Forget the runs none of whose members is held any more."""
    registry, runs = hub.nodes.registry, hub.jobs.gang_runs
    for key, run in list(runs.items()):
        sessions = ((registry.get(member.node_id), member) for member in run.members.values())
        if not any(session is not None and member.attempt_id in session.attempts for session, member in sessions):
            del runs[key]
