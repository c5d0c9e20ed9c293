"""Rows of messages that running jobs send to their group's collector."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from computepool.hub.artifacts import inline_rows
from computepool.hub.db.group_tables import messages
from computepool.hub.db.queries import count
from computepool.hub.db.session import Tx
from computepool.hub.db.typed_rows import TypedRow


class MessageRow(TypedRow, of=messages):
    group_id: str
    number: int
    job_id: str
    attempt_no: int
    seq: int
    at_ms: int
    value: str


def find(connection: Connection, *, job_id: str, attempt_no: int, seq: int) -> MessageRow | None:
    same = messages.c.job_id == job_id, messages.c.attempt_no == attempt_no, messages.c.seq == seq
    return MessageRow.find(connection, *same)


def count_of(connection: Connection, *, job_id: str, attempt_no: int) -> int:
    return count(connection, messages.c.job_id == job_id, messages.c.attempt_no == attempt_no)


def last(connection: Connection, group_id: str) -> int:
    statement = select(func.coalesce(func.max(messages.c.number), 0)).where(messages.c.group_id == group_id)
    return int(connection.execute(statement).scalar_one())


def insert(tx: Tx, *, group_id: str, job_id: str, attempt_no: int, seq: int, value: str, account_id: str) -> int:
    """Returns its number. The caller has locked the group, so that messages become visible in the order of their numbers."""
    number = last(tx.connection, group_id) + 1
    row = {"group_id": group_id, "number": number, "job_id": job_id, "attempt_no": attempt_no, "seq": seq}
    tx.connection.execute(messages.insert().values(**row, value=value, at_ms=tx.now_ms))
    inline_rows.count(tx, account_id, inline_rows.size_of(value))
    return number


def page(connection: Connection, group_id: str, *, after: int, limit: int) -> list[MessageRow]:
    which = messages.c.group_id == group_id, messages.c.number > after
    return MessageRow.fetch(connection, *which, order=messages.c.number, limit=limit)


def newest(connection: Connection, group_id: str, *, limit: int) -> list[MessageRow]:
    """The newest messages, in order."""
    order = messages.c.number.desc()
    return MessageRow.fetch(connection, messages.c.group_id == group_id, order=order, limit=limit)[::-1]
