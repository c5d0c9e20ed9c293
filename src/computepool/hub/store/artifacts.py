"""Rows of artifacts: which there are, and who refers to them. The bytes are in `blobs/`.

Who takes bytes away, or gives them their name, holds the artifact's row meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, delete, exists, select

from computepool.hub.store import dialect
from computepool.hub.store.session import AnyRow, Tx
from computepool.hub.store.tables import (
    IS_LIVE,
    IS_OF_NODE,
    IS_OPEN,
    artifact_refs,
    artifacts,
    attempts,
    jobs,
)


def insert_artifact(tx: Tx, *, digest: str, size: int) -> None:
    tx.connection.execute(
        dialect.insert_ignore(tx.connection, artifacts).values(
            digest=digest, size=size, created_at_ms=tx.now_ms
        )
    )


def refer(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Who may read an artifact and why it is kept. The same reference twice is one reference."""
    if rows:
        statement = dialect.insert_ignore(tx.connection, artifact_refs)
        tx.connection.execute(statement, [{"created_at_ms": tx.now_ms, **row} for row in rows])


def get_artifacts(connection: Connection, digests: Sequence[str]) -> dict[str, int]:
    wanted = dialect.among(connection, artifacts.c.digest, digests)
    rows = connection.execute(select(artifacts.c.digest, artifacts.c.size).where(wanted))
    return {row.digest: row.size for row in rows}


def may_read(connection: Connection, *, digest: str, account_id: str) -> bool:
    statement = select(
        exists().where(artifact_refs.c.digest == digest, artifact_refs.c.account_id == account_id)
    )
    return bool(connection.execute(statement).scalar())


def node_may_read(connection: Connection, *, digest: str, node_id: str) -> bool:
    """A node may read what the jobs it holds refer to."""
    statement = select(
        exists().where(
            artifact_refs.c.digest == digest,
            artifact_refs.c.job_id == attempts.c.job_id,
            attempts.c.node_id == node_id,
            IS_LIVE,
        )
    )
    return bool(connection.execute(statement).scalar())


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


def list_artifacts(
    connection: Connection,
    *,
    account_id: str | None,
    job_id: str | None,
    before: tuple[int, str] | None,
    limit: int,
) -> Sequence[AnyRow]:
    """Newest first. `before` is (created_at_ms, place) of the last row of the page before."""
    statement = (
        select(artifact_refs, artifacts.c.size, _place.label("place"))
        .join(artifacts, artifacts.c.digest == artifact_refs.c.digest)
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
    return connection.execute(statement).all()


def outputs_of(connection: Connection, job_ids: Sequence[str]) -> dict[str, list[AnyRow]]:
    found: dict[str, list[AnyRow]] = {}
    statement = _outputs_of(connection.dialect.name)
    for row in connection.execute(statement, dialect.ids(connection, job_ids)):
        found.setdefault(row.job_id, []).append(row)
    return found


@cache
def _outputs_of(name: str) -> Select[Any]:
    return (
        select(artifact_refs, artifacts.c.size)
        .join(artifacts, artifacts.c.digest == artifact_refs.c.digest)
        .where(dialect.among_ids(name, artifact_refs.c.job_id), artifact_refs.c.role == "output")
        .order_by(artifact_refs.c.name)
    )


def open_jobs_using(connection: Connection, *, digest: str, account_id: str) -> list[str]:
    """Unfinished jobs that still need an artifact; it must not vanish under them."""
    statement = (
        select(jobs.c.id)
        .join(artifact_refs, artifact_refs.c.job_id == jobs.c.id)
        .where(
            artifact_refs.c.digest == digest,
            artifact_refs.c.account_id == account_id,
            artifact_refs.c.role.in_(["input", "payload", "function"]),
            IS_OPEN,
        )
        .limit(1)
    )
    return list(connection.execute(statement).scalars())


def drop_refs(tx: Tx, *, digest: str, account_id: str) -> int:
    statement = delete(artifact_refs).where(
        artifact_refs.c.digest == digest, artifact_refs.c.account_id == account_id
    )
    return tx.connection.execute(statement).rowcount


def drop_node_refs(tx: Tx, *, before_ms: int, limit: int) -> list[str]:
    """References of nodes to their uploads, when they are old, some at a time; returns their digests."""
    old = (
        select(artifact_refs.c.digest)
        .where(IS_OF_NODE, artifact_refs.c.created_at_ms < before_ms)
        .limit(limit)
    )
    digests = sorted(set(tx.connection.execute(old).scalars()))
    statement = delete(artifact_refs).where(
        dialect.among(tx.connection, artifact_refs.c.digest, digests),
        IS_OF_NODE,
        artifact_refs.c.created_at_ms < before_ms,
    )
    tx.connection.execute(statement)
    return digests


def readable_of(connection: Connection, digests: Iterable[str], *, account_id: str) -> set[str]:
    """Those of the digests that the account, or the node, refers to."""
    wanted = dialect.among(connection, artifact_refs.c.digest, digests)
    statement = select(artifact_refs.c.digest).where(wanted, artifact_refs.c.account_id == account_id)
    return set(connection.execute(statement).scalars())


def hold_unknown(tx: Tx, digest: str) -> bool:
    """True when there is no such artifact; nobody else can make one before this transaction ends."""
    row = {"digest": digest, "size": 0, "created_at_ms": tx.now_ms}
    statement = dialect.insert_ignore(tx.connection, artifacts).values(**row).returning(artifacts.c.digest)
    inserted = tx.connection.execute(statement).scalar() is not None
    if inserted:
        tx.connection.execute(delete(artifacts).where(artifacts.c.digest == digest))
    return inserted


def drop_if_unused(tx: Tx, digest: str) -> bool:
    """True when nothing refers to it any more: the bytes may go after the commit."""
    statement = delete(artifacts).where(
        artifacts.c.digest == digest, ~exists().where(artifact_refs.c.digest == digest)
    )
    return tx.connection.execute(statement).rowcount == 1
