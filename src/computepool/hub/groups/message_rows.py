"""Messages of running jobs to their group's collector."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from computepool.hub.artifacts import inline_rows
from computepool.hub.db.group_tables import messages
from computepool.hub.db.session import AnyRow, Tx


def find(connection: Connection, *, job_id: str, attempt_no: int, seq: int) -> AnyRow | None:
    statement = select(messages).where(
        messages.c.job_id == job_id, messages.c.attempt_no == attempt_no, messages.c.seq == seq
    )
    return connection.execute(statement).first()


def count_of(connection: Connection, *, job_id: str, attempt_no: int) -> int:
    statement = (
        select(func.count())
        .select_from(messages)
        .where(messages.c.job_id == job_id, messages.c.attempt_no == attempt_no)
    )
    return int(connection.execute(statement).scalar_one())


def last(connection: Connection, group_id: str) -> int:
    statement = select(func.coalesce(func.max(messages.c.number), 0)).where(messages.c.group_id == group_id)
    return int(connection.execute(statement).scalar_one())


def insert(
    tx: Tx, *, group_id: str, job_id: str, attempt_no: int, seq: int, value: str, account_id: str
) -> int:
    """Its number. The group is locked, so that numbers are given in the order in which they become visible."""
    number = last(tx.connection, group_id) + 1
    row = {"group_id": group_id, "number": number, "job_id": job_id, "attempt_no": attempt_no, "seq": seq}
    tx.connection.execute(messages.insert().values(**row, value=value, at_ms=tx.now_ms))
    tx.count_inline(account_id, inline_rows.size_of(value))
    return number


def page(connection: Connection, group_id: str, *, after: int, limit: int) -> Sequence[AnyRow]:
    statement = select(messages).where(messages.c.group_id == group_id, messages.c.number > after)
    return connection.execute(statement.order_by(messages.c.number).limit(limit)).all()


def newest(connection: Connection, group_id: str, *, limit: int) -> Sequence[AnyRow]:
    """The oldest of them first."""
    statement = select(messages).where(messages.c.group_id == group_id)
    return connection.execute(statement.order_by(messages.c.number.desc()).limit(limit)).all()[::-1]
