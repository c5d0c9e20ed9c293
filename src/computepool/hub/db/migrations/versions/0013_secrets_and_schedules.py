"""Tables of secrets and schedules."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Integer, Text, text

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "account_secrets",
        Column("account_id", Text, ForeignKey("accounts.id"), primary_key=True),
        Column("name", Text, primary_key=True),
        Column("value", Text, nullable=False),
        Column("kid", Text, ForeignKey("signing_keys.kid"), nullable=False),
        Column("size", Integer, nullable=False),
        Column("created_at_ms", BigInteger, nullable=False),
        Column("changed_at_ms", BigInteger, nullable=False),
    )
    op.create_index("ix_account_secrets_kid", "account_secrets", ["kid"])
    op.create_table(
        "schedules",
        Column("id", Text, primary_key=True),
        Column("account_id", Text, ForeignKey("accounts.id"), nullable=False),
        *(Column(name, Text, nullable=False) for name in ("name", "cron", "tz", "overlap", "missed", "request")),
        Column("state", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("next_at_ms", BigInteger),
        Column("failures", Integer, nullable=False),
        Column("created_at_ms", BigInteger, nullable=False),
    )
    op.create_index("ix_schedules_next_at_ms", "schedules", ["next_at_ms"])
    op.create_index("ux_schedules_name", "schedules", ["account_id", "name"], unique=True)
    op.create_table(
        "schedule_runs",
        Column("schedule_id", Text, ForeignKey("schedules.id"), primary_key=True),
        Column("tick_ms", BigInteger, primary_key=True),
        Column("by_hand", Boolean, nullable=False),
        Column("state", Text, nullable=False),
        Column("touched_at_ms", BigInteger, nullable=False),
        Column("job_ids", Text, nullable=False),
        Column("reason", Text, nullable=False),
    )
    is_open = text("state IN ('waiting', 'starting')")
    op.create_index(
        "ix_schedule_runs_open", "schedule_runs", ["touched_at_ms"], sqlite_where=is_open, postgresql_where=is_open
    )
