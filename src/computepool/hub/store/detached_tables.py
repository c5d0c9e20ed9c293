"""The tables of detached compute: what collectors expect, and what is told to whom when it is there."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, Table, Text, text

from computepool.hub.store.money_tables import metadata
from computepool.hub.store.tables import FreeText

__all__ = ["checkpoints", "expected_jobs", "metadata"]

#: Keys that a group waits for. One that has a job waits for that one; the others are reported from outside.
expected_jobs = Table(
    "expected_jobs",
    metadata,
    Column("group_id", ForeignKey("groups.id"), primary_key=True),
    Column("key", FreeText, primary_key=True),
    Column("state", Text, nullable=False),  # pending, job (the job's state is what counts), succeeded, failed
    Column("meta", FreeText),  # JSON, as it was registered
    Column("result", FreeText),
    Column("error", FreeText),
    Column("duplicates", Integer, nullable=False, server_default="0"),
    Column("registered_at_ms", BigInteger, nullable=False),
    Column("reported_at_ms", BigInteger),
)
_PENDING = "state = 'pending'"
Index(
    "ix_expected_jobs_pending",
    expected_jobs.c.group_id,
    expected_jobs.c.key,
    sqlite_where=text(_PENDING),
    postgresql_where=text(_PENDING),
)
#: Word by word the index's condition, as SQLite wants it.
IS_PENDING = text(f"expected_jobs.{_PENDING}")

#: Where an unfinished job can go on from: the newest one only, of the run that is under way.
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("attempt_no", Integer, nullable=False),  # who made it
    Column("seq", Integer, nullable=False),  # the how-manieth of that attempt
    Column("at_ms", BigInteger, nullable=False),
    Column("attempt_ms", BigInteger, nullable=False),  # that attempt's own time up to here
    Column("covered_ms", BigInteger, nullable=False),  # and with that of the attempts before
    Column("spent", BigInteger, nullable=False),  # what all that time costs, should the job succeed
    Column("progress", Float),
    Column("size", BigInteger, nullable=False),
    Column("files", FreeText, nullable=False),  # JSON: name to digest and size
    Column("last", Boolean, nullable=False),  # made because the node stopped, or the job moves
    Column("failures", Integer, nullable=False),  # of attempts that went on from it
)
