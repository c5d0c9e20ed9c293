"""Network access of jobs: a proxy per job that reaches the hosts the job listed, and nothing near the owner.

It listens on a unix socket in the job's sandbox, which has no other network. The proxy resolves names, checks every address
(core/network.py), and connects to an address that it checked, so that changing DNS replies gain nothing. Input from the job
is untrusted and bounded by AgentLimits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import shutil
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from computepool.agent.config import AgentLimits
from computepool.agent.network.egress_requests import EgressRequest, RequestRefused, parse_head
from computepool.agent.network.egress_shim import PORT
from computepool.agent.network.nearby import Nearby
from computepool.agent.network.unix_path import short_path
from computepool.core import network
from computepool.core.network import Address, Network, Target

_log = logging.getLogger(__name__)

SOCKET = "proxy.sock"
#: Addresses of one name to try.
_TRIES = 4
_CHUNK = 64 * 1024
_REFUSALS_LOGGED = 20

#: Connections that get an answer, as a multiple of the job's limit: those beyond the limit are told so.
_ANSWERED = 4
_LINGER_S = 1.0
_LOOKUPS_PER_JOB = 4
_LOOKUPS_MAX = 16

_ADDRESS = f"http://127.0.0.1:{PORT}"
#: The job's variables. Programs disagree about the case.
VARIABLES = {
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), _ADDRESS),
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _ADDRESS),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
}

#: Looks a host and port up.
Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


class Egress:
    """Makes proxies that enforce the owner's network rules."""

    def __init__(
        self, folder: Path, *, limits: AgentLimits, private: Sequence[Network] = (), resolve: Resolve | None = None
    ) -> None:
        self.limits = limits
        self._folder = folder
        self._private = tuple(private)
        self._resolve = resolve or _Lookups().resolve
        self.nearby = Nearby(ipv6_site_bits=limits.net_ipv6_site_bits)

    async def open(self, targets: Sequence[Target], *, label: str = "", trusted: bool = False) -> EgressProxy:
        """Start a proxy for one job; the caller closes it. `label`: its name in the log.

        `trusted`: the owner chose the hosts, so local addresses are allowed.
        """
        # The name need not be secret: whoever connects reaches no more than the job does.
        folder = self._folder / f"net-{secrets.token_hex(8)}"
        folder.mkdir(mode=0o711, parents=True)
        proxy = EgressProxy(self, tuple(targets), folder, label=label, trusted=trusted)
        try:
            await proxy.start()
        except BaseException:
            proxy.close()
            raise
        return proxy

    async def addresses(self, host: str, port: int, *, trusted: bool = False) -> list[Address]:
        """Resolve a host and check every address, unless the host is `trusted`. Raises RequestRefused."""
        literal = network.literal(host)
        try:
            found = [literal] if literal is not None else list(await self._resolve(host, port))
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise RequestRefused(502, f"{host} has no address.")
        if trusted:
            return found
        near = self.nearby.networks()
        for address in found:
            if why := network.refusal(address, admitted=self._private, near=near):
                raise RequestRefused(403, f"{host}: {why}, which jobs cannot reach.")
        return found


