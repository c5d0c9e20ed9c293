"""Rows of volumes, their versions and their uses. A version refers to its artifacts under its own name: `volume.number`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, exists, func, select, update

from computepool.core.jobs.volumes import VersionFacts
from computepool.core.retention import ReferenceRole
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.db import dialect
from computepool.hub.db.group_tables import volume_uses, volume_versions, volumes
from computepool.hub.db.queries import before_cursor, count, scalars
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_OPEN, artifact_refs, jobs
from computepool.hub.db.typed_rows import TypedRow
from computepool.protocol.volumes.volumes import VolumeContent

#: The attempt number of the row that says that a job mounts a volume.
MOUNTED = 0
#: The name under which clients upload manifests and packs.
UPLOAD_NAME = "volume"
ROLE = ReferenceRole.VOLUME.value


class VolumeRow(TypedRow, of=volumes):
    id: str
    account_id: str
    name: str
    head: int
    last: int
    created_at_ms: int


class VersionRow(TypedRow, of=volume_versions):
    volume_id: str
    number: int
    parent: int
    conflict_head: int | None
    manifest: str
    content: str
    packs: str
    size: int
    files: int
    created_at_ms: int
    attempt_id: str | None

    @property
    def artifacts(self) -> set[str]:
        return {self.manifest, *self.packs.split()}


class UseRow(TypedRow, of=volume_uses):
    job_id: str
    volume_id: str
    attempt_no: int
    parent: int


def version_key(volume_id: str, number: int) -> str:
    return f"{volume_id}.{number}"


# volumes


def insert(tx: Tx, *, volume_id: str, account_id: str, name: str) -> bool:
    """False if the account has one of this name."""
    row = {"id": volume_id, "account_id": account_id, "name": name, "head": 0, "last": 0}
    statement = dialect.insert_ignore(tx.connection, volumes).returning(volumes.c.id)
    return tx.connection.execute(statement, {**row, "created_at_ms": tx.now_ms}).first() is not None


def get(connection: Connection, *, account_id: str, name: str) -> VolumeRow | None:
    return VolumeRow.find(connection, volumes.c.account_id == account_id, volumes.c.name == name)


def lock(tx: Tx, volume_ids: Iterable[str]) -> dict[str, VolumeRow]:
    """In the order of their ids, as everywhere, and after jobs, attempts and nodes."""
    matching = dialect.among(tx.connection, volumes.c.id, sorted(volume_ids))
    statement = VolumeRow.select().where(matching).order_by(volumes.c.id).with_for_update(key_share=True)
    return {row.id: row for row in VolumeRow.all(tx.connection.execute(statement))}


def of_account(connection: Connection, account_id: str) -> list[VolumeRow]:
    return VolumeRow.fetch(connection, volumes.c.account_id == account_id, order=volumes.c.name)


def by_names(connection: Connection, account_id: str, names: Collection[str]) -> dict[str, str]:
    """Ids by name."""
    found = select(volumes.c.name, volumes.c.id).where(volumes.c.account_id == account_id, volumes.c.name.in_(names))
    return dict(connection.execute(found).all())


def count_of_account(connection: Connection, account_id: str) -> int:
    return count(connection, volumes.c.account_id == account_id)


def remove(tx: Tx, volume_id: str) -> None:
    for table in (volume_uses, volume_versions):
        tx.connection.execute(delete(table).where(table.c.volume_id == volume_id))
    tx.connection.execute(delete(volumes).where(volumes.c.id == volume_id))


# versions


def next_number(tx: Tx, volume_id: str) -> int:
    """Of a volume that is locked."""
    statement = update(volumes).where(volumes.c.id == volume_id).values(last=volumes.c.last + 1)
    return int(tx.connection.execute(statement.returning(volumes.c.last)).scalar_one())


def move_head(tx: Tx, volume_id: str, *, expected: int, to: int) -> bool:
    """Compare and swap; False: the head is another by now."""
    statement = update(volumes).where(volumes.c.id == volume_id, volumes.c.head == expected).values(head=to)
    return tx.connection.execute(statement).rowcount == 1


def insert_version(
    tx: Tx, volume: VolumeRow, made: VolumeContent, *, attempt_id: str | None, **numbers: int | None
) -> None:
    """`numbers`: number, parent and conflict_head. Its artifacts are kept until it is pruned."""
    tx.connection.execute(
        volume_versions.insert().values(
            volume_id=volume.id,
            manifest=made.manifest,
            content=made.content,
            packs=" ".join(made.packs),
            size=made.size,
            files=made.files,
            created_at_ms=tx.now_ms,
            attempt_id=attempt_id,
            **numbers,
        )
    )
    own = {"account_id": volume.account_id, "job_id": "", "role": ROLE}
    own["name"] = version_key(volume.id, numbers["number"] or 0)
    artifact_rows.refer(tx, [own | {"digest": digest} for digest in sorted({made.manifest, *made.packs})])


def clear_conflict(tx: Tx, volume_id: str, number: int) -> None:
    this = volume_versions.c.volume_id == volume_id, volume_versions.c.number == number
    tx.connection.execute(update(volume_versions).where(*this).values(conflict_head=None))


def get_version(connection: Connection, volume_id: str, number: int) -> VersionRow | None:
    return VersionRow.find(connection, volume_versions.c.volume_id == volume_id, volume_versions.c.number == number)


def version_of_attempt(connection: Connection, volume_id: str, attempt_id: str) -> VersionRow | None:
    this = volume_versions.c.volume_id == volume_id, volume_versions.c.attempt_id == attempt_id
    return VersionRow.find(connection, *this)


def list_versions(connection: Connection, volume_id: str, *, before: int | None, limit: int) -> list[VersionRow]:
    """Newest first."""
    which = volume_versions.c.volume_id == volume_id, before_cursor(volume_versions.c.number, before)
    return VersionRow.fetch(connection, *which, order=volume_versions.c.number.desc(), limit=limit)


def count_versions(connection: Connection, volume_id: str) -> int:
    return count(connection, volume_versions.c.volume_id == volume_id)


def facts(connection: Connection, volume_id: str) -> list[VersionFacts]:
    columns = volume_versions.c.number, volume_versions.c.conflict_head
    rows = connection.execute(select(*columns).where(volume_versions.c.volume_id == volume_id))
    return [VersionFacts(row.number, row.conflict_head is not None) for row in rows]


def drop_versions(tx: Tx, volume_id: str, numbers: Sequence[int]) -> list[str]:
    """Delete versions with their references. Returns the places of artifacts that nothing needs any more."""
    digests: set[str] = set()
    for number in numbers:
        row = get_version(tx.connection, volume_id, number)
        if row is None:
            continue
        digests |= row.artifacts
        of_version = artifact_refs.c.role == ROLE, artifact_refs.c.name == version_key(volume_id, number)
        matching = dialect.among(tx.connection, artifact_refs.c.digest, sorted(row.artifacts))
        tx.connection.execute(delete(artifact_refs).where(matching, *of_version))
        this = volume_versions.c.volume_id == volume_id, volume_versions.c.number == number
        tx.connection.execute(delete(volume_versions).where(*this))
    return artifact_rows.drop_unused(tx, digests) if digests else []


def drop_uploads(tx: Tx, account_id: str, digests: Collection[str]) -> None:
    """The version keeps them from now on: let go of what keeps them for as long as an upload."""
    own = artifact_refs.c.account_id == account_id, artifact_refs.c.role == ReferenceRole.UPLOAD.value
    matching = dialect.among(tx.connection, artifact_refs.c.digest, sorted(digests))
    tx.connection.execute(delete(artifact_refs).where(matching, *own, artifact_refs.c.name == UPLOAD_NAME))


def find_crowded(connection: Connection, *, kept: int, limit: int) -> list[str]:
    """Volumes with more versions than are kept."""
    statement = select(volume_versions.c.volume_id).group_by(volume_versions.c.volume_id)
    return scalars(connection, statement.having(func.count() > kept).order_by(volume_versions.c.volume_id).limit(limit))


# uses


def add_uses(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    tx.connection.execute(dialect.insert_ignore(tx.connection, volume_uses), rows)


def uses_of_job(connection: Connection, job_id: str) -> list[UseRow]:
    return UseRow.fetch(connection, volume_uses.c.job_id == job_id, order=volume_uses.c.volume_id)


def used_by(connection: Connection, job_ids: Iterable[str]) -> set[str]:
    """The volumes that these jobs mount."""
    matching = dialect.among(connection, volume_uses.c.job_id, sorted(set(job_ids)))
    return set(scalars(connection, select(volume_uses.c.volume_id).where(matching).distinct()))


_OPEN_JOB = exists().where(jobs.c.id == volume_uses.c.job_id, IS_OPEN)


def parents_in_use(connection: Connection, volume_id: str) -> set[int]:
    """The versions from which attempts of unfinished jobs started: their reports may still come."""
    statement = select(volume_uses.c.parent).where(volume_uses.c.volume_id == volume_id, _OPEN_JOB)
    return set(connection.execute(statement).scalars())


def open_jobs(connection: Connection, volume_id: str) -> list[str]:
    statement = select(volume_uses.c.job_id).where(
        volume_uses.c.volume_id == volume_id, volume_uses.c.attempt_no == MOUNTED, _OPEN_JOB
    )
    return scalars(connection, statement.order_by(volume_uses.c.job_id))


def drop_ended_uses(tx: Tx, *, limit: int) -> int:
    """Uses of jobs that have ended."""
    ended = scalars(tx.connection, select(volume_uses.c.job_id).where(~_OPEN_JOB).distinct().limit(limit))
    if ended:
        matching = dialect.among(tx.connection, volume_uses.c.job_id, ended)
        tx.connection.execute(delete(volume_uses).where(matching))
    return len(ended)
