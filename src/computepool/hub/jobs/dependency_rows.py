"""Dependencies between jobs: `after` at submission, and what becomes free when one succeeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, select, update

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.db import dialect
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
    statement = _dependents(connection.dialect.name)
    return Dependency.all(connection.execute(statement, dialect.ids(connection, job_ids)))


@cache
def _dependents(name: str) -> Select[Any]:
    wanted = dialect.among_ids(name, dependencies.c.after_id)
    return Dependency.select().where(wanted).order_by(dependencies.c.job_id)


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
