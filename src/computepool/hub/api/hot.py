"""The two hot routes, the poll and the report, answered straight from ASGI: FastAPI's own path would cost more than the work.

Their documented twins are in api/nodes.py; both call the same functions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from computepool.core.errors import ComputePoolError, TooLarge
from computepool.hub.api import nodes
from computepool.hub.api.errors import invalid, refusal, surprise
from computepool.hub.api.headers import SafeHeaders, added
from computepool.hub.services.access import NodePrincipal
from computepool.hub.services.identity import Authenticator
from computepool.protocol.nodes import CompleteRequest, NextRequest

logger = logging.getLogger(__name__)
Handler = Callable[[NodePrincipal, bytes], Awaitable[bytes]]
_HEADERS = [(b"content-type", b"application/json")]

_ANSWER = "computepool.answer"


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    await scope[_ANSWER](scope, receive, send)


class HotRoutes(FastAPI):
    """The application, with a shortcut before everything else."""

    def __init__(self, *, body_max_bytes: int, https: bool, prefix: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._prefix = prefix
        self._max_bytes = body_max_bytes
        self._headers = [*_HEADERS, *added(https=https)]
        self._refuse = SafeHeaders(_refuse, https=https)
        self._handlers: dict[str, Handler] = {"/api/v1/next": self._next, "/api/v1/complete": self._complete}

    @property
    def hot_paths(self) -> frozenset[str]:
        return frozenset(self._handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = None
        if scope["type"] == "http":
            path = self._inside(scope["path"])
            handler = self._handlers.get(path) if scope["method"] == "POST" else None
            if handler is None and self._prefix:
                scope = {**scope, "root_path": self._prefix, "path": f"{self._prefix}{path}"}
        if handler is None:
            await super().__call__(scope, receive, send)
            return
        try:
            body = await self._body(receive)
            reply = await handler(await self._node(scope), body)
        except ComputePoolError as error:
            await self._refuse({**scope, _ANSWER: refusal(error)}, receive, send)
        except ValidationError as error:
            await self._refuse({**scope, _ANSWER: invalid(error)}, receive, send)
        except Exception as error:  # noqa: BLE001 - the last resort of this path, as errors.install is of the others
            await self._refuse({**scope, _ANSWER: surprise(scope["path"], error)}, receive, send)
        else:
            headers = [*self._headers, (b"content-length", str(len(reply)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": reply})

    def _inside(self, path: str) -> str:
        """The path without the prefix. Some proxies have taken it off already, others leave it on; here both are right."""
        if self._prefix and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            return path[len(self._prefix) :] or "/"
        return path

    async def _body(self, receive: Receive) -> bytes:
        message = await receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                break
        if len(body) > self._max_bytes:
            raise TooLarge(f"A request body may have {self._max_bytes} bytes at most.")
        return body

    async def _node(self, scope: Scope) -> NodePrincipal:
        token = ""
        for name, value in scope["headers"]:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                token = value[7:].strip().decode("latin-1")
        authenticator: Authenticator = self.state.authenticator
        return authenticator.peek_node(token) or await authenticator.node(token)

    async def _next(self, node: NodePrincipal, body: bytes) -> bytes:
        request = NextRequest.model_validate_json(body)
        reply = await nodes.poll(self.state.hub, node, request, dispatcher=self.state.dispatcher)
        return reply.model_dump_json(exclude_defaults=True).encode()

    async def _complete(self, node: NodePrincipal, body: bytes) -> bytes:
        request = CompleteRequest.model_validate_json(body)
        reply = await nodes.settle(self.state.hub, node, request, dispatcher=self.state.dispatcher)
        return reply.model_dump_json().encode()
