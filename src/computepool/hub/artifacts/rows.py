"""Rows of artifacts and of the references to them. The bytes are in the blob store (storage/).

A row names the place of its bytes, which is never reused: whoever deletes the row may erase them after the commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Text, bindparam, cast, delete, exists, func, select, update

from computepool.core.jobs.lifecycle import TERMINAL
from computepool.core.retention import ReferenceRole
from computepool.hub.artifacts import inline_rows
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.group_tables import messages, volume_uses
from computepool.hub.db.queries import any_row, by_key, matches, scalars
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import (
    IS_LATE,
    IS_LIVE,
    IS_OPEN,
    accounts,
    artifact_refs,
    artifacts,
    attempts,
    dependencies,
    groups,
    jobs,
    log_chunks,
)
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.groups import rows as group_rows

_TERMINAL = sorted(state.value for state in TERMINAL)
_REF = ("digest", "account_id", "job_id", "role", "name")
#: A total order of references with the same time: a cursor must not lose those that share a digest.
_place = (
    artifact_refs.c.digest
    + "/"
    + artifact_refs.c.job_id
    + "/"
    + artifact_refs.c.role
    + "/"
    + artifact_refs.c.name
    + "/"
    + artifact_refs.c.account_id
)


class ArtifactRow(TypedRow, of=artifacts):
    digest: str
    size: int
    created_at_ms: int
    place: str


class StoredArtifact(ArtifactRow, of=exists().where(artifact_refs.c.digest == artifacts.c.digest).label("referred")):
    referred: bool  #: whether anything refers to it


class ReferenceRow(TypedRow, of=artifact_refs):
    digest: str
    account_id: str
    job_id: str
    role: str
    name: str
    created_at_ms: int
    kept_until_ms: int | None


class OutputRow(
    ReferenceRow, of=artifacts, joined=artifact_refs.join(artifacts, artifacts.c.digest == artifact_refs.c.digest)
):
    size: int


class ListedReference(OutputRow, of=_place.label("place")):
    place: str


class KeptReference(
    ReferenceRow,
    of=(
        _place.label("place"),
        jobs.c.state.label("job_state"),
        jobs.c.finished_at_ms.label("job_ended_ms"),
        accounts,
        group_rows.GOES_HOME.label("goes_home"),
    ),
    joined=artifact_refs.outerjoin(jobs, jobs.c.id == artifact_refs.c.job_id)
    .outerjoin(groups, groups.c.id == jobs.c.group_id)
    .outerjoin(accounts, accounts.c.id == artifact_refs.c.account_id),
):
    """A reference, with what decides how long it is kept."""

    place: str
    job_state: str | None
    job_ended_ms: int | None
    artifact_keep_s: int | None
    goes_home: bool | None


_OUTPUTS = Prepared(
    lambda connection: (
        OutputRow.select()
        .where(dialect.among_ids(connection.dialect.name, artifact_refs.c.job_id), artifact_refs.c.role == "output")
        .order_by(artifact_refs.c.name)
    )
)


def insert_artifact(tx: Tx, *, digest: str, size: int, place: str, lost: str | None = None) -> str:
    """Returns the place in force, which is that of the first bytes unless it is `lost`, where they are known to be gone."""
    # An existing row is written, too, so that no other hub deletes it before this transaction ends.
    statement = (
        dialect.upsert(tx.connection, artifacts, key=("digest",), update=("size",))
        .values(digest=digest, size=size, place=place, created_at_ms=tx.now_ms)
        .returning(artifacts.c.place)
    )
    kept = str(tx.connection.execute(statement).scalar_one())
    if kept != lost:
        return kept
    tx.connection.execute(update(artifacts).where(artifacts.c.digest == digest).values(place=place))
    return place


def get_artifact(connection: Connection, digest: str) -> ArtifactRow | None:
    return ArtifactRow.find(connection, artifacts.c.digest == digest)


def get_places(connection: Connection, digests: Sequence[str]) -> dict[str, str]:
    return by_key(connection, artifacts.c.place, key=artifacts.c.digest, among=digests)


def list_stored(connection: Connection, *, after: str, limit: int) -> list[StoredArtifact]:
    return StoredArtifact.fetch(connection, artifacts.c.digest > after, order=artifacts.c.digest, limit=limit)


def refer(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Add references, which say who may read an artifact and why it is kept. Existing ones stay as they are."""
    if rows:
        statement = dialect.insert_ignore(tx.connection, artifact_refs)
        tx.connection.execute(statement, [{"created_at_ms": tx.now_ms, **row} for row in rows])


