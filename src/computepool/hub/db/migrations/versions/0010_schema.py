"""The beginning of the migrations. Older schemas were never released, and new databases are created from the tables."""

from __future__ import annotations

revision = "0010"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: an existing database has at least these tables."""
