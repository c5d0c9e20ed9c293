"""The thin client against a server that replies as hubs, proxies and other servers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from computepool.agent.hub_link.wire import Wire, WireError

_OK = b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Gives each request the next reply; None closes the connection instead."""

    def __init__(self, answers: Sequence[bytes | None]) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        while self.answers:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.requests.append(head + await reader.readexactly(length))
            answer = self.answers.pop(0)
            if answer is None:
                break
            writer.write(answer)
            if b"connection: close" in answer.lower() or b"length" not in answer.lower():
                break
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def serving(*answers: bytes | None) -> AsyncIterator[tuple[Server, Wire]]:
    server = Server(answers)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/pool"
    wire = Wire(5.0)
    try:
        yield server, wire
    finally:
        await wire.close()
        listening.close()
        await listening.wait_closed()
        await asyncio.gather(*server.tasks)


async def post(server: Server, wire: Wire, *, timeout_s: float = 5.0) -> bytes:
    reply = await wire.post(server.url, "/next", body=b"{}", headers={"authorization": "Bearer x"}, timeout_s=timeout_s)
    assert reply.status == 200
    return reply.body


async def test_a_connection_is_reused() -> None:
    async with serving(_OK, _OK, _OK) as (server, wire):
        assert [await post(server, wire) for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 1
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /pool/next HTTP/1.1\r\nhost: 127.0.0.1:")
        assert b"\r\nauthorization: Bearer x\r\n" in head
        assert body == b"{}"


async def test_concurrent_requests_use_separate_connections() -> None:
    async with serving(*[_OK] * 4) as (server, wire):
        assert await asyncio.gather(*(post(server, wire) for _ in range(3))) == [b"ok"] * 3
        assert server.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx: length\r\n\r\n1;a=b\r\no\r\n1\r\nk\r\n0\r\nt: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 100 Continue\r\n\r\n" + _OK,
    ],
    ids=["chunked", "until it is closed", "old", "after news"],
)
async def test_replies_of_every_form_are_read(answer: bytes) -> None:
    async with serving(answer, _OK) as (server, wire):
        assert await post(server, wire) == b"ok"
        assert await post(server, wire) == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx: length\r\n\r\n0x2\r\nok\r\n0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
    ids=["nothing", "too short", "negative", "no chunk", "not HTTP", "endless head"],
)
async def test_an_invalid_reply_is_an_error_and_ends_the_connection(answer: bytes | None) -> None:
    async with serving(answer, _OK) as (server, wire):
        with pytest.raises(WireError):
            await post(server, wire)
        assert await post(server, wire) == b"ok"
        assert server.connections == 2


async def test_a_connection_that_was_closed_meanwhile_is_replaced() -> None:
    async with serving(_OK, _OK) as (server, wire):
        assert await post(server, wire) == b"ok"
        [[line]] = wire._idle.values()
        line.reader.feed_eof()  # as when the hub has closed it
        assert await post(server, wire) == b"ok"
        assert server.connections == 2


async def test_a_request_ends_at_its_timeout() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok") as (server, wire):
        with pytest.raises(WireError):
            await post(server, wire, timeout_s=0.05)
    with pytest.raises(WireError):
        await Wire(5.0).post("http://127.0.0.1:1", "/x", body=b"", headers={}, timeout_s=1)