class _Stream(NamedTuple):
    """A connection to the job, or to the host."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class EgressProxy:
    """The proxy of one job. `close` ends every connection."""

    def __init__(self, egress: Egress, targets: tuple[Target, ...], folder: Path, *, label: str, trusted: bool) -> None:
        self.folder = folder
        self.received = 0  #: bytes from the network to the job, since the last `restart_count`
        self.sent = 0
        self._egress = egress
        self._targets = targets
        self._limits = egress.limits
        self._label = label
        self._trusted = trusted
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._refusals = 0
        self._paused = False
        self._lookups = asyncio.Semaphore(_LOOKUPS_PER_JOB)

    async def start(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(self.folder, SOCKET) as path:
                listener.bind(path)
            # The job's uid is not known yet.
            (self.folder / SOCKET).chmod(0o666)
            self._server = await asyncio.start_unix_server(
                self._accept, sock=listener, limit=self._limits.net_head_bytes_max, backlog=128
            )
        except BaseException:
            listener.close()
            raise

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pause(self) -> None:
        """Close all connections and accept none until `resume`: no job uses the proxy now."""
        self._paused = True
        for task in list(self._tasks):
            task.cancel()

    def resume(self) -> None:
        self._paused = False

    def bytes_used(self) -> tuple[int, int]:
        """Bytes in and out since the last `restart_count`."""
        return self.received, self.sent

    def restart_count(self) -> None:
        """Later bytes belong to the worker's next call."""
        self.received = self.sent = 0

    # ------------------------------------------------------------ one connection
    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._paused or len(self._tasks) >= _ANSWERED * self._limits.net_connections_max:
            writer.transport.abort()
            return
        # The task checks the job's limit, because it can also write the refusal.
        task = asyncio.get_running_loop().create_task(self._serve(_Stream(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, job: _Stream) -> None:
        host: _Stream | None = None
        try:
            async with asyncio.timeout(self._limits.net_head_s):
                request = await self._read_request(job.reader)
            async with asyncio.timeout(self._limits.net_connect_s):
                host = await self._connect(request)
            for end in (job, host):
                end.writer.transport.set_write_buffer_limits(high=0)  # Then `drain` waits until everything is sent.
            job.writer.write(request.reply)
            host.writer.write(request.head)
            self.sent += len(request.head)
            await self._relay(job, host)
        except RequestRefused as refused:
            self._log_refusal(refused)
            await self._refuse(job, refused)
        except TimeoutError:
            if host is None:
                late = RequestRefused(504, "The host, or the request, took too long.")
                await self._refuse(job, late)
        except (OSError, asyncio.IncompleteReadError):
            pass  # One of the two has gone.
        finally:
            for end in filter(None, (job, host)):
                end.writer.transport.abort()

    async def _read_request(self, reader: asyncio.StreamReader) -> EgressRequest:
        if len(self._tasks) > self._limits.net_connections_max:
            most = self._limits.net_connections_max
            raise RequestRefused(503, f"The job has reached its limit of {most} open connections.")
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise RequestRefused(431, "The request's head is too long.") from None
        request = parse_head(head)
        if not network.is_admitted(self._targets, request.host, request.port):
            raise RequestRefused(403, f"{request.host}:{request.port} is not in the job's list of hosts (--net).")
        self._check_bytes()
        return request

    def _check_bytes(self) -> None:
        if sum(self.bytes_used()) >= self._limits.net_bytes_max:
            raise RequestRefused(403, f"The job has used up its {self._limits.net_bytes_max} bytes of network traffic.")

    async def _connect(self, request: EgressRequest) -> _Stream:
        async with self._lookups:
            addresses = await self._egress.addresses(request.host, request.port, trusted=self._trusted)
        for address in addresses[:_TRIES]:
            with contextlib.suppress(OSError):
                return _Stream(*await asyncio.open_connection(str(address), request.port, limit=_CHUNK))
        raise RequestRefused(502, f"{request.host}:{request.port} does not answer.")

    async def _relay(self, job: _Stream, host: _Stream) -> None:
        """Copy both ways until both sides have ended, or the connection is idle for too long."""
        loop, idle_s = asyncio.get_running_loop(), self._limits.net_idle_s

        async def flow(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, inwards: bool) -> None:
            while data := await source.read(_CHUNK):
                if inwards:
                    self.received += len(data)
                else:
                    self.sent += len(data)
                self._check_bytes()
                target.write(data)
                await target.drain()
                deadline.reschedule(loop.time() + idle_s)
            target.write_eof()

        async with asyncio.timeout(idle_s) as deadline:
            flows = [
                loop.create_task(flow(job.reader, host.writer, inwards=False)),
                loop.create_task(flow(host.reader, job.writer, inwards=True)),
            ]
            try:
                done, _ = await asyncio.wait(flows, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    if isinstance(error := task.exception(), RequestRefused):
                        # In the middle of a stream it is too late for an answer.
                        self._log_refusal(error)
            finally:
                for task in flows:
                    task.cancel()
                await asyncio.gather(*flows, return_exceptions=True)

    async def _refuse(self, job: _Stream, refused: RequestRefused) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                job.writer.write(refused.response())
                job.writer.write_eof()
                # A socket that is closed with unread input discards its output, and so the answer.
                while await job.reader.read(_CHUNK):
                    pass

    def _log_refusal(self, refused: RequestRefused) -> None:
        self._refusals += 1
        if self._refusals <= _REFUSALS_LOGGED:
            _log.info("network of %s: %s", self._label or "a job", refused.sentence)


class _Lookups:
    """DNS lookups by the system's resolver that block nothing else.

    A lookup cannot be cancelled, and a hostile name server may answer slowly. So each lookup has a daemon thread of its
    own, for which nothing waits, and their number is limited.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_LOOKUPS_MAX)

    async def resolve(self, host: str, port: int) -> list[Address]:
        """All addresses of a name. Raises OSError."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Address]] = loop.create_future()

        def settle(found: list[Address] | OSError) -> None:
            self._free.release()  # Not earlier: a thread counts even if nothing waits for it.
            if answer.done():
                return
            if isinstance(found, OSError):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        def look_up() -> None:
            found: list[Address] | OSError
            try:
                entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in entries))
            except (OSError, ValueError) as error:
                found = OSError(str(error))
            with contextlib.suppress(RuntimeError):  # The loop may have ended.
                loop.call_soon_threadsafe(settle, found)

        threading.Thread(target=look_up, name="lookup", daemon=True).start()
        return await answer
