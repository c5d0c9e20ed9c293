"""Volumes, their versions, and the jobs that use them."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, Text

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "volumes",
        Column("id", Text, primary_key=True),
        Column("account_id", Text, ForeignKey("accounts.id"), nullable=False),
        Column("name", Text, nullable=False),
        *(Column(name, BigInteger, nullable=False) for name in ("head", "last", "created_at_ms")),
    )
    op.create_index("ux_volumes_name", "volumes", ["account_id", "name"], unique=True)
    op.create_table(
        "volume_versions",
        Column("volume_id", Text, ForeignKey("volumes.id"), primary_key=True),
        Column("number", BigInteger, primary_key=True),
        Column("parent", BigInteger, nullable=False),
        Column("conflict_head", BigInteger),
        *(Column(name, Text, nullable=False) for name in ("manifest", "content", "packs")),
        *(Column(name, BigInteger, nullable=False) for name in ("size", "files", "created_at_ms")),
        Column("attempt_id", Text),
    )
    op.create_index("ux_volume_versions_attempt", "volume_versions", ["volume_id", "attempt_id"], unique=True)
    op.create_table(
        "volume_uses",
        Column("job_id", Text, primary_key=True),
        Column("volume_id", Text, ForeignKey("volumes.id"), primary_key=True),
        Column("attempt_no", Integer, primary_key=True),
        Column("parent", BigInteger, nullable=False),
    )
    op.create_index("ix_volume_uses_volume", "volume_uses", ["volume_id"])
