"""Storage of accounts in the database itself: arguments and results of jobs, what they print, programs.

Counted by what each transaction adds or takes away, one row an account; `recount` finds the same by looking at everything.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.group_tables import inline_storage, messages
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import jobs, log_chunks, specs

_BYTES = select(inline_storage.c.bytes).where(inline_storage.c.account_id == bindparam("account"))


def _add(connection: Connection) -> Any:
    return dialect.upsert(connection, inline_storage, key=["account_id"], update=[], add=["bytes"])


_ADD = Prepared(_add)


def size_of(text: str | None) -> int:
    """In bytes, as it is stored: what PostgreSQL cannot hold is replaced by a sign of three."""
    if not text:
        return 0
    return len(text) + 2 * text.count("\0") if text.isascii() else len(text.encode()) + 2 * text.count("\0")


def count(tx: Tx, account_id: str, delta: int) -> None:
    """The account keeps so many bytes more, or less, in the database. Written when the transaction ends."""
    tx.inline[account_id] = tx.inline.get(account_id, 0) + delta


def counted(tx: Tx, account_id: str) -> int:
    """By how much this transaction has changed it so far."""
    return tx.before.inline.get(account_id, 0) + tx.inline.get(account_id, 0)


def write(tx: Tx) -> None:
    """In sorted order, as everywhere where rows are locked."""
    rows = [{"account_id": name, "bytes": delta} for name, delta in sorted(tx.inline.items()) if delta]
    if rows:
        _ADD.execute(tx.connection, rows)


def stored(connection: Connection, account_id: str) -> int:
    """As the last commit left it."""
    return int(connection.execute(_BYTES, {"account": account_id}).scalar() or 0)


def recount(connection: Connection) -> dict[str, int]:
    """By account, from the rows themselves."""
    found: Counter[str] = Counter()
    octets = partial(dialect.octets, connection)
    own = select(jobs.c.account_id, func.sum(octets(jobs.c.payload) + octets(jobs.c.result)))
    printed = select(jobs.c.account_id, func.sum(octets(log_chunks.c.text)))
    sent = select(jobs.c.account_id, func.sum(octets(messages.c.value)))
    programs = select(specs.c.account_id, func.sum(octets(specs.c.body)))
    for statement in (
        own.group_by(jobs.c.account_id),
        printed.join(jobs, jobs.c.id == log_chunks.c.job_id).group_by(jobs.c.account_id),
        sent.join(jobs, jobs.c.id == messages.c.job_id).group_by(jobs.c.account_id),
        programs.where(specs.c.account_id.is_not(None)).group_by(specs.c.account_id),
    ):
        for account_id, size in connection.execute(statement):
            found[account_id] += int(size)
    return {account_id: size for account_id, size in found.items() if size}


def differing(connection: Connection) -> list[str]:
    """Accounts of which something else is counted than is there."""
    counted = {row.account_id: row.bytes for row in connection.execute(select(inline_storage)) if row.bytes}
    there = recount(connection)
    return sorted(name for name in counted.keys() | there.keys() if counted.get(name) != there.get(name))
