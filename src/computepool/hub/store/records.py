"""What is written once and read back in order: events and logs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select, update

from computepool.hub.store.session import AnyRow, Tx
from computepool.hub.store.tables import attempts, events, log_chunks

# events


def list_events(connection: Connection, *, after: int, limit: int, **filters: str | None) -> Sequence[AnyRow]:
    statement = select(events).where(events.c.seq > after).order_by(events.c.seq).limit(limit)
    for column, value in filters.items():
        if value is not None:
            statement = statement.where(events.c[column] == value)
    return connection.execute(statement).all()


def first_of_node(connection: Connection, node_id: str, *, action: str) -> int | None:
    """When such a thing first happened to a node, or there."""
    statement = (
        select(events.c.at_ms)
        .where(events.c.node_id == node_id, events.c.action == action)
        .order_by(events.c.seq)
        .limit(1)
    )
    return connection.execute(statement).scalar()


def list_touched(connection: Connection, *, after: int, limit: int, whose: str | None) -> Sequence[AnyRow]:
    """What the next events are about; `whose`: of this account alone."""
    named = (events.c.seq, events.c.action, events.c.job_id, events.c.group_id, events.c.node_id)
    statement = select(*named).where(events.c.seq > after).order_by(events.c.seq).limit(limit)
    if whose is not None:
        statement = statement.where(events.c.account_id == whose)
    return connection.execute(statement).all()


def last_event(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(events.c.seq), 0))).scalar_one())


# logs


def insert_logs(tx: Tx, rows: Sequence[dict[str, str]]) -> None:
    tx.connection.execute(log_chunks.insert(), list(rows))


def grow_log(tx: Tx, attempt_id: str, *, node_id: str, size: int) -> AnyRow | None:
    """Count the bytes before they are kept. None when this node never had such an attempt."""
    statement = (
        update(attempts)
        .where(attempts.c.id == attempt_id, attempts.c.node_id == node_id)
        .values(log_bytes=attempts.c.log_bytes + size)
        .returning(attempts.c.job_id, attempts.c.log_bytes)
    )
    return tx.connection.execute(statement).first()


def list_logs(
    connection: Connection, *, job_id: str, after: int, limit: int, without: Sequence[str] = ()
) -> Sequence[AnyRow]:
    """`without`: attempts."""
    statement = (
        select(log_chunks)
        .where(log_chunks.c.job_id == job_id, log_chunks.c.seq > after)
        .order_by(log_chunks.c.seq)
        .limit(limit)
    )
    if without:
        statement = statement.where(log_chunks.c.attempt_id.not_in(without))
    return connection.execute(statement).all()


def stdout_of(connection: Connection, *, job_id: str, attempt_id: str, chars_max: int) -> str:
    """What is kept of an attempt's standard output; nothing where that is longer."""
    own = (
        log_chunks.c.job_id == job_id,
        log_chunks.c.attempt_id == attempt_id,
        log_chunks.c.stream == "stdout",
    )
    size = connection.execute(select(func.sum(func.length(log_chunks.c.text))).where(*own)).scalar_one()
    if size is None or size > chars_max:
        return ""
    texts = connection.execute(select(log_chunks.c.text).where(*own).order_by(log_chunks.c.seq))
    return "".join(texts.scalars())
