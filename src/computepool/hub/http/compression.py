"""Compression of long lists. Pure ASGI, so that streams pass through.

Only the lists named here are compressed: if an answer held both a secret and text that an attacker chose, its compressed
length would reveal the secret (BREACH).
"""

from __future__ import annotations

import asyncio
import gzip
import re
from functools import partial

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LISTS = re.compile(
    r"/api/v1/(mesh/nodes|mesh/activity|nodes|jobs|groups|events|queue|openapi\.json|market(/history)?"
    r"|credits/statement|credits/leaderboard|(groups|jobs)/[\w-]+/(items|usage|summary))$"
)
_LEAST_BYTES = 2048
_LEVEL = 5
#: Longer ones are compressed on a thread: half a megabyte takes ten milliseconds.
_THREAD_BYTES = 32 * 1024


class ListCompression:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = (
            scope["type"] == "http"
            and scope["method"] == "GET"
            and _LISTS.search(scope["path"]) is not None
            and "gzip" in Headers(scope=scope).get("accept-encoding", "")
        )
        await self._app(scope, receive, _Compressor(send) if accepted else send)


class _Compressor:
    """Holds back the start of an answer until its body follows: only JSON bodies in one piece are compressed."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        start, self._start = self._start, None
        if start is not None:
            body = message.get("body", b"")
            if not message.get("more_body") and _is_worthwhile(start, body):
                compress = partial(gzip.compress, body, _LEVEL, mtime=0)
                packed = await asyncio.to_thread(compress) if len(body) > _THREAD_BYTES else compress()
                message = {**message, "body": packed}
                headers = MutableHeaders(raw=list(start["headers"]))
                headers["Content-Encoding"] = "gzip"
                headers["Content-Length"] = str(len(packed))
                headers.add_vary_header("Accept-Encoding")
                start = {**start, "headers": headers.raw}
            await self._send(start)
        await self._send(message)


def _is_worthwhile(start: Message, body: bytes) -> bool:
    headers = Headers(raw=start["headers"])
    return (
        start["status"] == 200
        and len(body) >= _LEAST_BYTES
        and headers.get("content-type", "").startswith("application/json")
        and "content-encoding" not in headers
    )
