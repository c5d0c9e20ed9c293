"""Bounds on what a client may send: body size, checked by declared length and while it arrives. Pure ASGI, so streams pass."""

from __future__ import annotations

import re

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from computepool.core.errors import TooLarge
from computepool.hub.api.errors import refusal

_UPLOAD = re.compile(r"/artifacts/[0-9a-f]{64}$")  # streamed to disk, with a limit of its own


def declared_bytes(scope: Scope) -> int:
    """How long the body will be, by the word of its sender; 0 where nothing is said."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(declared) if declared.isdigit() else 0


class BodyLimit:
    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["method"] == "PUT" and _UPLOAD.search(scope["path"])):
            await self._app(scope, receive, send)
            return
        error = TooLarge(f"A request body may have {self._max_bytes} bytes at most.")
        if declared_bytes(scope) > self._max_bytes:
            await refusal(error)(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                # FastAPI lets only this kind of exception out of the reading of a body.
                raise HTTPException(413, error.detail)
            return message

        await self._app(scope, counted, send)
