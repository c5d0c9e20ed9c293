"""Rows of dependencies between jobs: which job comes after which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, exists, literal, or_, select, update

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
    is_argument: bool


_INSERT = Prepared(dependencies.insert())


def insert(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    _INSERT.execute(tx.connection, rows)


def dependents(connection: Connection, job_ids: Iterable[str]) -> list[Dependency]:
    return Dependency.all(_dependents.rows(connection, **dialect.ids(connection, job_ids)))


@Prepared
def _dependents(connection: Connection) -> Select[Any]:
    matching = dialect.among_ids(connection.dialect.name, dependencies.c.after_id)
    return Dependency.select().where(matching).order_by(dependencies.c.job_id)


def get(connection: Connection, job_id: str) -> list[Dependency]:
    """The jobs that this one comes after."""
    return Dependency.fetch(connection, dependencies.c.job_id == job_id, order=dependencies.c.after_id)


def around(connection: Connection, job_ids: Sequence[str], *, limit: int) -> list[Dependency]:
    """The edges that begin or end at these jobs, at most so many of each kind."""
    of = (dialect.among(connection, column, job_ids) for column in (dependencies.c.job_id, dependencies.c.after_id))
    order = dependencies.c.job_id, dependencies.c.after_id
    return [edge for matching in of for edge in Dependency.fetch(connection, matching, order=order, limit=limit)]


def between(connection: Connection, job_ids: Sequence[str], *, limit: int) -> list[Dependency]:
    """The edges from one of these jobs to another."""
    both = (dialect.among(connection, column, job_ids) for column in (dependencies.c.job_id, dependencies.c.after_id))
    return Dependency.fetch(connection, *both, order=(dependencies.c.job_id, dependencies.c.after_id), limit=limit)


def connected_in_group(connection: Connection, group_id: str, *, limit: int) -> list[str]:
    """The first jobs of a group that come before or after another job."""
    ends = (exists().where(column == jobs.c.id) for column in (dependencies.c.job_id, dependencies.c.after_id))
    statement = select(jobs.c.id).where(jobs.c.group_id == group_id, or_(*ends)).order_by(jobs.c.id)
    return scalars(connection, statement.limit(limit))


def argument_ids(connection: Connection, job_id: str) -> list[str]:
    """The jobs whose results are arguments of this one."""
    return [each.after_id for each in get(connection, job_id) if each.is_argument]


def count_down(tx: Tx, job_ids: Iterable[str], count: int) -> dict[str, int]:
    """So many jobs that each of these comes after have ended. The caller has locked them. Returns, for those that are queued
    and waited for so many, how many are still pending."""
    return _free(tx, job_ids, jobs.c.deps_pending - count, least=count)


def free(tx: Tx, job_ids: Iterable[str]) -> list[str]:
    """These jobs wait for no other any more. The caller has locked them. Returns those that did until now."""
    return list(_free(tx, job_ids, literal(0), least=1))


def _free(tx: Tx, job_ids: Iterable[str], pending: ColumnElement[int], *, least: int) -> dict[str, int]:
    statement = (
        update(jobs)
        .where(
            dialect.among(tx.connection, jobs.c.id, job_ids),
            jobs.c.state == JobState.QUEUED.value,
            jobs.c.deps_pending >= least,
        )
        .values(
            deps_pending=pending,
            queued_at_ms=tx.now_ms,
            reason=case((pending == 0, Reason.WAITING_FOR_NODE.value), else_=jobs.c.reason),
        )
        .returning(jobs.c.id, jobs.c.deps_pending)
    )
    return {row.id: row.deps_pending for row in tx.connection.execute(statement)}
