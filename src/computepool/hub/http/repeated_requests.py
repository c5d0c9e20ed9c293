"""Requests repeated byte for byte on one connection: the polls of an idle node.

The first one takes the full path through parser, ASGI, authentication and validation. Its handler may then offer a `Repeat`
for the connection. If the same bytes arrive there again, they are the same request, so only what may have changed is
checked. Whenever the `Repeat` has no answer, the bytes take the full path again.
"""

from __future__ import annotations

from asyncio import Future
from functools import partial
from typing import Any, Protocol

from starlette.types import Scope

from computepool.hub.http.slow_client_guard import GuardedProtocol, SlowClientGuard
from computepool.hub.settings import Settings

#: Longer requests are not kept: there may be one per connection.
_REQUEST_MAX = 2048
_OFFER = "computepool.offer_repeat"
_OK = b"HTTP/1.1 200 OK\r\n"


class Repeat(Protocol):
    """What the application knows about a request that it answered before. No method blocks."""

    def begin(self) -> Future[None] | None:
        """A future that is done when there is an answer, or None to take the full path."""

    def end(self) -> bytes | None:
        """The body of the answer, or None to take the full path."""

    def drop(self) -> None:
        """Called if nobody waits for the answer any more."""


def offer(scope: Scope, repeat: Repeat, head: bytes) -> None:
    """Offer a `Repeat` to the request's connection, with the headers of its answers."""
    accept = scope.pop(_OFFER, None)
    if accept is not None:
        accept(repeat, head)


class HubProtocol(GuardedProtocol):
    """A guarded connection that keeps the last request for which a `Repeat` was offered."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._begun = self._ended = 0  #: requests within the latest bytes
        self._known = self._head = b""
        self._repeat: Repeat | None = None
        self._waiting: Future[None] | None = None
        self._answered_at = 0.0  #: when a repeated request was last answered

    def data_received(self, data: bytes) -> None:
        if self._waiting is not None:
            self._answer()  # the client has sent its next request without waiting
        if data == self._known and self._can_repeat() and self._begin():
            return
        self._take_full_path(data)

    def _can_repeat(self) -> bool:
        """Whether the connection is idle and the hub accepts requests."""
        return (
            self.answered
            and not (self.in_request or self.pipeline or self.flow.write_paused or self.transport.is_closing())
            and (self.limit_concurrency is None or len(self.connections) < self.limit_concurrency)
        )

    def _begin(self) -> bool:
        assert self._repeat is not None
        waiting = self._repeat.begin()
        if waiting is None:
            return False
        self._waiting = waiting
        self.scope = self.headers = self.cycle = None  # type: ignore[assignment]  # frees kilobytes
        waiting.add_done_callback(self._on_done)
        return True

    def _on_done(self, waited: Future[None]) -> None:
        if waited is self._waiting:
            self._answer()

    def _answer(self) -> None:
        assert self._repeat is not None
        self._waiting = None
        try:
            answer = self._repeat.end()
        except Exception:
            self.transport.close()  # else the client would wait for ever
            raise
        if answer is None:
            self._take_full_path(self._known)
            return
        always = [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        length = b"content-length: %d\r\n\r\n" % len(answer)
        self.transport.write(b"".join((_OK, *always, self._head, length, answer)))
        self.server_state.total_requests += 1
        self._answered_at = self.loop.time()

    def _take_full_path(self, data: bytes) -> None:
        self._begun = self._ended = 0
        super().data_received(data)
        is_one = self._begun == self._ended == 1 and not self.expect_100_continue
        if is_one and len(data) <= _REQUEST_MAX and self.transport is not None:
            # The application runs in the next iteration of the event loop.
            self.scope[_OFFER] = partial(self._remember, data)  # type: ignore[literal-required]

    def _remember(self, data: bytes, repeat: Repeat, head: bytes) -> None:
        self._known, self._repeat, self._head = data, repeat, head

    def on_message_begin(self) -> None:
        self._begun += 1
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._ended += 1
        super().on_message_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Set by the last request on the full path; this timer serves all that were repeated since."""
        rest_s = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if self._waiting is not None:
            rest_s = self.timeout_keep_alive
        if rest_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(rest_s, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def shutdown(self) -> None:
        if self._waiting is not None:
            self._answer()
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and self._repeat is not None:
            self._repeat.drop()
        self._waiting = self._repeat = None
        self._known = b""
        if self.scope is not None:
            self.scope.pop(_OFFER, None)  # type: ignore[misc]
        super().connection_lost(exc)


def protocol_for(settings: Settings) -> type[HubProtocol]:
    """A protocol class for uvicorn, whose connections share one guard."""
    return type("GuardedHubProtocol", (HubProtocol,), {"guard": SlowClientGuard(settings)})
