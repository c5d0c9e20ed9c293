"""Reputation: what each node's outcomes came to. Filled from the events when the migrations are through (schema.py)."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, PrimaryKeyConstraint, Text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reputations",
        Column("node_id", Text, nullable=False),
        Column("success", BigInteger, nullable=False),
        Column("failure", BigInteger, nullable=False),
        Column("changed_at_ms", BigInteger, nullable=False),
        Column("lost_at_ms", BigInteger, nullable=False),
        Column("successes", BigInteger, nullable=False),
        Column("failures", BigInteger, nullable=False),
        Column("dues", BigInteger, nullable=False),
        Column("tenure_days", Integer, nullable=False),
        Column("tenure_day", Integer, nullable=False),
        Column("verified", BigInteger, nullable=False),
        Column("verified_days", Integer, nullable=False),
        Column("verified_day", Integer, nullable=False),
        Column("streak", BigInteger, nullable=False),
        Column("strikes", BigInteger, nullable=False),
        Column("struck_at_ms", BigInteger, nullable=False),
        Column("struck_before_ms", BigInteger, nullable=False),
        Column("banned_at_ms", BigInteger, nullable=False),
        PrimaryKeyConstraint("node_id", name="pk_reputations"),
    )
    op.create_table(
        "conducts",
        Column("account_id", Text, nullable=False),
        Column("success", BigInteger, nullable=False),
        Column("failure", BigInteger, nullable=False),
        Column("changed_at_ms", BigInteger, nullable=False),
        Column("completed", BigInteger, nullable=False),
        Column("failed", BigInteger, nullable=False),
        Column("harmful", BigInteger, nullable=False),
        Column("cancelled", BigInteger, nullable=False),
        PrimaryKeyConstraint("account_id", name="pk_conducts"),
    )
    op.create_index("ix_conducts_changed_at_ms", "conducts", ["changed_at_ms"])
