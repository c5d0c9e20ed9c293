"""Rows that say which running job submitted a job or group, in trees below the job that a person submitted (the root)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from computepool.hub.db import dialect
from computepool.hub.db.group_tables import child_groups, child_jobs
from computepool.hub.db.queries import by_key, count, scalars
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_OPEN, jobs
from computepool.hub.db.typed_rows import TypedRow


class ChildJob(TypedRow, of=child_jobs):
    job_id: str
    parent_id: str
    root_id: str
    depth: int
    detached: bool


def get(connection: Connection, job_id: str) -> ChildJob | None:
    """None if a person submitted it."""
    return ChildJob.first(connection.execute(ChildJob.select().where(child_jobs.c.job_id == job_id)))


def insert_jobs(tx: Tx, job_ids: Sequence[str], *, parent_id: str, root_id: str, depth: int, detached: bool) -> None:
    shared = {"parent_id": parent_id, "root_id": root_id, "depth": depth, "detached": detached}
    tx.connection.execute(child_jobs.insert(), [{"job_id": job_id, **shared} for job_id in job_ids])


def insert_group(tx: Tx, group_id: str, *, root_id: str) -> None:
    tx.connection.execute(child_groups.insert().values(group_id=group_id, root_id=root_id))


def tree_usage(connection: Connection, root_id: str) -> tuple[int, int]:
    """How many jobs a tree has without its root, and what they cost, or hold while they are unfinished."""
    cost = func.coalesce(func.sum(func.coalesce(jobs.c.charge, jobs.c.hold)), 0)
    statement = (
        select(func.count(), cost)
        .select_from(child_jobs.join(jobs, jobs.c.id == child_jobs.c.job_id))
        .where(child_jobs.c.root_id == root_id)
    )
    children, spent = connection.execute(statement).one()
    return int(children), int(spent)


def parents(connection: Connection, job_ids: Sequence[str]) -> dict[str, str]:
    """By job, the one that submitted it; jobs that a person submitted are left out."""
    return by_key(connection, child_jobs.c.parent_id, key=child_jobs.c.job_id, among=job_ids)


def count_groups(connection: Connection, root_id: str) -> int:
    return count(connection, child_groups.c.root_id == root_id)


def root_of_group(connection: Connection, group_id: str) -> str | None:
    statement = select(child_groups.c.root_id).where(child_groups.c.group_id == group_id)
    return connection.execute(statement).scalar_one_or_none()


def of_root(connection: Connection, root_id: str, job_ids: Sequence[str]) -> set[str]:
    """The given jobs that belong to this tree."""
    matching = dialect.among(connection, child_jobs.c.job_id, job_ids)
    statement = select(child_jobs.c.job_id).where(matching, child_jobs.c.root_id == root_id)
    return set(connection.execute(statement).scalars())


def attached_jobs(connection: Connection, parent_ids: Sequence[str]) -> list[str]:
    """Unfinished jobs that end when one of these ends without success."""
    matching = dialect.among(connection, child_jobs.c.parent_id, parent_ids)
    statement = (
        select(child_jobs.c.job_id)
        .select_from(child_jobs.join(jobs, jobs.c.id == child_jobs.c.job_id))
        .where(matching, ~child_jobs.c.detached, IS_OPEN)
        .order_by(child_jobs.c.job_id)
    )
    return scalars(connection, statement)


def direct(connection: Connection, job_id: str, *, limit: int) -> list[str]:
    statement = select(child_jobs.c.job_id).where(child_jobs.c.parent_id == job_id)
    return scalars(connection, statement.order_by(child_jobs.c.job_id).limit(limit))
