"""Rows of gangs: jobs with the same `gang`, which is the id of the job of rank 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from computepool.core.jobs.lifecycle import JobState
from computepool.hub.db import dialect
from computepool.hub.db.queries import scalars, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_MEMBER, jobs, nodes
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.jobs.rows import IS_PLACEABLE


class GangJob(
    TypedRow, of=(jobs, nodes.c.name.label("node_name")), joined=jobs.outerjoin(nodes, nodes.c.id == jobs.c.node_id)
):
    id: str
    item: int
    state: str
    node_id: str | None
    node_name: str | None


def member_ids(connection: Connection, gangs: Sequence[str]) -> dict[str, list[str]]:
    """By gang, its jobs in the order of their ranks."""
    found: dict[str, list[str]] = {gang: [] for gang in gangs}
    statement = select(jobs.c.gang, jobs.c.id).where(IS_MEMBER, dialect.among(connection, jobs.c.gang, gangs))
    for gang, job_id in connection.execute(statement.order_by(jobs.c.item)):
        found[gang].append(job_id)
    return found


def members(connection: Connection, gang: str) -> list[GangJob]:
    return GangJob.fetch(connection, IS_MEMBER, jobs.c.gang == gang, order=jobs.c.item)


def whole(tx: Tx, gangs: Mapping[str, Sequence[str]]) -> set[str]:
    """The gangs all of whose members can be leased now. They are locked, so that no other hub leases one in between."""
    job_ids = [job_id for ids in gangs.values() for job_id in ids]
    matching = dialect.among(tx.connection, jobs.c.id, job_ids)
    statement = select(jobs.c.id).where(matching, *IS_PLACEABLE).order_by(jobs.c.id)
    free = set(scalars(tx.connection, statement.with_for_update(skip_locked=True, of=jobs)))
    return {gang for gang, ids in gangs.items() if free.issuperset(ids)}


class Wait(TypedRow, of=jobs):
    """Until when a queued job waits, and for which node it does not."""

    ready_at_ms: int
    avoid_node: str


def wait_of(connection: Connection, job_id: str) -> Wait:
    found = Wait.find(connection, jobs.c.id == job_id)
    assert found is not None
    return found


def set_wait(tx: Tx, job_id: str, wait: Wait, **counts: int) -> None:
    """For a queued member, the same as for the member that the others follow."""
    values = {**wait._asdict(), **counts}
    set_where(tx, jobs, jobs.c.id == job_id, jobs.c.state == JobState.QUEUED.value, **values)
