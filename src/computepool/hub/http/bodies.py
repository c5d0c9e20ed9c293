"""Request bodies: limits by caller, checked after the caller is known and before anything parses the body.

Parsing happens on the event loop, where a few megabytes of `[],[],…` would block every request for seconds. So the number of
JSON values is limited as well as the number of bytes: per body, and per caller and second.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.types import Message, Receive, Scope

from computepool.core.errors import BadRequest, RateLimited, TooLarge
from computepool.hub.clock import Clock
from computepool.hub.http.rate_limit import AccountLimits, client_network
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.settings import Settings

Caller = Principal | NodePrincipal | None

#: Characters that begin a value, or separate two.
_MARKS = b"[{,"
_ALL = bytes(range(256))
_NO_MARKS = bytes(set(_ALL) - set(_MARKS))
_NO_MARKS_OR_QUOTES = bytes(set(_ALL) - set(_MARKS) - set(b'"'))
_STRING = re.compile(rb'"[^"]*+(?:"|\Z)')
#: Beginnings of UTF-16 and UTF-32, besides a zero byte. Python's parser reads these, but their values cannot be counted here.
_NOT_UTF8 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: Bodies with fewer values are parsed in microseconds, so they are not counted exactly and use up no allowance.
FEW_VALUES = 256


class Bodies:
    """The limits, and the bodies that are being received."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._settings = settings
        self._arriving: Counter[str] = Counter()
        self._values = AccountLimits(
            clock,
            per_s=settings.json_values_per_s,
            burst=max(settings.json_values_per_s, settings.json_values_max),
            what="send {per_s:g} JSON values a second",
        )

    def _max_bytes(self, caller: Caller, *, large: bool) -> int:
        most = self._settings.body_max_bytes
        if caller is None:
            return min(most, self._settings.anonymous_body_max_bytes)
        return most if large else min(most, self._settings.plain_body_max_bytes)

    async def read(self, scope: Scope, receive: Receive, caller: Caller, *, large: bool) -> bytes:
        """Read the whole body, or nothing of it if its declared length is too long."""
        most = self._max_bytes(caller, large=large)
        if declared_bytes(scope) > most:
            raise _too_large(most)
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            with self._slot(_name(scope, caller)):
                body = await _read_rest(body, receive, most)
        if len(body) > most:
            raise _too_large(most)
        self._check_values(scope, body, caller)
        return body

    @contextmanager
    def _slot(self, name: str) -> Iterator[None]:
        """Limit how many bodies a caller sends at once: a slow one stays in memory until it is complete."""
        if self._arriving[name] >= self._settings.arriving_bodies_max:
            raise RateLimited("Too many of your requests are still being received.", retry_after_s=1)
        self._arriving[name] += 1
        try:
            yield
        finally:
            self._arriving[name] -= 1
            if not self._arriving[name]:
                del self._arriving[name]

    def _check_values(self, scope: Scope, body: bytes, caller: Caller) -> None:
        if body.startswith(_NOT_UTF8) or 0 in body[:2]:
            raise BadRequest("The body is not valid JSON: it must be UTF-8.")
        values = count_values(body)
        if values > self._settings.json_values_max:
            raise TooLarge(f"A request body may hold {self._settings.json_values_max} JSON values at most.")
        if values > FEW_VALUES:
            self._values.take(_name(scope, caller), values)


def declared_bytes(scope: Scope) -> int:
    """The declared length of the body, or 0."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(declared) if declared.isdigit() else 0


def count_values(body: bytes) -> int:
    """The number of values in a JSON text, exact if there are many. Takes linear time for any text."""
    marks = len(body.translate(None, _NO_MARKS))
    if marks <= FEW_VALUES:
        return marks
    # Marks inside strings do not count: programs print brackets, and their output is sent as one string.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS_OR_QUOTES)
    return len(_STRING.sub(b"", bare))


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns a body which was already read."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


async def read_within(stream: AsyncIterator[bytes], most: int) -> bytes:
    """A streamed body, which is not JSON. Raises TooLarge as soon as it is longer than `most`."""
    body = bytearray()
    async for part in stream:
        body += part
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


async def _read_rest(first: bytes, receive: Receive, most: int) -> bytes:
    parts, size, more = [first], len(first), True
    while more and size <= most:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts)


def _name(scope: Scope, caller: Caller) -> str:
    if isinstance(caller, Principal):
        return caller.account_id
    return caller.node_id if caller is not None else client_network(scope)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"A request body may have {most} bytes at most.")