def renew(tx: Tx, row: dict[str, Any]) -> None:
    """Add a reference, or let an existing one count from now."""
    statement = dialect.upsert(tx.connection, artifact_refs, key=_REF, update=("created_at_ms", "kept_until_ms"))
    tx.connection.execute(statement, {"created_at_ms": tx.now_ms, "kept_until_ms": None, **row})


def get_sizes(connection: Connection, digests: Sequence[str]) -> dict[str, int]:
    return by_key(connection, artifacts.c.size, key=artifacts.c.digest, among=digests)


def may_read(connection: Connection, *, digest: str, account_id: str) -> bool:
    return any_row(connection, artifact_refs.c.digest == digest, artifact_refs.c.account_id == account_id)


def is_sent(connection: Connection, *, digest: str, account_id: str, since_ms: int) -> bool:
    recent = artifact_refs.c.role == "upload", artifact_refs.c.created_at_ms >= since_ms
    return any_row(connection, artifact_refs.c.digest == digest, artifact_refs.c.account_id == account_id, *recent)


def node_may_read(connection: Connection, *, digest: str, node_id: str) -> bool:
    """A node may read what its jobs refer to, results that are their arguments, and those of a group whose home it is."""
    of_job = artifact_refs.c.digest == digest, artifact_refs.c.job_id == attempts.c.job_id
    if any_row(connection, *of_job, attempts.c.node_id == node_id, IS_LIVE):
        return True
    of_version = volume_uses.c.volume_id + "." + cast(volume_uses.c.parent, Text) == artifact_refs.c.name
    of_volume = artifact_refs.c.digest == digest, artifact_refs.c.role == ReferenceRole.VOLUME.value, of_version
    of_attempt = volume_uses.c.job_id == attempts.c.job_id, volume_uses.c.attempt_no == attempts.c.number
    if any_row(connection, *of_volume, *of_attempt, attempts.c.node_id == node_id, IS_LIVE):
        return True
    if group_rows.home_may_read(connection, digest=digest, node_id=node_id):
        return True
    argument = dependencies.c.job_id == attempts.c.job_id, dependencies.c.is_argument
    its_result = artifact_refs.c.job_id == dependencies.c.after_id, artifact_refs.c.role == "result"
    its_bytes = artifact_refs.c.digest == digest
    return any_row(connection, its_bytes, *its_result, *argument, attempts.c.node_id == node_id, IS_LIVE)


def list_artifacts(
    connection: Connection, *, account_id: str | None, job_id: str | None, before: tuple[int, str] | None, limit: int
) -> list[ListedReference]:
    """Newest first. `before`: (created_at_ms, place) of the last row of the previous page.

    Uploads that nodes have not reported are left out: they will be listed with their job.
    """
    created = artifact_refs.c.created_at_ms
    which = [matches(artifact_refs.c.account_id, account_id), matches(artifact_refs.c.job_id, job_id)]
    if before is not None:
        at_ms, last = before
        which.append((created < at_ms) | ((created == at_ms) & (_place < last)))
    newest = created.desc(), _place.desc()
    return ListedReference.fetch(connection, artifact_refs.c.role != "node", *which, order=newest, limit=limit)


def outputs_of(connection: Connection, job_ids: Sequence[str]) -> dict[str, list[OutputRow]]:
    found: dict[str, list[OutputRow]] = {}
    for row in OutputRow.all(_OUTPUTS.rows(connection, **dialect.ids(connection, job_ids))):
        found.setdefault(row.job_id, []).append(row)
    return found


