"""Rows that are written once and read back in order: events and logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select, update

from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import attempts, events, log_chunks
from computepool.hub.db.typed_rows import TypedRow


class EventRow(TypedRow, of=events):
    seq: int
    at_ms: int
    actor: str
    action: str
    account_id: str | None
    job_id: str | None
    attempt_id: str | None
    node_id: str | None
    group_id: str | None
    before: str | None
    after: str | None
    reason: str | None
    final: bool
    data: str | None


class TouchedEvent(TypedRow, of=events):
    seq: int
    action: str
    job_id: str | None
    group_id: str | None
    node_id: str | None


class LogRow(TypedRow, of=log_chunks):
    seq: int
    job_id: str
    attempt_id: str
    stream: str
    text: str


# events


def has_event(connection: Connection, *, job_id: str, attempt_id: str, action: str) -> bool:
    statement = select(events.c.seq).where(
        events.c.job_id == job_id, events.c.attempt_id == attempt_id, events.c.action == action
    )
    return connection.execute(statement.limit(1)).first() is not None


def list_events(connection: Connection, *, after: int, limit: int, **filters: str | None) -> list[EventRow]:
    statement = EventRow.select().where(events.c.seq > after).order_by(events.c.seq).limit(limit)
    for column, value in filters.items():
        if value is not None:
            statement = statement.where(events.c[column] == value)
    return EventRow.all(connection.execute(statement))


def first_of_node(connection: Connection, node_id: str, *, action: str) -> int | None:
    """When such a thing first happened to a node, or there."""
    statement = (
        select(events.c.at_ms)
        .where(events.c.node_id == node_id, events.c.action == action)
        .order_by(events.c.seq)
        .limit(1)
    )
    return connection.execute(statement).scalar()


def list_touched(connection: Connection, *, after: int, limit: int, whose: str | None) -> list[TouchedEvent]:
    """What the next events are about; `whose`: of this account alone."""
    statement = TouchedEvent.select().where(events.c.seq > after).order_by(events.c.seq).limit(limit)
    if whose is not None:
        statement = statement.where(events.c.account_id == whose)
    return TouchedEvent.all(connection.execute(statement))


def last_event(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(events.c.seq), 0))).scalar_one())


# logs


def insert_logs(tx: Tx, rows: Sequence[dict[str, str]]) -> None:
    tx.connection.execute(log_chunks.insert(), list(rows))


def grow_logs(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """What attempts have sent so far, also of what is not kept; the rows are locked."""
    _GROW.execute(tx.connection, rows)


_GROW = Prepared(
    update(attempts)
    .where(attempts.c.id == bindparam("attempt"))
    .values(log_bytes=bindparam("size"), log_next=bindparam("next"), stdout_chars=bindparam("chars"))
)


def list_logs(
    connection: Connection, *, job_id: str, after: int, limit: int, without: Sequence[str] = ()
) -> list[LogRow]:
    """`without`: attempts."""
    statement = (
        LogRow.select()
        .where(log_chunks.c.job_id == job_id, log_chunks.c.seq > after)
        .order_by(log_chunks.c.seq)
        .limit(limit)
    )
    if without:
        statement = statement.where(log_chunks.c.attempt_id.not_in(without))
    return LogRow.all(connection.execute(statement))


def stdout_of(connection: Connection, *, job_id: str, attempt_id: str) -> Iterator[str]:
    """What is kept of an attempt's standard output, piece by piece."""
    statement = (
        select(log_chunks.c.text)
        .where(
            log_chunks.c.job_id == job_id,
            log_chunks.c.attempt_id == attempt_id,
            log_chunks.c.stream == "stdout",
        )
        .order_by(log_chunks.c.seq)
    )
    yield from connection.execute(statement).scalars()
