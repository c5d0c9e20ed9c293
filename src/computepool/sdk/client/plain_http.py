"""Requests over plain HTTP with the standard library, which loads in a third of the time that httpx2 takes.

No TLS, no proxies and no streams: `Transport` leaves these to httpx2. Thread-safe: a connection is one call's at a time.
"""

from __future__ import annotations

import os
import select
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPMessage
from urllib.parse import quote, urlencode, urlsplit

#: What a call raises when the hub cannot be reached, or breaks off.
ERRORS = (OSError, HTTPException)
_PROXIES = ("http_proxy", "all_proxy")
_HERE = ("127.0.0.1", "localhost", "::1")
_IN_PATHS = "/%:@!$&'()*+,;=~"
_GZIP = 31  # zlib's word for gzip's format, with the largest window


@dataclass(frozen=True, slots=True)
class PlainReply:
    """Named as in httpx2."""

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


class PlainClient:
    def __init__(self, url: str, *, connect_timeout_s: float, connections_max: int) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname or "", parts.port or 80, parts.path
        self._connect_timeout_s, self._connections_max = connect_timeout_s, connections_max
        # Packing what does not leave the machine costs more than it saves.
        self._headers = {} if self._host in _HERE else {"Accept-Encoding": "gzip"}
        self._idle: list[HTTPConnection] = []

    @staticmethod
    def suits(url: str) -> bool:
        proxied = any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)
        return url.startswith("http:") and "@" not in url and not proxied

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | float] | None,
        content: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> PlainReply:
        """`timeout_s`: for each step, as in httpx2. Raises one of ERRORS."""
        target = quote(self._path + path, safe=_IN_PATHS) + (f"?{urlencode(params)}" if params else "")
        connection = self._connection()
        try:
            connection.sock.settimeout(timeout_s)
            connection.request(method, target, body=content, headers={**self._headers, **headers})
            answer = connection.getresponse()
            body = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close or len(self._idle) >= self._connections_max:
            connection.close()
        else:
            self._idle.append(connection)
        if answer.headers.get("content-encoding") == "gzip":
            body = zlib.decompress(body, _GZIP)
        return PlainReply(answer.status, answer.reason, answer.headers, body)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _connection(self) -> HTTPConnection:
        """One that is open and that the hub has not closed meanwhile, or a new one."""
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
        connection = HTTPConnection(self._host, self._port, timeout=self._connect_timeout_s)
        connection.connect()
        return connection
