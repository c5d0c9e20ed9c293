"""How many answers the result of a job holds, whatever was sent again since."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Integer

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Empty for jobs of before, and for those that a hub of before still takes: what is known of them is `bundled`.
    op.add_column("jobs", Column("carried", Integer))
