"""Conventional names for columns, tables and events."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Text, text

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_COLUMNS = (
    ("jobs", "errand", "hub_job"),
    ("jobs", "behalf", "on_behalf_of"),
    ("reputations", "dues", "successes_for_others"),
    ("reputations", "strikes", "violation_count"),
    ("reputations", "struck_at_ms", "penalised_at_ms"),
)
_ACTIONS = (
    ("approval.asked", "approval.requested"),
    ("checkpoint.kept", "checkpoint.saved"),
    ("group.home_trouble", "group.delivery_problem"),
    ("group.stay", "group.return_home_cancelled"),
    ("node.struck", "node.penalised"),
)
#: In JSON texts. These can only be keys, because quotes within strings are escaped.
_KEYS = (
    ("hardware", "body", "cpu_pace", "cpu_speed"),
    ("hardware", "body", "gpu_pace", "gpu_speed"),
    ("jobs", "compare", "asked", "pair"),
)


def upgrade() -> None:
    op.drop_index("ix_jobs_errand", table_name="jobs")
    for table, before, after in _COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {before} TO {after}")
    is_hub_job = text("hub_job IS NOT NULL")
    op.create_index(
        "ix_jobs_hub_job", "jobs", ["hub_job"], unique=True, sqlite_where=is_hub_job, postgresql_where=is_hub_job
    )
    for before, after in _ACTIONS:
        op.execute(f"UPDATE events SET action = '{after}' WHERE action = '{before}'")
    for table, column, before, after in _KEYS:
        op.execute(
            f"""UPDATE {table} SET {column} = replace({column}, '"{before}":', '"{after}":')
            WHERE {column} LIKE '%"{before}":%'"""
        )
    _rename_requests()
    _rename_submitter_reputations()


def _rename_requests() -> None:
    """Also renames the constraint named after the column, for which SQLite needs a new table."""
    if op.get_bind().dialect.name == "postgresql":
        for name in ("by", "at_ms"):
            op.execute(f"ALTER TABLE approvals RENAME COLUMN asked_{name} TO requested_{name}")
        op.execute("ALTER TABLE approvals RENAME CONSTRAINT fk_approvals_asked_by TO fk_approvals_requested_by")
        return
    op.rename_table("approvals", "approvals_before")
    op.create_table(
        "approvals",
        Column("id", Text, primary_key=True),
        Column("kind", Text, nullable=False),
        Column("request", Text, nullable=False),
        Column("requested_by", Text, ForeignKey("accounts.id"), nullable=False),
        Column("requested_at_ms", BigInteger, nullable=False),
        Column("state", Text, nullable=False),
        Column("decided_by", Text),
        Column("decided_at_ms", BigInteger),
        Column("reason", Text),
    )
    op.execute(
        """INSERT INTO approvals SELECT id, kind, request, asked_by, asked_at_ms, state, decided_by, decided_at_ms, reason
        FROM approvals_before"""
    )
    op.drop_table("approvals_before")


def _rename_submitter_reputations() -> None:
    """Its rows are recomputed from the events after a migration."""
    op.drop_table("conducts")
    op.create_table(
        "submitter_reputations",
        Column("account_id", Text, primary_key=True),
        *(
            Column(name, BigInteger, nullable=False)
            for name in ("success", "failure", "changed_at_ms", "completed", "failed", "harmful", "cancelled")
        ),
    )
    op.create_index("ix_submitter_reputations_changed_at_ms", "submitter_reputations", ["changed_at_ms"])
