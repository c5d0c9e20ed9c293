"""Queries of append-only rows: events and logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select, update

from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.queries import any_row, matches
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import attempts, events, log_chunks
from computepool.hub.db.typed_rows import TypedRow

_STREAM_ROWS = 2_000


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
    return any_row(connection, events.c.job_id == job_id, events.c.attempt_id == attempt_id, events.c.action == action)


def stream_fields(connection: Connection, names: Sequence[str], *, actions: Iterable[str]) -> Iterator[dict[str, Any]]:
    """These fields of all events of some kinds, in order. Reads the whole log once, in batches."""
    which = events.c.action.in_(sorted(actions))
    statement = select(*(events.c[name] for name in names)).where(which).order_by(events.c.seq)
    for row in connection.execute(statement, execution_options={"yield_per": _STREAM_ROWS}):
        yield row._asdict()


def first_of_node(connection: Connection, node_id: str, *, action: str) -> int | None:
    """The time of the first event of this kind about a node."""
    statement = (
        select(events.c.at_ms)
        .where(events.c.node_id == node_id, events.c.action == action)
        .order_by(events.c.seq)
        .limit(1)
    )
    return connection.execute(statement).scalar()


def list_touched(connection: Connection, *, after: int, limit: int, account_id: str | None) -> list[TouchedEvent]:
    """What the next events are about: those of one account, or all (None)."""
    which = events.c.seq > after, matches(events.c.account_id, account_id)
    return TouchedEvent.fetch(connection, *which, order=events.c.seq, limit=limit)


def last_event(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(events.c.seq), 0))).scalar_one())


# logs


def insert_logs(tx: Tx, rows: Sequence[dict[str, str]]) -> None:
    tx.connection.execute(log_chunks.insert(), list(rows))


def grow_logs(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Update how much output each attempt has sent, stored or not. The caller holds the attempts' locks."""
    _GROW.execute(tx.connection, rows)


_GROW = Prepared(
    update(attempts)
    .where(attempts.c.id == bindparam("attempt"))
    .values(log_bytes=bindparam("size"), log_next=bindparam("next"), stdout_chars=bindparam("chars"))
)


def list_logs(
    connection: Connection, *, job_id: str, after: int, limit: int, without: Sequence[str] = ()
) -> list[LogRow]:
    """`without` lists attempts to leave out."""
    which = [log_chunks.c.job_id == job_id, log_chunks.c.seq > after]
    if without:
        which.append(log_chunks.c.attempt_id.not_in(without))
    return LogRow.fetch(connection, *which, order=log_chunks.c.seq, limit=limit)


def stdout_of(connection: Connection, *, job_id: str, attempt_id: str) -> Iterator[str]:
    """The stored pieces of an attempt's standard output."""
    statement = (
        select(log_chunks.c.text)
        .where(log_chunks.c.job_id == job_id, log_chunks.c.attempt_id == attempt_id, log_chunks.c.stream == "stdout")
        .order_by(log_chunks.c.seq)
    )
    yield from connection.execute(statement).scalars()
