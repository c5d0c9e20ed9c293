"""Dependencies between jobs: `after` at submission, and what becomes free when one succeeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Select, select, update

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import dependencies, jobs
from computepool.hub.db.typed_rows import TypedRow


class Dependency(TypedRow, of=dependencies):
    job_id: str
    after_id: str


def insert(tx: Tx, rows: Sequence[dict[str, str]]) -> None:
    if rows:
        tx.connection.execute(dependencies.insert(), list(rows))


def dependents(connection: Connection, job_ids: Iterable[str]) -> list[Dependency]:
    return Dependency.all(_DEPENDENTS.rows(connection, **dialect.ids(connection, job_ids)))


def _dependents(connection: Connection) -> Select[Any]:
    matching = dialect.among_ids(connection.dialect.name, dependencies.c.after_id)
    return Dependency.select().where(matching).order_by(dependencies.c.job_id)


_DEPENDENTS = Prepared(_dependents)


def get(connection: Connection, job_id: str) -> list[str]:
    return list(
        connection.execute(select(dependencies.c.after_id).where(dependencies.c.job_id == job_id)).scalars()
    )


def release(tx: Tx, job_id: str, count: int) -> int:
    """One of its `after` jobs succeeded. Returns how many are still pending."""
    statement = (
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state == JobState.QUEUED.value)
        .values(deps_pending=jobs.c.deps_pending - count, queued_at_ms=tx.now_ms)
        .returning(jobs.c.deps_pending)
    )
    pending = tx.connection.execute(statement).scalar()
    if pending == 0:
        tx.connection.execute(
            update(jobs).where(jobs.c.id == job_id).values(reason=Reason.WAITING_FOR_NODE.value)
        )
    return -1 if pending is None else pending
