"""Requests to one hub: retried through restarts and overload, every one with a deadline, none done twice.

Owns the connection pool and the retry rules. Knows paths and bytes, not what they mean. Thread-safe.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from computepool.core.backoff import doubled
from computepool.core.plaintext import printable
from computepool.sdk.client.plain_http import ERRORS, PlainClient, PlainReply
from computepool.sdk.errors import (
    ComputePoolError,
    HubUnreachable,
    RateLimited,
    Unauthenticated,
    Unavailable,
    hub_error,
)

if TYPE_CHECKING:
    import httpx2
    from pydantic import BaseModel

API = "/api/v1"
CONNECT_TIMEOUT_S = 5.0
REPLY_TIMEOUT_S = 30.0
#: How long a call keeps trying while the hub is away: a restart takes seconds, an upgrade a minute.
RETRY_FOR_S = 60.0
#: How long a long poll is parked at the hub.
WAIT_MS = 20_000
#: What the hub gives at most in one page.
PAGE_MAX = 500
CONNECTIONS_MAX = 32
#: Of its own: retries run in threads, and must not disturb a program that seeds the module's generator.
_JITTER = random.Random()
_BACKOFF_BASE_S = 0.05
_BACKOFF_MAX_S = 5.0
_OUTAGE_WORTH_A_WARNING_S = 4.0
#: The hub may answer a moment before its new key is stored.
_NEW_KEY_S = 2.0
#: And networks that want somebody to sign in first send to another address, or say 511.
_PROXY_SAYS_NOT_NOW = frozenset({302, 303, 307, 502, 503, 504, 511})

_log = logging.getLogger("computepool.sdk")
Model = TypeVar("Model", bound="BaseModel")
T = TypeVar("T")
Params = Mapping[str, str | int | float | None]


class RequestOptions(TypedDict, total=False):
    params: Params | None
    body: bytes | None
    wait_s: float
    retry_for: float | None  #: in place of the transport's own
    key: str | None  #: see `post`


class Transport:
    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        retry_for: float = RETRY_FOR_S,
        key_now: Callable[[], str | None] | None = None,
    ) -> None:
        """`key_now`: asked for another key when the hub no longer takes one, after it took it or was away."""
        self.url = url
        self._key, self._key_now = key, key_now
        #: The key: it was taken before, or the hub was away and may have made another.
        self._may_change = False
        self.retry_for = retry_for
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._calls = 0
        self._headers = {"Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._plain: PlainClient | None = None
        if PlainClient.suits(url):
            self._plain = PlainClient(
                url, connect_timeout_s=CONNECT_TIMEOUT_S, connections_max=CONNECTIONS_MAX
            )

    @cached_property
    def _client(self) -> httpx2.Client:
        """For transfers, and for TLS and proxies. Loading it takes longer than most commands."""
        import httpx2

        return httpx2.Client(
            base_url=self.url,
            # So does loading the certificate store, which plain http does not need.
            verify=self.url.startswith("https:"),
            timeout=httpx2.Timeout(REPLY_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
        )

    def close(self) -> None:
        """Ends retries at once; the connections close with the last call that is still under way."""
        self.closed.set()
        self._leave(0)

    @contextmanager
    def _count_call(self) -> Iterator[None]:
        with self._lock:
            if self.closed.is_set():
                raise HubUnreachable("The connection to the hub was closed.")
            self._calls += 1
        try:
            yield
        finally:
            self._leave(1)

    def _leave(self, calls: int) -> None:
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
        return self.ask(model, "GET", path, params=params, wait_s=wait_ms / 1000)

    def get_json(self, path: str, *, params: Params | None = None) -> Any:
        return self._call("GET", path, read=_parse_json, params=params)

    def post(
        self, path: str, model: type[Model], *, body: BaseModel | None = None, key: str | None = None
    ) -> Model:
        """`key`: under which the request is one with others of the same body, whoever of us sends them."""
        content = b"{}" if body is None else body.model_dump_json(exclude_unset=True).encode()
        return self.ask(model, "POST", path, body=content, key=key)

    def put(self, path: str, model: type[Model], *, body: BaseModel) -> Model:
        """The whole of it: what the request leaves empty is set to empty."""
        return self.ask(model, "PUT", path, body=body.model_dump_json().encode())

    def ask(self, model: type[Model], method: str, path: str, **request: Unpack[RequestOptions]) -> Model:
        """The reply as a model. One that is no JSON is not the hub's, and is an outage like any other."""
        return self._call(method, path, read=lambda body: _parse(model, body), **request)

    def call(self, method: str, path: str, **request: Unpack[RequestOptions]) -> bytes:
        """The reply's body. Retries while the hub is away or busy, for `retry_for`; raises its errors."""
        return self._call(method, path, read=bytes, **request)

    def _call(
        self,
        method: str,
        path: str,
        *,
        read: Callable[[bytes], T],
        params: Params | None = None,
        body: bytes | None = None,
        wait_s: float = 0,
        retry_for: float | None = None,
        key: str | None = None,
    ) -> T:
        request = {
            "params": _without_none(params),
            "content": body,
            "headers": _headers(method, body) | ({} if key is None else {"Idempotency-Key": key}),
            "timeout_s": REPLY_TIMEOUT_S + wait_s,
        }
        used = self._key
        try:
            return self._send(method, path, request, read=read, retry_for=retry_for)
        except Unauthenticated:
            if not self._renew_key(used):
                raise
        return self._send(method, path, request, read=read, retry_for=retry_for)

    def _send(
        self, method: str, path: str, request: Any, *, read: Callable[[bytes], T], retry_for: float | None
    ) -> T:
        for attempt in self._attempts(retry_for):
            with attempt, self._count_call():
                reply = self._request(method, API + path, **request)
                raise_for_problem(reply)
                answer = read(reply.content)
                self._may_change = True
                return answer
        raise AssertionError("the loop returns or raises")

    def _request(
        self, method: str, path: str, *, headers: dict[str, str], timeout_s: float, **request: Any
    ) -> PlainReply | httpx2.Response:
        headers = self._headers | headers
        if self._plain is not None:
            try:
                return self._plain.request(method, path, headers=headers, timeout_s=timeout_s, **request)
            except ERRORS as error:
                raise self.unreachable(error) from error
        import httpx2

        try:
            timeout = httpx2.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
            return self._client.request(method, path, headers=headers, timeout=timeout, **request)
        except httpx2.TransportError as error:
            raise self.unreachable(error) from error

    def _renew_key(self, used: str | None) -> bool:
        """A hub of one's own makes a new key at each start, and stores it where this program found the old one."""
        deadline = time.monotonic() + _NEW_KEY_S
        while self._key_now is not None and self._may_change:
            fresh = self._key_now()
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
        """One try of a transfer; the caller resumes it. An outage raises HubUnreachable."""
        import httpx2

        request: Any = {"params": _without_none(params), "headers": self._headers | dict(headers or {})}
        try:
            with (
                self._count_call(),
                self._client.stream(method, API + path, content=content, **request) as reply,
            ):
                if reply.is_error:
                    reply.read()
                raise_for_problem(reply)
                yield reply
        except httpx2.TransportError as error:
            raise self.unreachable(error) from error

    def _attempts(self, retry_for: float | None) -> Iterator[_Try]:
        """Attempts until one succeeds, with jittered pauses. Each swallows what may be retried."""
        retry_for = self.retry_for if retry_for is None else retry_for
        start = time.monotonic()
        warned = False
        for number in range(1_000_000):
            attempt = _Try()
            yield attempt
            assert attempt.error is not None  # it did not return and did not raise
            pause_s = attempt.pause_s(number)
            away_s = time.monotonic() - start
            if away_s + pause_s > retry_for or self.closed.is_set():
                raise attempt.error
            if away_s > _OUTAGE_WORTH_A_WARNING_S and not warned:
                warned = True
                _log.warning("still trying: %s", attempt.error)
            self._may_change = True
            self.closed.wait(pause_s)

    def unreachable(self, error: Exception) -> HubUnreachable:
        cause = str(error) or type(error).__name__
        return HubUnreachable(f"Cannot reach the hub at {self.url}: {cause}.")


