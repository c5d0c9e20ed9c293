"""Groups that break a rule, found by looking at the whole database at one moment (see invariants.py)."""

from __future__ import annotations

from sqlalchemy import Connection, and_, exists, func, or_, select

from computepool.hub.db.group_tables import expected_jobs
from computepool.hub.db.tables import IS_OPEN, groups, jobs, nodes
from computepool.hub.groups.rows import HAS_JOB, PENDING

_open_job = exists().where(jobs.c.group_id == groups.c.id, IS_OPEN).correlate(groups)
_any_job = exists().where(jobs.c.group_id == groups.c.id).correlate(groups)
_pending_key = (
    exists()
    .where(expected_jobs.c.group_id == groups.c.id, expected_jobs.c.state == PENDING)
    .correlate(groups)
)
_job_of_key = (
    exists()
    .where(jobs.c.group_id == expected_jobs.c.group_id, jobs.c.key == expected_jobs.c.key)
    .correlate(expected_jobs)
)


def wrongly_complete(connection: Connection) -> list[str]:
    """Complete while it waits for something, or, though somebody wants to know, not when it waits for nothing."""
    waits = or_(_open_job, _pending_key)
    early = and_(groups.c.completed_at_ms.is_not(None), waits)
    missed = and_(
        groups.c.watched, groups.c.completed_at_ms.is_(None), ~waits, or_(_any_job, groups.c.expected > 0)
    )
    statement = select(groups.c.id).where(or_(early, missed)).order_by(groups.c.id)
    return list(connection.execute(statement).scalars())


def unwatched_jobs(connection: Connection) -> list[str]:
    """Nobody would look at the group when they end."""
    statement = (
        select(jobs.c.id)
        .join(groups, groups.c.id == jobs.c.group_id)
        .where(IS_OPEN, groups.c.watched, ~jobs.c.watched)
        .order_by(jobs.c.id)
    )
    return list(connection.execute(statement).scalars())


def wrong_keys(connection: Connection) -> list[str]:
    """Counted wrongly, or said to have a job when there is none, or the other way round."""
    counted = (
        select(func.count())
        .where(expected_jobs.c.group_id == groups.c.id)
        .correlate(groups)
        .scalar_subquery()
    )
    wrong = select(groups.c.id).where(groups.c.expected != counted)
    says = expected_jobs.c.state == HAS_JOB
    astray = select(expected_jobs.c.group_id).where(or_(and_(says, ~_job_of_key), and_(~says, _job_of_key)))
    return sorted({str(found) for found in connection.execute(wrong.union(astray)).scalars()})


def strange_homes(connection: Connection) -> list[str]:
    """Results go to nobody else's node; and what is to come home is complete and wanted there."""
    own = (
        exists()
        .where(nodes.c.id == groups.c.home, nodes.c.account_id == groups.c.account_id)
        .correlate(groups)
    )
    ready = and_(groups.c.return_home, groups.c.completed_at_ms.is_not(None))
    statement = select(groups.c.id).where(
        or_(and_(groups.c.home.is_not(None), ~own), and_(groups.c.home_state.is_not(None), ~ready))
    )
    return sorted(connection.execute(statement).scalars())
