"""Where the migrations begin. What is older was never released, and a new database is made from the tables themselves."""

from __future__ import annotations

revision = "0010"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: a database that has tables has at least these."""
