"""Artifacts: streamed in, verified, referred to by accounts and jobs, streamed out, dropped when nobody refers to them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from computepool.core.errors import BadRequest, Conflict, NotFound, TooLarge
from computepool.hub.services import access
from computepool.hub.services.access import NodePrincipal, Principal
from computepool.hub.services.context import Hub
from computepool.hub.store import records
from computepool.hub.store.session import Connection, Tx
from computepool.protocol.accounts import ArtifactPage, ArtifactView, UploadState

_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    digest: str
    offset: int
    size: int
    name: str


def _owner_of(asker: Principal | NodePrincipal) -> str:
    return asker.node_id if isinstance(asker, NodePrincipal) else asker.account_id


async def upload_state(hub: Hub, asker: Principal | NodePrincipal, digest: str) -> UploadState:
    """Whether the bytes are here already is told only to those who may read them: the rest upload again."""
    if not await _readable(hub, asker, digest) and hub.blobs.exists(digest) and isinstance(asker, Principal):
        return UploadState(digest=digest, offset=0, complete=False)
    state = await asyncio.to_thread(hub.blobs.state, digest, _owner_of(asker))
    return UploadState(digest=digest, offset=state.offset, complete=state.complete)


async def receive(
    hub: Hub, asker: Principal | NodePrincipal, incoming: Incoming, body: AsyncIterator[bytes]
) -> UploadState:
    """Append a stream to an upload; when it is whole, verify and keep it. Memory stays flat whatever the size."""
    if incoming.size > hub.settings.artifact_max_bytes:
        raise TooLarge(f"An artifact may have {hub.settings.artifact_max_bytes} bytes at most.", field="size")
    owner, offset = _owner_of(asker), incoming.offset
    if hub.blobs.exists(incoming.digest):
        return await _already_here(hub, asker, incoming, body)
    async for data in _chunks(body):
        if offset + len(data) > incoming.size:
            raise BadRequest("More bytes were sent than the size says.", field="size")
        offset = await asyncio.to_thread(hub.blobs.append, incoming.digest, owner, offset=offset, data=data)
    if offset < incoming.size:
        return UploadState(digest=incoming.digest, offset=offset, complete=False)
    if incoming.size == 0:
        await asyncio.to_thread(hub.blobs.append, incoming.digest, owner, offset=0, data=b"")
    await asyncio.to_thread(hub.blobs.finish, incoming.digest, owner, size=incoming.size)
    await _keep(hub, asker, incoming)
    return UploadState(digest=incoming.digest, offset=incoming.size, complete=True)


async def _keep(hub: Hub, asker: Principal | NodePrincipal, incoming: Incoming) -> None:
    def unit(tx: Tx) -> None:
        records.insert_artifact(
            tx, digest=incoming.digest, size=hub.blobs.path(incoming.digest).stat().st_size
        )
        if isinstance(asker, Principal):  # a node's upload is referred to by the report that names it
            row = {"digest": incoming.digest, "account_id": asker.account_id, "job_id": "", "role": "upload"}
            records.refer(tx, [{**row, "name": incoming.name}])
            tx.emit(actor=asker.account_id, action="artifact.uploaded", account_id=asker.account_id)

    await hub.store.write(unit)


async def _chunks(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Network reads are small; writing them one by one would cost a thread switch each."""
    buffer = bytearray()
    async for data in body:
        buffer += data
        if len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)


async def _already_here(
    hub: Hub, asker: Principal | NodePrincipal, incoming: Incoming, body: AsyncIterator[bytes]
) -> UploadState:
    """Somebody uploaded the same bytes before. Knowing a digest is not having the bytes, so they are checked all the same."""
    hasher, left = hashlib.sha256(), hub.settings.artifact_max_bytes
    async for data in _chunks(body):
        left -= len(data)
        if left < 0:
            raise TooLarge("The body is larger than an artifact may be.")
        await asyncio.to_thread(hasher.update, data)
    if not await _readable(hub, asker, incoming.digest) and isinstance(asker, Principal):
        if incoming.offset:
            return UploadState(digest=incoming.digest, offset=0, complete=False)
        if hasher.hexdigest() != incoming.digest:
            raise BadRequest(
                f"The bytes have SHA-256 {hasher.hexdigest()}, not {incoming.digest}.", field="digest"
            )
    await _keep(hub, asker, incoming)
    return UploadState(digest=incoming.digest, offset=incoming.size, complete=True)


async def _readable(hub: Hub, asker: Principal | NodePrincipal, digest: str) -> bool:
    def check(connection: Connection) -> bool:
        if isinstance(asker, NodePrincipal):
            return records.node_may_read(connection, digest=digest, node_id=asker.node_id)
        known = bool(records.get_artifacts(connection, [digest])) if asker.is_admin else False
        return known or records.may_read(connection, digest=digest, account_id=asker.account_id)

    return await hub.store.read(check)


async def open_for(hub: Hub, asker: Principal | NodePrincipal, digest: str) -> int:
    """The size of an artifact the caller may read."""
    if not await _readable(hub, asker, digest) or not hub.blobs.exists(digest):
        raise NotFound("There is no such artifact, or it is not yours.")
    return hub.blobs.path(digest).stat().st_size


async def page(
    hub: Hub, principal: Principal, *, job_id: str | None, after: str | None, limit: int
) -> ArtifactPage:
    before = None
    if after is not None:
        at, _, digest = after.partition("-")
        if not at.isdigit():
            raise BadRequest("This cursor is not one of ours.", field="after")
        before = (int(at), digest)
    rows = await hub.store.read(
        lambda connection: records.list_artifacts(
            connection, account_id=access.scope(principal), job_id=job_id, before=before, limit=limit
        )
    )
    views = [
        ArtifactView(
            digest=row.digest,
            size=row.size,
            name=row.name,
            role=row.role,
            job_id=row.job_id or None,
            created_at_ms=row.created_at_ms,
        )
        for row in rows
    ]
    last = f"{views[-1].created_at_ms}-{views[-1].digest}" if len(views) == limit else None
    return ArtifactPage(artifacts=views, next=last)


async def remove(hub: Hub, principal: Principal, digest: str) -> None:
    """Drops the caller's references; the bytes go when nobody else refers to them."""

    def unit(tx: Tx) -> bool:
        used = records.open_jobs_using(tx.connection, digest=digest, account_id=principal.account_id)
        if used:
            raise Conflict(f"Job {used[0]} still needs this artifact; cancel it or wait for it first.")
        if not records.drop_refs(tx, digest=digest, account_id=principal.account_id):
            raise NotFound("There is no such artifact, or it is not yours.")
        tx.emit(actor=principal.account_id, action="artifact.removed", account_id=principal.account_id)
        return records.drop_if_unused(tx, digest)

    if await hub.store.write(unit):
        await asyncio.to_thread(hub.blobs.remove, digest)
