"""Detached compute: collectors, homes, checkpoints, artifacts that are kept for a time, notices."""

from __future__ import annotations

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Every part adds its columns and tables here."""
