"""The tables. Times are milliseconds since the epoch; enumerations are stored by name, JSON as text."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.util import OrderedSet

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


@event.listens_for(Index, "after_parent_attach")
def _keep_order(_index: Index, table: Table) -> None:
    """Create indexes in the order declared here: SQLite chooses by it between two that fit a query equally well."""
    if not isinstance(table.indexes, OrderedSet):
        table.indexes = OrderedSet(table.indexes)


_QUEUED = "state = 'queued'"
_OPEN = "state IN ('queued', 'leased', 'running')"
_HELD_PAY = "held_until_ms > 0"
_LIVE = "state IN ('leased', 'running')"
_OF_NODE = "role = 'node'"
# Written so that only a query that repeats the condition matches: SQLite would otherwise choose the wrong index.
_IN_GROUP = "coalesce(group_id, '') <> ''"
_NO_JOB = "coalesce(job_id, '') = ''"
_FINAL = "final AND group_id IS NOT NULL"


def partial_index(condition: str) -> dict[str, Any]:
    """A partial index on both databases."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


class FreeText(TypeDecorator[str]):
    """Text written by people and jobs. PostgreSQL's text cannot hold NUL, and a job's error must always be stored."""

    impl = Text
    cache_ok = True
    python_type = str

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value.replace("\x00", "\ufffd") if value is not None and "\x00" in value else value


#: SQLite generates numbers only for INTEGER primary keys.
_Serial = BigInteger().with_variant(Integer, "sqlite")

accounts = Table(
    "accounts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", FreeText, nullable=False, unique=True),
    Column("roles", Text, nullable=False),  # comma separated
    Column("created_at_ms", BigInteger, nullable=False),
    Column("floor", BigInteger),  # default price floor of its nodes
    Column("jobs_open_max", Integer),  # quotas; NULL: the hub's setting
    Column("spend_per_day_max", BigInteger),
    Column("artifact_bytes_max", BigInteger),
    Column("artifact_keep_s", BigInteger),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("kind", Text, nullable=False),  # key, or cookie for a browser's session
    Column("name", FreeText, nullable=False),
    Column("hash", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger),
    Column("last_used_ms", BigInteger),
    Column("revoked_at_ms", BigInteger),
    Column("scopes", Text),  # comma separated; NULL: everything its account may do
)

#: Codes to enrol a node, to sign a person in, and to let several nodes join. Only hashes are stored.
codes = Table(
    "codes",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("purpose", Text, nullable=False),  # enrol, signin or join
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("used_at_ms", BigInteger),
    Column("uses", Integer, nullable=False, server_default=text("0")),  # of a join code
    Column("uses_max", Integer),  # NULL: a single use
)

#: The hub's own secrets, stored here so that several hubs share them and an operator sets only DATABASE_URL.
secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

#: The hub's signing keys. One signs, its successor is already published, and its predecessor is accepted for a while.
signing_keys = Table(
    "signing_keys",
    metadata,
    Column("kid", Text, primary_key=True),
    # the order in which they sign; unique, so that only one of two concurrent rotations succeeds
    Column("number", Integer, nullable=False, unique=True),
    Column("public_key", Text, nullable=False),
    Column("private_key", Text),  # NULL: retired
    Column("created_at_ms", BigInteger, nullable=False),
    Column("starts_at_ms", BigInteger),  # NULL: the successor
    Column("ends_at_ms", BigInteger),  # its signatures are accepted until then; NULL: it has no successor yet
    Column("endorsed_by", Text),  # the key before it, which signed it; NULL: the first key
    Column("endorsement", Text),
)

