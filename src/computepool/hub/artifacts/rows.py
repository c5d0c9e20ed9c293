"""Rows of artifacts: which there are, and who refers to them. The bytes are in `blobs/`.

A row names the place of its bytes, which nothing else ever has: who deletes the row may erase them after the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, exists, func, select, update

from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.queries import by_key, there_is, values
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import (
    IS_LATE,
    IS_LIVE,
    IS_OPEN,
    accounts,
    artifact_refs,
    artifacts,
    attempts,
    groups,
    jobs,
)
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.groups import rows as group_rows

#: Orders references of one moment, each in its own place: a cursor must not lose those that share a digest.
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


class StoredArtifact(
    ArtifactRow, of=exists().where(artifact_refs.c.digest == artifacts.c.digest).label("referred")
):
    referred: bool  #: whether anything refers to it


class ReferenceRow(TypedRow, of=artifact_refs):
    digest: str
    account_id: str
    job_id: str
    role: str
    name: str
    created_at_ms: int
    kept_until_ms: int | None


class OutputRow(ReferenceRow, of=artifacts):
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
):
    """With what decides how long it is kept."""

    place: str
    job_state: str | None
    job_ended_ms: int | None
    artifact_keep_s: int | None
    goes_home: bool | None


def insert_artifact(tx: Tx, *, digest: str, size: int, place: str, lost: str | None = None) -> str:
    """The place that counts: of the bytes that came first. `lost`: the place where they are known to be gone."""
    # Written also where it is there: until the transaction ends no other hub deletes it.
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
    return ArtifactRow.first(connection.execute(ArtifactRow.select().where(artifacts.c.digest == digest)))


def get_places(connection: Connection, digests: Sequence[str]) -> dict[str, str]:
    return by_key(connection, artifacts.c.place, key=artifacts.c.digest, among=digests)


def list_stored(connection: Connection, *, after: str, limit: int) -> list[StoredArtifact]:
    """Artifacts in the order of their digests."""
    statement = (
        StoredArtifact.select().where(artifacts.c.digest > after).order_by(artifacts.c.digest).limit(limit)
    )
    return StoredArtifact.all(connection.execute(statement))


def refer(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Who may read an artifact and why it is kept. The same reference twice is one reference."""
    if rows:
        statement = dialect.insert_ignore(tx.connection, artifact_refs)
        tx.connection.execute(statement, [{"created_at_ms": tx.now_ms, **row} for row in rows])


def renew(tx: Tx, row: dict[str, Any]) -> None:
    """A reference that counts from now on, whether it is new or not."""
    statement = dialect.upsert(
        tx.connection, artifact_refs, key=_REF, update=("created_at_ms", "kept_until_ms")
    )
    tx.connection.execute(statement, {"created_at_ms": tx.now_ms, "kept_until_ms": None, **row})


_REF = ("digest", "account_id", "job_id", "role", "name")


def get_artifacts(connection: Connection, digests: Sequence[str]) -> dict[str, int]:
    return by_key(connection, artifacts.c.size, key=artifacts.c.digest, among=digests)


def may_read(connection: Connection, *, digest: str, account_id: str) -> bool:
    return there_is(connection, artifact_refs.c.digest == digest, artifact_refs.c.account_id == account_id)


def is_sent(connection: Connection, *, digest: str, account_id: str, since_ms: int) -> bool:
    """Whether a person sent it since then."""
    recent = artifact_refs.c.role == "upload", artifact_refs.c.created_at_ms >= since_ms
    return there_is(
        connection, artifact_refs.c.digest == digest, artifact_refs.c.account_id == account_id, *recent
    )


def node_may_read(connection: Connection, *, digest: str, node_id: str) -> bool:
    """A node may read what the jobs it holds refer to, and what belongs to a group that it is fetching home."""
    of_job = artifact_refs.c.digest == digest, artifact_refs.c.job_id == attempts.c.job_id
    if there_is(connection, *of_job, attempts.c.node_id == node_id, IS_LIVE):
        return True
    return group_rows.home_may_read(connection, digest=digest, node_id=node_id)


