"""Artifacts: upload, verification, references, download and retention.

Whoever refers to an artifact may read it. Knowing its digest is not enough: a new reference requires the bytes. A node
refers to its own uploads until a report hands them to the job's account. Garbage collection deletes what nothing refers to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from computepool.core.errors import BadRequest, Conflict, NotFound, QuotaExceeded, TooLarge
from computepool.core.retention import ReferenceRole
from computepool.hub.artifacts import garbage_collection, rows as artifact_rows, storage_quota
from computepool.hub.artifacts.rows import ArtifactRow, KeptReference
from computepool.hub.artifacts.storage.base import Reading, Upload
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access, cursors
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.snapshot import take
from computepool.protocol.artifacts import (
    ArtifactInfo,
    ArtifactPage,
    ArtifactRef,
    ArtifactView,
    KeepRequest,
    StorageView,
    UploadState,
)
from computepool.protocol.tokens import b64

#: References shown of one artifact.
_REFS_SHOWN = 200
#: An account that uploads the same bytes again within this time changes nothing.
_SENT_AGAIN_MS = 5 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    digest: str
    offset: int
    size: int
    name: str


async def _find_own(hub: Hub, owner: str, digest: str) -> ArtifactRow | None:
    """The artifact, if this owner refers to it."""

    def load(connection: Connection) -> ArtifactRow | None:
        if not artifact_rows.may_read(connection, digest=digest, account_id=owner):
            return None
        return artifact_rows.get_artifact(connection, digest)

    return await hub.store.read(load)


async def _is_whole(hub: Hub, row: ArtifactRow | None) -> bool:
    if row is None:
        return False
    return await hub.process.in_thread(hub.artifacts.blobs.size, row.place) == row.size


async def upload_state(hub: Hub, asker: Principal | NodePrincipal, digest: str) -> UploadState:
    """The state of the caller's own upload. Bytes that only others have uploaded do not count: the caller sends them again.

    An upload whose bytes are all here may still be incomplete: the caller then sends an empty rest, from which the
    retention time counts.
    """
    row = await _find_own(hub, asker.holder, digest)
    if row is not None and await _is_whole(hub, row):
        return UploadState(digest=digest, offset=row.size, complete=await _was_just_sent(hub, asker, digest))
    offset = await hub.process.in_thread(hub.artifacts.blobs.uploaded_bytes, digest, asker.holder)
    return UploadState(digest=digest, offset=offset, complete=False)


async def _was_just_sent(hub: Hub, asker: Principal | NodePrincipal, digest: str) -> bool:
    """Never for a node: the hub cannot tell for which of its jobs it sent the bytes, so it sends them for each."""
    if isinstance(asker, NodePrincipal):
        return False
    account, since_ms = asker.account_id, hub.now_ms() - _SENT_AGAIN_MS
    return await hub.store.read(artifact_rows.is_sent, digest=digest, account_id=account, since_ms=since_ms)


async def receive(
    hub: Hub, asker: Principal | NodePrincipal, incoming: Incoming, *, body: AsyncIterator[bytes]
) -> UploadState:
    """Append a stream to an upload; when it is whole, verify and keep it. Memory use does not depend on the size."""
    if incoming.size > hub.settings.artifact_max_bytes:
        raise TooLarge(f"An artifact may have {hub.settings.artifact_max_bytes} bytes at most.", field="size")
    if incoming.offset > incoming.size:
        raise BadRequest("The offset is beyond the declared size.", field="offset")
    owner, digest = asker.holder, incoming.digest
    done = UploadState(digest=digest, offset=incoming.size, complete=True)
    row = await _find_own(hub, owner, digest)
    if await _is_whole(hub, row):
        await _keep(hub, asker, incoming)
        return done
    # Lost bytes that are sent again are already counted.
    async with storage_quota.reserve(hub, asker, digest=digest, size=incoming.size if row is None else 0):
        upload = await hub.process.in_thread(hub.artifacts.blobs.open_upload, digest, owner, offset=incoming.offset)
        try:
            offset = await _append(hub, upload, incoming, body=body)
            if offset < incoming.size:
                return UploadState(digest=digest, offset=offset, complete=False)
            place = await hub.process.in_thread(upload.finish, incoming.size)
        finally:
            await hub.process.in_thread(upload.close)
        await _keep(hub, asker, incoming, place=place)
        if row is None:
            storage_quota.count_in(hub, owner, incoming.size)
    return done


async def _append(hub: Hub, upload: Upload, incoming: Incoming, *, body: AsyncIterator[bytes]) -> int:
    """Receive the next bytes while the previous ones are written and hashed."""
    offset, writing = incoming.offset, None
    try:
        async for data in _chunks(body, upload.chunk_bytes):
            if writing is not None:
                await writing
            if offset + len(data) > incoming.size:
                raise BadRequest("More bytes were sent than the declared size.", field="size")
            offset += len(data)
            writing = asyncio.ensure_future(hub.process.in_thread(upload.append, data))
    finally:
        # Also if the connection broke or the request was cancelled: the file must stay open for the write in progress.
        if writing is not None:
            await asyncio.shield(writing)
    return offset


async def _keep(hub: Hub, asker: Principal | NodePrincipal, incoming: Incoming, *, place: str | None = None) -> None:
    """Refer to the bytes. If the artifact exists, its bytes are kept and the new ones erased."""
    lost = None if place is None else await _find_lost(hub, incoming.digest)
    owner = asker.holder
    snapshot = take(hub, [owner])

    def unit(tx: Tx) -> str | None:
        kept = None
        if place is not None:
            if not artifact_rows.may_read(tx.connection, digest=incoming.digest, account_id=owner):
                storage_quota.check_kept(tx, asker, size=incoming.size, snapshot=snapshot)
            kept = artifact_rows.insert_artifact(tx, digest=incoming.digest, size=incoming.size, place=place, lost=lost)
        role = ReferenceRole.NODE if isinstance(asker, NodePrincipal) else ReferenceRole.UPLOAD
        row = {"digest": incoming.digest, "account_id": owner, "job_id": "", "role": role.value}
        artifact_rows.renew(tx, {**row, "name": incoming.name})
        if isinstance(asker, Principal):
            tx.emit_own(asker.account_id, "artifact.uploaded", digest=incoming.digest, size=incoming.size)
        return kept

    try:
        kept = await hub.store.write(unit)
    except QuotaExceeded:
        if place is not None:
            await hub.process.in_thread(hub.artifacts.blobs.erase, place)
        raise
    await garbage_collection.erase(hub, [surplus for surplus in {place, lost} - {kept} if surplus is not None])


async def _find_lost(hub: Hub, digest: str) -> str | None:
    """The place of an artifact whose bytes are missing or incomplete, which the new bytes replace."""
    row = await hub.store.read(artifact_rows.get_artifact, digest)
    return None if row is None or await _is_whole(hub, row) else row.place


async def _chunks(body: AsyncIterator[bytes], size: int) -> AsyncIterator[bytes | bytearray]:
    """Join small network reads: writing each one would cost a thread switch."""
    buffer = bytearray()
    try:
        async for data in body:
            buffer += data
            if len(buffer) >= size:
                yield buffer
                buffer = bytearray()
    except Exception:
        # The connection broke: keep what has arrived, so that the sender can resume from there.
        if buffer:
            yield buffer
        raise
    if buffer:
        yield buffer


async def find(hub: Hub, asker: Principal | NodePrincipal, digest: str) -> ArtifactRow:
    """An artifact that the caller may read."""

    def load(connection: Connection) -> ArtifactRow | None:
        if isinstance(asker, NodePrincipal):
            readable = artifact_rows.node_may_read(connection, digest=digest, node_id=asker.node_id)
        else:
            account = asker.account_id
            readable = asker.is_admin or artifact_rows.may_read(connection, digest=digest, account_id=account)
        return artifact_rows.get_artifact(connection, digest) if readable else None

    row = await hub.store.read(load)
    if row is None:
        raise NotFound("There is no such artifact, it is not yours, or it has expired.")
    return row


async def open_part(hub: Hub, found: ArtifactRow, *, start: int, length: int) -> Reading:
    try:
        return await hub.process.in_thread(hub.artifacts.blobs.read, found.place, start=start, length=length)
    except FileNotFoundError:
        raise NotFound("The data of this artifact is missing; the operator can run `pool hub check`.") from None


async def page(hub: Hub, principal: Principal, *, job_id: str | None, after: str | None, limit: int) -> ArtifactPage:
    before = None if after is None else _read_cursor(after)
    which = {"account_id": access.scope(principal), "job_id": job_id}
    rows = await hub.store.read(artifact_rows.list_artifacts, **which, before=before, limit=limit)
    views = [ArtifactView.from_attributes(row, job_id=row.job_id or None) for row in rows]
    last = f"{rows[-1].created_at_ms} {rows[-1].place}" if len(rows) == limit else None
    return ArtifactPage(artifacts=views, next=None if last is None else b64(last.encode()))


def _read_cursor(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"([0-9]{1,15}) ([^\x00]+)", cursors.read_plain(text))
    if found is None:
        raise cursors.wrong()
    return int(found[1]), found[2]


async def storage(hub: Hub, principal: Principal) -> StorageView:
    account = principal.account_id
    own = await hub.store.read(lambda connection: storage_quota.load_usage(hub.settings, connection, account))
    uploading = await hub.process.in_thread(hub.artifacts.blobs.upload_sizes, account)
    return own.model_copy(update={"uploading_bytes": sum(uploading.values())})


async def info(hub: Hub, principal: Principal, digest: str) -> ArtifactInfo:
    """By the caller's own references; for administrators, by all."""
    scope = access.scope(principal)

    def load(connection: Connection) -> tuple[ArtifactRow | None, list[KeptReference]]:
        refs = artifact_rows.refs_of(connection, digest, account_id=scope, limit=_REFS_SHOWN + 1)
        return artifact_rows.get_artifact(connection, digest), refs

    row, refs = await hub.store.read(load)
    if row is None or not (refs or principal.is_admin):
        raise NotFound("There is no such artifact, it is not yours, or it has expired.")
    untils = [garbage_collection.until_ms(hub, ref) for ref in refs]
    return ArtifactInfo(
        digest=digest,
        size=row.size,
        created_at_ms=row.created_at_ms,
        whole=await _is_whole(hub, row),
        kept_until_ms=None if None in untils or not untils else max(until for until in untils if until is not None),
        refs=[
            ArtifactRef.from_attributes(ref, job_id=ref.job_id or None, kept_until_ms=until)
            for ref, until in zip(refs, untils, strict=True)
        ][:_REFS_SHOWN],
        more_refs=len(refs) > _REFS_SHOWN,
    )


