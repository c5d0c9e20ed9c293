"""Conditions of jobs that come after others, and results that are arguments of other jobs."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, Text, text

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", Column("run_when", Text))
    op.add_column("dependencies", Column("is_argument", Boolean, nullable=False, server_default=text("false")))
