"""A home node against the real hub in this process, and connections that break."""

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

from computepool.agent.clock import SystemAgentClock
from computepool.agent.config import AgentLimits
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.hub_link.identity import Identity
from computepool.agent.storage.result_delivery import ResultDelivery
from computepool.protocol.nodes.nodes import OutputRef
from computepool.testing.hub import ORIGIN, HubDouble
from computepool.testing.node import NodeDouble
from tests.agent.conftest import QUICK
from tests.hub.submitting import COMMAND

#: Small pieces, so that a connection that breaks leaves some of them.
LIMITS = replace(QUICK, home_spare_bytes=0, transfer_chunk=256)
FILE = "deep/er/file.txt"
NAMES = ("out.bin", FILE, "OUT.BIN")


Around = tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]


class Breaking(httpx2.AsyncBaseTransport):
    """Ends each of the first downloads after some bytes, as a lost connection does."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, breaks: int = 0, after: int = 1_000) -> None:
        self.inner, self.breaks, self.after = inner, breaks, after
        self.ranges: list[str] = []
        self.down = False
        self.wrong = 0  #: so many downloads bring other bytes
        self.around: Around | None = None  #: of the first download alone: awaited before it, and after it

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.down:
            raise httpx2.ConnectError("nobody is there")
        around = self.around if "/artifacts/" in request.url.path else None
        if around is not None:
            self.around = None
            await around[0]()
        reply = await self.inner.handle_async_request(request)
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
    def __init__(self, stream: httpx2.AsyncByteStream, left: int, *, add: int = 0) -> None:
        self.stream, self.left, self.add = stream, left, add

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.stream:
            yield bytes((byte + self.add) % 256 for byte in chunk[: self.left])
            self.left -= len(chunk)
            if self.left <= 0:
                raise httpx2.ReadError("the connection is gone")


class Home:
    """A home node: its double polls, and the agent's own part fetches."""

    def __init__(self, hub: HubDouble, node: NodeDouble, *, owner: str, folder: Path) -> None:
        self.hub, self.node, self.owner, self.folder = hub, node, owner, folder
        self.breaking = Breaking(httpx2.ASGITransport(hub.app, raise_app_exceptions=False))
        self.part: ResultDelivery | None = None

    def start(self, limits: AgentLimits = LIMITS) -> ResultDelivery:
        identity = Identity(
            key=self.node.key, node_id=self.node.node_id, owner=self.owner, hub_keys={}, hub_url=ORIGIN
        )
        client = HubClient(
            (ORIGIN,), clock=SystemAgentClock(), limits=limits, identity=identity, transport=self.breaking
        )
        self.part = ResultDelivery(client, identity, data_dir=self.folder, limits=limits)
        return self.part

    async def tell(self) -> list[str]:
        """What the hub says waits for it."""
        assert self.part is not None
        reply = await self.node.poll(wait_ms=0)
        assert reply.result_deliveries is not None
        self.part.request(reply.result_deliveries)
        return reply.result_deliveries

    async def kill(self) -> None:
        assert self.part is not None
        running = asyncio.create_task(self.part.run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def arrived(self, group: str, *, until: str = "arrived") -> dict[str, Any]:
        async with asyncio.timeout(20):
            while True:
                await self.tell()
                view: dict[str, Any] = (await self.hub.admin.get(f"/groups/{group}")).json()
                if view["home"]["state"] == until:
                    return view
                await asyncio.sleep(0.02)

    def folders(self) -> list[Path]:
        home = self.folder / "home"
        return sorted(path for path in home.iterdir() if path.name != ".coming") if home.exists() else []


@asynccontextmanager
async def home_of(hub: HubDouble, folder: Path) -> AsyncIterator[Home]:
    """A home node that takes no jobs."""
    node = await hub.node(name="laptop")
    (await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})).raise_for_status()
    owner = (await hub.admin.get("/me")).json()["id"]
    made = Home(hub, node, owner=owner, folder=folder)
    made.folder.mkdir()
    made.start()
    yield made
    await made.kill()


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
    """One job per key, each leaving its content under every name."""
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


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what it waits for happens in another part's files
            await asyncio.sleep(0.01)
