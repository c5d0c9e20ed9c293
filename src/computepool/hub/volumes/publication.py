"""Publication: a change of a volume becomes a version, exactly once, and never replaces a head that it did not start from.

A job's change is published in the transaction that accepts its result. A person's is published at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from computepool.core.errors import BadRequest, Conflict, TooLarge
from computepool.core.jobs import volumes as rules
from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, AttemptState
from computepool.core.jobs.volumes import Published
from computepool.hub.artifacts import rows as artifact_rows, storage_quota
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.identity.idempotency import Remembered, write_once
from computepool.hub.jobs.attempt_rows import OwnedAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx, lock_attempt, write_stored
from computepool.hub.settings import Settings
from computepool.hub.snapshot import take_for
from computepool.hub.volumes import rows, volumes
from computepool.hub.volumes.rows import MOUNTED, VolumeRow
from computepool.protocol.jobs.jobs import JobSpec
from computepool.protocol.nodes.nodes import Report
from computepool.protocol.volumes.volumes import (
    OpenedVolume,
    OpenedVolumes,
    PublishReply,
    VersionRequest,
    VolumeChange,
    VolumeContent,
)


@dataclass(frozen=True, slots=True)
class VolumeRefusal:
    """Why a report is not taken as a success."""

    error: str
    is_nodes: bool = False  #: the node's fault, not the job's


# submission


def mount(tx: Tx, account_id: str, spec: JobSpec, *, job_ids: Sequence[str]) -> None:
    """Note which volumes jobs mount: from now on these cannot be removed. Raises BadRequest if one does not exist."""
    names = {one.volume for one in spec.volumes}
    if not names:
        return
    found = rows.by_names(tx.connection, account_id, names)
    held = rows.lock(tx, found.values())
    for name in sorted(names):
        if found.get(name) not in held:
            raise BadRequest(f"You have no volume named {name}. Create it: pool volume create {name}", field="volumes")
    rows.add_uses(
        tx,
        [
            {"job_id": job_id, "volume_id": volume_id, "attempt_no": MOUNTED, "parent": 0}
            for job_id in job_ids
            for volume_id in sorted(held)
        ],
    )


# an attempt starts


async def open_for(hub: Hub, node: NodePrincipal, attempt_id: str) -> OpenedVolumes:
    """The heads of the volumes that an attempt mounts. Repeated, the same versions."""
    snapshot = take_for(hub, node.node_id, [attempt_id])
    return await write_stored(hub, lambda tx: _open(tx, node, attempt_id), snapshot)


def _open(tx: JobTx, node: NodePrincipal, attempt_id: str) -> OpenedVolumes:
    job, attempt = lock_attempt(tx, node, attempt_id)
    if AttemptState(attempt.state) not in LIVE_ATTEMPT or job.attempt_no != attempt.number:
        raise Conflict("This attempt no longer has the job.")
    uses = rows.uses_of_job(tx.connection, job.id)
    held = rows.lock(tx, {use.volume_id for use in uses})
    parents = {use.volume_id: use.parent for use in uses if use.attempt_no == attempt.number}
    new = {volume.id: volume.head for volume in held.values() if volume.id not in parents}
    if new:
        this = {"job_id": job.id, "attempt_no": attempt.number}
        rows.add_uses(tx, [this | {"volume_id": id_, "parent": parent} for id_, parent in sorted(new.items())])
    parents |= new
    opened = [_describe(tx.connection, volume, parents[volume.id]) for volume in held.values()]
    settings = tx.snapshot.settings
    return OpenedVolumes(volumes=opened, files_max=settings.volume_files_max, size_max=settings.volume_max_bytes)


def _describe(connection: Connection, volume: VolumeRow, parent: int) -> OpenedVolume:
    row = rows.get_version(connection, volume.id, parent)
    if row is None:
        return OpenedVolume(volume=volume.name, version=0)
    return OpenedVolume(volume=volume.name, version=parent, manifest=row.manifest, size=row.size, files=row.files)


# its report


def lock(tx: Tx, job_ids: Iterable[str]) -> None:
    """The volumes of all jobs of a batch at once, in one order: so two hubs never wait for each other in a circle."""
    used = rows.used_by(tx.connection, job_ids)
    if used:
        rows.lock(tx, used)


def named_artifacts(changes: Iterable[VolumeContent]) -> set[str]:
    return {digest for change in changes for digest in (change.manifest, *change.packs)}


def check(
    tx: JobTx, job: JobRow, attempt: OwnedAttempt, *, report: Report, uploaded: Mapping[str, int]
) -> VolumeRefusal | None:
    """Why a success cannot be taken because of the volumes that it changed; None if it can.

    `uploaded`: sizes of the artifacts that this node uploaded.
    """
    writable = {one.volume for one in tx.spec(job.spec_digest).volumes if not one.read_only}
    parents = _parents(tx, job, attempt)
    names = [change.volume for change in report.volumes]
    if len(set(names)) < len(names) or not writable.issuperset(names) or not parents.keys() >= set(names):
        return VolumeRefusal(
            "The node reported a change of a volume that the job did not mount for writing.", is_nodes=True
        )
    files: dict[str, int] = {}
    for change in report.volumes:
        volume, parent = parents[change.volume]
        before = rows.get_version(tx.connection, volume.id, parent)
        missing = named_artifacts([change]) - (set() if before is None else before.artifacts) - uploaded.keys()
        if missing:
            text = f"The node reported a part of a volume that it had not uploaded: {min(missing)}."
            return VolumeRefusal(text, is_nodes=True)
        if (excess := _excess(tx.snapshot.settings, change)) is not None:
            return VolumeRefusal(f"The volume {change.volume}: {excess}")
        files |= {digest: uploaded[digest] for digest in named_artifacts([change]) if digest in uploaded}
    full = storage_quota.hand_over(tx, job.account_id, files=files, snapshot=tx.snapshot, changes=tx.memory.storage)
    return None if full is None else VolumeRefusal(full)


def _parents(tx: Tx, job: JobRow, attempt: OwnedAttempt) -> dict[str, tuple[VolumeRow, int]]:
    """By name: the volumes that the attempt opened, and the versions from which it started."""
    uses = {
        use.volume_id: use.parent for use in rows.uses_of_job(tx.connection, job.id) if use.attempt_no == attempt.number
    }
    return {volume.name: (volume, uses[volume.id]) for volume in rows.lock(tx, uses).values()}


def publish_of_job(tx: JobTx, job: JobRow, attempt: OwnedAttempt, *, changes: Sequence[VolumeChange]) -> None:
    """In the transaction that accepts the result of this attempt."""
    parents = _parents(tx, job, attempt)
    for change in changes:
        volume, parent = parents[change.volume]
        if rows.version_of_attempt(tx.connection, volume.id, attempt.id) is not None:
            continue
        outcome, number = _publish(tx, volume, change, parent=parent, attempt_id=attempt.id)
        about = {"account_id": job.account_id, "job_id": job.id, "attempt_id": attempt.id, "node_id": attempt.node_id}
        _record(tx, volume, outcome, actor=attempt.node_id, numbers=(number, parent), **about)


def _publish(
    tx: Tx, volume: VolumeRow, made: VolumeContent, *, parent: int, attempt_id: str | None
) -> tuple[Published, int]:
    """Of a volume that is locked. Returns the number of the new version, or of the one that is the same."""
    before = rows.get_version(tx.connection, volume.id, parent)
    content = None if before is None else before.content
    outcome = rules.judge(content=made.content, parent_content=content, parent=parent, head=volume.head)
    if outcome is Published.UNCHANGED:
        return outcome, parent
    number = rows.next_number(tx, volume.id)
    conflict_head = None if rows.move_head(tx, volume.id, expected=parent, to=number) else volume.head
    numbers = {"number": number, "parent": parent, "conflict_head": conflict_head}
    rows.insert_version(tx, volume, made, attempt_id=attempt_id, **numbers)
    return outcome, number


def _record(
    tx: Tx, volume: VolumeRow, outcome: Published, *, actor: str, numbers: tuple[int, int], **about: Any
) -> None:
    number, parent = numbers
    if outcome is Published.UNCHANGED:
        return
    data: dict[str, object] = {"volume": volume.name, "version": number, "parent": parent}
    if outcome is Published.CONFLICT:
        data["conflict"] = rules.conflict_sentence(number=number, parent=parent, head=volume.head)
    action = "volume.published" if outcome is Published.HEAD else "volume.conflict"
    tx.emit(actor=actor, action=action, data=data, **about)


# a person


async def publish(
    hub: Hub, principal: Principal, name: str, *, request: VersionRequest, remembered: Remembered
) -> PublishReply:
    """The artifacts must have been uploaded, or belong to a version of this account's."""
    if (excess := _excess(hub.settings, request)) is not None:
        raise TooLarge(excess, field="size")

    def effect(tx: Tx) -> PublishReply:
        volume = rows.lock(tx, [volumes.get_own(tx.connection, principal, name).id])
        [row] = volume.values()
        if request.parent:
            volumes.get_version(tx.connection, row, request.parent)
        named, account = named_artifacts([request]), principal.account_id
        if missing := named - artifact_rows.readable_of(tx.connection, named, account_id=account):
            raise BadRequest(f"Artifact {min(missing)} is not on the hub; upload it first.", field="packs")
        outcome, number = _publish(tx, row, request, parent=request.parent, attempt_id=None)
        rows.drop_uploads(tx, account, named)
        _record(tx, row, outcome, actor=account, numbers=(number, request.parent), account_id=account)
        after = volumes.get_own(tx.connection, principal, name)
        view = volumes.version_view(after, volumes.get_version(tx.connection, after, number))
        return PublishReply(version=view, outcome=outcome.value)

    return await write_once(hub, remembered, effect, model=PublishReply)


def _excess(settings: Settings, made: VolumeContent) -> str | None:
    if made.size > settings.volume_max_bytes:
        return f"A volume may hold {settings.volume_max_bytes:,} bytes at most, and this version has {made.size:,}."
    if made.files > settings.volume_files_max:
        return f"A volume may hold {settings.volume_files_max:,} files at most, and this version has {made.files:,}."
    return None
