"""Artifacts: streamed in, verified, referred to by accounts and jobs, streamed out, dropped when nobody refers to them.

Who refers to an artifact may read it, and knowing its digest is not enough: whoever wants a reference sends the bytes.
A node's upload is referred to by the node itself until a report hands it to the job's account.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from computepool.core.errors import BadRequest, Conflict, NotFound, TooLarge
from computepool.hub.services import access
from computepool.hub.services.access import NodePrincipal, Principal
from computepool.hub.services.context import Hub
from computepool.hub.store import artifacts as artifact_rows
from computepool.hub.store.session import AnyRow, Connection, Tx
from computepool.protocol.accounts import ArtifactPage, ArtifactView, UploadState


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    digest: str
    offset: int
    size: int
    name: str


def _owner_of(asker: Principal | NodePrincipal) -> str:
    return asker.node_id if isinstance(asker, NodePrincipal) else asker.account_id


async def _has(hub: Hub, owner: str, digest: str) -> bool:
    """Whether the bytes are here and this owner has shown to have them too."""
    referred = await hub.store.read(
        lambda connection: artifact_rows.may_read(connection, digest=digest, account_id=owner)
    )
    return referred and hub.blobs.exists(digest)


async def upload_state(hub: Hub, asker: Principal | NodePrincipal, digest: str) -> UploadState:
    """Whether somebody else has the same bytes here is not told: the caller uploads them all the same."""
    owner = _owner_of(asker)
    if await _has(hub, owner, digest):
        return UploadState(digest=digest, offset=hub.blobs.size(digest), complete=True)
    offset = await asyncio.to_thread(hub.blobs.uploaded, digest, owner)
    return UploadState(digest=digest, offset=offset, complete=False)


async def receive(
    hub: Hub, asker: Principal | NodePrincipal, incoming: Incoming, *, body: AsyncIterator[bytes]
) -> UploadState:
    """Append a stream to an upload; when it is whole, verify and keep it. Memory stays flat whatever the size."""
    if incoming.size > hub.settings.artifact_max_bytes:
        raise TooLarge(f"An artifact may have {hub.settings.artifact_max_bytes} bytes at most.", field="size")
    if incoming.offset > incoming.size:
        raise BadRequest("The offset lies behind the end that the size says.", field="offset")
    owner, offset = _owner_of(asker), incoming.offset
    done = UploadState(digest=incoming.digest, offset=incoming.size, complete=True)
    if await _has(hub, owner, incoming.digest):
        await _keep(hub, asker, incoming)
        return done
    async for data in _chunks(body, hub.settings.artifact_chunk_bytes):
        if offset + len(data) > incoming.size:
            raise BadRequest("More bytes were sent than the size says.", field="size")
        offset = await asyncio.to_thread(hub.blobs.append, incoming.digest, owner, offset=offset, data=data)
    if offset == incoming.offset:  # nothing came, and nothing has checked the offset yet
        await asyncio.to_thread(hub.blobs.append, incoming.digest, owner, offset=offset, data=b"")
    if offset < incoming.size:
        return UploadState(digest=incoming.digest, offset=offset, complete=False)
    whole = await asyncio.to_thread(hub.blobs.verify, incoming.digest, owner, size=incoming.size)
    await _keep(hub, asker, incoming, whole=whole)
    return done


async def _keep(
    hub: Hub, asker: Principal | NodePrincipal, incoming: Incoming, *, whole: Path | None = None
) -> None:
    """Refer to the bytes and, if they are new, give them their name: both while holding the artifact's row, so that
    a removal at the same moment comes wholly before or wholly after."""

    def unit(tx: Tx) -> None:
        artifact_rows.insert_artifact(tx, digest=incoming.digest, size=incoming.size)
        role = "node" if isinstance(asker, NodePrincipal) else "upload"
        row = {"digest": incoming.digest, "account_id": _owner_of(asker), "job_id": "", "role": role}
        artifact_rows.refer(tx, [{**row, "name": incoming.name}])
        if isinstance(asker, Principal):
            data = json.dumps({"digest": incoming.digest, "size": incoming.size})
            tx.emit(
                actor=asker.account_id, action="artifact.uploaded", account_id=asker.account_id, data=data
            )
        if whole is not None:
            hub.blobs.publish(incoming.digest, whole)

    await hub.store.write(unit)


async def _chunks(body: AsyncIterator[bytes], size: int) -> AsyncIterator[bytes]:
    """Network reads are small; writing them one by one would cost a thread switch each."""
    buffer = bytearray()
    try:
        async for data in body:
            buffer += data
            if len(buffer) >= size:
                yield bytes(buffer)
                buffer.clear()
    except Exception:
        # The connection broke: what came before is kept, and the sender continues from there.
        if buffer:
            yield bytes(buffer)
        raise
    if buffer:
        yield bytes(buffer)


async def open_for(hub: Hub, asker: Principal | NodePrincipal, digest: str) -> Path:
    """The file of an artifact the caller may read."""

    def readable(connection: Connection) -> bool:
        if isinstance(asker, NodePrincipal):
            return artifact_rows.node_may_read(connection, digest=digest, node_id=asker.node_id)
        if asker.is_admin:
            return bool(artifact_rows.get_artifacts(connection, [digest]))
        return artifact_rows.may_read(connection, digest=digest, account_id=asker.account_id)

    if not await hub.store.read(readable) or not hub.blobs.exists(digest):
        raise NotFound("There is no such artifact, or it is not yours.")
    return hub.blobs.path(digest)


async def page(
    hub: Hub, principal: Principal, *, job_id: str | None, after: str | None, limit: int
) -> ArtifactPage:
    before = None if after is None else _read_cursor(after)
    rows = await hub.store.read(
        lambda connection: artifact_rows.list_artifacts(
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
    return ArtifactPage(artifacts=views, next=_cursor(rows[-1]) if len(rows) == limit else None)


def _cursor(row: AnyRow) -> str:
    return base64.urlsafe_b64encode(f"{row.created_at_ms} {row.place}".encode()).rstrip(b"=").decode()


def _read_cursor(text: str) -> tuple[int, str]:
    try:
        words = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        words = ""
    found = re.fullmatch(r"([0-9]{1,15}) ([^\x00]+)", words)
    if found is None:
        raise BadRequest("This cursor is not one of ours; take it from the page before.", field="after")
    return int(found[1]), found[2]


async def remove(hub: Hub, principal: Principal, digest: str) -> None:
    """Drops the caller's references; the bytes go when nobody else refers to them."""

    def unit(tx: Tx) -> bool:
        used = artifact_rows.open_jobs_using(tx.connection, digest=digest, account_id=principal.account_id)
        if used:
            raise Conflict(f"Job {used[0]} still needs this artifact; cancel it or wait for it first.")
        if not artifact_rows.drop_refs(tx, digest=digest, account_id=principal.account_id):
            raise NotFound("There is no such artifact, or it is not yours.")
        data = json.dumps({"digest": digest})
        account = principal.account_id
        tx.emit(actor=account, action="artifact.removed", account_id=account, data=data)
        return artifact_rows.drop_if_unused(tx, digest)

    if await hub.store.write(unit):
        await _erase(hub, [digest])


async def forget_unreported(hub: Hub) -> None:
    """Uploads of nodes that no report ever named, and those that a report handed on long ago."""
    before_ms = hub.now_ms() - round(hub.settings.unreported_keep_s * 1000)

    def unit(tx: Tx) -> list[str]:
        digests = artifact_rows.drop_node_refs(tx, before_ms=before_ms, limit=_BATCH)
        return [digest for digest in digests if artifact_rows.drop_if_unused(tx, digest)]

    await _erase(hub, await hub.store.write(unit))


async def _erase(hub: Hub, digests: list[str]) -> None:
    """After the commit that dropped them, and unless they were uploaded again since."""

    def unit(tx: Tx) -> None:
        for digest in digests:
            if artifact_rows.hold_unknown(tx, digest):
                hub.blobs.remove(digest)

    if digests:
        await hub.store.write(unit)


_BATCH = 500
