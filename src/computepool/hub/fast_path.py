"""The hot routes, answered straight from ASGI: FastAPI itself would take longer than the work.

They are a node's poll and report, a person's submission and the wait for results. Their documented twins are in the
routes.py of nodes, jobs and groups; both call the same functions under the same policies. An unusual request of a person (a
cookie, a strange header, an unknown parameter) is left to the twin.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from computepool.hub.groups import groups
from computepool.hub.http import repeated_requests
from computepool.hub.http.bodies import FEW_VALUES, Bodies, replay
from computepool.hub.http.dependencies import (
    KEY_MAX,
    PAGE_MAX,
    SEQ_MAX,
    WAIT_MAX_MS,
    Allow,
    bounded_wait,
    get_remembered,
)
from computepool.hub.http.errors import error_response
from computepool.hub.http.headers import SecurityHeaders, security_headers
from computepool.hub.http.rate_limit import client_ip
from computepool.hub.identity.access import Action, NodePrincipal, Principal
from computepool.hub.identity.authenticator import Authenticator
from computepool.hub.jobs import routes as job_routes
from computepool.hub.nodes import routes as node_routes
from computepool.hub.scheduling.repeated_polls import RepeatedPoll, can_repeat
from computepool.hub.settlement import settle
from computepool.protocol.jobs.jobs import SubmitRequest
from computepool.protocol.nodes.nodes import CompleteRequest, NextRequest

_API = "/api/v1"
_HEADERS = [(b"content-type", b"application/json")]
_RESULTS = re.compile(rf"{_API}/groups/([\w-]{{1,64}})/results", re.ASCII)
#: The parameters of the results, and their range.
_BOUNDS = {"after": (0, SEQ_MAX), "limit": (1, PAGE_MAX), "wait_ms": (0, WAIT_MAX_MS)}
_KEY = re.compile(rb"[\x20-\x7e]{0,%d}" % KEY_MAX)

#: Polls up to this length may be repeated: they hold too few values to be counted.
_REPEATED_MAX = FEW_VALUES
Message = TypeVar("Message", NextRequest, CompleteRequest)
Handler = Callable[[Scope, Receive], Awaitable[bytes]]


class _LeftToTwin(Exception):
    """The body is invalid, and the twin says why."""

    def __init__(self, body: bytes) -> None:
        self.body = body


class FastRoute(NamedTuple):
    handler: Handler
    status: int = 200


class FastPathApp(FastAPI):
    """The application, with a shortcut in front of everything else."""

    #: By method and documented path. A test compares them with the twins' policies.
    policies = {
        ("POST", f"{_API}/next"): Allow(Action.NODE),
        ("POST", f"{_API}/complete"): Allow(Action.NODE),
        ("POST", f"{_API}/jobs"): Allow(Action.SUBMIT),
        ("GET", f"{_API}/groups/{{group_id}}/results"): Allow(Action.SIGNED_IN),
    }

    def __init__(self, *, https: bool, prefix: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._prefix = prefix
        self._https = https
        self._headers = [*_HEADERS, *security_headers(https=https)]
        self._head = b"".join(b"%b: %b\r\n" % header for header in self._headers)
        self._node_routes = {f"{_API}/next": FastRoute(self._next), f"{_API}/complete": FastRoute(self._complete)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = None
        if scope["type"] == "http":
            path = self._without_prefix(scope["path"])
            route = self._find(scope, path)
            if self._prefix:
                scope = {**scope, "root_path": self._prefix, "path": f"{self._prefix}{path}"}
        if route is None:
            await super().__call__(scope, receive, send)
            return
        try:
            reply = await route.handler(scope, receive)
        except _LeftToTwin as left:
            await super().__call__(scope, replay(left.body, receive), send)
        except Exception as error:  # noqa: BLE001 - the last resort of this path, as errors.install is of the others
            refused = SecurityHeaders(error_response(scope["path"], error), https=self._https)
            await refused(scope, receive, send)
        else:
            headers = [*self._headers, (b"content-length", str(len(reply)).encode())]
            await send({"type": "http.response.start", "status": route.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply})

    def _find(self, scope: Scope, path: str) -> FastRoute | None:
        if scope["method"] == "POST":
            if path in self._node_routes:
                return self._node_routes[path]
            if path == f"{_API}/jobs" and _is_plain(scope):
                return FastRoute(self._submit, 201)
        elif scope["method"] == "GET" and path.endswith("/results"):
            found = _RESULTS.fullmatch(path)
            query = _query_numbers(scope["query_string"])
            if found is not None and query is not None and _is_plain(scope):
                return FastRoute(lambda scope, _receive: self._results(scope, found[1], query))
        return None

    def _without_prefix(self, path: str) -> str:
        """Some proxies remove the prefix, others leave it on; both are accepted."""
        if self._prefix and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            return path[len(self._prefix) :] or "/"
        return path

    async def _body(self, scope: Scope, receive: Receive, caller: Principal | NodePrincipal) -> bytes:
        bodies: Bodies = self.state.bodies
        return await bodies.read(scope, receive, caller, large=True)

    async def _node(self, scope: Scope) -> NodePrincipal:
        token = _token(scope)
        authenticator: Authenticator = self.state.hub.identity.authenticator
        return authenticator.peek_node(token) or await authenticator.node(token)

    async def _next(self, scope: Scope, receive: Receive) -> bytes:
        node = await self._node(scope)
        body = await self._body(scope, receive, node)
        request, address = _parse(NextRequest, body), client_ip(scope)
        reply = await node_routes.poll(self.state, node, request, address=address)
        if len(body) <= _REPEATED_MAX and can_repeat(request):
            repeat = RepeatedPoll(self.state.hub, node.node_id, request, token=_token(scope), address=address)
            repeated_requests.offer(scope, repeat, self._head)
        return reply.model_dump_json(exclude_defaults=True).encode()

    async def _complete(self, scope: Scope, receive: Receive) -> bytes:
        node = await self._node(scope)
        request = _parse(CompleteRequest, await self._body(scope, receive, node))
        reply = await settle.complete(self.state.hub, node, request)
        return reply.model_dump_json().encode()

    async def _person(self, scope: Scope, method: str, path: str) -> tuple[Request, Principal]:
        scope["app"] = self
        request = Request(scope)
        return request, cast(Principal, await self.policies[method, f"{_API}{path}"](request))

    async def _submit(self, scope: Scope, receive: Receive) -> bytes:
        request, principal = await self._person(scope, "POST", "/jobs")
        body = await self._body(scope, receive, principal)
        try:
            parsed = SubmitRequest.model_validate_json(body)
        except ValidationError:
            raise _LeftToTwin(body) from None
        key = await get_remembered(request, request.headers.get("idempotency-key", ""))
        reply = await job_routes.submit_body(request, principal, parsed, key=key, sent=body)
        return reply.model_dump_json().encode()

    async def _results(self, scope: Scope, group_id: str, query: dict[str, int]) -> bytes:
        request, principal = await self._person(scope, "GET", "/groups/{group_id}/results")
        page = await groups.results(
            self.state.hub,
            principal,
            group_id,
            after=query.get("after", 0),
            limit=query.get("limit", PAGE_MAX),
            wait_ms=await bounded_wait(request, query.get("wait_ms", 0)),
        )
        return page.model_dump_json().encode()


def _token(scope: Scope) -> str:
    found = ""
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            found = value[7:].strip().decode("latin-1")
    return found


def _parse(model: type[Message], body: bytes) -> Message:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _is_plain(scope: Scope) -> bool:
    """Whether a program sent it: with a person's key, and any body as JSON."""
    # The first of several headers counts, as for the twin.
    found: dict[bytes, bytes] = dict(reversed(scope["headers"]))
    return (
        found.get(b"authorization", b"").startswith(b"Bearer cp_")
        and (scope["method"] == "GET" or found.get(b"content-type") == b"application/json")
        and _KEY.fullmatch(found.get(b"idempotency-key", b"")) is not None
    )


def _query_numbers(query: bytes) -> dict[str, int] | None:
    """The parameters, or None if any is unknown, repeated or out of range."""
    found: dict[str, int] = {}
    for part in query.decode("latin-1").split("&") if query else ():
        name, _, value = part.partition("=")
        if name in found or name not in _BOUNDS or not (value.isascii() and value.isdigit()) or len(value) > 19:
            return None
        found[name] = int(value)
        least, most = _BOUNDS[name]
        if not least <= found[name] <= most:
            return None
    return found
