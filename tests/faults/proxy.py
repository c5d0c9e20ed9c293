"""A TCP proxy that injects faults: lost requests, lost and cut replies, delays, partitions.

Data from the hub after a request counts as the reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

_CHUNK = 256 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends RST


class Fault(StrEnum):
    LOSE_REQUEST = "the connection is reset before the hub gets the request"
    LOSE_REPLY = "the hub handled the request, and its reply is lost"
    CUT_REPLY = "half of the reply arrives, then a reset"
    DELAY_REPLY = "the reply comes late"


class ChaosProxy:
    """Between a client and the hub, on a thread of its own. `rate` is the share of exchanges that go wrong.

    `breaks`: numbers of bytes, in both directions together, after which all connections are reset once.
    """

    def __init__(self, port: int, *, seed: int = 0, delay_s: float = 0.3, breaks: Sequence[int] = ()) -> None:
        self._hub_port = port
        self._chance = random.Random(seed)
        self._delay_s = delay_s
        self.breaks = sorted(breaks, reverse=True)  #: those that are still to come
        self._passed = 0
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.rate = 0.0
        #: None: everything passes. "both": nothing passes. "replies": only requests pass.
        self.cut: str | None = None
        #: Requests with this beginning are neither passed on nor answered, until `heal` resets their connections.
        self.hold = ""
        self.held = 0
        self.faults: Counter[tuple[Fault, str]] = Counter()
        self._thread = threading.Thread(target=self._run, name="chaos-proxy", daemon=True)
        self._thread.start()
        self._listening.wait(60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self, path: str = "", *faults: Fault) -> int:
        """The number of faults in requests to paths with this beginning."""
        return sum(
            number
            for (fault, at), number in self.faults.items()
            if at.startswith(path) and (not faults or fault in faults)
        )

    def heal(self) -> None:
        """Let everything pass from now on, over new connections."""
        self.rate, self.cut, self.hold = 0.0, None, ""
        self._loop.call_soon_threadsafe(self._reset_all)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        self._loop.run_forever()
        server.close()
        self._reset_all()
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hub_reader, hub_writer = await asyncio.open_connection("127.0.0.1", self._hub_port)
        except OSError:
            return _reset(writer)
        except asyncio.CancelledError:
            _reset(writer)
            raise
        exchange = _Exchange(self, reader, writer)
        self._open |= {writer, hub_writer}
        ways = [asyncio.create_task(way) for way in (exchange.requests(hub_writer), exchange.replies(hub_reader))]
        try:
            with contextlib.suppress(OSError, EOFError):
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in done:
                    way.result()
        finally:
            for way in ways:
                way.cancel()
            self._open -= {writer, hub_writer}
            for one in (writer, hub_writer):
                _reset(one)

    def _reset_all(self) -> None:
        for writer in list(self._open):
            _reset(writer)

    async def carry(self, data: bytes, to: asyncio.StreamWriter) -> None:
        to.write(data)
        await to.drain()
        self._passed += len(data)
        if self.breaks and self._passed >= self.breaks[-1]:
            self.breaks.pop()
            self._reset_all()

    def draw(self) -> Fault | None:
        return self._chance.choice(list(Fault)) if self._chance.random() < self.rate else None

    async def pause(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, self._delay_s))


class _Exchange:
    """One client's connection. Raises EOFError to break it."""

    def __init__(self, proxy: ChaosProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy, self._reader, self._writer = proxy, reader, writer
        self._fault: Fault | None = None
        self._path = ""

    async def requests(self, hub: asyncio.StreamWriter) -> None:
        while data := await self._reader.read(_CHUNK):
            head = data.split(b" ", 2)
            if head[0] in (b"GET", b"POST", b"PUT", b"DELETE"):
                self._path, self._fault = head[1].decode("latin-1").partition("?")[0], self._proxy.draw()
            if self._fault is Fault.LOSE_REQUEST:
                self._broken(self._fault)
            if self._proxy.hold and data.startswith(self._proxy.hold.encode()):
                self._proxy.held += 1
                await asyncio.Event().wait()
            if self._proxy.cut != "both":
                await self._proxy.carry(data, hub)

    async def replies(self, hub: asyncio.StreamReader) -> None:
        while data := await hub.read(_CHUNK):
            fault, self._fault = self._fault, None
            if fault is Fault.LOSE_REPLY:
                self._broken(fault)
            if fault is Fault.DELAY_REPLY:
                self._proxy.faults[fault, self._path] += 1
                await self._proxy.pause()
            if self._proxy.cut is None:
                part = data[: len(data) // 2] if fault is Fault.CUT_REPLY else data
                await self._proxy.carry(part, self._writer)
            if fault is Fault.CUT_REPLY:
                self._broken(fault)

    def _broken(self, fault: Fault) -> None:
        self._proxy.faults[fault, self._path] += 1
        raise EOFError(fault)


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
