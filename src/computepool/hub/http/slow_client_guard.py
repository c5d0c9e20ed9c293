"""A guard against slow clients. Uvicorn itself waits for ever, so slow clients could use up all connections.

Headers have a deadline and a maximum size, bodies a minimum speed. A connection that waits for its answer, or is idle
between requests, is not slow, so parked polls are not affected.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from computepool.hub.settings import Settings

_SWEEP_S = 0.5
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class SlowClientGuard:
    """Watches the connections that are in the middle of a request, the oldest first."""

    def __init__(self, settings: Settings) -> None:
        self.header_max_bytes = settings.header_max_bytes
        self._header_s = settings.header_deadline_s
        self._grace_s = settings.body_grace_s
        self.unread_max_bytes = settings.unread_body_max_bytes
        self._bytes_per_s = settings.body_bytes_per_s_min
        self._pending_max = settings.connections_pending_max
        self._headers: dict[GuardedProtocol, None] = {}
        self._bodies: dict[GuardedProtocol, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: GuardedProtocol) -> None:
        """Called after every piece that arrived. Most requests arrive in one piece and are never watched."""
        current, other = (self._bodies, self._headers) if connection.in_body else (self._headers, self._bodies)
        other.pop(connection, None)
        current.setdefault(connection, None)
        if len(self._headers) > self._pending_max:
            # The one that started first: an honest client needs milliseconds for its headers.
            next(iter(self._headers)).give_up()
        if self._timer is None:
            self._timer = connection.loop.call_later(_SWEEP_S, self._sweep)

    def forget(self, connection: GuardedProtocol) -> None:
        self._headers.pop(connection, None)
        self._bodies.pop(connection, None)

    def _sweep(self) -> None:
        self._timer = None
        watched = [*self._headers, *self._bodies]
        if not watched:
            return
        loop = watched[0].loop
        now = loop.time()
        for connection in watched:
            if self._too_slow(connection, now):
                connection.give_up()
        self._timer = loop.call_later(_SWEEP_S, self._sweep)

    def _too_slow(self, connection: GuardedProtocol, now: float) -> bool:
        took_s = now - connection.since
        if not connection.in_body:
            return took_s > self._header_s
        if connection.flow.read_paused:
            connection.begin_body(now)  # the hub itself cannot keep up
            return False
        if connection.answered:
            return took_s > self._grace_s  # the rest of the body is no longer needed
        return connection.body_bytes < (took_s - self._grace_s) * self._bytes_per_s


class GuardedProtocol(HttpToolsProtocol):
    """Uvicorn's own protocol, observed by a guard, which each server's subclass sets (repeated_requests.py)."""

    guard: SlowClientGuard

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.in_request = False
        self.in_body = False
        self.since = 0.0
        self.header_bytes = 0
        self.body_bytes = 0
        self.unread_bytes = 0  #: of a body that was answered before it had arrived

    @property
    def answered(self) -> bool:
        """Whether every request so far has its answer."""
        cycle: Any = self.cycle  # None at first, which uvicorn's types do not say
        return cycle is None or bool(cycle.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_headers()
        self.guard.watch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_body = self.in_body
        super().data_received(data)
        if self.transport.is_closing():
            self.guard.forget(self)
            return
        if not self.in_request and self._idle():
            self._begin_headers()  # empty lines and the like must not keep a connection open
        if not self.in_request:
            self.guard.forget(self)
            return
        if not self.in_body:
            # The rest of an early answered body does not count as the next request's headers.
            self.header_bytes += 0 if was_in_body else len(data)
            if self.header_bytes > self.guard.header_max_bytes:
                self.give_up(_TOO_LONG)
                return
        self.guard.watch(self)

    def _idle(self) -> bool:
        return self.answered and not self.pipeline and self.timeout_keep_alive_task is None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self.in_request:
            self._begin_headers()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.begin_body(self.loop.time())

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        super().on_body(body)
        if self.answered:
            # A refused client gets its answer before the connection is closed, but may not go on sending for long.
            self.unread_bytes += len(body)
            if self.unread_bytes > self.guard.unread_max_bytes:
                self.transport.close()

    def on_message_complete(self) -> None:
        self.in_request = self.in_body = False
        super().on_message_complete()

    def _begin_headers(self) -> None:
        self.in_request, self.in_body = True, False
        self.since, self.header_bytes = self.loop.time(), 0

    def begin_body(self, now: float) -> None:
        self.in_request = self.in_body = True
        self.since, self.body_bytes, self.unread_bytes = now, 0, 0

    def give_up(self, answer: bytes = _TOO_SLOW) -> None:
        self.guard.forget(self)
        if self.transport.is_closing():
            return
        if self.answered or not self.cycle.response_started:
            self.transport.write(answer)
        self.transport.close()
