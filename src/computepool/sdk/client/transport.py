"""Requests to one hub: retried through restarts and overload, each with a deadline, and none executed twice.

Owns the connection pool and the retry rules. Knows paths and bytes, not their meaning. Thread-safe.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from computepool.core.backoff import double
from computepool.core.errors import ComputePoolError, RateLimited, Unauthenticated, Unavailable
from computepool.core.plaintext import printable
from computepool.sdk.client.plain_http import CONNECTION_ERRORS, PlainClient, PlainReply
from computepool.sdk.errors import HubUnreachable, hub_error

if TYPE_CHECKING:
    import httpx2
    from pydantic import BaseModel

API = "/api/v1"
CONNECT_TIMEOUT_S = 5.0
REPLY_TIMEOUT_S = 30.0
#: How long a call retries while the hub is away: a restart takes seconds, an upgrade a minute.
RETRY_FOR_S = 60.0
#: How long the hub holds a long poll.
WAIT_MS = 20_000
#: The hub's limit on rows per page.
PAGE_MAX = 500
CONNECTIONS_MAX = 32
#: A separate generator: retries in threads must not disturb a program that seeds the global one.
_JITTER = random.Random()
_BACKOFF_BASE_S = 0.05
_BACKOFF_MAX_S = 5.0
_OUTAGE_WORTH_A_WARNING_S = 4.0
#: The hub may answer a moment before its new key is stored.
_NEW_KEY_S = 2.0
#: From proxies that cannot reach the hub, and from captive portals, which redirect or reply 511.
_UNAVAILABLE_STATUSES = frozenset({302, 303, 307, 502, 503, 504, 511})

_log = logging.getLogger("computepool.sdk")
Model = TypeVar("Model", bound="BaseModel")
T = TypeVar("T")
#: True is sent as "true"; None is left out.
Params = Mapping[str, str | int | float | Sequence[str] | None]


class RequestOptions(TypedDict, total=False):
    params: Params | None
    body: bytes | None
    wait_s: float
    retry_for: float | None  #: overrides the transport's own
    key: str | None  #: see `post`


class Transport:
    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        retry_for: float = RETRY_FOR_S,
        current_key: Callable[[], str | None] | None = None,
    ) -> None:
        """`current_key` provides a new key if the hub rejects one that it accepted before, or after an outage."""
        self.url = url
        self._key, self._current_key = key, current_key
        #: The key was accepted before, or the hub was away and may have made a new one.
        self._key_may_change = False
        self.retry_for = retry_for
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._calls = 0
        self._headers = {"Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._plain: PlainClient | None = None
        if PlainClient.supports(url):
            self._plain = PlainClient(url, connect_timeout_s=CONNECT_TIMEOUT_S, connections_max=CONNECTIONS_MAX)

    @cached_property
    def _client(self) -> httpx2.Client:
        """For transfers, TLS and proxies. Loading httpx2 takes longer than most commands."""
        import httpx2

        return httpx2.Client(
            base_url=self.url,
            # Loading the certificate store is slow, too, and plain HTTP does not need it.
            verify=self.url.startswith("https:"),
            timeout=httpx2.Timeout(REPLY_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
        )

    def close(self) -> None:
        """End retries at once. The connections close when the last call in progress ends."""
        self.closed.set()
        self._end_calls(0)

    @contextmanager
    def _count_call(self) -> Iterator[None]:
        with self._lock:
            if self.closed.is_set():
                raise HubUnreachable("The connection to the hub was closed.")
            self._calls += 1
        try:
            yield
        finally:
            self._end_calls(1)

    def _end_calls(self, calls: int) -> None:
        with self._lock:
            self._calls -= calls
            last = self._calls == 0 and self.closed.is_set()
        if last:
            for client in (self._plain, self.__dict__.get("_client")):
                if client is not None:
                    client.close()

    def get(self, path: str, model: type[Model], *, params: Params | None = None, wait_ms: int = 0) -> Model:
        if wait_ms:
            params = {**(params or {}), "wait_ms": wait_ms}
        return self.request(model, "GET", path, params=params, wait_s=wait_ms / 1000)

    def get_json(self, path: str, *, params: Params | None = None) -> Any:
        return self._call("GET", path, parse=_parse_json, params=params)

    def post(self, path: str, model: type[Model], *, body: BaseModel | None = None, key: str | None = None) -> Model:
        """`key`: the idempotency key. Clients that send the same key and body share one execution."""
        content = b"{}" if body is None else body.model_dump_json(exclude_unset=True).encode()
        return self.request(model, "POST", path, body=content, key=key)

    def put(self, path: str, model: type[Model], *, body: BaseModel) -> Model:
        """Replace the whole resource: fields that the request leaves empty become empty."""
        return self.request(model, "PUT", path, body=body.model_dump_json().encode())

    def request(self, model: type[Model], method: str, path: str, **options: Unpack[RequestOptions]) -> Model:
        """The reply as a model. A reply that is not JSON does not come from the hub and counts as an outage."""
        return self._call(method, path, parse=lambda body: _parse(model, body), **options)

    def call(self, method: str, path: str, **options: Unpack[RequestOptions]) -> bytes:
        """The reply's body. Retries for `retry_for` while the hub is away or busy; raises the hub's errors."""
        return self._call(method, path, parse=bytes, **options)

    def _call(self, method: str, path: str, *, parse: Callable[[bytes], T], **options: Unpack[RequestOptions]) -> T:
        body, retry_for = options.get("body"), options.get("retry_for")
        headers = {} if body is None else {"Content-Type": "application/json"}
        if method == "POST":
            # One key for all attempts: if the reply was lost, the hub repeats it instead of executing the call again.
            headers["Idempotency-Key"] = options.get("key") or uuid.uuid4().hex
        request = {
            "params": _without_none(options.get("params")),
            "content": body,
            "headers": headers,
            "timeout_s": REPLY_TIMEOUT_S + options.get("wait_s", 0),
        }
        used = self._key
        try:
            return self._send(method, path, request, parse=parse, retry_for=retry_for)
        except Unauthenticated:
            if not self._renew_key(used):
                raise
        return self._send(method, path, request, parse=parse, retry_for=retry_for)

    def _send(self, method: str, path: str, request: Any, *, parse: Callable[[bytes], T], retry_for: float | None) -> T:
        """Retry until it succeeds, with jittered pauses."""
        deadline = time.monotonic() + (self.retry_for if retry_for is None else retry_for)
        warn_at = time.monotonic() + _OUTAGE_WORTH_A_WARNING_S
        for number in itertools.count():
            try:
                with self._count_call():
                    reply = self._send_once(method, API + path, **request)
                    raise_for_problem(reply)
                    parsed = parse(reply.content)
                self._key_may_change = True
                return parsed
            except (Unavailable, RateLimited) as error:
                pause_s, now = _retry_pause_s(error, number), time.monotonic()
                if now + pause_s > deadline or self.closed.is_set():
                    raise
                if now > warn_at:
                    warn_at = math.inf
                    _log.warning("still trying: %s", error)
            self._key_may_change = True
            self.closed.wait(pause_s)
        raise AssertionError("the loop returns or raises")

    def _send_once(
        self, method: str, path: str, *, headers: dict[str, str], timeout_s: float, **request: Any
    ) -> PlainReply | httpx2.Response:
        headers = self._headers | headers
        if self._plain is not None:
            try:
                return self._plain.request(method, path, headers=headers, timeout_s=timeout_s, **request)
            except CONNECTION_ERRORS as error:
                raise self.unreachable(error) from error
        import httpx2

        try:
            timeout = httpx2.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
            return self._client.request(method, path, headers=headers, timeout=timeout, **request)
        except httpx2.TransportError as error:
            raise self.unreachable(error) from error

    def _renew_key(self, used: str | None) -> bool:
        """A local hub makes a new key at each start, and stores it in the config file that the old one came from."""
        deadline = time.monotonic() + _NEW_KEY_S
        while self._current_key is not None and self._key_may_change:
            fresh = self._current_key()
            with self._lock:
                if fresh and fresh != self._key:
                    self._key = fresh
                    self._headers["Authorization"] = f"Bearer {fresh}"
                if self._key != used:
                    return True
            if time.monotonic() > deadline or self.closed.wait(_NEW_KEY_S / 10):
                break
        return False

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        content: Iterator[bytes] | None = None,
    ) -> Iterator[httpx2.Response]:
        """One attempt at a transfer; the caller resumes it. An outage raises HubUnreachable."""
        import httpx2

        request: Any = {"params": _without_none(params), "headers": self._headers | dict(headers or {})}
        try:
            with self._count_call(), self._client.stream(method, API + path, content=content, **request) as reply:
                if reply.is_error:
                    reply.read()
                raise_for_problem(reply)
                yield reply
        except httpx2.TransportError as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: Exception) -> HubUnreachable:
        system = error.strerror if isinstance(error, OSError) else None  # without the number of the error
        cause = system or str(error) or type(error).__name__
        return HubUnreachable(f"Cannot reach the hub at {self.url}: {cause}.")


def _retry_pause_s(error: ComputePoolError, number: int) -> float:
    if error.retry_after_s is not None:
        return error.retry_after_s * _JITTER.uniform(1.0, 1.2)  # so that clients do not retry in step
    return _JITTER.uniform(0, double(_BACKOFF_BASE_S, number, most=_BACKOFF_MAX_S))


def raise_for_problem(reply: PlainReply | httpx2.Response) -> None:
    if reply.is_success:
        return
    from pydantic import ValidationError

    from computepool.protocol.accounts import Problem

    try:
        raise hub_error(Problem.model_validate_json(reply.content))
    except ValidationError:
        shown = printable(f"{reply.reason_phrase}: {reply.text[:200]}")
        text = f"The hub answered {reply.status_code} {shown}"
        kind = Unavailable if reply.status_code in _UNAVAILABLE_STATUSES else ComputePoolError
        after = reply.headers.get("retry-after") or ""
        raise kind(text, retry_after_s=float(after) if after.isdigit() else None) from None


def _without_none(params: Params | None) -> dict[str, str | int | float | Sequence[str]] | None:
    if params is None:
        return None
    given = {name: value for name, value in params.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}


def _parse(model: type[Model], body: bytes) -> Model:
    from pydantic import ValidationError

    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.errors(include_input=False)[0]["type"] == "json_invalid":
            raise _not_a_hub(body) from None
        raise ComputePoolError(
            f"Cannot parse the hub's reply ({error.error_count()} errors in {model.__name__});"
            " hub and client may have different versions."
        ) from error


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise _not_a_hub(body) from None


def _not_a_hub(body: bytes) -> Unavailable:
    return Unavailable(f"This is not a hub's reply: {printable(body[:200].decode(errors='replace'))}")
