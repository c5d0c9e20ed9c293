"""Finished jobs, the nodes that run them, and a short form of GET."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from computepool.core.money import ledger
from computepool.core.money.money import CREDIT
from computepool.hub.money import booking
from computepool.protocol.nodes.nodes import Grant
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.submitting import submit

HOUR = {"timeout_s": 3600}
#: One core in a region without a rate of its own: 10 × 0.8 an hour, and twice that as the ceiling nobody named.
PRICE = 8 * CREDIT
CEILING = 2 * PRICE


async def got(client: httpx2.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def pages(client: httpx2.AsyncClient, path: str, rows: str, **params: Any) -> list[Any]:
    """The rows of all pages of a list."""
    found: list[Any] = []
    after: dict[str, Any] = {}
    while True:
        page = await got(client, path, **params, **after)
        found += page[rows]
        if page["next"] is None:
            return found
        after = {"after": page["next"]}


async def me(client: httpx2.AsyncClient) -> str:
    """The caller's account."""
    return str((await got(client, "/me"))["id"])


async def balance(hub: HubDouble, account: str) -> int:
    return await hub.hub.store.write(lambda tx: booking.balance(tx, account))


async def balances_of(hub: HubDouble, client: httpx2.AsyncClient) -> tuple[int, int, int]:
    """To spend, held, and maturing."""
    account = await me(client)
    user, held, maturing = ledger.user(account), ledger.escrow(account), ledger.earn(account)
    return await balance(hub, user), await balance(hub, held), await balance(hub, maturing)


async def run_job(hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, *, ran_ms: int = 540_001) -> str:
    """A job of sam's that was settled after ten minutes on a node of pia's."""
    node = await hub.node(pia, region="in")
    [job_id] = await submit(sam, spec=HOUR)
    [grant] = await node.take()
    assert isinstance(hub.hub.clock, FakeClock)
    hub.hub.clock.advance(600_000)
    assert await node.report(grant.attempt_id, ran_ms=ran_ms) == "accepted"
    return job_id


async def crowd(hub: HubDouble, count: int) -> tuple[httpx2.AsyncClient, list[NodeDouble]]:
    """Sam, and this number of owners with a node each."""
    sam = await hub.account("sam", "submitter")
    nodes = []
    for number in range(count):
        owner = await hub.account(f"owner{number}", "provider")
        nodes.append(await hub.node(owner, name=f"node{number}", tags=[f"n{number}"]))
    return sam, nodes


def others(nodes: list[NodeDouble], *but: NodeDouble) -> list[NodeDouble]:
    return [node for node in nodes if node not in but]


async def granted(nodes: list[NodeDouble]) -> tuple[NodeDouble, Grant]:
    """The node that got the job, and its attempt."""
    async with asyncio.timeout(60):
        while True:
            for node in nodes:
                node.sign_in()
                if grants := (await node.poll(wait_ms=20)).grants:
                    return node, grants[0]
