"""Jobs that are done and settled, the nodes that do them, and a short way to look."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from computepool.protocol.nodes.nodes import Grant
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.submitting import submit

HOUR = {"timeout_s": 3600}


async def got(client: httpx2.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def run_job(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, *, ran_ms: int = 540_001
) -> str:
    """A job of sam's on a node of pia's, settled after ten minutes."""
    node = await hub.node(pia, region="in")
    [job_id] = await submit(sam, spec=HOUR)
    [grant] = await node.take()
    assert isinstance(hub.hub.clock, FakeClock)
    hub.hub.clock.advance(600_000)
    assert await node.report(grant.attempt_id, ran_ms=ran_ms) == "accepted"
    return job_id


async def crowd(hub: HubDouble, count: int) -> tuple[httpx2.AsyncClient, list[NodeDouble]]:
    """Sam, and so many owners with a node each."""
    sam = await hub.account("sam", "submitter")
    nodes = []
    for number in range(count):
        owner = await hub.account(f"owner{number}", "provider")
        nodes.append(await hub.node(owner, name=f"node{number}", tags=[f"n{number}"]))
    return sam, nodes


def others(nodes: list[NodeDouble], *but: NodeDouble) -> list[NodeDouble]:
    return [node for node in nodes if node not in but]


async def granted(nodes: list[NodeDouble]) -> tuple[NodeDouble, Grant]:
    """Whichever node was given the job, and the attempt."""
    async with asyncio.timeout(20):
        while True:
            for node in nodes:
                node.sign_in()
                if grants := (await node.poll(wait_ms=20)).grants:
                    return node, grants[0]