def list_artifacts(
    connection: Connection,
    *,
    account_id: str | None,
    job_id: str | None,
    before: tuple[int, str] | None,
    limit: int,
) -> list[ListedReference]:
    """Newest first. `before` is (created_at_ms, place) of the last row of the page before.

    Without what nodes hold while they bring it: the job that it becomes part of is listed instead.
    """
    statement = (
        ListedReference.select()
        .join(artifacts, artifacts.c.digest == artifact_refs.c.digest)
        .where(artifact_refs.c.role != "node")
        .order_by(artifact_refs.c.created_at_ms.desc(), _place.desc())
        .limit(limit)
    )
    if account_id is not None:
        statement = statement.where(artifact_refs.c.account_id == account_id)
    if job_id is not None:
        statement = statement.where(artifact_refs.c.job_id == job_id)
    if before is not None:
        at_ms, last = before
        older = artifact_refs.c.created_at_ms < at_ms
        statement = statement.where(older | ((artifact_refs.c.created_at_ms == at_ms) & (_place < last)))
    return ListedReference.all(connection.execute(statement))


def outputs_of(connection: Connection, job_ids: Sequence[str]) -> dict[str, list[OutputRow]]:
    found: dict[str, list[OutputRow]] = {}
    for row in OutputRow.all(_OUTPUTS.rows(connection, **dialect.ids(connection, job_ids))):
        found.setdefault(row.job_id, []).append(row)
    return found


def _outputs_of(connection: Connection) -> Select[Any]:
    return (
        OutputRow.select()
        .join(artifacts, artifacts.c.digest == artifact_refs.c.digest)
        .where(
            dialect.among_ids(connection.dialect.name, artifact_refs.c.job_id),
            artifact_refs.c.role == "output",
        )
        .order_by(artifact_refs.c.name)
    )


_OUTPUTS = Prepared(_outputs_of)


def open_jobs_using(connection: Connection, *, digest: str, account_id: str) -> list[str]:
    """Unfinished jobs that still need an artifact; it must not vanish under them."""
    statement = (
        select(jobs.c.id)
        .join(artifact_refs, artifact_refs.c.job_id == jobs.c.id)
        .where(
            artifact_refs.c.digest == digest,
            artifact_refs.c.account_id == account_id,
            artifact_refs.c.role.in_(["input", "payload", "function", "checkpoint"]),
            IS_OPEN,
        )
        .limit(1)
    )
    return values(connection, statement)


def drop_refs(tx: Tx, *, digest: str, account_id: str) -> int:
    statement = delete(artifact_refs).where(
        artifact_refs.c.digest == digest, artifact_refs.c.account_id == account_id
    )
    return tx.connection.execute(statement).rowcount


def release(tx: Tx, *, digest: str, account_id: str, role: str) -> bool:
    statement = delete(artifact_refs).where(
        artifact_refs.c.digest == digest,
        artifact_refs.c.account_id == account_id,
        artifact_refs.c.role == role,
    )
    return tx.connection.execute(statement).rowcount > 0


def readable_of(connection: Connection, digests: Iterable[str], *, account_id: str) -> set[str]:
    """Those of the digests that the account, or the node, refers to."""
    matching = dialect.among(connection, artifact_refs.c.digest, digests)
    statement = select(artifact_refs.c.digest).where(matching, artifact_refs.c.account_id == account_id)
    return set(connection.execute(statement).scalars())


def drop_unused(tx: Tx, digests: Iterable[str]) -> list[tuple[str, str]]:
    """Of these, those that nothing refers to any more, with their places: the bytes may go after the commit."""
    statement = (
        delete(artifacts)
        .where(
            dialect.among(tx.connection, artifacts.c.digest, sorted(set(digests))),
            ~exists().where(artifact_refs.c.digest == artifacts.c.digest),
        )
        .returning(artifacts.c.digest, artifacts.c.place)
    )
    return [(row.digest, row.place) for row in tx.connection.execute(statement)]


