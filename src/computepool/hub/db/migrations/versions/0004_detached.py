"""Detached compute: collectors, homes, checkpoints, artifacts that are kept for a time, notices."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKeyConstraint,
    Integer,
    PrimaryKeyConstraint,
    Text,
    text,
)

from computepool.hub.clock import SystemClock

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Every part adds its columns and tables here."""
    _joining()
    _collectors()
    _bundles()
    _files()
    _checkpoints()
    _notices()


def _joining() -> None:
    op.add_column("codes", Column("uses", Integer, nullable=False, server_default=text("0")))
    op.add_column("codes", Column("uses_max", Integer))


def _checkpoints() -> None:
    op.add_column("jobs", Column("checkpoint_no", Integer))
    op.add_column("jobs", Column("pinned", Text, nullable=False, server_default=text("''")))
    op.add_column("jobs", Column("moves", Integer, nullable=False, server_default="0"))
    op.add_column("attempts", Column("resumed_no", Integer))
    for name in ("resumed_ms", "covered_ms", "spent", "checkpoint_ms"):
        op.add_column("attempts", Column(name, BigInteger))
    op.create_table(
        "checkpoints",
        Column("job_id", Text, nullable=False),
        Column("attempt_no", Integer, nullable=False),
        Column("seq", Integer, nullable=False),
        Column("at_ms", BigInteger, nullable=False),
        Column("attempt_ms", BigInteger, nullable=False),
        Column("covered_ms", BigInteger, nullable=False),
        Column("spent", BigInteger, nullable=False),
        Column("progress", Float),
        Column("size", BigInteger, nullable=False),
        Column("files", Text, nullable=False),
        Column("last", Boolean, nullable=False),
        Column("failures", Integer, nullable=False),
        ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_checkpoints_job_id"),
        PrimaryKeyConstraint("job_id", name="pk_checkpoints"),
    )


def _files() -> None:
    op.add_column("artifacts", Column("place", Text, nullable=False, server_default=text("''")))
    op.add_column("artifact_refs", Column("kept_until_ms", BigInteger))
    # Nothing was ever taken away before: what is here gets its whole time from now on, whenever it came.
    now = text("UPDATE artifact_refs SET created_at_ms = :now").bindparams(now=SystemClock().now_ms())
    op.execute(now)
    op.create_index("ix_artifact_refs_created", "artifact_refs", ["created_at_ms"])
    _partial_index("ix_attempts_late", "attempts", ["node_id"], where="state = 'expired'")
    op.add_column("accounts", Column("artifact_bytes_max", BigInteger))
    op.add_column("accounts", Column("artifact_keep_s", BigInteger))


def _bundles() -> None:
    op.add_column("jobs", Column("bundled", Integer, nullable=False, server_default="1"))
    op.add_column("jobs", Column("items_failed", Integer, nullable=False, server_default="0"))
    op.add_column("attempts", Column("items_failed", Integer, nullable=False, server_default="0"))


def _collectors() -> None:
    no, zero = text("false"), "0"
    for column in (
        Column("watched", Boolean, nullable=False, server_default=no),
        Column("expected", Integer, nullable=False, server_default=zero),
        Column("duplicates", Integer, nullable=False, server_default=zero),
        Column("completed_at_ms", BigInteger),
        Column("rounds", Integer, nullable=False, server_default=zero),
        Column("home", Text),
        Column("return_home", Boolean, nullable=False, server_default=no),
        Column("home_state", Text),
        Column("home_at_ms", BigInteger),
        Column("home_reason", Text),
        Column("home_arrival", Text),
    ):
        op.add_column("groups", column)
    op.add_column("jobs", Column("watched", Boolean, nullable=False, server_default=no))
    op.create_table(
        "expected_jobs",
        Column("group_id", Text, nullable=False),
        Column("key", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("meta", Text),
        Column("result", Text),
        Column("error", Text),
        Column("duplicates", Integer, nullable=False, server_default=zero),
        Column("registered_at_ms", BigInteger, nullable=False),
        Column("reported_at_ms", BigInteger),
        ForeignKeyConstraint(["group_id"], ["groups.id"], name="fk_expected_jobs_group_id"),
        PrimaryKeyConstraint("group_id", "key", name="pk_expected_jobs"),
    )
    _partial_index("ix_groups_home", "groups", ["home"], where="home_state = 'waiting'")
    _partial_index(
        "ix_expected_jobs_pending", "expected_jobs", ["group_id", "key"], where="state = 'pending'"
    )
    open_ = "state IN ('queued', 'leased', 'running')"
    _partial_index("ix_jobs_watched", "jobs", ["group_id"], where=f"watched AND {open_}")


def _partial_index(name: str, table: str, columns: list[str], *, where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=text(where), postgresql_where=text(where))


def _notices() -> None:
    op.create_table(
        "webhooks",
        Column("id", Text, nullable=False),
        Column("account_id", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("events", Text, nullable=False),
        Column("cursor", BigInteger, nullable=False),
        Column("created_at_ms", BigInteger, nullable=False),
        Column("failing_since_ms", BigInteger),
        Column("failures", Integer, nullable=False, server_default="0"),
        Column("next_call_ms", BigInteger, nullable=False, server_default="0"),
        Column("disabled_at_ms", BigInteger),
        Column("disabled_reason", Text),
        ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_webhooks_account_id"),
        PrimaryKeyConstraint("id", name="pk_webhooks"),
    )
    op.create_index("ix_webhooks_account_id", "webhooks", ["account_id"])
    op.create_table(
        "deliveries",
        Column("id", Text, nullable=False),
        Column("webhook_id", Text, nullable=False),
        Column("event", Text, nullable=False),
        Column("body", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("tries", Integer, nullable=False, server_default="0"),
        Column("next_try_ms", BigInteger, nullable=False),
        Column("status", Integer),
        Column("reason", Text),
        Column("created_at_ms", BigInteger, nullable=False),
        Column("ended_at_ms", BigInteger),
        PrimaryKeyConstraint("id", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_webhook", "deliveries", ["webhook_id", "id"])
    op.create_index("ix_deliveries_created", "deliveries", ["created_at_ms"])
    due = ["webhook_id", "next_try_ms"]
    _partial_index("ix_deliveries_due", "deliveries", due, where="state = 'pending'")
