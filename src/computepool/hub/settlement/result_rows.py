"""Results that wait on their attempts' rows to be compared, until one of them becomes the job's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from computepool.core.jobs.lifecycle import AttemptState, JobState
from computepool.core.trust.verification import Mode
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.queries import new_values, scalars, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_OPEN, attempts, jobs, varying_specs
from computepool.hub.jobs.attempt_rows import AttemptRow


def waiting_attempts(connection: Connection, job_id: str) -> list[AttemptRow]:
    """In the order of the attempts."""
    return AttemptRow.fetch(
        connection,
        attempts.c.job_id == job_id,
        attempts.c.state == AttemptState.SUCCEEDED.value,
        attempts.c.outcome.is_not(None),
        attempts.c.charge.is_(None),
        order=attempts.c.number,
    )


_CONCLUDE = Prepared(
    update(attempts)
    .where(attempts.c.id == bindparam("attempt"))
    .values(**new_values("state", "charge", "billed_ms"), result=None, outputs=None)
)


def conclude(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """How each attempt ended. Their values are dropped, because the job has the one that counts."""
    _CONCLUDE.execute(tx.connection, rows)


def count(tx: Tx, job_id: str, *, results: int, avoid_owners: str) -> None:
    """A job that goes on has one more result."""
    set_where(tx, jobs, jobs.c.id == job_id, results=results, avoid_owners=avoid_owners)


def resume(tx: Tx, job_id: str, **changes: Any) -> None:
    """A comparison ended without a decision: the job waits for the next comparison, or for another run."""
    set_where(tx, jobs, jobs.c.id == job_id, **{"queued_at_ms": tx.now_ms, "ready_at_ms": tx.now_ms, **changes})


def unconfirmed_jobs(connection: Connection, *, before_ms: int, limit: int) -> list[str]:
    """Jobs with a result that nobody has confirmed since then, and that may be given out without a check."""
    statement = (
        select(jobs.c.id)
        .where(
            IS_OPEN,
            jobs.c.state == JobState.QUEUED.value,
            jobs.c.results > 0,
            jobs.c.verify == Mode.ADAPTIVE.value,
            jobs.c.comparing.is_(None),
            jobs.c.queued_at_ms <= before_ms,
        )
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return scalars(connection, statement)


def mark_varying(tx: Tx, *, account_id: str, spec_digest: str) -> None:
    row = {"account_id": account_id, "spec_digest": spec_digest}
    tx.connection.execute(dialect.insert_ignore(tx.connection, varying_specs), row)


def varying_programs(connection: Connection) -> set[tuple[str, str]]:
    """Programs (account and spec) whose results differ from run to run: running them again proves nothing."""
    rows = connection.execute(select(varying_specs.c.account_id, varying_specs.c.spec_digest))
    return {(row.account_id, row.spec_digest) for row in rows}
