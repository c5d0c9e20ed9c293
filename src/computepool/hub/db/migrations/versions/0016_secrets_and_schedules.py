"""Tables of secrets and schedules."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, Text

revision = "0016"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "account_secrets",
        Column("account_id", Text, ForeignKey("accounts.id"), primary_key=True),
        Column("name", Text, primary_key=True),
        Column("value", Text, nullable=False),
        Column("kid", Text, ForeignKey("signing_keys.kid"), nullable=False),
        Column("size", Integer, nullable=False),
        Column("created_at_ms", BigInteger, nullable=False),
        Column("changed_at_ms", BigInteger, nullable=False),
    )
    op.create_index("ix_account_secrets_kid", "account_secrets", ["kid"])
