"""Inline storage: what accounts keep in the database itself, such as arguments, results, output and programs.

It is counted by what each transaction adds or removes, one row an account; `recount` computes the same from all rows.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from sqlalchemy import Connection, bindparam, func, select

from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.group_tables import inline_storage, messages
from computepool.hub.db.queries import differences
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import jobs, log_chunks, specs

_BYTES = select(inline_storage.c.bytes).where(inline_storage.c.account_id == bindparam("account"))
_ADD = Prepared(
    lambda connection: dialect.upsert(connection, inline_storage, key=["account_id"], update=[], add=["bytes"])
)


def size_of(text: str | None) -> int:
    """In bytes, as stored: a NUL, which PostgreSQL cannot hold, is replaced by a character of three bytes."""
    if not text:
        return 0
    return len(text) + 2 * text.count("\0") if text.isascii() else len(text.encode()) + 2 * text.count("\0")


def count(tx: Tx, account_id: str, delta: int) -> None:
    """Note that the account's inline storage changes by so many bytes; the end of the transaction writes it."""
    tx.inline_bytes[account_id] = tx.inline_bytes.get(account_id, 0) + delta


def uncommitted_bytes(tx: Tx, account_id: str) -> int:
    """By how much the transaction has changed the account's storage so far."""
    return tx.before.inline_bytes.get(account_id, 0) + tx.inline_bytes.get(account_id, 0)


def write(tx: Tx) -> None:
    """In sorted order, as wherever rows are locked."""
    rows = [{"account_id": name, "bytes": delta} for name, delta in sorted(tx.inline_bytes.items()) if delta]
    if rows:
        _ADD.execute(tx.connection, rows)


def stored_bytes(connection: Connection, account_id: str) -> int:
    """As of the last commit."""
    return int(connection.execute(_BYTES, {"account": account_id}).scalar() or 0)


def recount(connection: Connection) -> dict[str, int]:
    """By account, from the rows themselves."""
    found: Counter[str] = Counter()
    byte_length = partial(dialect.byte_length, connection)
    own = select(jobs.c.account_id, func.sum(byte_length(jobs.c.payload) + byte_length(jobs.c.result)))
    printed = select(jobs.c.account_id, func.sum(byte_length(log_chunks.c.text)))
    sent = select(jobs.c.account_id, func.sum(byte_length(messages.c.value)))
    programs = select(specs.c.account_id, func.sum(byte_length(specs.c.body)))
    for statement in (
        own.group_by(jobs.c.account_id),
        printed.join(jobs, jobs.c.id == log_chunks.c.job_id).group_by(jobs.c.account_id),
        sent.join(jobs, jobs.c.id == messages.c.job_id).group_by(jobs.c.account_id),
        programs.where(specs.c.account_id.is_not(None)).group_by(specs.c.account_id),
    ):
        for account_id, size in connection.execute(statement):
            found[account_id] += int(size)
    return found


def differing_accounts(connection: Connection) -> list[str]:
    """Accounts whose counted bytes differ from their rows."""
    counted = {row.account_id: row.bytes for row in connection.execute(select(inline_storage))}
    return differences(counted, recount(connection), default=0)
