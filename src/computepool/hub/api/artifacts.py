"""Routes of artifacts: streamed both ways, resumable both ways."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import FileResponse, Response

from computepool.core.errors import BadRequest
from computepool.hub.api.deps import Cursor, Either, HubDep, Limit, SignedIn
from computepool.hub.services import artifacts
from computepool.hub.services.artifacts import Incoming
from computepool.protocol.accounts import ArtifactPage, UploadState

router = APIRouter(tags=["artifacts"])
DigestPath = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of the bytes")]
_NAME = re.compile(r"^[^\x00-\x1f\x7f]*$")


@router.get("/artifacts", summary="List artifacts and what refers to them, newest first")
async def list_artifacts(
    principal: SignedIn,
    hub: HubDep,
    *,
    job_id: Annotated[str | None, Query(max_length=64)] = None,
    after: Cursor = None,
    limit: Limit = 100,
) -> ArtifactPage:
    return await artifacts.page(hub, principal, job_id=job_id, after=after, limit=limit)


@router.get("/artifacts/{digest}/upload", summary="How much of an upload is here; continue from `offset`")
async def upload_state(digest: DigestPath, asker: Either, hub: HubDep) -> UploadState:
    return await artifacts.upload_state(hub, asker, digest)


@router.put(
    "/artifacts/{digest}",
    summary="Send (the rest of) an artifact",
    openapi_extra={
        "requestBody": {
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        }
    },
)
async def upload(
    request: Request,
    digest: DigestPath,
    asker: Either,
    hub: HubDep,
    *,
    size: Annotated[int, Query(ge=0, le=2**53, description="Length of the whole artifact")],
    offset: Annotated[int, Query(ge=0, le=2**53, description="Where this body begins")] = 0,
    name: Annotated[str, Query(max_length=255)] = "",
) -> UploadState:
    if not _NAME.match(name):
        raise BadRequest("A name may not contain control characters.", field="name")
    incoming = Incoming(digest=digest, offset=offset, size=size, name=name)
    return await artifacts.receive(hub, asker, incoming, request.stream())


@router.api_route(
    "/artifacts/{digest}",
    methods=["GET"],
    summary="The bytes; Range is honoured",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}}, 206: {"description": "Part of the bytes"}},
)
async def download(digest: DigestPath, asker: Either, hub: HubDep) -> Response:
    await artifacts.open_for(hub, asker, digest)
    return FileResponse(hub.blobs.path(digest), media_type="application/octet-stream", headers=_HEADERS)


@router.head("/artifacts/{digest}", summary="Length and presence", include_in_schema=False)
async def head(digest: DigestPath, asker: Either, hub: HubDep) -> Response:
    size = await artifacts.open_for(hub, asker, digest)
    return Response(headers={**_HEADERS, "Content-Length": str(size), "Accept-Ranges": "bytes"})


@router.delete(
    "/artifacts/{digest}", status_code=204, summary="Drop your references; the bytes go with the last one"
)
async def remove(digest: DigestPath, principal: SignedIn, hub: HubDep) -> None:
    await artifacts.remove(hub, principal, digest)


#: A stranger's file must never run as a page of this site.
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}
