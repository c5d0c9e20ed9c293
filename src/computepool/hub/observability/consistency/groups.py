"""Groups that break a rule, found by reading a snapshot of the whole database (see invariants.py)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, and_, exists, func, or_, select

from computepool.hub.db.group_tables import expected_jobs
from computepool.hub.db.tables import IS_OPEN, groups, jobs, nodes
from computepool.hub.groups.rows import HAS_JOB, PENDING
from computepool.hub.observability.consistency.jobs import finder, ids

_open_job = exists().where(jobs.c.group_id == groups.c.id, IS_OPEN).correlate(groups)
_any_job = exists().where(jobs.c.group_id == groups.c.id).correlate(groups)
_pending_key = (
    exists().where(expected_jobs.c.group_id == groups.c.id, expected_jobs.c.state == PENDING).correlate(groups)
)
_job_of_key = (
    exists()
    .where(jobs.c.group_id == expected_jobs.c.group_id, jobs.c.key == expected_jobs.c.key)
    .correlate(expected_jobs)
)


@finder
def wrongly_complete() -> Select[Any]:
    """Complete while it waits for something; or watched, waiting for nothing, and not complete."""
    waits = or_(_open_job, _pending_key)
    early = and_(groups.c.completed_at_ms.is_not(None), waits)
    missed = and_(groups.c.watched, groups.c.completed_at_ms.is_(None), ~waits, or_(_any_job, groups.c.expected > 0))
    return select(groups.c.id).where(or_(early, missed))


@finder
def unwatched_jobs() -> Select[Any]:
    """Jobs whose end would not complete their watched group."""
    of_group = select(jobs.c.id).join(groups, groups.c.id == jobs.c.group_id)
    return of_group.where(IS_OPEN, groups.c.watched, ~jobs.c.watched)


def wrong_keys(connection: Connection) -> list[str]:
    """Groups whose keys are counted wrongly, or whose keys and jobs do not match."""
    counted = select(func.count()).where(expected_jobs.c.group_id == groups.c.id).correlate(groups).scalar_subquery()
    wrong = select(groups.c.id).where(groups.c.expected != counted)
    says = expected_jobs.c.state == HAS_JOB
    astray = select(expected_jobs.c.group_id).where(or_(and_(says, ~_job_of_key), and_(~says, _job_of_key)))
    return sorted({*ids(connection, wrong), *ids(connection, astray)})


@finder
def strange_homes() -> Select[Any]:
    """A home must be a node of the group's account, and only a complete group is delivered, if that was requested."""
    own = exists().where(nodes.c.id == groups.c.home, nodes.c.account_id == groups.c.account_id).correlate(groups)
    ready = and_(groups.c.return_home, groups.c.completed_at_ms.is_not(None))
    return select(groups.c.id).where(
        or_(and_(groups.c.home.is_not(None), ~own), and_(groups.c.home_state.is_not(None), ~ready))
    )
