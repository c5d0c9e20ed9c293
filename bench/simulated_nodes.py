"""Thousands of nodes in a few processes that speak the agents' protocol: they enrol with their own keys, send their profiles,
and keep a poll parked on a persistent connection. They run no jobs.

They reconnect as agents do: at once if the hub requests their profile, and with the same backoff after a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from typing import Any, Self

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.agent.config import AgentLimits
from computepool.core.backoff import double
from computepool.hub.clock import SystemClock
from computepool.hub.identity.authenticator import HUB_AUDIENCE
from computepool.protocol.base import PROTOCOL
from computepool.protocol.tokens import NODE_TOKEN_LIFE_S, b64, public_text, sign_node_token
from computepool.testing.node import PROFILE

PROCESSES = 2
#: Nodes that a process enrols at the same time.
ENROLLING = 48
_LIMITS = AgentLimits()
#: Agents wait up to a minute before they retry; here, all of them must return at once.
_RETRY_MAX_S = 2.0
_ANSWER_S = 60.0
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Counts:
    """Totals of all nodes."""

    enrolled: int = 0
    arrivals: int = 0  #: profiles accepted by the hub
    polls: int = 0  #: parked polls that were answered
    failures: int = 0  #: refused, interrupted or late requests

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})

    def __sub__(self, other: Counts) -> Counts:
        return Counts(**{one.name: getattr(self, one.name) - getattr(other, one.name) for one in fields(self)})


class Refused(Exception):
    """The hub's status was neither 200 nor 201."""


class Link(asyncio.Protocol):
    """One connection to the hub, with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._data = b""

    @classmethod
    async def to(cls, port: int) -> Self:
        _, link = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return link

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or length is None or len(body) < int(length[1]):
            return
        self._data = b""
        if self._answer is not None and not self._answer.done():
            if head[9:11] == b"20":
                self._answer.set_result(body)
            else:
                self._answer.set_exception(Refused(head.decode("latin-1") + body.decode()))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("the hub closed the connection"))

    async def post(self, request: bytes, *, limit_s: float) -> bytes:
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._answer = answer = loop.create_future()
        timer = loop.call_later(limit_s, _too_late, answer)
        try:
            self._transport.write(request)
            found: bytes = await answer
            return found
        finally:
            timer.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _too_late(answer: asyncio.Future[bytes]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError("no answer in time"))


class SimulatedNode:
    def __init__(self, name: str, port: int, counts: Counts) -> None:
        self._port, self._counts = port, counts
        self._profile = PROFILE | {"name": name}
        self._key = Ed25519PrivateKey.generate()
        self._boot_id = f"boot-{name}"
        self._node_id = ""
        self._token, self._token_ends = "", 0.0
        self._link: Link | None = None
        self._failures = 0
        self._described = False
        self._wait_ms = 0

    async def enrol(self, code: str) -> None:
        """Retry until the hub has admitted the node."""
        body = {
            "code": code,
            "public_key": public_text(self._key),
            "proof": b64(self._key.sign(code.encode())),
            "protocol": PROTOCOL,
            "profile": self._profile,
        }
        while not self._node_id:
            with self._failing():
                answer = await self._post("/nodes/register", body, limit_s=_LIMITS.request_timeout_s)
                self._node_id = answer["node_id"]
                self._counts.enrolled += 1
            await self._pause()
        while not self._described:
            await self.poll()

    async def live(self) -> None:
        while True:
            await self.poll()

    async def poll(self) -> None:
        body: dict[str, Any] = {"boot_id": self._boot_id, "wait_ms": self._wait_ms}
        if not self._described:
            body["profile"] = self._profile
        with self._failing():
            limit_s = self._wait_ms / 1000 + _LIMITS.poll_slack_s
            answer = await self._post("/next", body, limit_s=limit_s, token=self._fresh_token())
            self._counts.arrivals += "profile" in body
            self._counts.polls += "profile" not in body
            self._described = not answer.get("reregister", False)
            self._wait_ms = answer["interval_ms"]
        await self._pause()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, TimeoutError, Refused):
            self._counts.failures += 1
            self._failures += 1
            if self._link is not None:
                self._link.close()
            self._link = None
        else:
            self._failures = 0

    async def _pause(self) -> None:
        if self._failures:
            most_s = double(_LIMITS.retry_base_s, self._failures - 1, most=_RETRY_MAX_S)
            await asyncio.sleep(random.random() * most_s)

    async def _post(self, path: str, body: dict[str, Any], *, limit_s: float, token: str = "") -> dict[str, Any]:
        if self._link is None:
            self._link = await Link.to(self._port)
        text = json.dumps(body).encode()
        credential = f"Authorization: Bearer {token}\r\n" if token else ""
        head = f"POST /api/v1{path} HTTP/1.1\r\nHost: x\r\n{credential}"
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        found: dict[str, Any] = json.loads(await self._link.post(head.encode() + text, limit_s=limit_s))
        return found

    def _fresh_token(self) -> str:
        now = SystemClock().now_ms() / 1000
        if now > self._token_ends:
            self._token = sign_node_token(self._node_id, key=self._key, hub=HUB_AUDIENCE, now_s=int(now))
            self._token_ends = now + NODE_TOKEN_LIFE_S / 2
        return self._token


class _Crowd:
    """The nodes of one process."""

    def __init__(self, port: int, name: str) -> None:
        self._port, self._name = port, name
        self.counts = Counts()
        self._lives: list[asyncio.Task[None]] = []
        self._enrolling = asyncio.Semaphore(ENROLLING)

    def grow(self, count: int, code: str) -> None:
        for _ in range(count):
            node = SimulatedNode(f"{self._name}-{len(self._lives)}", self._port, self.counts)
            self._lives.append(asyncio.create_task(self._live(node, code)))

    async def _live(self, node: SimulatedNode, code: str) -> None:
        async with self._enrolling:
            await node.enrol(code)
        await node.live()

    async def serve(self, commands: Connection) -> None:
        """Execute commands until the other end closes the connection."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(commands.fileno(), readable.set)
        while True:
            await readable.wait()
            readable.clear()
            while commands.poll():
                command, *arguments = commands.recv()
                if command == "grow":
                    self.grow(*arguments)
                commands.send(self.counts)


def _main(port: int, name: str, commands: Connection) -> None:
    async def serve() -> None:
        await _Crowd(port, name).serve(commands)

    with contextlib.suppress(EOFError, KeyboardInterrupt):
        uvloop.run(serve())


class SimulatedNodes:
    """Controls the processes in which the nodes live. They end with the `with` block."""

    def __init__(self, port: int, *, processes: int = PROCESSES) -> None:
        make = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(processes):
            ours, theirs = make.Pipe()
            process = make.Process(target=_main, args=(port, f"sim-{number}", theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(_ANSWER_S)

    def grow(self, count: int, code: str) -> None:
        """Start more nodes."""
        parts = len(self._pipes)
        for number in range(parts):
            self._ask(number, "grow", count // parts + (number < count % parts), code)

    def counts(self) -> Counts:
        return sum((self._ask(number, "count") for number in range(len(self._pipes))), Counts())

    def _ask(self, number: int, *command: object) -> Counts:
        pipe = self._pipes[number]
        pipe.send(command)
        if not pipe.poll(_ANSWER_S):
            raise TimeoutError("the simulated nodes do not answer")
        counts: Counts = pipe.recv()
        return counts
