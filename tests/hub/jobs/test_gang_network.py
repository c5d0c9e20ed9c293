"""The network of a gang at the hub: who gets in, what is passed on, and how much."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from computepool.core.jobs.gang_network import PREFIX, frame, ranks_of, unframe
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import hub_fixture
from tests.hub.submitting import submit

hub = hub_fixture(gang_queue_bytes=140_000, gang_relay_bytes_max=400_000)


def packet(source: int, target: int, data: bytes = b"x" * 20, *, version: int = 4) -> bytes:
    """An IPv4 packet between two ranks, as far as the hub looks at it."""
    return bytes((version << 4 | 5, *(0,) * 11, *PREFIX, source + 1, *PREFIX, target + 1)) + data


class Members:
    """The nodes of one gang, by rank."""

    def __init__(self, nodes: list[NodeDouble]) -> None:
        by_rank = {grant.item: (node, grant) for node in nodes for grant in node.holding.values()}
        self.nodes = [by_rank[rank][0] for rank in sorted(by_rank)]
        self.attempts = [by_rank[rank][1].attempt_id for rank in sorted(by_rank)]

    async def barrier(self, rank: int, phase: str = "ready", *, wait_ms: int = 0, **given: Any) -> dict[str, Any]:
        path = f"/attempts/{self.attempts[rank]}/gang"
        answer = await self.nodes[rank].client.post(path, params={"wait_ms": wait_ms}, json={"phase": phase, **given})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def send(self, rank: int, *packets: bytes, raw: bytes = b"") -> httpx2.Response:
        path = f"/attempts/{self.attempts[rank]}/gang/packets"
        return await self.nodes[rank].client.post(path, content=raw or b"".join(map(frame, packets)))

    async def receive(self, rank: int, *, wait_ms: int = 0) -> list[bytes]:
        path = f"/attempts/{self.attempts[rank]}/gang/packets"
        answer = await self.nodes[rank].client.post(path, params={"wait_ms": wait_ms}, content=b"")
        assert answer.status_code == 200, answer.text
        return list(unframe(answer.content))


async def gang_of(hub: HubDouble, count: int, owner: str = "pia") -> Members:
    account = await hub.account(owner, "provider", "submitter")
    nodes = [await hub.node(account, name=f"{owner}{number}", gangs=True, cores=1) for number in range(count)]
    await submit(account, spec={"nodes": count})
    for node in nodes:
        await node.take()
    return Members(nodes)


async def test_members_start_when_all_are_ready_and_learn_who_can_be_reached_directly(hub: HubDouble) -> None:
    members = await gang_of(hub, 3)
    assert (await members.barrier(0))["waits_for"] == [1, 2]
    waiting = asyncio.create_task(members.barrier(0, wait_ms=30_000))
    assert not (await members.barrier(1, lan="192.168.7.3:4000"))["passed"]
    last = await members.barrier(2)
    first = await waiting
    assert (last["passed"], first["passed"]) == (True, True)
    assert first["key"] == last["key"] != ""
    assert first["peers"] == [{"rank": 1, "lan": "192.168.7.3:4000"}, {"rank": 2, "lan": None}]
    done = await members.barrier(1, "done")
    assert (done["passed"], done["waits_for"]) == (False, [0, 2])


async def test_packets_arrive_at_the_member_that_they_are_addressed_to_alone(hub: HubDouble) -> None:
    members = await gang_of(hub, 3)
    for rank in range(3):
        assert await members.receive(rank) == []
    waiting = asyncio.create_task(members.receive(2, wait_ms=30_000))
    answer = await members.send(0, packet(0, 1, b"one"), packet(0, 2, b"two"))
    assert answer.status_code == 200
    assert await waiting == [packet(0, 2, b"two")]
    assert await members.receive(1) == [packet(0, 1, b"one")]
    assert await members.receive(1) == [], "each packet is delivered once"


async def test_what_is_not_valid_in_the_gangs_network_is_dropped(hub: HubDouble) -> None:
    members = await gang_of(hub, 2)
    await members.receive(1)
    foreign = packet(0, 1)[:12] + bytes((8, 8, 8, 8)) + packet(0, 1)[16:]
    bad = [packet(1, 0), packet(0, 5), packet(0, 0), packet(0, 1, version=6), b"", b"x", foreign]
    assert (await members.send(0, *bad, packet(0, 1, b"good"))).status_code == 200
    assert await members.receive(1) == [packet(0, 1, b"good")]
    assert await members.receive(0) == []
    cut = await members.send(0, raw=frame(packet(0, 1))[:-1])
    assert cut.status_code == 422
    assert (await members.send(0, raw=b"\0" * (1024 * 1024 + 1))).status_code == 413


async def test_nobody_else_gets_in(hub: HubDouble) -> None:
    members, others = await gang_of(hub, 2), await gang_of(hub, 2, owner="ann")
    assert others.attempts[0] != members.attempts[0]
    for path, body in (("gang", {"json": {"phase": "ready"}}), ("gang/packets", {"content": b"abc"})):
        answer = await others.nodes[0].client.post(f"/attempts/{members.attempts[0]}/{path}", **body)
        assert answer.status_code == 404, answer.text
    assert (await hub.admin.post(f"/attempts/{members.attempts[0]}/gang/packets", content=b"")).status_code == 401
    # The same rank of another gang is another member.
    await others.receive(1)
    await members.receive(1)
    await members.send(0, packet(0, 1))
    assert await others.receive(1) == []


async def test_queues_and_traffic_are_bounded(hub: HubDouble) -> None:
    members = await gang_of(hub, 2)
    await members.receive(1)
    large = packet(0, 1, b"x" * 60_000)
    for _ in range(4):
        assert (await members.send(0, large)).status_code == 200
    assert len(await members.receive(1)) == 2, "what does not fit is dropped, and the sender goes on"
    for _ in range(2):
        await members.send(0, large)
    answer = await members.send(0, large)
    assert (answer.status_code, "400000 bytes" in answer.text) == (409, True)


async def test_an_ended_attempt_is_out_and_its_gang_is_forgotten(hub: HubDouble) -> None:
    members = await gang_of(hub, 2)
    await members.barrier(0)
    assert len(hub.hub.jobs.gang_runs) == 1
    waiting = asyncio.create_task(members.nodes[0].client.post(
        f"/attempts/{members.attempts[0]}/gang", params={"wait_ms": 1_000}, json={"phase": "ready"}
    ))  # fmt: skip
    job_id = members.attempts[0].rpartition("-")[0]
    (await hub.admin.post(f"/jobs/{job_id}/cancel")).raise_for_status()
    assert (await waiting).status_code in (200, 404)
    answer = await members.nodes[1].client.post(f"/attempts/{members.attempts[1]}/gang", json={"phase": "ready"})
    assert answer.status_code == 404
    others = await gang_of(hub, 2, owner="ann")
    await others.barrier(0)
    assert len(hub.hub.jobs.gang_runs) == 1


def test_ranks_are_read_from_whole_headers_alone() -> None:
    assert ranks_of(packet(0, 249), 250) == (0, 249)
    assert ranks_of(packet(0, 1), 1) is None
    assert ranks_of(packet(0, 1)[:19], 2) is None
