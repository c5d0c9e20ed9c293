"""A place for artifacts that were stored under their digest alone."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE artifacts SET place = substr(digest, 1, 2) || '/' || digest WHERE place = ''")
