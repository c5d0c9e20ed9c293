"""The tables of detached compute: what collectors expect, and what is told to whom when it is there."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, Table, Text, text

from computepool.hub.db.money_tables import metadata
from computepool.hub.db.tables import FreeText

__all__ = [
    "checkpoints",
    "child_groups",
    "child_jobs",
    "deliveries",
    "expected_jobs",
    "idempotency",
    "inline_storage",
    "messages",
    "metadata",
    "webhooks",
]

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

#: Jobs that a running job submitted. The *root* is the job a person submitted: number and budget are counted for all of its tree.
child_jobs = Table(
    "child_jobs",
    metadata,
    Column("job_id", Text, primary_key=True),  # written before the job itself, in the same transaction
    Column("parent_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("root_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("depth", Integer, nullable=False),  # 1: submitted by the root itself
    Column("detached", Boolean, nullable=False),  # it goes on if its parent does not succeed
)

#: Groups that running jobs made.
child_groups = Table(
    "child_groups",
    metadata,
    Column("group_id", ForeignKey("groups.id"), primary_key=True),
    Column("root_id", ForeignKey("jobs.id"), nullable=False, index=True),
)

#: What running jobs tell their group's collector, numbered in the order in which it came.
messages = Table(
    "messages",
    metadata,
    Column("group_id", ForeignKey("groups.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("attempt_no", Integer, nullable=False),
    Column("seq", Integer, nullable=False),  # of that attempt: the same one twice is one
    Column("at_ms", BigInteger, nullable=False),
    Column("value", FreeText, nullable=False),
)
Index("ux_messages_attempt", messages.c.job_id, messages.c.attempt_no, messages.c.seq, unique=True)

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
    # no call before; also: one is under way
    Column("next_call_ms", BigInteger, nullable=False, server_default="0"),
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

idempotency = Table(
    "idempotency",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("route", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", Text, nullable=False),
    Column("reply", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False, index=True),
)

#: How many bytes of specs, arguments, results and output each account keeps here (hub/artifacts/inline_rows.py).
inline_storage = Table(
    "inline_storage",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)
