"""Request bodies: who may send how much, read after the caller is known and before anything parses them.

A parser works on the event loop, where a few megabytes of `[],[],…` would stop everybody for seconds. So the number of values is
bounded as well as the number of bytes, per body and per caller and second.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request
from starlette.types import Message, Receive, Scope

from computepool.core.errors import BadRequest, RateLimited, TooLarge
from computepool.hub.clock import Clock
from computepool.hub.http.rate_limit import AccountLimits, caller_address
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.settings import Settings

Caller = Principal | NodePrincipal | None

#: Each begins a value, or separates two.
_MARKS = b"[{,"
_ALL = bytes(range(256))
_NO_MARKS = bytes(set(_ALL) - set(_MARKS))
_NO_MARKS_OR_QUOTES = bytes(set(_ALL) - set(_MARKS) - set(b'"'))
_STRING = re.compile(rb'"[^"]*+(?:"|\Z)')
#: How UTF-16 and UTF-32 begin, where it is not with a zero: Python's parser reads them, and their bytes cannot be counted.
_NOT_UTF8 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: Fewer than these are neither counted exactly nor held against anybody: they are parsed in microseconds.
_FEW_VALUES = 256


class Bodies:
    """The limits, and what is on its way at this moment."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._settings = settings
        self._arriving: Counter[str] = Counter()
        self._values = AccountLimits(
            clock,
            per_s=settings.json_values_per_s,
            burst=max(settings.json_values_per_s, settings.json_values_max),
            what="send {per_s:g} JSON values a second",
        )

    def most_bytes(self, caller: Caller, *, large: bool) -> int:
        if caller is None:
            return min(self._settings.anonymous_body_max_bytes, self._settings.body_max_bytes)
        most = self._settings.body_max_bytes
        return most if large else min(most, self._settings.plain_body_max_bytes)

    async def read(self, scope: Scope, receive: Receive, caller: Caller, *, large: bool) -> bytes:
        """To its end, or not at all where it is said to be too long."""
        most = self.most_bytes(caller, large=large)
        if declared_bytes(scope) > most:
            raise _too_large(most)
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body", False):
            with self._arrival(_name(scope, caller)):
                body = await _rest(body, receive, most)
        if len(body) > most:
            raise _too_large(most)
        self._check_values(scope, body, caller)
        return body

    @contextmanager
    def _arrival(self, name: str) -> Iterator[None]:
        """Bodies that come slowly are held in memory meanwhile, so nobody has very many of them on their way."""
        if self._arriving[name] >= self._settings.arriving_bodies_max:
            raise RateLimited("Too many of your requests are still being sent.", retry_after_s=1)
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
        if values > _FEW_VALUES:
            self._values.take(_name(scope, caller), values)


def declared_bytes(scope: Scope) -> int:
    """How long the body will be, by the word of its sender; 0 where nothing is said."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(declared) if declared.isdigit() else 0


def count_values(body: bytes) -> int:
    """About how many values a JSON text has; exact where they are many. In linear time, whatever the text is."""
    marks = len(body.translate(None, _NO_MARKS))
    if marks <= _FEW_VALUES:
        return marks
    # What stands inside strings is no mark: programs print brackets, and their output is sent as one string.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS_OR_QUOTES)
    return len(_STRING.sub(b"", bare))


def replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read is there to be read once more."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


async def _rest(first: bytes, receive: Receive, most: int) -> bytes:
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
    return caller.node_id if caller is not None else caller_address(Request(scope))


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"A request body may have {most} bytes at most.")
