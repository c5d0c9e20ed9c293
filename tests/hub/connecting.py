"""A connection to a hub in this process, with the server's own protocol and no socket."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from computepool.hub.http.repeated_requests import protocol_for
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble

_LENGTH = re.compile(rb"content-length: (\d+)")


class MemoryTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.news = asyncio.Event()

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written += data
        self.news.set()

    def close(self) -> None:
        self.closed = True
        self.news.set()

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@dataclass
class HttpReply:
    status: int
    headers: dict[str, str]
    body: Any


@dataclass
class Connection:
    """`asked` counts the requests that reached the application."""

    hub: HubDouble
    connections_max: int | None = None
    asked: int = 0
    transport: MemoryTransport = field(default_factory=MemoryTransport)

    def __post_init__(self) -> None:
        config = uvicorn.Config(
            self._app, interface="asgi3", log_config=None, limit_concurrency=self.connections_max, access_log=False
        )
        state = ServerState()
        state.default_headers = [(b"date", b"today")]
        self.protocol = protocol_for(self.hub.hub.settings)(config=config, server_state=state, app_state={})
        self.protocol.connection_made(self.transport)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self.hub.app(scope, receive, send)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    async def reply(self) -> HttpReply:
        while (found := self._take()) is None:
            assert not self.transport.closed, self.transport.written
            self.transport.news.clear()
            await self.transport.news.wait()
        return found

    def _take(self) -> HttpReply | None:
        head, ended, rest = self.transport.written.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not ended or length is None or len(rest) < int(length[1]):
            return None
        self.transport.written = rest[int(length[1]) :]
        status, *lines = head.decode().split("\r\n")
        body = rest[: int(length[1])]
        return HttpReply(int(status.split()[1]), dict(line.split(": ", 1) for line in lines), json.loads(body))


def poll_of(node: NodeDouble, **given: Any) -> bytes:
    """The bytes of a poll as an agent sends them."""
    body = json.dumps({"boot_id": node.boot_id, "wait_ms": 60_000, **given}).encode()
    head = (
        f"POST /api/v1/next HTTP/1.1\r\nHost: hub\r\nAuthorization: {node.client.headers['Authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
