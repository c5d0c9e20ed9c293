"""A reverse proxy under a path prefix, in its own thread, as nginx or Caddy would be."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "te", "upgrade"}


class PrefixProxy:
    """`http://127.0.0.1:PORT/prefix/…` is the hub; everything else is another site.

    With `strip`, the hub does not see the prefix (nginx with a path in proxy_pass, Caddy's handle_path). The attribute
    `to` is the hub's port, which may not be known when the proxy starts.
    """

    def __init__(self, prefix: str, *, strip: bool) -> None:
        self.prefix, self.strip, self.to = prefix, strip, 0
        self.elsewhere: list[str] = []  #: requested paths outside the prefix
        unlimited = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        self._client = httpx2.AsyncClient(timeout=None, limits=unlimited)
        route = Route("/{path:path}", self._pass, methods=_METHODS)
        app = Starlette(routes=[route], lifespan=self._lifespan)
        config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="prefix-proxy", daemon=True)

    def __enter__(self) -> PrefixProxy:
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            assert time.monotonic() < deadline, "the proxy did not start"
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)

    @property
    def url(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}{self.prefix}"

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self._client:
            yield

    async def _pass(self, request: Request) -> Response:
        path = request.url.path
        if not path.startswith(f"{self.prefix}/") and path != self.prefix:
            self.elsewhere.append(path)
            return PlainTextResponse("This is another site.", 404)
        inside = path.removeprefix(self.prefix) or "/" if self.strip else path
        url = httpx2.URL(f"http://127.0.0.1:{self.to}{inside}", query=request.url.query.encode() or None)
        headers = [(name, value) for name, value in request.headers.raw if name.decode().lower() not in _HOP]
        try:
            asked = self._client.build_request(
                request.method, url, headers=[*headers, (b"host", request.headers["host"].encode())],
                content=await request.body(),
            )  # fmt: skip
            answer = await self._client.send(asked, stream=True)
        except (httpx2.TransportError, ClientDisconnect):
            return PlainTextResponse("The hub does not answer.", 502)
        reply = StreamingResponse(_bytes(answer), answer.status_code)
        reply.raw_headers = [
            (name.lower(), value) for name, value in answer.headers.raw if name.decode().lower() not in _HOP
        ]
        return reply


_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


async def _bytes(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        with contextlib.suppress(httpx2.TransportError, asyncio.CancelledError):
            async for chunk in answer.aiter_raw():
                yield chunk
    finally:
        await answer.aclose()
