"""Results that wait, on their attempts' rows, to be compared with others before one of them becomes the job's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from computepool.core.jobs.lifecycle import AttemptState, JobState
from computepool.core.trust.verification import Mode
from computepool.hub.db import dialect
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_OPEN, attempts, jobs, varying_specs
from computepool.hub.jobs.attempt_rows import AttemptRow


def waiting(connection: Connection, job_id: str) -> list[AttemptRow]:
    """In the order of the attempts."""
    statement = (
        AttemptRow.select()
        .where(
            attempts.c.job_id == job_id,
            attempts.c.state == AttemptState.SUCCEEDED.value,
            attempts.c.outcome.is_not(None),
            attempts.c.charge.is_(None),
        )
        .order_by(attempts.c.number)
    )
    return AttemptRow.all(connection.execute(statement))


_CONCLUDE = (
    update(attempts)
    .where(attempts.c.id == bindparam("attempt"))
    .values(
        state=bindparam("new_state"),
        charge=bindparam("cost"),
        billed_ms=bindparam("billed"),
        result=None,
        outputs=None,
    )
)


def conclude(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """What each came to. Their values are not needed any more: the job has the one that counts."""
    if rows:
        tx.connection.execute(_CONCLUDE, list(rows))


def count(tx: Tx, job_id: str, *, results: int, avoid_owners: str) -> None:
    """One more result of a job that goes on."""
    values = {"results": results, "avoid_owners": avoid_owners}
    tx.connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def go_on(tx: Tx, job_id: str, **changes: Any) -> None:
    """A comparison is over, and there is no decision yet: it waits for another one, or for somebody to run it."""
    values = {"queued_at_ms": tx.now_ms, "ready_at_ms": tx.now_ms, **changes}
    tx.connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def unconfirmed(connection: Connection, *, before_ms: int, limit: int) -> list[str]:
    """Jobs with a result that nobody confirmed since then, and that need not be confirmed."""
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
    return list(connection.execute(statement).scalars())


def mark_varying(tx: Tx, *, account_id: str, spec_digest: str) -> None:
    row = {"account_id": account_id, "spec_digest": spec_digest}
    tx.connection.execute(dialect.insert_ignore(tx.connection, varying_specs), row)


def varying(connection: Connection) -> set[tuple[str, str]]:
    """Account and spec, whose results are never the same twice: running them again proves nothing."""
    rows = connection.execute(select(varying_specs.c.account_id, varying_specs.c.spec_digest))
    return {(row.account_id, row.spec_digest) for row in rows}
