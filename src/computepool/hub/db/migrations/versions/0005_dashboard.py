"""What the dashboard shows: usage over time, and when nodes were online."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, PrimaryKeyConstraint, Text, text

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Every part adds its columns, tables and indexes here."""
    _usage()
    _uptime()
    _joining()
    _searching()


def _usage() -> None:
    op.create_table(
        "attempt_usage",
        Column("attempt_id", Text, nullable=False),
        Column("job_id", Text, nullable=False),
        Column("saved_at_ms", BigInteger, nullable=False),
        Column("body", Text, nullable=False),
        ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_attempt_usage_attempt_id"),
        PrimaryKeyConstraint("attempt_id", name="pk_attempt_usage"),
    )
    op.create_index("ix_attempt_usage_job_id", "attempt_usage", ["job_id"])
    op.create_index("ix_attempt_usage_saved_at_ms", "attempt_usage", ["saved_at_ms"])


def _uptime() -> None:
    # Empty for nodes of before: nobody wrote down when they were there. They are known from their next word on.
    op.add_column("nodes", Column("online_since_ms", BigInteger))
    op.add_column("nodes", Column("known_since_ms", BigInteger))
    op.create_table(
        "node_spans",
        Column("node_id", Text, nullable=False),
        Column("since_ms", BigInteger, nullable=False),
        Column("until_ms", BigInteger, nullable=False),
        ForeignKeyConstraint(["node_id"], ["nodes.id"], name="fk_node_spans_node_id"),
        PrimaryKeyConstraint("node_id", "since_ms", name="pk_node_spans"),
    )
    op.create_index("ix_node_spans_until_ms", "node_spans", ["until_ms"])


def _joining() -> None:
    op.add_column("nodes", Column("code", Text))


def _searching() -> None:
    _partial_index("ix_events_group", "events", ["group_id", "seq"], where="coalesce(group_id, '') <> ''")
    _partial_index("ix_events_deeds", "events", ["action", "seq"], where="coalesce(job_id, '') = ''")


def _partial_index(name: str, table: str, columns: list[str], *, where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=text(where), postgresql_where=text(where))