class Resource:
    """One subject of the hub's API, such as `pool.nodes`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class _Try:
    """Keeps the error of a try that may be repeated, and lets every other error pass."""

    def __init__(self) -> None:
        self.error: ComputePoolError | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Unavailable | RateLimited):
            return False
        self.error = error
        return True

    def pause_s(self, number: int) -> float:
        retry_after_s = None if self.error is None else self.error.retry_after_s
        if retry_after_s is not None:
            return retry_after_s * _JITTER.uniform(1.0, 1.2)  # not all clients at the same moment
        return _JITTER.uniform(0, doubled(_BACKOFF_BASE_S, number, most=_BACKOFF_MAX_S))


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
        kind = Unavailable if reply.status_code in _PROXY_SAYS_NOT_NOW else ComputePoolError
        raise kind(text, retry_after_s=_seconds(reply.headers.get("retry-after"))) from None


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdigit() else None


def _headers(method: str, body: bytes | None) -> dict[str, str]:
    headers = {} if body is None else {"Content-Type": "application/json"}
    if method == "POST":
        # One key for all tries of this call: when the reply was lost, the hub answers again what it did once.
        headers["Idempotency-Key"] = uuid.uuid4().hex
    return headers


def _without_none(params: Params | None) -> dict[str, str | int | float] | None:
    return None if params is None else {name: value for name, value in params.items() if value is not None}


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
