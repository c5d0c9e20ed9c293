"""Detached compute: collectors, homes, checkpoints, artifacts that are kept for a time, notices."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Integer, text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Every part adds its columns and tables here."""
    _joining()


def _joining() -> None:
    op.add_column("codes", Column("uses", Integer, nullable=False, server_default=text("0")))
    op.add_column("codes", Column("uses_max", Integer))
