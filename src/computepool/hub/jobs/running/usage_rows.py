"""Rows of attempts' resource usage over time, one for each attempt, as compact JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, select

from computepool.hub.db import dialect
from computepool.hub.db.queries import by_key
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import attempt_usage, attempts


def of_job(connection: Connection, job_id: str) -> dict[str, str]:
    """By attempt."""
    statement = select(attempt_usage.c.attempt_id, attempt_usage.c.body).where(attempt_usage.c.job_id == job_id)
    return {row.attempt_id: row.body for row in connection.execute(statement)}


def of_attempts(connection: Connection, attempt_ids: Iterable[str]) -> dict[str, str]:
    return by_key(connection, attempt_usage.c.body, key=attempt_usage.c.attempt_id, among=attempt_ids)


def put(tx: Tx, rows: Sequence[tuple[str, str, str]]) -> None:
    """Each with attempt, job and body. Attempts that no longer exist are left out."""
    ids = [attempt_id for attempt_id, _, _ in rows]
    matching = dialect.among(tx.connection, attempts.c.id, ids)
    known = set(tx.connection.execute(select(attempts.c.id).where(matching)).scalars())
    values = [
        {"attempt_id": attempt_id, "job_id": job_id, "saved_at_ms": tx.now_ms, "body": body}
        for attempt_id, job_id, body in rows
        if attempt_id in known
    ]
    if values:
        update = ("saved_at_ms", "body")
        tx.connection.execute(dialect.upsert(tx.connection, attempt_usage, key=("attempt_id",), update=update), values)


def prune(tx: Tx, *, before_ms: int) -> None:
    tx.connection.execute(delete(attempt_usage).where(attempt_usage.c.saved_at_ms < before_ms))