def open_jobs_using(connection: Connection, *, digest: str, account_id: str) -> list[str]:
    """Unfinished jobs that still need an artifact; at most one."""
    statement = (
        select(jobs.c.id)
        .join(artifact_refs, artifact_refs.c.job_id == jobs.c.id)
        .where(
            artifact_refs.c.digest == digest,
            artifact_refs.c.account_id == account_id,
            artifact_refs.c.role.in_(["input", "payload", "function", "image", "checkpoint"]),
            IS_OPEN,
        )
        .limit(1)
    )
    return scalars(connection, statement)


def in_volume(connection: Connection, *, digest: str, account_id: str) -> bool:
    """Whether a version of a volume of this account needs the artifact."""
    own = artifact_refs.c.digest == digest, artifact_refs.c.account_id == account_id
    return any_row(connection, *own, artifact_refs.c.role == ReferenceRole.VOLUME.value)


def drop_refs(tx: Tx, *, digest: str, account_id: str, role: str | None = None) -> int:
    """Of one role, or of all."""
    which = (
        artifact_refs.c.digest == digest,
        artifact_refs.c.account_id == account_id,
        matches(artifact_refs.c.role, role),
    )
    return tx.connection.execute(delete(artifact_refs).where(*which)).rowcount


def drop_named(tx: Tx, *, account_id: str, role: str, name: str) -> None:
    same = (artifact_refs.c.account_id == account_id, artifact_refs.c.role == role, artifact_refs.c.name == name)
    tx.connection.execute(delete(artifact_refs).where(*same))


def readable_of(connection: Connection, digests: Iterable[str], *, account_id: str) -> set[str]:
    """Those of the digests to which the account, or the node, refers."""
    matching = dialect.among(connection, artifact_refs.c.digest, digests)
    statement = select(artifact_refs.c.digest).where(matching, artifact_refs.c.account_id == account_id)
    return set(connection.execute(statement).scalars())


def drop_unused(tx: Tx, digests: Iterable[str]) -> list[str]:
    """Delete those of the artifacts to which nothing refers. Returns their places: erase the bytes after the commit."""
    statement = (
        delete(artifacts)
        .where(
            dialect.among(tx.connection, artifacts.c.digest, sorted(set(digests))),
            ~exists().where(artifact_refs.c.digest == artifacts.c.digest),
        )
        .returning(artifacts.c.place)
    )
    return list(tx.connection.execute(statement).scalars())


def refs_of(connection: Connection, digest: str, *, account_id: str | None, limit: int) -> list[KeptReference]:
    """Newest first."""
    which = artifact_refs.c.digest == digest, matches(artifact_refs.c.account_id, account_id)
    return KeptReference.fetch(connection, *which, order=artifact_refs.c.created_at_ms.desc(), limit=limit)


def refs_after(connection: Connection, *, after: tuple[int, str], before_ms: int, limit: int) -> list[KeptReference]:
    """References older than `before_ms`, oldest first. `after`: (created_at_ms, place) of the last one seen."""
    (at_ms, last), created = after, artifact_refs.c.created_at_ms
    later = (created > at_ms) | ((created == at_ms) & (_place > last))
    which = created >= at_ms, later, created < before_ms
    return KeptReference.fetch(connection, *which, order=(created, _place), limit=limit)


def shortest_keep_s(connection: Connection) -> int | None:
    """The shortest retention that an account has of its own."""
    found = connection.execute(select(func.min(accounts.c.artifact_keep_s))).scalar()
    return None if found is None else int(found)


def drop_listed(tx: Tx, rows: Sequence[KeptReference]) -> None:
    """Delete these references, unless they were renewed since they were read."""
    if rows:
        seen = (*_REF, "created_at_ms")
        same = [artifact_refs.c[name] == bindparam(f"the_{name}") for name in seen]
        tx.connection.execute(
            delete(artifact_refs).where(*same), [{f"the_{name}": getattr(row, name) for name in seen} for row in rows]
        )


