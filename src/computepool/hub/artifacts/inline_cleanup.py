"""Dropping what finished jobs keep in the database: arguments, results and output. Their rows stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection, delete, func, select, update

from computepool.core.jobs.lifecycle import TERMINAL
from computepool.hub.artifacts import inline_rows
from computepool.hub.db import dialect
from computepool.hub.db.group_tables import messages
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import accounts, groups, jobs, log_chunks
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.groups import rows as group_rows

_TERMINAL = sorted(state.value for state in TERMINAL)


class KeptJob(TypedRow, of=(jobs, accounts.c.artifact_keep_s, group_rows.GOES_HOME.label("goes_home"))):
    """What says whether a job still needs what it holds here."""

    id: str
    account_id: str
    state: str
    created_at_ms: int
    finished_at_ms: int | None
    held_until_ms: int | None
    dropped_at_ms: int | None
    artifact_keep_s: int | None
    goes_home: bool | None


def jobs_after(connection: Connection, *, after: str, before: str, limit: int) -> list[KeptJob]:
    """Jobs by id, which begins with their time."""
    statement = (
        KeptJob.select()
        .join(groups, groups.c.id == jobs.c.group_id, isouter=True)
        .join(accounts, accounts.c.id == jobs.c.account_id, isouter=True)
        .where(jobs.c.id > after, jobs.c.id < before)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return KeptJob.all(connection.execute(statement))


def drop(tx: Tx, job_ids: Sequence[str]) -> None:
    """Those of them that are finished, once."""
    octets, connection = partial(dialect.octets, tx.connection), tx.connection
    size = (octets(jobs.c.payload) + octets(jobs.c.result)).label("size")
    over = jobs.c.state.in_(_TERMINAL) & jobs.c.dropped_at_ms.is_(None)
    matching = select(jobs.c.id, jobs.c.account_id, size).where(
        dialect.among(connection, jobs.c.id, job_ids), over
    )
    found = connection.execute(
        dialect.for_update(connection.dialect.name, matching.order_by(jobs.c.id))
    ).all()
    owners = {row.id: row.account_id for row in found}
    freed: Counter[str] = Counter()
    for row in found:
        freed[row.account_id] += row.size
    printed = dialect.among(connection, log_chunks.c.job_id, owners)
    sizes = select(log_chunks.c.job_id, func.sum(octets(log_chunks.c.text)).label("size")).where(printed)
    for row in connection.execute(sizes.group_by(log_chunks.c.job_id)):
        freed[owners[row.job_id]] += int(row.size)
    connection.execute(delete(log_chunks).where(printed))
    sent = dialect.among(connection, messages.c.job_id, owners)
    sizes = select(messages.c.job_id, func.sum(octets(messages.c.value)).label("size")).where(sent)
    for row in connection.execute(sizes.group_by(messages.c.job_id)):
        freed[owners[row.job_id]] += int(row.size)
    connection.execute(delete(messages).where(sent))
    gone = {"payload": None, "result": None, "dropped_at_ms": tx.now_ms}
    connection.execute(update(jobs).where(dialect.among(connection, jobs.c.id, owners)).values(gone))
    for account_id, bytes_freed in freed.items():
        inline_rows.count(tx, account_id, -bytes_freed)
