"""Routes of artifacts. Uploads and downloads are streamed and can be resumed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated

from fastapi import HTTPException, Path, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from computepool.core.errors import BadRequest
from computepool.core.plaintext import is_plain
from computepool.hub.artifacts import artifacts
from computepool.hub.artifacts.artifacts import Incoming
from computepool.hub.artifacts.storage.base import Reading
from computepool.hub.context import Hub
from computepool.hub.http.dependencies import (
    Cursor,
    HubDep,
    IdQuery,
    Limit,
    MaySubmit,
    PersonOrNode,
    SignedIn,
    SubmitterOrNode,
)
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.protocol.artifacts import ArtifactInfo, ArtifactPage, KeepRequest, StorageView, UploadState

#: Each block costs two thread switches, which would dominate for small ones.
_BLOCK_BYTES = 1024 * 1024
router = guarded_router(tags=["artifacts"])
DigestPath = Annotated[
    str,
    Path(
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of the bytes",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    ),
]
_RANGE = re.compile(r"^(\d{1,18})?-(\d{1,18})?$")
#: An uploaded file must never run as a page of this site.
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, no-cache",
}
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_RANGE_PARAMETER = {
    "name": "Range",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "Part of the bytes, to resume a download",
    "examples": {"rest": {"summary": "From byte 1024 on", "value": "bytes=1024-"}},
}


@router.get("/artifacts")
async def list_artifacts(
    principal: SignedIn, hub: HubDep, *, job_id: IdQuery = None, after: Cursor = None, limit: Limit = 100
) -> ArtifactPage:
    """List artifacts and what refers to them, newest first."""
    return await artifacts.page(hub, principal, job_id=job_id, after=after, limit=limit)


@router.get("/storage")
async def storage(principal: SignedIn, hub: HubDep) -> StorageView:
    """Get your storage usage and quota."""
    return await artifacts.storage(hub, principal)


@router.get("/artifacts/{digest}/upload")
async def upload_state(digest: DigestPath, asker: PersonOrNode, hub: HubDep) -> UploadState:
    """Get the state of an upload; continue from `offset`."""
    return await artifacts.upload_state(hub, asker, digest)


@router.put(
    "/artifacts/{digest}",
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
    responses=refuses(409, 413, 507),
)
async def upload(
    request: Request,
    digest: DigestPath,
    asker: SubmitterOrNode,
    hub: HubDep,
    *,
    size: Annotated[int, Query(ge=0, le=2**53, description="Length of the whole artifact")],
    offset: Annotated[int, Query(ge=0, le=2**53, description="Where this body begins")] = 0,
    name: Annotated[str, Query(max_length=255, description="What to call it in lists")] = "",
) -> UploadState:
    """Upload an artifact, or the rest of it.
    Send the bytes in one piece or in several. When all of them have arrived, they are checked against the digest;
    if they do not match, the upload is dropped.
    """
    if not is_plain(name):
        raise BadRequest("A name may not contain control characters.", field="name")
    incoming = Incoming(digest=digest, offset=offset, size=size, name=name)
    return await artifacts.receive(hub, asker, incoming, body=request.stream())


@router.get(
    "/artifacts/{digest}",
    response_class=Response,
    responses={
        200: {"description": "The bytes", "content": _BYTES},
        206: {"description": "Part of the bytes", "content": _BYTES},
        **refuses(404, 416),
    },
    openapi_extra={"parameters": [_RANGE_PARAMETER]},
)
async def download(request: Request, digest: DigestPath, asker: PersonOrNode, hub: HubDep) -> Response:
    """Download an artifact; supports Range."""
    found = await artifacts.find(hub, asker, digest)
    requested = _part(request, found.size, etag := f'"{digest}"')
    part = range(found.size) if requested is None else requested
    reading = None
    if request.method != "HEAD":
        reading = await artifacts.open_part(hub, found, start=part.start, length=len(part))
    return BlobResponse(hub, reading, size=found.size, part=requested, headers={**_HEADERS, "ETag": etag})


@router.head(
    "/artifacts/{digest}",
    response_class=Response,
    responses={200: {"description": "The headers alone"}, **refuses(404, 416)},
    openapi_extra={"parameters": [_RANGE_PARAMETER]},
)
async def head(request: Request, digest: DigestPath, asker: PersonOrNode, hub: HubDep) -> Response:
    """Check whether an artifact exists, and its length."""
    return await download(request, digest, asker, hub)


def _part(request: Request, size: int, etag: str) -> range | None:
    """The requested bytes; None: all, also if several ranges are requested. A range that cannot be served is refused."""
    header = request.headers.get("range")
    if header is None or request.headers.get("if-range", etag) != etag:
        return None
    unit, _, ranges = header.partition("=")
    parts = [_parse(part.strip(), size) for part in ranges.split(",")]
    if unit.strip().lower() != "bytes" or not all(parts):
        raise HTTPException(
            416,
            f"The artifact has {size} bytes; the requested range lies outside.",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return parts[0] if len(parts) == 1 else None


def _parse(part: str, size: int) -> range:
    """Empty if it is malformed or lies outside."""
    found = _RANGE.match(part)
    if found is None:
        return range(0)
    first, last = found.groups()
    if first is None:
        return range(size if last is None else max(0, size - int(last)), size)
    return range(int(first), size if last is None else min(size, int(last) + 1))


@router.get("/artifacts/{digest}/info", responses=refuses(404))
async def info(digest: DigestPath, principal: SignedIn, hub: HubDep) -> ArtifactInfo:
    """Show what refers to an artifact, and how long it is kept."""
    return await artifacts.info(hub, principal, digest)


@router.put("/artifacts/{digest}/keep", responses=refuses(404))
async def keep(digest: DigestPath, body: KeepRequest, principal: MaySubmit, hub: HubDep) -> ArtifactInfo:
    """Keep an artifact independently of its jobs."""
    return await artifacts.keep(hub, principal, digest, request=body)


@router.delete("/artifacts/{digest}/keep", status_code=204, responses=refuses(404))
async def release(digest: DigestPath, principal: MaySubmit, hub: HubDep) -> None:
    """Stop keeping an artifact longer than its other references."""
    await artifacts.release(hub, principal, digest)


@router.delete("/artifacts/{digest}", status_code=204, responses=refuses(404, 409))
async def remove(digest: DigestPath, principal: MaySubmit, hub: HubDep) -> None:
    """Delete your references; the data is deleted with the last one."""
    await artifacts.remove(hub, principal, digest)


class BlobResponse(Response):
    """Bytes of an artifact in large blocks: the next is read while one is sent. Closes `reading`."""

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
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if reading is not None:
                await self._send_blocks(reading, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if reading is not None:
                await self._hub.process.in_thread(reading.close)

    async def _send_blocks(self, reading: Reading, send: Send) -> None:
        left = self._length
        following = self._read(reading, left)
        try:
            while left > 0:
                block = await following
                if not block:
                    # Cut the connection, so that this does not look like the end.
                    raise OSError("the artifact is shorter than its row says")
                left -= len(block)
                if left > 0:
                    following = self._read(reading, left)
                await send({"type": "http.response.body", "body": block, "more_body": True})
        finally:
            if not following.done():
                await asyncio.wait([following])  # before its file is closed

    def _read(self, reading: Reading, left: int) -> asyncio.Future[bytes]:
        return asyncio.ensure_future(self._hub.process.in_thread(reading.read, min(_BLOCK_BYTES, left)))
