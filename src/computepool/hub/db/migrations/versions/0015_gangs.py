"""Gangs: jobs that run together on several nodes."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text, text

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", Column("gang", Text))
    is_member = text("gang IS NOT NULL")
    op.create_index("ix_jobs_gang", "jobs", ["gang"], sqlite_where=is_member, postgresql_where=is_member)