def kept_bytes(connection: Connection, account_id: str) -> tuple[int, int]:
    """Bytes and number of the artifacts to which an account refers; each counts once."""
    own = select(artifact_refs.c.digest).where(artifact_refs.c.account_id == account_id)
    statement = select(func.coalesce(func.sum(artifacts.c.size), 0), func.count()).where(artifacts.c.digest.in_(own))
    size, count = connection.execute(statement).one()
    return int(size), int(count)


def unreported_bytes(connection: Connection, node_id: str) -> int:
    """Bytes that a node sent and to which nothing else refers."""
    other = artifact_refs.alias()
    own = select(artifact_refs.c.digest).where(
        artifact_refs.c.account_id == node_id,
        ~exists().where(other.c.digest == artifact_refs.c.digest, other.c.account_id != node_id),
    )
    statement = select(func.coalesce(func.sum(artifacts.c.size), 0)).where(artifacts.c.digest.in_(own))
    return int(connection.execute(statement).scalar_one())


def accounts_at(connection: Connection, node_id: str) -> list[str]:
    """The accounts whose jobs a node holds; if none, those whose leases expired there but may still be reported late."""
    tried = (
        select(jobs.c.account_id).join(attempts, attempts.c.job_id == jobs.c.id).where(attempts.c.node_id == node_id)
    )
    late = tried.where(IS_LATE, attempts.c.report_digest.is_(None), IS_OPEN)
    return scalars(connection, tried.where(IS_LIVE).distinct()) or scalars(connection, late.distinct())


# inline data of finished jobs


class KeptJob(
    TypedRow,
    of=(jobs, accounts.c.artifact_keep_s, group_rows.GOES_HOME.label("goes_home")),
    joined=jobs.outerjoin(groups, groups.c.id == jobs.c.group_id).outerjoin(
        accounts, accounts.c.id == jobs.c.account_id
    ),
):
    """What decides whether a job still needs its inline data."""

    id: str
    account_id: str
    state: str
    created_at_ms: int
    finished_at_ms: int | None
    held_until_ms: int | None
    dropped_at_ms: int | None
    artifact_keep_s: int | None
    goes_home: bool | None


def jobs_after(connection: Connection, *, after: str, before: str, limit: int) -> list[KeptJob]:
    """Jobs in the order of their ids, and so of their time."""
    return KeptJob.fetch(connection, jobs.c.id > after, jobs.c.id < before, order=jobs.c.id, limit=limit)


def drop_inline(tx: Tx, job_ids: Sequence[str]) -> None:
    """Drop the arguments, results and output of those of the jobs that are finished, once. Their rows stay."""
    byte_length, connection = partial(dialect.byte_length, tx.connection), tx.connection
    size = (byte_length(jobs.c.payload) + byte_length(jobs.c.result)).label("size")
    over = jobs.c.state.in_(_TERMINAL) & jobs.c.dropped_at_ms.is_(None)
    matching = select(jobs.c.id, jobs.c.account_id, size).where(dialect.among(connection, jobs.c.id, job_ids), over)
    found = connection.execute(matching.order_by(jobs.c.id).with_for_update(key_share=True)).all()
    owners = {row.id: row.account_id for row in found}
    freed: Counter[str] = Counter()
    for row in found:
        freed[row.account_id] += row.size
    for table, text in ((log_chunks, log_chunks.c.text), (messages, messages.c.value)):
        theirs = dialect.among(connection, table.c.job_id, owners)
        sizes = select(table.c.job_id, func.sum(byte_length(text)).label("size")).where(theirs)
        for row in connection.execute(sizes.group_by(table.c.job_id)):
            freed[owners[row.job_id]] += int(row.size)
        connection.execute(delete(table).where(theirs))
    gone = {"payload": None, "result": None, "dropped_at_ms": tx.now_ms}
    connection.execute(update(jobs).where(dialect.among(connection, jobs.c.id, owners)).values(gone))
    for account_id, bytes_freed in freed.items():
        inline_rows.count(tx, account_id, -bytes_freed)
