"""The tables of detached compute: what collectors expect, and what is told to whom when it is there."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, Table, Text, text

from computepool.hub.store.money_tables import metadata
from computepool.hub.store.tables import FreeText

__all__ = ["checkpoints", "deliveries", "expected_jobs", "metadata", "webhooks"]

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

#: Where an account wants to be told. The events are the outbox: each webhook has its own place in them.
webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("url", FreeText, nullable=False),
    Column("events", Text, nullable=False),  # with commas
    Column("cursor", BigInteger, nullable=False),  # the last event that was looked at
    Column("created_at_ms", BigInteger, nullable=False),
    Column("failing_since_ms", BigInteger),
    Column("failures", Integer, nullable=False, server_default="0"),  # since something arrived
    Column(
        "next_call_ms", BigInteger, nullable=False, server_default="0"
    ),  # no call before; also: one is under way
    Column("disabled_at_ms", BigInteger),
    Column("disabled_reason", FreeText),
)

#: What is told to a webhook, and how that went.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("webhook_id", Text, nullable=False),  # it may be gone
    Column("event", Text, nullable=False),
    Column("body", FreeText, nullable=False),
    Column("state", Text, nullable=False),  # pending, delivered, failed
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("next_try_ms", BigInteger, nullable=False),
    Column("status", Integer),
    Column("reason", FreeText),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("ended_at_ms", BigInteger),
)
Index("ix_deliveries_webhook", deliveries.c.webhook_id, deliveries.c.id)
Index("ix_deliveries_created", deliveries.c.created_at_ms)
Index(
    "ix_deliveries_due",
    deliveries.c.webhook_id,
    deliveries.c.next_try_ms,
    sqlite_where=text(_PENDING),
    postgresql_where=text(_PENDING),
)
IS_UNDELIVERED = text(f"deliveries.{_PENDING}")
