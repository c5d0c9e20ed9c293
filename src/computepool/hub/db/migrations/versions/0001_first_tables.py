"""The first tables: a frozen copy of what tables.py said, because a migration never changes."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_QUEUED = "state = 'queued'"
_OPEN = "state IN ('queued', 'leased', 'running')"
_LIVE = "state IN ('leased', 'running')"
_FINAL = "final AND group_id IS NOT NULL"


def _where(condition: str) -> dict[str, Any]:
    """A partial index on both databases."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


_Serial = BigInteger().with_variant(Integer, "sqlite")

accounts = Table(
    "accounts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("roles", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger),
    Column("last_used_ms", BigInteger),
    Column("revoked_at_ms", BigInteger),
)

codes = Table(
    "codes",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("purpose", Text, nullable=False),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("used_at_ms", BigInteger),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

hubs = Table(
    "hubs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("address", Text, nullable=False),
    Column("seen_at_ms", BigInteger, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("public_key", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("enrolled_at_ms", BigInteger, nullable=False),
    Column("last_seen_ms", BigInteger),
    Column("boot_id", Text),
    Column("consecutive_faults", Integer, nullable=False, server_default="0"),
    Column("cool_off_until_ms", BigInteger, nullable=False, server_default="0"),
)

specs = Table(
    "specs",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

groups = Table(
    "groups",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("group_id", ForeignKey("groups.id")),
    Column("key", Text),
    Column("item", Integer, nullable=False),
    Column("item_count", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("spec_digest", ForeignKey("specs.digest"), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempt_no", Integer, nullable=False),
    Column("accepted_attempt", Integer),
    Column("node_id", Text),
    Column("avoid_node", Text, nullable=False, server_default=text("''")),
    Column("job_faults", Integer, nullable=False),
    Column("node_faults", Integer, nullable=False),
    Column("deps_pending", Integer, nullable=False),
    Column("ready_at_ms", BigInteger, nullable=False),
    Column("queued_at_ms", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("started_at_ms", BigInteger),
    Column("finished_at_ms", BigInteger),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("exit_code", Integer),
    Column("progress", Float),
    Column("error", Text),
    Column("result", Text),
    Column("result_artifact", Text),
    Column("payload", Text),
    Column("payload_artifact", Text),
    CheckConstraint("deps_pending >= 0", name="deps_pending"),
    UniqueConstraint("group_id", "key"),
)
Index("ix_jobs_account", jobs.c.account_id, jobs.c.id)
Index("ix_jobs_group", jobs.c.group_id, jobs.c.id)
Index("ix_jobs_open", jobs.c.state, jobs.c.queued_at_ms, jobs.c.id, **_where(_OPEN))
Index("ix_jobs_ttl", jobs.c.expires_at_ms, **_where(_QUEUED))

dependencies = Table(
    "dependencies",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("after_id", ForeignKey("jobs.id"), primary_key=True, index=True),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("node_id", ForeignKey("nodes.id"), nullable=False),
    Column("owner_id", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("gpus", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("lease_until_ms", BigInteger, nullable=False),
    Column("leased_at_ms", BigInteger, nullable=False),
    Column("started_at_ms", BigInteger),
    Column("finished_at_ms", BigInteger),
    Column("report_digest", Text),
    Column("exit_code", Integer),
    Column("error", Text),
    Column("usage", Text),
    Column("log_bytes", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint("job_id", "number"),
)
Index("ix_attempts_live", attempts.c.node_id, **_where(_LIVE))
Index("ix_attempts_lease", attempts.c.lease_until_ms, **_where(_LIVE))

artifacts = Table(
    "artifacts",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

artifact_refs = Table(
    "artifact_refs",
    metadata,
    Column("digest", ForeignKey("artifacts.digest"), primary_key=True),
    Column("account_id", Text, primary_key=True),
    Column("job_id", Text, primary_key=True),
    Column("role", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("created_at_ms", BigInteger, nullable=False),
)
Index("ix_artifact_refs_job", artifact_refs.c.job_id)
Index("ix_artifact_refs_account", artifact_refs.c.account_id, artifact_refs.c.created_at_ms)
Index("ix_artifact_refs_node", artifact_refs.c.created_at_ms, **_where("role = 'node'"))

log_chunks = Table(
    "log_chunks",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("job_id", Text, nullable=False),
    Column("attempt_id", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("text", Text, nullable=False),
)
Index("ix_log_chunks_job", log_chunks.c.job_id, log_chunks.c.seq)

events = Table(
    "events",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("account_id", Text),
    Column("job_id", Text),
    Column("attempt_id", Text),
    Column("node_id", Text),
    Column("group_id", Text),
    Column("before", Text),
    Column("after", Text),
    Column("reason", Text),
    Column("final", Boolean, nullable=False),
    Column("data", Text),
    sqlite_autoincrement=True,
)
Index("ix_events_job", events.c.job_id)
Index("ix_events_account", events.c.account_id, events.c.seq)
Index("ix_events_results", events.c.group_id, events.c.seq, **_where(_FINAL))
Index("ix_events_node", events.c.node_id, events.c.seq, **_where("node_id IS NOT NULL"))

idempotency = Table(
    "idempotency",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("route", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", Text, nullable=False),
    Column("reply", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False, index=True),
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)


def downgrade() -> None:
    metadata.drop_all(op.get_bind(), checkfirst=False)
