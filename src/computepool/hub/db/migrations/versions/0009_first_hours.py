"""Jobs that submit others, and what jobs tell their collector while they run."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Integer, Text

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _add_children()
    _add_messages()


def _add_children() -> None:
    op.create_table(
        "child_jobs",
        Column("job_id", Text, primary_key=True),
        Column("parent_id", Text, ForeignKey("jobs.id"), nullable=False),
        Column("root_id", Text, ForeignKey("jobs.id"), nullable=False),
        Column("depth", Integer, nullable=False),
        Column("detached", Boolean, nullable=False),
    )
    op.create_index("ix_child_jobs_parent_id", "child_jobs", ["parent_id"])
    op.create_index("ix_child_jobs_root_id", "child_jobs", ["root_id"])
    op.create_table(
        "child_groups",
        Column("group_id", Text, ForeignKey("groups.id"), primary_key=True),
        Column("root_id", Text, ForeignKey("jobs.id"), nullable=False),
    )
    op.create_index("ix_child_groups_root_id", "child_groups", ["root_id"])


def _add_messages() -> None:
    op.create_table(
        "messages",
        Column("group_id", Text, ForeignKey("groups.id"), primary_key=True),
        Column("number", Integer, primary_key=True),
        Column("job_id", Text, ForeignKey("jobs.id"), nullable=False),
        Column("attempt_no", Integer, nullable=False),
        Column("seq", Integer, nullable=False),
        Column("at_ms", BigInteger, nullable=False),
        Column("value", Text, nullable=False),
    )
    op.create_index("ux_messages_attempt", "messages", ["job_id", "attempt_no", "seq"], unique=True)