async def keep(hub: Hub, principal: Principal, digest: str, *, request: KeepRequest) -> ArtifactInfo:
    """Add a reference that ends when its owner says."""
    account = principal.account_id

    def unit(tx: Tx) -> None:
        if not artifact_rows.may_read(tx.connection, digest=digest, account_id=account):
            raise NotFound("There is no such artifact, or it is not yours.")
        until_ms = None if request.duration_s is None else tx.now_ms + round(request.duration_s * 1000)
        row = {"digest": digest, "account_id": account, "job_id": "", "role": ReferenceRole.KEPT.value, "name": ""}
        artifact_rows.renew(tx, {**row, "kept_until_ms": until_ms})
        tx.emit_own(principal.account_id, "artifact.kept", digest=digest, until_ms=until_ms)

    await hub.store.write(unit)
    return await info(hub, principal, digest)


async def release(hub: Hub, principal: Principal, digest: str) -> None:
    """Undo `keep`: the artifact then stays as long as its other references say."""
    account = principal.account_id

    def unit(tx: Tx) -> list[str]:
        if not artifact_rows.drop_refs(tx, digest=digest, account_id=account, role=ReferenceRole.KEPT.value):
            raise NotFound("You are not keeping this artifact.")
        tx.emit_own(principal.account_id, "artifact.released", digest=digest)
        return artifact_rows.drop_unused(tx, [digest])

    await garbage_collection.erase(hub, await hub.store.write(unit))
    hub.artifacts.usage.pop(account, None)


async def remove(hub: Hub, principal: Principal, digest: str) -> None:
    """Drop the caller's references and unfinished upload. The bytes go when nothing else refers to them."""
    account = principal.account_id
    unfinished = await hub.process.in_thread(hub.artifacts.blobs.uploaded_bytes, digest, account)

    def unit(tx: Tx) -> list[str]:
        used = artifact_rows.open_jobs_using(tx.connection, digest=digest, account_id=account)
        if used:
            raise Conflict(f"Job {used[0]} still needs this artifact; cancel it or wait for it first.")
        if artifact_rows.in_volume(tx.connection, digest=digest, account_id=account):
            raise Conflict("A volume still needs this artifact; remove the volume first.")
        if artifact_rows.drop_refs(tx, digest=digest, account_id=account):
            tx.emit_own(principal.account_id, "artifact.removed", digest=digest)
        elif not unfinished:
            raise NotFound("There is no such artifact, or it is not yours.")
        return artifact_rows.drop_unused(tx, [digest])

    unused = await hub.store.write(unit)
    if unfinished:
        await hub.process.in_thread(hub.artifacts.blobs.drop_upload, digest, account)
    await garbage_collection.erase(hub, unused)
    hub.artifacts.usage.pop(account, None)
