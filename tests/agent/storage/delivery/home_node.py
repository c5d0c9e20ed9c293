"""A home node at the real hub in this process, with connections that break."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentLimits
from computepool.agent.context import Node
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.hub_link.identity import Identity
from computepool.agent.storage.result_delivery import ResultDelivery
from computepool.protocol.nodes.nodes import OutputRef
from computepool.testing.hub import ORIGIN, HubDouble
from computepool.testing.node import NodeDouble
from tests.agent.conftest import QUICK
from tests.hub.submitting import COMMAND

#: Small chunks, so that a broken connection leaves some of them.
LIMITS = replace(QUICK, home_spare_bytes=0, transfer_chunk=256)
FILE = "deep/er/file.txt"
NAMES = ("out.bin", FILE, "OUT.BIN")


Around = tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]


class Breaking(httpx2.AsyncBaseTransport):
    """Breaks each of the first downloads after some bytes."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, breaks: int = 0, after: int = 1_000) -> None:
        self.inner, self.breaks, self.after = inner, breaks, after
        self.ranges: list[str] = []
        self.down = False
        self.wrong = 0  #: the number of downloads to corrupt
        self.around: Around | None = None  #: awaited before and after the first download

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.down:
            raise httpx2.ConnectError("the hub is down")
        around = self.around if "/artifacts/" in request.url.path else None
        if around is not None:
            self.around = None
            await around[0]()
        # As over a real network, the hub goes on handling a request when the client is gone.
        reply = await asyncio.shield(self.inner.handle_async_request(request))
        if around is not None:
            await around[1]()
        if "/artifacts/" in request.url.path:
            self.ranges.append(request.headers.get("range", ""))
            if self.wrong:
                self.wrong -= 1
                reply.stream = _Cut(reply.stream, 10**9, add=1)  # type: ignore[arg-type]
            elif self.breaks:
                self.breaks -= 1
                reply.stream = _Cut(reply.stream, self.after)  # type: ignore[arg-type]
        return reply


class _Cut(httpx2.AsyncByteStream):
    """A reply's body that breaks off when `left` bytes have passed; `add` changes every byte."""

    def __init__(self, stream: httpx2.AsyncByteStream, left: int, *, add: int = 0) -> None:
        self.stream, self.left, self.add = stream, left, add

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.stream:
            yield bytes((byte + self.add) % 256 for byte in chunk[: self.left])
            self.left -= len(chunk)
            if self.left <= 0:
                raise httpx2.ReadError("the connection is gone")


class Home:
    """A home node: a double polls, and the agent's ResultDelivery fetches."""

    def __init__(self, hub: HubDouble, node: NodeDouble, *, owner: str, folder: Path) -> None:
        self.hub, self.node, self.owner, self.folder = hub, node, owner, folder
        self.breaking = Breaking(httpx2.ASGITransport(hub.app, raise_app_exceptions=False))
        self.start()

    def start(self, limits: AgentLimits = LIMITS) -> None:
        identity = Identity(key=self.node.key, node_id=self.node.node_id, owner=self.owner, hub_keys={}, hub_url=ORIGIN)
        client = HubClient((ORIGIN,), clock=AgentClock(), limits=limits, identity=identity, transport=self.breaking)
        node = Node(client=client, identity=identity, clock=AgentClock(), limits=limits)
        self.delivery = ResultDelivery(node, self.folder)

    async def poll(self) -> list[str]:
        """Begin to fetch the groups that the hub says are waiting, and return them."""
        reply = await self.node.poll(wait_ms=0)
        assert reply.result_deliveries is not None
        self.delivery.request(reply.result_deliveries)
        return reply.result_deliveries

    async def kill(self) -> None:
        running = asyncio.create_task(self.delivery.run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def poll_until(self, group: str, condition: Callable[[Any], object]) -> Any:
        """Poll until what the hub shows of the group's delivery meets the condition; returns that."""
        async with asyncio.timeout(60):
            while True:
                await self.poll()
                home = (await self.hub.admin.get(f"/groups/{group}")).json()["home"]
                if condition(home):
                    return home
                await asyncio.sleep(0.02)

    async def arrived(self, group: str) -> Any:
        return await self.poll_until(group, lambda home: home["state"] == "arrived")

    def folders(self) -> list[Path]:
        home = self.folder / "home"
        return sorted(path for path in home.iterdir() if path.name != ".coming") if home.exists() else []


@asynccontextmanager
async def home_of(hub: HubDouble, folder: Path) -> AsyncIterator[Home]:
    """A home node that takes no jobs."""
    node = await hub.node(name="laptop")
    (await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})).raise_for_status()
    owner = (await hub.admin.get("/me")).json()["id"]
    folder.mkdir()
    home = Home(hub, node, owner=owner, folder=folder)
    yield home
    await home.kill()


async def make_group(hub: HubDouble, keys: tuple[str, ...], **fields: Any) -> str:
    answer = await hub.admin.post(
        "/groups", json={"name": "../sweep é", "home": "laptop", "return_home": True, **fields}
    )
    assert answer.status_code == 201, answer.text
    group = str(answer.json()["id"])
    registered = {"keys": [{"key": key} for key in keys]}
    (await hub.admin.post(f"/groups/{group}/keys", json=registered)).raise_for_status()
    return group


async def run_jobs(hub: HubDouble, node: NodeDouble, group: str, *, content: dict[str, bytes]) -> None:
    """Run one job per key; each leaves its content under every name."""
    sent = {"spec": COMMAND, "items": [{"key": key} for key in content], "group_id": group}
    (await hub.admin.post("/jobs", json=sent)).raise_for_status()
    keys = list(content)
    for grant in await node.take(len(keys)):
        data = content[keys[grant.item]]
        digest = hashlib.sha256(data).hexdigest()
        sent_bytes = await node.client.put(f"/artifacts/{digest}", params={"size": len(data)}, content=data)
        sent_bytes.raise_for_status()
        outputs = [OutputRef(name=name, digest=digest, size=len(data)) for name in NAMES]
        await node.report(grant.attempt_id, outputs=outputs, result=json.dumps(keys[grant.item]))
