"""Plain HTTP requests with the standard library, which loads in a third of the time of httpx2.

TLS, proxies and streams are left to httpx2 (see `Transport`). Thread-safe: each connection serves one call at a time.
"""

from __future__ import annotations

import os
import select
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

#: Raised when the hub cannot be reached, or the connection breaks.
CONNECTION_ERRORS = (OSError, HTTPException)
_PROXY_VARIABLES = ("http_proxy", "all_proxy")
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_UNQUOTED = "/%:@!$&'()*+,;=~"
_GZIP_WBITS = 31


@dataclass(frozen=True, slots=True)
class PlainReply:
    """A reply with the attribute names of httpx2."""

    status_code: int
    reason_phrase: str
    headers: HTTPMessage
    content: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


class _Connection(HTTPConnection):
    """Sends the header and the body of a request in one write: separate writes would wake the hub twice."""

    _parts: list[bytes] | None = None

    def send_request(self, method: str, target: str, *, content: bytes | None, headers: Mapping[str, str]) -> None:
        parts: list[bytes] = []
        self._parts = parts
        try:
            self.request(method, target, body=content, headers=headers)
        finally:
            self._parts = None
        self.send(b"".join(parts))

    def send(self, data: Any) -> None:
        if self._parts is None:
            super().send(data)
        else:
            self._parts.append(data)


class PlainClient:
    def __init__(self, url: str, *, connect_timeout_s: float, connections_max: int) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname or "", parts.port or 80, parts.path
        self._connect_timeout_s, self._connections_max = connect_timeout_s, connections_max
        # Within one machine, compression costs more than it saves.
        self._headers = {} if self._host in _LOOPBACK_HOSTS else {"Accept-Encoding": "gzip"}
        self._idle: list[_Connection] = []

    @staticmethod
    def supports(url: str) -> bool:
        proxied = any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXY_VARIABLES)
        return url.startswith("http:") and "@" not in url and not proxied

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | float | Sequence[str]] | None,
        content: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> PlainReply:
        """`timeout_s` applies to each read and write, as in httpx2. Raises one of CONNECTION_ERRORS."""
        target = quote(self._path + path, safe=_UNQUOTED) + (f"?{urlencode(params, doseq=True)}" if params else "")
        connection = self._connection()
        try:
            connection.sock.settimeout(timeout_s)
            connection.send_request(method, target, content=content, headers={**self._headers, **headers})
            reply = connection.getresponse()
            body = reply.read()
        except BaseException:
            connection.close()
            raise
        if reply.will_close or len(self._idle) >= self._connections_max:
            connection.close()
        else:
            self._idle.append(connection)
        if reply.headers.get("content-encoding") == "gzip":
            body = zlib.decompress(body, _GZIP_WBITS)
        return PlainReply(reply.status, reply.reason, reply.headers, body)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _connection(self) -> _Connection:
        """An idle connection that the hub has not closed, or a new one."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                break
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()
        connection = _Connection(self._host, self._port, timeout=self._connect_timeout_s)
        connection.connect()
        return connection
