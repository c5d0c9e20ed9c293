"""Trust: reputation (filled from the events when the migrations are through, see schema.py), identity, verification."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKeyConstraint,
    Integer,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    text,
)

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reputations",
        Column("node_id", Text, nullable=False),
        Column("success", BigInteger, nullable=False),
        Column("failure", BigInteger, nullable=False),
        Column("changed_at_ms", BigInteger, nullable=False),
        Column("lost_at_ms", BigInteger, nullable=False),
        Column("successes", BigInteger, nullable=False),
        Column("failures", BigInteger, nullable=False),
        Column("dues", BigInteger, nullable=False),
        Column("tenure_days", Integer, nullable=False),
        Column("tenure_day", Integer, nullable=False),
        Column("verified", BigInteger, nullable=False),
        Column("verified_days", Integer, nullable=False),
        Column("verified_day", Integer, nullable=False),
        Column("streak", BigInteger, nullable=False),
        Column("strikes", BigInteger, nullable=False),
        Column("struck_at_ms", BigInteger, nullable=False),
        Column("struck_before_ms", BigInteger, nullable=False),
        Column("struck_by", BigInteger, nullable=False),
        Column("struck_other_ms", BigInteger, nullable=False),
        Column("banned_at_ms", BigInteger, nullable=False),
        PrimaryKeyConstraint("node_id", name="pk_reputations"),
    )
    op.create_table(
        "conducts",
        Column("account_id", Text, nullable=False),
        Column("success", BigInteger, nullable=False),
        Column("failure", BigInteger, nullable=False),
        Column("changed_at_ms", BigInteger, nullable=False),
        Column("completed", BigInteger, nullable=False),
        Column("failed", BigInteger, nullable=False),
        Column("harmful", BigInteger, nullable=False),
        Column("cancelled", BigInteger, nullable=False),
        PrimaryKeyConstraint("account_id", name="pk_conducts"),
    )
    op.create_index("ix_conducts_changed_at_ms", "conducts", ["changed_at_ms"])
    op.add_column("nodes", Column("rules", Text))
    _hardware()
    _identity()
    _verification()


def _hardware() -> None:
    op.create_table(
        "hardware",
        Column("node_id", Text, nullable=False),
        Column("body", Text, nullable=False),
        PrimaryKeyConstraint("node_id", name="pk_hardware"),
    )


def _identity() -> None:
    op.add_column("api_keys", Column("scopes", Text))
    op.add_column("nodes", Column("previous_key", Text))
    op.add_column("nodes", Column("previous_key_until_ms", BigInteger))
    op.create_table(
        "signing_keys",
        Column("kid", Text, nullable=False),
        Column("number", Integer, nullable=False),
        Column("public_key", Text, nullable=False),
        Column("private_key", Text),
        Column("created_at_ms", BigInteger, nullable=False),
        Column("starts_at_ms", BigInteger),
        Column("ends_at_ms", BigInteger),
        Column("endorsed_by", Text),
        Column("endorsement", Text),
        PrimaryKeyConstraint("kid", name="pk_signing_keys"),
        UniqueConstraint("number", name="uq_signing_keys_number"),
    )
    op.create_table(
        "approvals",
        Column("id", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("request", Text, nullable=False),
        Column("asked_by", Text, nullable=False),
        Column("asked_at_ms", BigInteger, nullable=False),
        Column("state", Text, nullable=False),
        Column("decided_by", Text),
        Column("decided_at_ms", BigInteger),
        Column("reason", Text),
        PrimaryKeyConstraint("id", name="pk_approvals"),
        ForeignKeyConstraint(["asked_by"], ["accounts.id"], name="fk_approvals_asked_by"),
    )


def _verification() -> None:
    empty = text("''")
    op.create_table(
        "varying_specs",
        Column("account_id", Text, nullable=False),
        Column("spec_digest", Text, nullable=False),
        PrimaryKeyConstraint("account_id", "spec_digest", name="pk_varying_specs"),
    )
    op.add_column("jobs", Column("verify", Text, nullable=False, server_default=text("'none'")))
    op.add_column("jobs", Column("compare", Text))
    op.add_column("jobs", Column("comparing", Text))
    op.add_column("jobs", Column("runs", Integer, nullable=False, server_default="1"))
    op.add_column("jobs", Column("results", Integer, nullable=False, server_default="0"))
    op.add_column("jobs", Column("avoid_owners", Text, nullable=False, server_default=empty))
    op.add_column("jobs", Column("verdict", Text))
    op.add_column("jobs", Column("errand", Text))
    op.add_column("jobs", Column("behalf", Text))
    op.add_column("jobs", Column("taken_back", BigInteger))
    given = text("errand IS NOT NULL")
    op.create_index(
        "ix_jobs_errand", "jobs", ["errand"], unique=True, sqlite_where=given, postgresql_where=given
    )
    op.add_column("attempts", Column("charge", BigInteger))
    op.add_column("attempts", Column("outcome", Text))
    op.add_column("attempts", Column("streak", Integer, nullable=False, server_default="0"))
    op.add_column("attempts", Column("result", Text))
    op.add_column("attempts", Column("result_artifact", Text))
    op.add_column("attempts", Column("outputs", Text))
    op.add_column("attempts", Column("printed", Text))
    said = text("outcome IS NOT NULL")
    op.create_index(
        "ix_attempts_results",
        "attempts",
        ["node_id", "finished_at_ms"],
        sqlite_where=said,
        postgresql_where=said,
    )
    # Until now one attempt of a job was paid for, the accepted one.
    op.execute(
        "UPDATE attempts SET charge = (SELECT jobs.charge FROM jobs WHERE jobs.id = attempts.job_id) WHERE EXISTS "
        "(SELECT 1 FROM jobs WHERE jobs.id = attempts.job_id AND jobs.accepted_attempt = attempts.number)"
    )
