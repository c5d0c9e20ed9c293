"""Bytes of an artifact as a response: large blocks, the next one read while the last one is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from computepool.hub.artifacts.storage.base import Reading
from computepool.hub.context import Hub

#: Each costs two switches of threads; with small ones that is most of the work.
_BLOCK_BYTES = 1024 * 1024


class BlobResponse(Response):
    """Whoever made it leaves `reading` to it."""

    def __init__(
        self, hub: Hub, reading: Reading | None, *, size: int, part: range | None, headers: Mapping[str, str]
    ) -> None:
        length = size if part is None else len(part)
        super().__init__(
            status_code=200 if part is None else 206, media_type="application/octet-stream", headers=headers
        )
        self._hub, self._reading, self._length = hub, reading, length
        self.headers["Content-Length"] = str(length)
        self.headers["Accept-Ranges"] = "bytes"
        if part is not None:
            self.headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reading = self._reading
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if reading is not None:
                await self._send_blocks(reading, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if reading is not None:
                await self._hub.process.in_thread(reading.close)

    async def _send_blocks(self, reading: Reading, send: Send) -> None:
        left = self._length
        following = self._read(reading)
        try:
            while left > 0:
                block = await following
                if not block:
                    raise OSError(
                        "the artifact is shorter than its row says"
                    )  # the connection is cut: no false end
                left -= len(block)
                if left > 0:
                    following = self._read(reading)
                await send({"type": "http.response.body", "body": block, "more_body": True})
        finally:
            if not following.done():
                await asyncio.wait([following])  # its file is closed next

    def _read(self, reading: Reading) -> asyncio.Future[bytes]:
        return asyncio.ensure_future(self._hub.process.in_thread(reading.read, _BLOCK_BYTES))