#: Requests of one administrator that another must approve.
approvals = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("request", Text, nullable=False),  # JSON: what to do when it is approved
    Column("requested_by", ForeignKey("accounts.id"), nullable=False),
    Column("requested_at_ms", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # pending, approved, rejected
    Column("decided_by", Text),
    Column("decided_at_ms", BigInteger),
    Column("reason", FreeText),
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
    Column("name", FreeText, nullable=False),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("public_key", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("enrolled_at_ms", BigInteger, nullable=False),
    Column("last_seen_ms", BigInteger),
    Column("online_since_ms", BigInteger),  # online from then until last_seen_ms; earlier periods: node_spans
    Column("known_since_ms", BigInteger),  # when recording of its uptime began
    Column("boot_id", Text),
    Column("consecutive_faults", Integer, nullable=False, server_default="0"),
    Column("cool_off_until_ms", BigInteger, nullable=False, server_default="0"),
    Column("floor", BigInteger),  # net microcredits per unit-hour of its own tier; NULL: its owner's default
    Column("rules", FreeText),  # JSON: what its owner lets others do there; NULL: everything
    Column("previous_key", Text),  # accepted until previous_key_until_ms
    Column("previous_key_until_ms", BigInteger),
    Column("code", Text),  # the id of the code that it was enrolled with
    Column("departure", Text),  # how it left (core/fleet/node_status.py); NULL: it is online, or went silent
)

#: Measurements of each node and the conclusions from them (core/trust/hardware.py), as JSON.
hardware = Table(
    "hardware", metadata, Column("node_id", Text, primary_key=True), Column("body", FreeText, nullable=False)
)

specs = Table(
    "specs",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("account_id", Text),  # sent it first; it counts towards its quota
)

#: Programs of an account whose results differ from run to run.
varying_specs = Table(
    "varying_specs",
    metadata,
    Column("account_id", Text, primary_key=True),
    Column("spec_digest", Text, primary_key=True),
)

groups = Table(
    "groups",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("name", FreeText, nullable=False),
    Column("kind", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    # the collector (hub/groups/collector.py)
    Column("watched", Boolean, nullable=False, server_default=text("false")),  # its completion is recorded
    Column("expected", Integer, nullable=False, server_default="0"),  # number of registered keys
    Column("duplicates", Integer, nullable=False, server_default="0"),  # reports after the first one of a key
    Column("completed_at_ms", BigInteger),  # NULL: not complete
    Column("rounds", Integer, nullable=False, server_default="0"),  # how often it became complete
    # where its results go (hub/nodes/group_homes.py)
    Column("home", Text),  # a node of the same account
    Column("return_home", Boolean, nullable=False, server_default=text("false")),
    Column("home_state", Text),  # waiting, arrived; NULL: not complete, or not requested
    Column("home_at_ms", BigInteger),  # when that state began, or the node last reported about it
    Column("home_reason", FreeText),  # why it has not arrived yet, as reported by the node
    Column("home_arrival", FreeText),  # JSON: what arrived
)
Index("ix_groups_home", groups.c.home, **partial_index("home_state = 'waiting'"))

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("group_id", ForeignKey("groups.id")),
    Column("key", FreeText),
    Column("item", Integer, nullable=False),
    Column("item_count", Integer, nullable=False),
    Column("name", FreeText, nullable=False),
    Column("kind", Text, nullable=False),
    Column("spec_digest", ForeignKey("specs.digest"), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempt_no", Integer, nullable=False),  # of the newest attempt; 0: none yet
    Column("accepted_attempt", Integer),
    Column("node_id", Text),  # the newest attempt's node
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
    Column("error", FreeText),
    Column("result", FreeText),
    Column("result_artifact", Text),
    Column("payload", Text),
    Column("payload_artifact", Text),
    Column("dropped_at_ms", BigInteger),  # when payload, result and output were deleted
    Column("ceiling", BigInteger, nullable=False, server_default="0"),  # microcredits per hour
    Column("hold", BigInteger, nullable=False, server_default="0"),  # set aside at submission
    Column("hold_earned", BigInteger, nullable=False, server_default="0"),  # the part of it that came from earnings
    Column("longest_ms", BigInteger, nullable=False, server_default="0"),  # its time limit
    Column("charge", BigInteger),  # its cost; NULL until it is finished
    # verification (core/trust/verification.py)
    Column("verify", Text, nullable=False, server_default=text("'none'")),
    # JSON: how results are compared; NULL: by digest (hub/settlement/verification/comparators.py)
    Column("compare", Text),
    Column("comparing", Text),  # the hub job whose answer it waits for; no node may run it until then
    Column("runs", Integer, nullable=False, server_default="1"),  # number of runs that the hold can pay for
    Column("results", Integer, nullable=False, server_default="0"),  # number reported and not yet accepted
    Column("avoid_owners", Text, nullable=False, server_default=text("''")),  # owners who have reported one
    Column("verdict", Text),  # why the result was accepted
    # hub jobs: jobs that the hub runs about another job (hub/settlement/hub_jobs.py)
    Column("hub_job", Text),  # <kind>:<job id>:<number>; NULL: a submitter's job
    Column("on_behalf_of", Text),  # the account whose job it is to nodes, where another one pays
    Column("taken_back", BigInteger),  # the part of the charge returned because the result was proven wrong
    # mobility (core/jobs/checkpoints.py)
    Column("checkpoint_no", Integer),  # the attempt that made its checkpoint; NULL: there is none
    Column("pinned", FreeText, nullable=False, server_default=text("''")),  # the host it moves to: name or id
    Column("moves", Integer, nullable=False, server_default="0"),
    Column("watched", Boolean, nullable=False, server_default=text("false")),  # copied from its group
    Column("bundled", Integer, nullable=False, server_default="1"),  # number of the group's items in this job
    Column("carried", Integer),  # number of answers in its result, one per item
    Column("items_failed", Integer, nullable=False, server_default="0"),  # of these, if the job succeeded
    # Set when a check of its result was due and nobody could do it. Its pay is held until then; 0: the pay has matured.
    # NULL: the pay matures with the owner's other earnings.
    Column("held_until_ms", BigInteger),
    Column("ttl_ms", BigInteger),  # NULL: it was never requeued, so its time to live is expires - created
    Column("run_when", Text),  # core/jobs/dependencies.py; NULL: after success
    CheckConstraint("deps_pending >= 0", name="deps_pending"),
    UniqueConstraint("group_id", "key"),
)
Index("ix_jobs_group", jobs.c.group_id, jobs.c.id)
Index("ix_jobs_ttl", jobs.c.expires_at_ms, **partial_index(_QUEUED))
Index("ix_jobs_open", jobs.c.state, jobs.c.queued_at_ms, jobs.c.id, **partial_index(_OPEN))
Index("ix_jobs_account", jobs.c.account_id, jobs.c.id)
Index("ix_jobs_watched", jobs.c.group_id, **partial_index(f"watched AND {_OPEN}"))
Index("ix_jobs_held", jobs.c.held_until_ms, **partial_index(_HELD_PAY))
Index("ix_jobs_hub_job", jobs.c.hub_job, unique=True, **partial_index("hub_job IS NOT NULL"))
#: SQLite uses a partial index only for a query that repeats its condition literally, not as a parameter.
IS_OPEN = text(f"jobs.{_OPEN}")
IS_QUEUED = text(f"jobs.{_QUEUED}")
IS_HELD = text(f"jobs.{_HELD_PAY}")
IS_WATCHED = text(f"jobs.watched AND jobs.{_OPEN}")
IS_COMING_HOME = text("groups.home_state = 'waiting'")

dependencies = Table(
    "dependencies",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("after_id", ForeignKey("jobs.id"), primary_key=True, index=True),
    Column("is_argument", Boolean, nullable=False, server_default=text("false")),  # its result is one of the arguments
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Text, primary_key=True),  # <job id>-<number>: the fencing token
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("node_id", ForeignKey("nodes.id"), nullable=False),
    Column("owner_id", Text, nullable=False),  # the account that owns the node
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
    Column("error", FreeText),
    Column("usage", FreeText),
    Column("log_bytes", BigInteger, nullable=False, server_default="0"),
    Column("log_next", BigInteger, nullable=False, server_default="0"),  # number of its next log chunk
    Column("stdout_chars", BigInteger, nullable=False, server_default="0"),  # number stored
    # the price it was leased at, which never changes: spot × units, by this version of the price table
    Column("price", BigInteger, nullable=False, server_default="0"),  # microcredits per hour, for the whole job
    Column("spot", BigInteger, nullable=False, server_default="0"),  # per unit-hour
    Column("units", Integer, nullable=False, server_default="0"),  # thousandths
    Column("zone_tier", Text, nullable=False, server_default=text("''")),
    Column("zone_region", Text, nullable=False, server_default=text("''")),
    Column("price_version", Integer, nullable=False, server_default="0"),
    Column("billed_ms", BigInteger),
    Column("charge", BigInteger),  # what was paid for it
    # its result, while it waits to be compared with others
    Column("outcome", Text),  # identifies the result
    Column("streak", Integer, nullable=False, server_default="0"),  # its node's, when it was reported
    Column("result", FreeText),
    Column("result_artifact", Text),
    Column("items_failed", Integer, nullable=False, server_default="0"),
    Column("outputs", FreeText),  # JSON: name to digest
    Column("printed", Text),  # digest
    Column("printed_chars", BigInteger),
    # A lane runs its attempts one after the other: when it was opened, and for how long it has been paid in total.
    Column("lane_since_ms", BigInteger, nullable=False, server_default="0"),
    Column("lane_billed_ms", BigInteger),
    Column("resumed_no", Integer),  # the attempt whose checkpoint it resumed from
    Column("resumed_ms", BigInteger),  # how far into that attempt the checkpoint was made
    Column("covered_ms", BigInteger),  # total time of the attempts that it continues
    Column("spent", BigInteger),  # total cost of these
    Column("checkpoint_ms", BigInteger),  # its own time up to its newest checkpoint
    Column(
        "narrow", Boolean, nullable=False, server_default=text("false")
    ),  # its submitter, not the pool, chose the node
    UniqueConstraint("job_id", "number"),
)
Index("ix_attempts_live", attempts.c.node_id, **partial_index(_LIVE))
Index("ix_attempts_lease", attempts.c.lease_until_ms, **partial_index(_LIVE))
Index("ix_attempts_lane", attempts.c.lane, attempts.c.lane_billed_ms, **partial_index("lane_billed_ms IS NOT NULL"))
Index("ix_attempts_results", attempts.c.node_id, attempts.c.finished_at_ms, **partial_index("outcome IS NOT NULL"))
Index("ix_attempts_late", attempts.c.node_id, **partial_index("state = 'expired'"))
IS_LIVE = text(f"attempts.{_LIVE}")
IS_LATE = text("attempts.state = 'expired'")
IS_BILLED = text("attempts.lane_billed_ms IS NOT NULL")

#: Resource use of attempts over time; only of those that ran long enough for two measurements.
attempt_usage = Table(
    "attempt_usage",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id"), primary_key=True),
    Column("job_id", Text, nullable=False, index=True),
    Column("saved_at_ms", BigInteger, nullable=False, index=True),
    Column("body", Text, nullable=False),  # JSON (hub/jobs/running/usage.py)
)

#: Past periods in which a node was online without a break. The current period is in `nodes`.
node_spans = Table(
    "node_spans",
    metadata,
    Column("node_id", ForeignKey("nodes.id"), primary_key=True),
    Column("since_ms", BigInteger, primary_key=True),
    Column("until_ms", BigInteger, nullable=False, index=True),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    # Where the bytes are in the blob store. A place is used only once, so whoever deletes the row may erase it.
    Column("place", Text, nullable=False, server_default=text("''")),
)

#: References to artifacts: who may read one, and what needs it. job_id is empty for a plain upload.
artifact_refs = Table(
    "artifact_refs",
    metadata,
    Column("digest", ForeignKey("artifacts.digest"), primary_key=True),
    Column("account_id", Text, primary_key=True),
    Column("job_id", Text, primary_key=True),
    # upload, node, pending, kept; for jobs: input, output, result, payload, function …
    Column("role", Text, primary_key=True),
    Column("name", FreeText, primary_key=True),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("kept_until_ms", BigInteger),  # for role kept; NULL: until it is released
)
Index("ix_artifact_refs_job", artifact_refs.c.job_id)
Index("ix_artifact_refs_node", artifact_refs.c.created_at_ms, **partial_index(_OF_NODE))
Index("ix_artifact_refs_account", artifact_refs.c.account_id, artifact_refs.c.created_at_ms)
Index("ix_artifact_refs_created", artifact_refs.c.created_at_ms)

log_chunks = Table(
    "log_chunks",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("job_id", Text, nullable=False),
    Column("attempt_id", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("text", FreeText, nullable=False),
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
    Column("final", Boolean, nullable=False),  # a job reached a final state
    Column("data", FreeText),
    sqlite_autoincrement=True,  # never reuses a number, even after the newest events were pruned
)
Index("ix_events_account", events.c.account_id, events.c.seq)
Index("ix_events_job", events.c.job_id)
Index("ix_events_results", events.c.group_id, events.c.seq, **partial_index(_FINAL))
Index("ix_events_node", events.c.node_id, events.c.seq, **partial_index("node_id IS NOT NULL"))
Index("ix_events_group", events.c.group_id, events.c.seq, **partial_index(_IN_GROUP))
#: For events by action. It leaves out events of jobs, which are nearly all of them and have other indexes.
Index("ix_events_deeds", events.c.action, events.c.seq, **partial_index(_NO_JOB))
IS_IN_GROUP = text(_IN_GROUP.replace("group_id", "events.group_id"))
HAS_NO_JOB = text(_NO_JOB.replace("job_id", "events.job_id"))
IS_FINAL = text("events.final AND events.group_id IS NOT NULL")
