"""Rows of dependencies between jobs: which job comes after which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, case, select, update

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.queries import scalars
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import dependencies, jobs
from computepool.hub.db.typed_rows import TypedRow


class Dependency(TypedRow, of=dependencies):
    job_id: str
    after_id: str


_INSERT = Prepared(dependencies.insert())


def insert(tx: Tx, rows: Sequence[dict[str, str]]) -> None:
    _INSERT.execute(tx.connection, rows)


def dependents(connection: Connection, job_ids: Iterable[str]) -> list[Dependency]:
    return Dependency.all(_dependents.rows(connection, **dialect.ids(connection, job_ids)))


@Prepared
def _dependents(connection: Connection) -> Select[Any]:
    matching = dialect.among_ids(connection.dialect.name, dependencies.c.after_id)
    return Dependency.select().where(matching).order_by(dependencies.c.job_id)


def get(connection: Connection, job_id: str) -> list[str]:
    """The jobs that this one comes after."""
    return scalars(connection, select(dependencies.c.after_id).where(dependencies.c.job_id == job_id))


def release(tx: Tx, job_ids: Iterable[str], count: int) -> dict[str, int]:
    """So many jobs that each of these comes after have succeeded. The caller has locked them. Returns, for those that are
    queued, how many are still pending."""
    statement = (
        update(jobs)
        .where(dialect.among(tx.connection, jobs.c.id, job_ids), jobs.c.state == JobState.QUEUED.value)
        .values(
            deps_pending=jobs.c.deps_pending - count,
            queued_at_ms=tx.now_ms,
            reason=case((jobs.c.deps_pending == count, Reason.WAITING_FOR_NODE.value), else_=jobs.c.reason),
        )
        .returning(jobs.c.id, jobs.c.deps_pending)
    )
    return {row.id: row.deps_pending for row in tx.connection.execute(statement)}
