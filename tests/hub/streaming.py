"""A client for streams: it reads an endless answer from the application, because the test client waits for the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI


class Stream:
    def __init__(self, app: FastAPI, path: str, headers: dict[str, str]) -> None:
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path.partition("?")[0],
            "raw_path": path.encode(),
            "query_string": path.partition("?")[2].encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "server": ("hub.test", 80),
            "client": ("127.0.0.1", 1),
        }
        self._app = app
        self._asked = False
        self._gone = asyncio.Event()
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._text = ""
        self.status = 0

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self._sent.put(message)

    async def run(self) -> None:
        await self._app(self._scope, self.receive, self.send)

    async def start(self) -> None:
        self.status = (await asyncio.wait_for(self._sent.get(), 60))["status"]

    async def event(self, timeout_s: float = 60, *, alive: bool = False) -> dict[str, str] | None:
        """The fields of the next event, or None at the end of the stream. With `alive`, keep-alives count as events."""
        async with asyncio.timeout(timeout_s):
            while "\n\n" not in self._text:
                message = await self._sent.get()
                self._text += message.get("body", b"").decode()
                if not message.get("more_body") and "\n\n" not in self._text:
                    return None
        block, _, self._text = self._text.partition("\n\n")
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if not fields or (fields.get("event") == "alive" and not alive):
            return await self.event(timeout_s, alive=alive)
        return fields

    async def data(self) -> dict[str, Any]:
        event = await self.event()
        assert event is not None, "the stream has ended"
        return json.loads(event["data"])

    def hang_up(self) -> None:
        self._gone.set()


@asynccontextmanager
async def opened(app: FastAPI, path: str, headers: dict[str, str] | None = None) -> AsyncIterator[Stream]:
    stream = Stream(app, path, headers or {})
    task = asyncio.create_task(stream.run())
    try:
        await stream.start()
        yield stream
    finally:
        stream.hang_up()
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 60)
