"""The hot routes, answered straight from ASGI: FastAPI's own path would cost more than the work.

A node's poll and report, a person's submission and the wait for results. Their documented twins are in the routes.py of
nodes, jobs and groups; both call the same functions, under the same policies. What is unusual about a person's request
(a cookie, a strange header, a word that is not understood) is left to the twin, which knows how to refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, cast

from fastapi import FastAPI, Request
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from computepool.core.errors import ComputePoolError
from computepool.hub.groups import groups
from computepool.hub.http.bodies import Bodies, replay
from computepool.hub.http.dependencies import (
    KEY_MAX,
    PAGE_MAX,
    SEQ_MAX,
    WAIT_MAX_MS,
    Allow,
    remembered,
    shorten,
)
from computepool.hub.http.errors import invalid, refusal, surprise
from computepool.hub.http.headers import SafeHeaders, added
from computepool.hub.http.rate_limit import seen_from
from computepool.hub.identity.access import Action, NodePrincipal, Principal
from computepool.hub.identity.authenticator import Authenticator
from computepool.hub.jobs import routes as job_routes
from computepool.hub.nodes import routes as node_routes
from computepool.hub.settlement import settle
from computepool.protocol.jobs.jobs import SubmitRequest
from computepool.protocol.nodes.nodes import CompleteRequest, NextRequest

_API = "/api/v1"
_HEADERS = [(b"content-type", b"application/json")]
_RESULTS = re.compile(rf"{_API}/groups/([\w-]{{1,64}})/results", re.ASCII)
#: What may be said of the results that are wanted, and the range of it.
_BOUNDS = {"after": (0, SEQ_MAX), "limit": (1, PAGE_MAX), "wait_ms": (0, WAIT_MAX_MS)}
_KEY = re.compile(rb"[\x20-\x7e]{0,%d}" % KEY_MAX)

#: Polls up to this length are remembered.
_WORD_MAX = 512
_ANSWER = "computepool.answer"
Message = TypeVar("Message", NextRequest, CompleteRequest)
Handler = Callable[[Scope, Receive], Awaitable[bytes]]


class _Unreadable(Exception):
    """The twin says what is wrong with the body, in the words of all other routes."""

    def __init__(self, body: bytes) -> None:
        self.body = body


class _Invalid(Exception):
    """A node said something that is not understood."""

    def __init__(self, error: ValidationError) -> None:
        self.error = error


class FastRoute(NamedTuple):
    """How a request is answered here."""

    handler: Handler
    status: int = 200


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    await scope[_ANSWER](scope, receive, send)


class HotRoutes(FastAPI):
    """The application, with a shortcut before everything else."""

    #: By method and path as documented; of the twins, too, as the tests see to.
    policies = {
        ("POST", f"{_API}/next"): Allow(Action.NODE),
        ("POST", f"{_API}/complete"): Allow(Action.NODE),
        ("POST", f"{_API}/jobs"): Allow(Action.SUBMIT),
        ("GET", f"{_API}/groups/{{group_id}}/results"): Allow(Action.SIGNED_IN),
    }

    def __init__(self, *, https: bool, prefix: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._prefix = prefix
        self._headers = [*_HEADERS, *added(https=https)]
        self._refuse = SafeHeaders(_refuse, https=https)
        self._of_nodes = {
            f"{_API}/next": FastRoute(self._next),
            f"{_API}/complete": FastRoute(self._complete),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = None
        if scope["type"] == "http":
            path = self._inside(scope["path"])
            answer = self._find(scope, path)
            if self._prefix:
                scope = {**scope, "root_path": self._prefix, "path": f"{self._prefix}{path}"}
        if answer is None:
            await super().__call__(scope, receive, send)
            return
        try:
            reply = await answer.handler(scope, receive)
        except _Unreadable as unread:
            await super().__call__(scope, replay(unread.body, receive), send)
        except ComputePoolError as error:
            await self._refuse({**scope, _ANSWER: refusal(error)}, receive, send)
        except _Invalid as bad:
            await self._refuse({**scope, _ANSWER: invalid(bad.error)}, receive, send)
        except Exception as error:  # noqa: BLE001 - the last resort of this path, as errors.install is of the others
            await self._refuse({**scope, _ANSWER: surprise(scope["path"], error)}, receive, send)
        else:
            headers = [*self._headers, (b"content-length", str(len(reply)).encode())]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply})

    def _find(self, scope: Scope, path: str) -> FastRoute | None:
        if scope["method"] == "POST":
            if path in self._of_nodes:
                return self._of_nodes[path]
            if path == f"{_API}/jobs" and _is_plain(scope):
                return FastRoute(self._submit, 201)
        elif scope["method"] == "GET" and path.endswith("/results"):
            named = _RESULTS.fullmatch(path)
            query = _query_numbers(scope["query_string"])
            if named is not None and query is not None and _is_plain(scope):
                return FastRoute(lambda scope, _receive: self._results(scope, named[1], query))
        return None

    def _inside(self, path: str) -> str:
        """The path without the prefix. Some proxies have taken it off already, others leave it on; here both are right."""
        if self._prefix and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            return path[len(self._prefix) :] or "/"
        return path

    async def _body(self, scope: Scope, receive: Receive, caller: Principal | NodePrincipal) -> bytes:
        bodies: Bodies = self.state.bodies
        return await bodies.read(scope, receive, caller, large=True)

    async def _node(self, scope: Scope) -> NodePrincipal:
        token = ""
        for name, value in scope["headers"]:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                token = value[7:].strip().decode("latin-1")
        authenticator: Authenticator = self.state.hub.identity.authenticator
        return authenticator.peek_node(token) or await authenticator.node(token)

    async def _next(self, scope: Scope, receive: Receive) -> bytes:
        node = await self._node(scope)
        request = self._poll_of(node, await self._body(scope, receive, node))
        reply = await node_routes.poll(self.state, node, request, address=seen_from(scope))
        return reply.model_dump_json(exclude_defaults=True).encode()

    def _poll_of(self, node: NodePrincipal, body: bytes) -> NextRequest:
        session = self.state.hub.nodes.registry.get(node.node_id)
        if session is not None and session.request is not None and session.word == body:
            known: NextRequest = session.request
            return known
        request = _parse(NextRequest, body)
        if session is not None and len(body) <= _WORD_MAX and request.profile is None:
            session.word, session.request = body, request
        return request

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
            raise _Unreadable(body) from None
        key = await remembered(request, request.headers.get("idempotency-key", ""))
        reply = await job_routes.submitted(request, principal, parsed, key=key, sent=body)
        return reply.model_dump_json().encode()

    async def _results(self, scope: Scope, group_id: str, query: dict[str, int]) -> bytes:
        request, principal = await self._person(scope, "GET", "/groups/{group_id}/results")
        page = await groups.results(
            self.state.hub,
            principal,
            group_id,
            after=query.get("after", 0),
            limit=query.get("limit", PAGE_MAX),
            wait_ms=shorten(request, query.get("wait_ms", 0)),
        )
        return page.model_dump_json().encode()


def _parse(model: type[Message], body: bytes) -> Message:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _Invalid(error) from None


def _is_plain(scope: Scope) -> bool:
    """As programs send it: with a key of a person, and JSON if anything."""
    # Of several the first counts, as for the twin.
    found: dict[bytes, bytes] = dict(reversed(scope["headers"]))
    return (
        found.get(b"authorization", b"").startswith(b"Bearer cp_")
        and (scope["method"] == "GET" or found.get(b"content-type") == b"application/json")
        and _KEY.fullmatch(found.get(b"idempotency-key", b"")) is not None
    )


def _query_numbers(query: bytes) -> dict[str, int] | None:
    """None: not as simple as that."""
    found: dict[str, int] = {}
    for part in query.decode("latin-1").split("&") if query else ():
        name, _, value = part.partition("=")
        if (
            name in found
            or name not in _BOUNDS
            or not (value.isascii() and value.isdigit())
            or len(value) > 19
        ):
            return None
        found[name] = int(value)
        least, most = _BOUNDS[name]
        if not least <= found[name] <= most:
            return None
    return found
