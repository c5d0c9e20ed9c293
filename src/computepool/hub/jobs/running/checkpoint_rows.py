"""Rows of checkpoints, and what attempts that resumed from one keep about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.group_tables import checkpoints
from computepool.hub.db.queries import new_values, scalars, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_QUEUED, artifact_refs, attempts, jobs
from computepool.hub.db.typed_rows import TypedRow

ROLE = "checkpoint"


class CheckpointRow(TypedRow, of=checkpoints):
    job_id: str
    attempt_no: int
    seq: int
    at_ms: int
    attempt_ms: int
    covered_ms: int
    spent: int
    progress: float | None
    size: int
    files: str
    last: bool
    failures: int


class ChainLink(TypedRow, of=attempts):
    """An attempt in a chain of attempts that resumed from each other's checkpoints."""

    id: str
    number: int
    node_id: str
    owner_id: str
    price: int
    price_version: int
    resumed_no: int | None
    resumed_ms: int | None


def get(connection: Connection, job_id: str) -> CheckpointRow | None:
    return CheckpointRow.first(connection.execute(CheckpointRow.select().where(checkpoints.c.job_id == job_id)))


def of_jobs(connection: Connection, job_ids: Sequence[str]) -> dict[str, CheckpointRow]:
    if not job_ids:
        return {}
    matching = dialect.among(connection, checkpoints.c.job_id, job_ids)
    rows = connection.execute(CheckpointRow.select().where(matching))
    return {row.job_id: row for row in CheckpointRow.all(rows)}


def keep(tx: Tx, job_id: str, row: Mapping[str, Any]) -> None:
    """Replaces the checkpoint before. The caller has locked the job."""
    tx.connection.execute(delete(checkpoints).where(checkpoints.c.job_id == job_id))
    tx.connection.execute(checkpoints.insert().values(job_id=job_id, at_ms=tx.now_ms, failures=0, **row))
    set_where(tx, jobs, jobs.c.id == job_id, checkpoint_no=row["attempt_no"])


def drop(tx: Tx, job_id: str) -> None:
    tx.connection.execute(delete(checkpoints).where(checkpoints.c.job_id == job_id))
    drop_refs(tx, job_id)
    # Without a checkpoint there is nothing that a host could resume from.
    set_where(tx, jobs, jobs.c.id == job_id, checkpoint_no=None, pinned="")


def pin(tx: Tx, job_id: str, node_id: str) -> None:
    """Only that node may resume from it."""
    set_where(tx, jobs, jobs.c.id == job_id, pinned=node_id)


def stranded_jobs(connection: Connection, *, before_ms: int, limit: int) -> list[str]:
    """Jobs that have waited since before then for the host that they named. Found by their checkpoints, because few jobs
    have one."""
    statement = (
        select(jobs.c.id)
        .select_from(checkpoints.join(jobs, jobs.c.id == checkpoints.c.job_id))
        .where(IS_QUEUED, jobs.c.pinned != "", jobs.c.queued_at_ms < before_ms)
        .limit(limit)
    )
    return scalars(connection, statement)


def drop_refs(tx: Tx, job_id: str) -> None:
    """Files to which nothing else refers are collected later."""
    tx.connection.execute(delete(artifact_refs).where(artifact_refs.c.job_id == job_id, artifact_refs.c.role == ROLE))


_DROP_UPLOAD = Prepared(
    delete(artifact_refs).where(
        artifact_refs.c.digest == bindparam("file"),
        artifact_refs.c.name == bindparam("called"),
        artifact_refs.c.account_id == bindparam("node"),
        artifact_refs.c.role == "node",
        artifact_refs.c.created_at_ms <= bindparam("until_ms"),
    )
)


def drop_uploads(tx: Tx, files: Mapping[str, str], *, node_id: str, until_ms: int) -> None:
    """Let go of what a node uploaded for a checkpoint that a newer one replaced: it would be kept for days.

    `files`: digests by name. The same bytes under another name, or uploaded later, belong to another job of that node.
    """
    same = {"node": node_id, "until_ms": until_ms}
    _DROP_UPLOAD.execute(tx.connection, [{"file": digest, "called": name, **same} for name, digest in files.items()])


def count_failure(tx: Tx, job_id: str) -> None:
    set_where(tx, checkpoints, checkpoints.c.job_id == job_id, failures=checkpoints.c.failures + 1)


_RESUME = Prepared(
    update(attempts)
    .where(attempts.c.id == bindparam("attempt"))
    .values(**new_values("resumed_no", "resumed_ms", "covered_ms", "spent"))
)


def resume(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Attempts that were just leased resume from a checkpoint."""
    _RESUME.execute(tx.connection, rows)


def note_time(tx: Tx, attempt_id: str, *, checkpoint_ms: int, lane_billed_ms: int) -> None:
    times = {"checkpoint_ms": checkpoint_ms, "lane_billed_ms": lane_billed_ms}
    set_where(tx, attempts, attempts.c.id == attempt_id, **times)


def links(connection: Connection, job_id: str) -> list[ChainLink]:
    """All attempts of a job."""
    return ChainLink.all(connection.execute(ChainLink.select().where(attempts.c.job_id == job_id)))


_PAY = Prepared(
    update(attempts).where(attempts.c.id == bindparam("attempt")).values(**new_values("billed_ms", "charge"))
)


def pay(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """What is paid for attempts from whose checkpoints an accepted run resumed."""
    _PAY.execute(tx.connection, rows)
