"""How long a job may wait in the queue, apart from when that ends: it waits anew after it ran."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", Column("ttl_ms", BigInteger))
