"""Rows that break a rule of checkpoints: where a job resumes, and what is paid for work that another attempt used."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, or_, select

from computepool.core.jobs.lifecycle import TERMINAL, AttemptState
from computepool.hub.db.group_tables import checkpoints
from computepool.hub.db.tables import attempts, jobs
from computepool.hub.observability.consistency.jobs import finder, ids

_later = attempts.alias("later")
_TERMINAL = sorted(state.value for state in TERMINAL)


@finder
def lost_checkpoints() -> Select[Any]:
    """An unfinished job names the attempt that made its checkpoint, and a finished one has none."""
    joined = jobs.outerjoin(checkpoints, checkpoints.c.job_id == jobs.c.id)
    made = exists().where(attempts.c.job_id == jobs.c.id, attempts.c.number == checkpoints.c.attempt_no)
    differs = func.coalesce(checkpoints.c.attempt_no, 0) != func.coalesce(jobs.c.checkpoint_no, 0)
    nowhere = and_(checkpoints.c.job_id.is_not(None), ~made)
    late = and_(checkpoints.c.job_id.is_not(None), jobs.c.state.in_(_TERMINAL))
    return select(jobs.c.id).select_from(joined).where(or_(differs, nowhere, late))


def was_used() -> ColumnElement[bool]:
    """Whether an attempt that was paid for resumed from this one's checkpoint."""
    return exists().where(
        _later.c.job_id == attempts.c.job_id, _later.c.resumed_no == attempts.c.number, _later.c.charge.is_not(None)
    )


def paid_for_unused_work(connection: Connection) -> list[str]:
    """An attempt without a result is paid at most up to the checkpoint that a paid attempt resumed from, and all attempts
    of a run together at most up to the job's time limit."""
    used = exists().where(
        _later.c.job_id == attempts.c.job_id,
        _later.c.resumed_no == attempts.c.number,
        _later.c.number > attempts.c.number,
        _later.c.charge.is_not(None),
        attempts.c.billed_ms <= _later.c.resumed_ms,
    )
    unused = select(attempts.c.id).where(
        attempts.c.charge.is_not(None), attempts.c.state != AttemptState.SUCCEEDED.value, ~used
    )
    return sorted({*ids(connection, unused), *_over_the_limit(connection)})


def _over_the_limit(connection: Connection) -> list[str]:
    chained = exists().where(_later.c.job_id == jobs.c.id, _later.c.resumed_no.is_not(None))
    statement = (
        select(jobs.c.longest_ms, attempts.c.id, attempts.c.job_id, attempts.c.number)
        .add_columns(attempts.c.resumed_no, attempts.c.billed_ms)
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(chained, attempts.c.charge.is_not(None))
        .order_by(attempts.c.job_id, attempts.c.number)
    )
    found = []
    for _, rows in groupby(connection.execute(statement), key=lambda row: row.job_id):
        total: dict[int, int] = {}  # by attempt: the time of its run up to its end
        for row in rows:
            total[row.number] = (row.billed_ms or 0) + total.get(row.resumed_no, 0)
            if total[row.number] > row.longest_ms:
                found.append(str(row.id))
    return found
