"""A thin HTTP/1.1 client for frequent requests, for which a general one costs more than the work.

Each connection carries one request at a time and is kept for the next. There are no redirects and no proxies; where there
is a proxy, the general client is used (hub_client.py).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2

_HEAD_MAX = 64 * 1024
_IDLE_MAX = 8
_HEX = frozenset(b"0123456789abcdefABCDEF")
_NO_BODY = (204, 304)
_BROKEN = (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError)


class WireError(Exception):
    """The other side was not reached, broke off, or does not use HTTP."""


class WireReply(NamedTuple):
    status: int
    headers: dict[bytes, bytes]  #: names in lower case; anything may be in them
    body: bytes


class _Address(NamedTuple):
    host: str
    port: int
    secure: bool
    prefix: str
    name: str  #: for the Host header


@dataclass(slots=True, eq=False)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def is_open(self) -> bool:
        return not self.reader.at_eof() and not self.writer.is_closing()

    def close(self) -> None:
        self.writer.close()


@dataclass(eq=False)
class Wire:
    connect_timeout_s: float
    _idle: dict[_Address, list[_Connection]] = field(default_factory=dict, init=False)

    async def post(
        self, url: str, path: str, *, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> WireReply:
        """`url`: the hub's, without the path."""
        address = _address_of(url)
        lines = [f"POST {address.prefix}{path} HTTP/1.1", f"host: {address.name}", "accept-encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        request = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode("latin-1") + body
        connection = await self._connect(address)
        try:
            async with asyncio.timeout(timeout_s):
                connection.writer.write(request)
                await connection.writer.drain()
                reply, stays = await _read_reply(connection.reader)
        except BaseException as error:
            connection.close()
            if isinstance(error, _BROKEN):
                raise WireError(str(error) or type(error).__name__) from error
            raise
        idle = self._idle.setdefault(address, [])
        if stays and connection.is_open and len(idle) < _IDLE_MAX:
            idle.append(connection)
        else:
            connection.close()
        return reply

    async def close(self) -> None:
        connections = [connection for idle in self._idle.values() for connection in idle]
        self._idle.clear()
        for connection in connections:
            connection.close()
        await asyncio.gather(*(one.writer.wait_closed() for one in connections), return_exceptions=True)

    async def _connect(self, address: _Address) -> _Connection:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        trust = self._trust if address.secure else None
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                streams = await asyncio.open_connection(address.host, address.port, ssl=trust, limit=_HEAD_MAX)
                return _Connection(*streams)
        except _BROKEN as error:
            raise WireError(str(error) or type(error).__name__) from error

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        return httpx2.create_ssl_context()


@cache
def _address_of(url: str) -> _Address:
    try:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
    except ValueError as error:
        raise WireError(str(error)) from error
    name = parts.netloc.rpartition("@")[2]
    return _Address(parts.hostname or "", port, secure, parts.path.rstrip("/"), name)


async def _read_reply(reader: asyncio.StreamReader) -> tuple[WireReply, bool]:
    """The reply; True if another request may follow on the same connection."""
    version, status, headers = await _read_head(reader)
    while 100 <= status < 200:  # informational, before the reply
        version, status, headers = await _read_head(reader)
    stays = version == b"HTTP/1.1" and headers.get(b"connection", b"").lower() != b"close"
    if status in _NO_BODY:
        return WireReply(status, headers, b""), stays
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return WireReply(status, headers, await _read_chunks(reader)), stays
    length = headers.get(b"content-length")
    if length is None:
        return WireReply(status, headers, await reader.read()), False
    if not length.isdigit() or len(length) > 15:
        raise WireError("The answer has no valid length.")
    return WireReply(status, headers, await reader.readexactly(int(length))), stays


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, int, dict[bytes, bytes]]:
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    version, _, rest = head[0].partition(b" ")
    code = rest[:3]
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not code.isdigit():
        raise WireError("The answer is not HTTP.")
    pairs = (text.partition(b":") for text in head[1:])
    return version, int(code), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size = (await reader.readuntil(b"\r\n"))[:-2].partition(b";")[0].strip()
        if not size or len(size) > 8 or not _HEX.issuperset(size):
            raise WireError("The answer has no valid length.")
        if not (length := int(size, 16)):
            break
        body += await reader.readexactly(length)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers
    return bytes(body)
