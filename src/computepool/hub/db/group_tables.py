"""The tables of groups, checkpoints, messages, notifications, secrets, schedules and volumes."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, Table, Text, text

from computepool.hub.db.tables import FreeText, metadata, partial_index

#: Keys that a group waits for: for the job with that key, or, without one, for a report from outside.
expected_jobs = Table(
    "expected_jobs",
    metadata,
    Column("group_id", ForeignKey("groups.id"), primary_key=True),
    Column("key", FreeText, primary_key=True),
    Column("state", Text, nullable=False),  # pending, job (the job's own state counts), succeeded, failed
    Column("meta", FreeText),  # JSON, as registered
    Column("result", FreeText),
    Column("error", FreeText),
    Column("duplicates", Integer, nullable=False, server_default="0"),
    Column("registered_at_ms", BigInteger, nullable=False),
    Column("reported_at_ms", BigInteger),
)
_PENDING = "state = 'pending'"
Index("ix_expected_jobs_pending", expected_jobs.c.group_id, expected_jobs.c.key, **partial_index(_PENDING))
IS_PENDING = text(f"expected_jobs.{_PENDING}")

#: The newest checkpoint of each unfinished job.
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("attempt_no", Integer, nullable=False),  # the attempt that made it
    Column("seq", Integer, nullable=False),  # its number within that attempt
    Column("at_ms", BigInteger, nullable=False),
    Column("attempt_ms", BigInteger, nullable=False),  # that attempt's own time up to here
    Column("covered_ms", BigInteger, nullable=False),  # the same with the time of the attempts before
    Column("spent", BigInteger, nullable=False),  # the cost of that time if the job succeeds
    Column("progress", Float),
    Column("size", BigInteger, nullable=False),
    Column("files", FreeText, nullable=False),  # JSON: name to digest and size
    Column("last", Boolean, nullable=False),  # made because the node stops, or the job moves
    Column("failures", Integer, nullable=False),  # of attempts that resumed from it
)

#: Jobs submitted by running jobs. The *root* is the job that a person submitted; limits apply to its whole tree.
child_jobs = Table(
    "child_jobs",
    metadata,
    Column("job_id", Text, primary_key=True),  # written before the job itself, in the same transaction
    Column("parent_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("root_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("depth", Integer, nullable=False),  # 1: submitted by the root itself
    Column("detached", Boolean, nullable=False),  # it continues if its parent does not succeed
)

#: Groups created by running jobs.
child_groups = Table(
    "child_groups",
    metadata,
    Column("group_id", ForeignKey("groups.id"), primary_key=True),
    Column("root_id", ForeignKey("jobs.id"), nullable=False, index=True),
)

#: Messages of running jobs to their group's collector, numbered in the order of arrival.
messages = Table(
    "messages",
    metadata,
    Column("group_id", ForeignKey("groups.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("attempt_no", Integer, nullable=False),
    Column("seq", Integer, nullable=False),  # its number within that attempt; a repeated one is ignored
    Column("at_ms", BigInteger, nullable=False),
    Column("value", FreeText, nullable=False),
)
Index("ux_messages_attempt", messages.c.job_id, messages.c.attempt_no, messages.c.seq, unique=True)

#: Webhooks. The events are their outbox, and each webhook has its own position in it.
webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("url", FreeText, nullable=False),
    Column("events", Text, nullable=False),  # comma separated
    Column("cursor", BigInteger, nullable=False),  # the last event that was processed
    Column("created_at_ms", BigInteger, nullable=False),
    Column("failing_since_ms", BigInteger),
    Column("failures", Integer, nullable=False, server_default="0"),  # since the last success
    Column("next_call_ms", BigInteger, nullable=False, server_default="0"),  # no call before then
    Column("disabled_at_ms", BigInteger),
    Column("disabled_reason", FreeText),
)

#: Messages to webhooks and their outcome.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("webhook_id", Text, nullable=False),  # it may have been deleted
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
Index("ix_deliveries_due", deliveries.c.webhook_id, deliveries.c.next_try_ms, **partial_index(_PENDING))
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

#: Bytes of specs, arguments, results and output of each account in this database (hub/artifacts/inline_rows.py).
inline_storage = Table(
    "inline_storage",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

#: Secrets of accounts. The value is encrypted (hub/secrets/encryption.py).
account_secrets = Table(
    "account_secrets",
    metadata,
    Column("account_id", ForeignKey("accounts.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("kid", ForeignKey("signing_keys.kid"), nullable=False, index=True),  # the key that it is encrypted with
    Column("size", Integer, nullable=False),  # bytes of the value
    Column("created_at_ms", BigInteger, nullable=False),
    Column("changed_at_ms", BigInteger, nullable=False),
)

#: Schedules, which submit jobs at the times of a cron expression.
schedules = Table(
    "schedules",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("cron", Text, nullable=False),
    Column("tz", Text, nullable=False),
    Column("overlap", Text, nullable=False),  # skip, queue, replace
    Column("missed", Text, nullable=False),  # run-once, skip
    Column("request", FreeText, nullable=False),  # JSON of a SubmitRequest
    Column("state", Text, nullable=False),  # active, paused
    Column("reason", FreeText, nullable=False),  # why it is paused, or why the last submission failed
    Column("next_at_ms", BigInteger, index=True),  # the next tick; NULL while paused
    Column("failures", Integer, nullable=False),  # to submit, in a row
    Column("created_at_ms", BigInteger, nullable=False),
)
Index("ux_schedules_name", schedules.c.account_id, schedules.c.name, unique=True)

#: Ticks of schedules and what became of them: one row each, whichever hub was first.
schedule_runs = Table(
    "schedule_runs",
    metadata,
    Column("schedule_id", ForeignKey("schedules.id"), primary_key=True),
    Column("tick_ms", BigInteger, primary_key=True),
    Column("by_hand", Boolean, nullable=False),
    Column("state", Text, nullable=False),  # waiting, starting, submitted, skipped, missed, failed
    Column("touched_at_ms", BigInteger, nullable=False),  # when a hub last took it on
    Column("job_ids", Text, nullable=False),  # JSON
    Column("reason", FreeText, nullable=False),
)
_OPEN_RUN = "state IN ('waiting', 'starting')"
Index("ix_schedule_runs_open", schedule_runs.c.touched_at_ms, **partial_index(_OPEN_RUN))
IS_OPEN_RUN = text(f"schedule_runs.{_OPEN_RUN}")

#: Named folders that outlive jobs.
volumes = Table(
    "volumes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("head", BigInteger, nullable=False),  # the version that jobs get; 0: empty
    Column("last", BigInteger, nullable=False),  # the newest number
    Column("created_at_ms", BigInteger, nullable=False),
)
Index("ux_volumes_name", volumes.c.account_id, volumes.c.name, unique=True)

volume_versions = Table(
    "volume_versions",
    metadata,
    Column("volume_id", ForeignKey("volumes.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("parent", BigInteger, nullable=False),  # the version it started from
    Column("conflict_head", BigInteger),  # the head that was in its way; NULL: it became the head
    Column("manifest", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("packs", Text, nullable=False),  # digests, separated by spaces
    Column("size", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("attempt_id", Text),  # NULL: published by a person
)
Index("ux_volume_versions_attempt", volume_versions.c.volume_id, volume_versions.c.attempt_id, unique=True)

#: Which jobs mount a volume (attempt 0), and from which version each attempt started.
volume_uses = Table(
    "volume_uses",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("volume_id", ForeignKey("volumes.id"), primary_key=True),
    Column("attempt_no", Integer, primary_key=True),
    Column("parent", BigInteger, nullable=False),
)
Index("ix_volume_uses_volume", volume_uses.c.volume_id)
