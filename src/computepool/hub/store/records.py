"""What is written once and read back in order: events, groups and their results, logs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, func, select, update

from computepool.hub.store.session import AnyRow, Tx
from computepool.hub.store.tables import (
    IS_FINAL,
    attempts,
    events,
    groups,
    jobs,
    log_chunks,
)

# events


def list_events(connection: Connection, *, after: int, limit: int, **filters: str | None) -> Sequence[AnyRow]:
    statement = select(events).where(events.c.seq > after).order_by(events.c.seq).limit(limit)
    for column, value in filters.items():
        if value is not None:
            statement = statement.where(events.c[column] == value)
    return connection.execute(statement).all()


def last_event(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(events.c.seq), 0))).scalar_one())


def list_results(connection: Connection, *, group_id: str, after: int, limit: int) -> Sequence[AnyRow]:
    """Finished jobs of a group in the order in which they finished."""
    found = {"group": group_id, "after": after, "most": limit}
    return connection.execute(_RESULTS, found).all()


_RESULTS = (
    select(
        events.c.seq,
        jobs.c.id,
        jobs.c.key,
        jobs.c.item,
        jobs.c.state,
        jobs.c.reason,
        jobs.c.exit_code,
        jobs.c.error,
        jobs.c.result,
        jobs.c.result_artifact,
        jobs.c.units,
        jobs.c.started_at_ms,
        jobs.c.finished_at_ms,
    )
    .join(jobs, jobs.c.id == events.c.job_id)
    .where(IS_FINAL, events.c.group_id == bindparam("group"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("most"))
)


# groups


def insert_group(tx: Tx, *, group_id: str, account_id: str, name: str, kind: str) -> None:
    tx.connection.execute(
        groups.insert().values(
            id=group_id, account_id=account_id, name=name, kind=kind, created_at_ms=tx.now_ms
        )
    )


def get_group(connection: Connection, group_id: str) -> AnyRow | None:
    return connection.execute(_GROUP, {"group": group_id}).first()


_GROUP = select(groups).where(groups.c.id == bindparam("group"))


def list_groups(
    connection: Connection, *, account_id: str | None, kinds: Sequence[str], before: str | None, limit: int
) -> Sequence[AnyRow]:
    statement = select(groups).where(groups.c.kind.in_(kinds)).order_by(groups.c.id.desc()).limit(limit)
    if account_id is not None:
        statement = statement.where(groups.c.account_id == account_id)
    if before is not None:
        statement = statement.where(groups.c.id < before)
    return connection.execute(statement).all()


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
