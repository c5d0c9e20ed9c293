"""The network of one member of a gang: a device in its sandbox, whose packets travel to the other members.

The sandbox gets an interface with the member's address (core/jobs/gang_network.py). Its packets go directly to members in the
same LAN, where their owners allow it (gang_lan.py), and all others through the hub, on requests that this node makes: so
the members reach each other behind any NAT. No program needs to know about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from computepool.agent.context import Node
from computepool.agent.network import gang_tun
from computepool.agent.network.gang_lan import GangLan, LanLinks
from computepool.agent.sandbox.base import SandboxError
from computepool.agent.sandbox.slots import python
from computepool.core.errors import ComputePoolError, Conflict, TooLarge
from computepool.core.jobs import gang_network
from computepool.core.jobs.gang_network import MASTER_PORT, MTU, NETMASK, address
from computepool.protocol.gangs import BATCH_MAX, PACKET_MAX, BarrierReply, BarrierRequest
from computepool.protocol.nodes.nodes import Grant

_log = logging.getLogger(__name__)
#: Where jobs see the names of the members.
HOSTS = "/etc/hosts"
#: Packets to read before other work has its turn.
_BURST = 32


class NotReady(Exception):
    """Not all members of the gang were ready in time."""


def can_join() -> bool:
    """Whether this agent may make network devices."""
    try:
        os.close(os.open(gang_tun.DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


@dataclass(eq=False)
class GangLink:
    node: Node
    grant: Grant
    folder: Path  #: its own; removed at the end
    lan: GangLan | None
    note: Callable[[str], None]  #: tells the submitter, in the job's log

    waited_s: float = field(default=0.0, init=False)  #: for other members
    sent: int = field(default=0, init=False)
    received: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.rank, self.size = self.grant.item, self.grant.items
        self._device = -1
        self._info, self._block = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        self._outgoing: deque[bytes] = deque()
        self._waiting = 0
        self._pending = asyncio.Event()
        self._reading = False
        self._tasks: list[asyncio.Task[None]] = []
        self._links: LanLinks | None = None
        self._relayed = True  #: the hub passes packets on
        self._make_folder()

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o711, parents=True)
        lines = ["127.0.0.1 localhost", "::1 localhost", f"{address(self.rank)} job"]
        lines += [f"{address(rank)} rank{rank}" for rank in range(self.size)]
        self.hosts.write_text("\n".join([*lines, ""]))
        self.hosts.chmod(0o644)

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"

    @property
    def hold(self) -> tuple[int, int]:
        """Descriptors for the sandbox: it writes its pid to the first, and starts the program when the second ends."""
        return self._info[1], self._block[0]

    def env(self) -> dict[str, str]:
        addresses = [address(rank) for rank in range(self.size)]
        about = {"rank": self.rank, "size": self.size, "addresses": addresses, "port": MASTER_PORT}
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": "0",
            "NODE_RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": addresses[0],
            "MASTER_PORT": str(MASTER_PORT),
            **dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), gang_tun.NAME.decode()),
            "COMPUTEPOOL_GANG": json.dumps(about),
        }

    # ------------------------------------------------------------ the barriers
    async def ready(self) -> None:
        """Wait until all members are ready to start. Raises NotReady."""
        assert self.grant.gang is not None
        try:
            async with asyncio.timeout(self.grant.gang.start_ms / 1000):
                reply = await self._wait_for_all("ready")
        except TimeoutError:
            raise NotReady from None
        if self.lan is not None:
            self._links = self.lan.join(self, reply)

    async def done(self) -> None:
        """Wait until all members have finished: until then, all may have to begin again."""
        await self._wait_for_all("done")

    async def _wait_for_all(self, phase: str) -> BarrierReply:
        since = self.node.clock.steady()
        lan = None if self.lan is None else self.lan.address
        request = BarrierRequest(phase=phase, lan=lan)
        backoff = self.node.client.backoff()
        try:
            while True:
                try:
                    reply = await self.node.client.gang_barrier(self.grant.attempt_id, request)
                except ComputePoolError as error:
                    # A restarted hub learns first which attempts this node holds.
                    await asyncio.sleep(min(self.node.limits.gang_retry_s, backoff.delay_s(error)))
                    continue
                if reply.passed:
                    return reply
        finally:
            self.waited_s += self.node.clock.steady() - since

    # ------------------------------------------------------------ the device
    async def attach(self) -> None:
        """Give the sandbox, which has just been started, its interface; then its program starts. Raises SandboxError."""
        os.close(self._info[1])
        pid = await asyncio.wait_for(asyncio.to_thread(_read_pid, self._info[0]), self.node.limits.gang_device_s)
        self._info = (self._info[0], -1)
        self._device = await self._make_device(pid)
        os.set_blocking(self._device, False)
        self._tasks = [asyncio.create_task(self._send_all()), asyncio.create_task(self._receive_all())]
        self._read_device()
        self.release()

    def release(self) -> None:
        """Let the program start."""
        reader, writer = self._block
        self._block = (-1, -1)
        for fd in (reader, writer):
            if fd >= 0:
                os.close(fd)

    async def _make_device(self, pid: int) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            helper = await asyncio.create_subprocess_exec(
                python(), "-I", "-S", gang_tun.__file__,
                str(pid), address(self.rank), NETMASK, str(MTU), str(theirs.fileno()),
                pass_fds=(theirs.fileno(),), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, problem = await helper.communicate()
            if helper.returncode != 0:
                why = problem.decode(errors="replace").strip()[-500:]
                raise SandboxError(f"the network of the gang could not be made: {why}")
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
            return fds[0]

    def close(self) -> None:
        """End the network. The members' connections to this one end with it."""
        for task in self._tasks:
            task.cancel()
        if self._links is not None:
            self._links.close()
        self.release()
        self._close_device()
        for fd in self._info:
            if fd >= 0:
                os.close(fd)
        self._info = (-1, -1)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _close_device(self) -> None:
        if self._device < 0:
            return
        self._pause_reading()
        os.close(self._device)
        self._device = -1

    # ------------------------------------------------------------ packets
    def _read_device(self) -> None:
        if not self._reading and self._device >= 0:
            self._reading = True
            asyncio.get_running_loop().add_reader(self._device, self._on_packets)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            asyncio.get_running_loop().remove_reader(self._device)

    def _on_packets(self) -> None:
        for _ in range(_BURST):
            try:
                packet = os.read(self._device, PACKET_MAX)
            except BlockingIOError:
                return
            except OSError:  # The sandbox has ended, and its interface with it.
                self._pause_reading()
                return
            ranks = gang_network.ranks_of(packet, self.size)
            if ranks is None or ranks[0] != self.rank:
                continue
            self.sent += len(packet)
            if (self._links is not None and self._links.send(ranks[1], packet)) or not self._relayed:
                continue
            self._outgoing.append(packet)
            self._waiting += len(packet) + 2
            self._pending.set()
            if self._waiting >= BATCH_MAX // 2:
                self._pause_reading()  # until these are sent; meanwhile, the kernel queues a few, and drops the rest
                return

    def deliver(self, packet: bytes, source: int | None = None) -> None:
        """A packet for this member; `source`: the member that it must come from, if known."""
        ranks = gang_network.ranks_of(packet, self.size)
        if ranks is None or ranks[1] != self.rank or source not in (None, ranks[0]) or self._device < 0:
            return
        self.received += len(packet)
        with contextlib.suppress(OSError):
            os.write(self._device, packet)

    async def _send_all(self) -> None:
        while True:
            await self._pending.wait()
            self._pending.clear()
            packets, self._outgoing, self._waiting = self._outgoing, deque(), 0
            data = b"".join(map(gang_network.frame, packets))
            await self._retry(lambda data=data: self.node.client.send_packets(self.grant.attempt_id, data))  # type: ignore[misc]
            self._read_device()

    async def _receive_all(self) -> None:
        while True:
            data = await self._retry(lambda: self.node.client.receive_packets(self.grant.attempt_id))
            with contextlib.suppress(ValueError):
                for packet in gang_network.unframe(data):
                    self.deliver(packet)

    def _end_relay(self, error: ComputePoolError) -> None:
        """The hub passes on no more. Unless all members can be reached directly, the program learns it from its network."""
        if not self._relayed:
            return
        self._relayed = False
        if self._links is not None and self._links.reaches_all:
            return
        self.note(f"The network between the nodes of this job has ended. {error.detail}")
        self._close_device()

    async def _retry(self, call: Callable[[], object]) -> bytes:
        backoff = self.node.client.backoff()
        while True:
            try:
                result: bytes = await call()  # type: ignore[misc]
            except (Conflict, TooLarge) as error:
                self._end_relay(error)
                return b""
            except ComputePoolError as error:
                await asyncio.sleep(min(self.node.limits.gang_retry_s, backoff.delay_s(error)))
            else:
                return result


def _read_pid(fd: int) -> int:
    """What bubblewrap says about the process that it has started."""
    text = b""
    while b"}" not in text:
        part = os.read(fd, 4096)
        if not part:
            raise SandboxError("the sandbox ended before its network was made")
        text += part
    return int(json.loads(text[: text.index(b"}") + 1])["child-pid"])


class GangLinks:
    """Makes the links of this node's members."""

    def __init__(self, node: Node, folder: Path, lan: GangLan | None) -> None:
        self._node, self._folder, self.lan = node, folder, lan

    def make(self, grant: Grant, note: Callable[[str], None]) -> GangLink:
        return GangLink(self._node, grant, self._folder / f"gang-{secrets.token_hex(8)}", self.lan, note)
