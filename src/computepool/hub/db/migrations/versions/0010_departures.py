"""Nodes that said goodbye: stopped on purpose, or out of the pool."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", Column("departure", Text))