# how long


def refs_of(
    connection: Connection, digest: str, *, account_id: str | None, limit: int
) -> list[KeptReference]:
    """The newest first."""
    statement = _FACTS.where(artifact_refs.c.digest == digest).order_by(artifact_refs.c.created_at_ms.desc())
    if account_id is not None:
        statement = statement.where(artifact_refs.c.account_id == account_id)
    return KeptReference.all(connection.execute(statement.limit(limit)))


def refs_after(
    connection: Connection, *, after: tuple[int, str], before_ms: int, limit: int
) -> list[KeptReference]:
    """References by age, the oldest first: (created_at_ms, place) of the last one seen, up to a moment."""
    at_ms, last = after
    newer = artifact_refs.c.created_at_ms > at_ms
    later = (artifact_refs.c.created_at_ms == at_ms) & (_place > last)
    statement = (
        _FACTS.where(artifact_refs.c.created_at_ms >= at_ms, newer | later)
        .where(artifact_refs.c.created_at_ms < before_ms)
        .order_by(artifact_refs.c.created_at_ms, _place)
        .limit(limit)
    )
    return KeptReference.all(connection.execute(statement))


_FACTS = (
    KeptReference.select()
    .join(jobs, jobs.c.id == artifact_refs.c.job_id, isouter=True)
    .join(groups, groups.c.id == jobs.c.group_id, isouter=True)
    .join(accounts, accounts.c.id == artifact_refs.c.account_id, isouter=True)
)


def shortest_keep_s(connection: Connection) -> int | None:
    """Of the accounts with a time of their own."""
    found = connection.execute(select(func.min(accounts.c.artifact_keep_s))).scalar()
    return None if found is None else int(found)


def drop_listed(tx: Tx, rows: Sequence[KeptReference]) -> None:
    """These references, unless they were renewed since they were read."""
    if rows:
        seen = (*_REF, "created_at_ms")
        same = [artifact_refs.c[name] == bindparam(f"the_{name}") for name in seen]
        tx.connection.execute(
            delete(artifact_refs).where(*same),
            [{f"the_{name}": getattr(row, name) for name in seen} for row in rows],
        )


# how much


def kept_bytes(connection: Connection, account_id: str) -> tuple[int, int]:
    """Bytes and number of the artifacts that an account refers to; each counts once."""
    own = select(artifact_refs.c.digest).where(artifact_refs.c.account_id == account_id)
    statement = select(func.coalesce(func.sum(artifacts.c.size), 0), func.count()).where(
        artifacts.c.digest.in_(own)
    )
    size, count = connection.execute(statement).one()
    return int(size), int(count)


def unreported_bytes(connection: Connection, node_id: str) -> int:
    """What a node sent and nobody else refers to."""
    other = artifact_refs.alias()
    own = select(artifact_refs.c.digest).where(
        artifact_refs.c.account_id == node_id,
        ~exists().where(other.c.digest == artifact_refs.c.digest, other.c.account_id != node_id),
    )
    statement = select(func.coalesce(func.sum(artifacts.c.size), 0)).where(artifacts.c.digest.in_(own))
    return int(connection.execute(statement).scalar_one())


def accounts_at(connection: Connection, node_id: str) -> list[str]:
    """Whose jobs a node holds."""
    statement = (
        select(jobs.c.account_id)
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(attempts.c.node_id == node_id, IS_LIVE)
        .distinct()
    )
    return values(connection, statement)


def accounts_late_at(connection: Connection, node_id: str) -> list[str]:
    """Whose jobs it held until their leases ran out, and may still bring a result of."""
    statement = (
        select(jobs.c.account_id)
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(attempts.c.node_id == node_id, IS_LATE, attempts.c.report_digest.is_(None), IS_OPEN)
        .distinct()
    )
    return values(connection, statement)
