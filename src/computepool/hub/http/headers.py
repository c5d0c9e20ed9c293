"""Security headers of every answer: no content sniffing, no frames, no caching.

They are added by pure ASGI, so that streams pass through. An answer keeps its own value of such a header.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_YEAR_S = 365 * 24 * 3600
ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class SecurityHeaders:
    def __init__(self, app: ASGIApp, *, https: bool) -> None:
        self._app = app
        self._headers = security_headers(https=https)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [header for header in self._headers if header[0] not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


def security_headers(*, https: bool) -> list[tuple[bytes, bytes]]:
    transport = [(b"strict-transport-security", f"max-age={_YEAR_S}".encode())] if https else []
    return [*ALWAYS, *transport]
