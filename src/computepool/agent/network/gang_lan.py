"""Direct connections between the members of a gang whose owners allow it: `pool node start --lan`.

Both ends prove that they know the gang's secret, which the hub gave to its members alone, and encrypt every packet with keys
made from it for this connection. A member that cannot be reached directly is reached through the hub.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import logging
import secrets
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from computepool.agent.config import AgentLimits
from computepool.protocol.gangs import PACKET_MAX, BarrierReply
from computepool.protocol.local_address import outgoing_address

if TYPE_CHECKING:
    from computepool.agent.network.gang_link import GangLink

_log = logging.getLogger(__name__)
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_HELLO = struct.Struct(">32sBB32s")  #: name of the run, ranks of the caller and of the called member, nonce
_LENGTH = struct.Struct(">I")
_TAG_BYTES = 16


@dataclass(eq=False)
class _Link:
    """An authenticated connection to one member."""

    writer: asyncio.StreamWriter
    seal: ChaCha20Poly1305
    most: int
    count: int = 0

    def send(self, packet: bytes) -> None:
        if self.writer.transport.get_write_buffer_size() > self.most:
            return  # as a router does: the programs' connections slow down
        sealed = self.seal.encrypt(_nonce(self.count), packet, None)
        self.count += 1
        self.writer.write(_LENGTH.pack(len(sealed)) + sealed)


@dataclass(eq=False)
class LanLinks:
    """The direct connections of one member."""

    owner: GangLan
    link: GangLink
    name: bytes
    secret: bytes
    reaches_all: bool  #: every other member listens, too
    open: dict[int, _Link] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def send(self, rank: int, packet: bytes) -> bool:
        """False if the member is not connected directly."""
        found = self.open.get(rank)
        if found is None or found.writer.is_closing():
            return False
        found.send(packet)
        return True

    def close(self) -> None:
        self.owner.leave(self)
        for task in self.tasks:
            task.cancel()
        for found in self.open.values():
            found.writer.transport.abort()

    def keep(self, task: asyncio.Task[None]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class GangLan:
    """Accepts and makes the direct connections of this node's members."""

    def __init__(self, limits: AgentLimits, *, host: str = "", port: int = 0) -> None:
        self._limits, self._host, self._port = limits, host, port
        self._server: asyncio.Server | None = None
        self._members: dict[tuple[bytes, int], LanLinks] = {}
        self._joined: dict[tuple[bytes, int], asyncio.Event] = {}  #: members that others have called already
        self._serving: set[asyncio.Task[None]] = set()
        self._accepting = 0
        self.address: str | None = None  #: for the other members; None while it does not listen

    async def start(self) -> None:
        host = self._host or outgoing_address()
        try:
            self._server = await asyncio.start_server(self._accept, host, self._port, limit=2 * PACKET_MAX)
        except OSError as error:
            _log.warning("no direct connections between members of a gang (--lan): %s", error)
            return
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._serving):
            task.cancel()

    def join(self, link: GangLink, reply: BarrierReply) -> LanLinks | None:
        """Connect to the members of lower ranks that can be reached directly; those of higher ranks connect to this one."""
        try:
            secret = base64.b64decode(reply.key, validate=True)
        except binascii.Error:
            return None
        if len(secret) != _NONCE_BYTES:
            return None
        name = hashlib.sha256(b"computepool gang" + secret).digest()
        links = self._members[name, link.rank] = LanLinks(
            self, link, name, secret, all(peer.lan for peer in reply.peers)
        )
        if (arrived := self._joined.get((name, link.rank))) is not None:
            arrived.set()
        for peer in reply.peers:
            if peer.lan is not None and peer.rank < link.rank:
                links.keep(asyncio.create_task(self._connect(links, peer.rank, peer.lan)))
        return links

    def leave(self, links: LanLinks) -> None:
        self._members.pop((links.name, links.link.rank), None)

    # ------------------------------------------------------------ connections
    async def _connect(self, links: LanLinks, rank: int, lan: str) -> None:
        host, _, port = lan.rpartition(":")
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(self._limits.gang_lan_connect_s):
                streams = await asyncio.open_connection(host.strip("[]"), int(port), limit=2 * PACKET_MAX)
                try:
                    nonce = secrets.token_bytes(_NONCE_BYTES)
                    hello = _HELLO.pack(links.name, links.link.rank, rank, nonce)
                    streams[1].write(hello)
                    answer = await streams[0].readexactly(_NONCE_BYTES + _PROOF_BYTES)
                    theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
                    talk = hello + theirs
                    if not hmac.compare_digest(proof, _derive(links.secret, b"called", talk)):
                        raise ValueError("not a member")
                    streams[1].write(_derive(links.secret, b"caller", talk))
                except BaseException:
                    streams[1].transport.abort()
                    raise
            await self._carry(links, rank, streams, keys=(b"to called", b"to caller"), talk=talk)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine itself: asyncio logs the cancellation of one.
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._accepting >= self._limits.gang_lan_accepting_max:
            writer.transport.abort()
            return
        self._accepting += 1
        try:
            async with asyncio.timeout(self._limits.gang_lan_connect_s):
                found = await self._identify(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            found = None
        finally:
            self._accepting -= 1
        if found is None:
            writer.transport.abort()
            return
        links, rank, talk = found
        task = asyncio.current_task()
        assert task is not None
        links.keep(task)
        await self._carry(links, rank, (reader, writer), keys=(b"to caller", b"to called"), talk=talk)

    async def _identify(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[LanLinks, int, bytes] | None:
        hello = await reader.readexactly(_HELLO.size)
        name, caller, called, _ = _HELLO.unpack(hello)
        links = await self._member(name, called)
        if links is None or not called < caller < links.link.size:
            return None
        talk = hello + (ours := secrets.token_bytes(_NONCE_BYTES))
        writer.write(ours + _derive(links.secret, b"called", talk))
        proof = await reader.readexactly(_PROOF_BYTES)
        return (links, caller, talk) if hmac.compare_digest(proof, _derive(links.secret, b"caller", talk)) else None

    async def _member(self, name: bytes, rank: int) -> LanLinks | None:
        """The caller may have passed the barrier a little earlier than the member that it calls."""
        arrived = self._joined.setdefault((name, rank), asyncio.Event())
        if (name, rank) in self._members:
            arrived.set()
        try:
            await arrived.wait()
        finally:
            self._joined.pop((name, rank), None)
        return self._members.get((name, rank))

    async def _carry(
        self,
        links: LanLinks,
        rank: int,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        *,
        keys: tuple[bytes, bytes],
        talk: bytes,
    ) -> None:
        reader, writer = streams
        seal, unseal = (ChaCha20Poly1305(_derive(links.secret, key, talk)) for key in keys)
        raw = writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        links.open[rank] = mine = _Link(writer, seal, self._limits.gang_lan_buffer_bytes)
        count = 0
        try:
            while True:
                [length] = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if length > PACKET_MAX + _TAG_BYTES:
                    return
                packet = unseal.decrypt(_nonce(count), await reader.readexactly(length), None)
                count += 1
                links.link.deliver(packet, rank)
        except (OSError, asyncio.IncompleteReadError, InvalidTag):
            return  # From now on through the hub.
        finally:
            if links.open.get(rank) is mine:
                del links.open[rank]
            writer.transport.abort()


def _derive(secret: bytes, use: bytes, talk: bytes) -> bytes:
    return hmac.digest(secret, use + b"\0" + talk, "sha256")


def _nonce(count: int) -> bytes:
    return count.to_bytes(12, "big")
