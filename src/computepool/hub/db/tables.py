"""The tables. Times are milliseconds since the epoch; enumerations are their words; JSON is text."""

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
    """Indexes are made in the order in which they stand here: of two that would do, SQLite takes one by that order."""
    if not isinstance(table.indexes, OrderedSet):
        table.indexes = OrderedSet(table.indexes)


_QUEUED = "state = 'queued'"
_OPEN = "state IN ('queued', 'leased', 'running')"
_HELD_PAY = "held_until_ms > 0"
_LIVE = "state IN ('leased', 'running')"
_OF_NODE = "role = 'node'"
# Conditions that only a query which repeats them fulfils: SQLite would take these indexes, or others, by mistake.
_IN_GROUP = "coalesce(group_id, '') <> ''"
_NO_JOB = "coalesce(job_id, '') = ''"
_FINAL = "final AND group_id IS NOT NULL"


def _where(condition: str) -> dict[str, Any]:
    """A partial index on both databases."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


class FreeText(TypeDecorator[str]):
    """What people and jobs write. PostgreSQL's text cannot hold NUL, and a job's last words must not be refused."""

    impl = Text
    cache_ok = True
    python_type = str

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value.replace("\x00", "\ufffd") if value is not None and "\x00" in value else value


#: SQLite counts rows by itself only for INTEGER primary keys.
_Serial = BigInteger().with_variant(Integer, "sqlite")

accounts = Table(
    "accounts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", FreeText, nullable=False, unique=True),
    Column("roles", Text, nullable=False),  # comma separated
    Column("created_at_ms", BigInteger, nullable=False),
    Column("floor", BigInteger),  # what its nodes ask for at least, where they ask for nothing themselves
    Column("jobs_open_max", Integer),  # quotas; empty: the hub's own
    Column("spend_per_day_max", BigInteger),
    Column("artifact_bytes_max", BigInteger),
    Column("artifact_keep_s", BigInteger),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False, index=True),
    Column("kind", Text, nullable=False),  # key, or cookie: a browser's session
    Column("name", FreeText, nullable=False),
    Column("hash", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger),
    Column("last_used_ms", BigInteger),
    Column("revoked_at_ms", BigInteger),
    Column("scopes", Text),  # what it may be used for, with commas; empty: everything its account may do
)

#: Codes: enrolment of a node, sign-in of a person, and joining, which several nodes may do with one. Only hashes are kept.
codes = Table(
    "codes",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("purpose", Text, nullable=False),  # enrol, signin or join
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("used_at_ms", BigInteger),
    Column("uses", Integer, nullable=False, server_default=text("0")),  # of a code to join with
    Column("uses_max", Integer),  # none: it is good for one use
)

#: The hub's own secrets, here so that several hubs share them and DATABASE_URL is all an operator sets.
secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),  # pepper; key:<kid> before there was a table of signing keys
    Column("value", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
)

#: What the hub signs with. One signs, the next is published before it does, and the last goes on being accepted a while.
signing_keys = Table(
    "signing_keys",
    metadata,
    Column("kid", Text, primary_key=True),
    # in the order they sign; makes two rotations at once one
    Column("number", Integer, nullable=False, unique=True),
    Column("public_key", Text, nullable=False),
    Column("private_key", Text),  # empty: retired; nobody can sign with it any more
    Column("created_at_ms", BigInteger, nullable=False),
    Column("starts_at_ms", BigInteger),  # empty: the next one
    # until when its signatures are accepted; empty: it has no successor yet
    Column("ends_at_ms", BigInteger),
    Column("endorsed_by", Text),  # the key before it, which signed it; empty: the first
    Column("endorsement", Text),
)

#: What one administrator asked for and another must agree to.
approvals = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("request", Text, nullable=False),  # JSON; what happens when it is approved
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
    Column("online_since_ms", BigInteger),  # until last_seen_ms without a break; what was before: node_spans
    Column("known_since_ms", BigInteger),  # since when that is written down
    Column("boot_id", Text),
    Column("consecutive_faults", Integer, nullable=False, server_default="0"),
    Column("cool_off_until_ms", BigInteger, nullable=False, server_default="0"),
    Column("floor", BigInteger),  # net microcredits per unit-hour of its own tier; empty: the owner's
    Column("rules", FreeText),  # what its owner lets others do there, as JSON; empty: everything
    Column("previous_key", Text),  # replaced, but still accepted until
    Column("previous_key_until_ms", BigInteger),
    Column("code", Text),  # the id of the code that it was enrolled with
    # how it said goodbye (core/fleet/node_status.py); empty: it is there, or fell silent
    Column("departure", Text),
)

#: What was measured of each node and follows from it (see core/trust/hardware.py), as JSON.
hardware = Table(
    "hardware",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("body", FreeText, nullable=False),
)

specs = Table(
    "specs",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("account_id", Text),  # who sent it first, and is counted for it
)

#: Programs of an account whose results are never the same twice.
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
    # it is noted when it is complete
    Column("watched", Boolean, nullable=False, server_default=text("false")),
    Column("expected", Integer, nullable=False, server_default="0"),  # keys that were registered
    Column("duplicates", Integer, nullable=False, server_default="0"),  # reports that came after the first
    Column("completed_at_ms", BigInteger),  # empty: something is still to come
    Column("rounds", Integer, nullable=False, server_default="0"),  # how often it became complete
    # where its results go (hub/nodes/group_homes.py)
    Column("home", Text),  # a node of the same account
    Column("return_home", Boolean, nullable=False, server_default=text("false")),
    Column("home_state", Text),  # waiting, arrived; empty: not complete, or nobody asked
    Column("home_at_ms", BigInteger),  # since when, or the node's last word about it
    Column("home_reason", FreeText),  # why it has not arrived yet, by the node's word
    Column("home_arrival", FreeText),  # JSON: what arrived
)
Index("ix_groups_home", groups.c.home, **_where("home_state = 'waiting'"))

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
    Column("attempt_no", Integer, nullable=False),  # the newest attempt; 0: none yet
    Column("accepted_attempt", Integer),
    Column("node_id", Text),  # where the newest attempt is
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
    Column("dropped_at_ms", BigInteger),  # when payload, result and output ceased to be kept
    Column("ceiling", BigInteger, nullable=False, server_default="0"),  # microcredits per hour
    Column("hold", BigInteger, nullable=False, server_default="0"),  # set aside at submission
    Column("hold_earned", BigInteger, nullable=False, server_default="0"),  # of it, from earnings
    Column("longest_ms", BigInteger, nullable=False, server_default="0"),  # its time limit
    Column("charge", BigInteger),  # what it cost; known when it is finished
    # verification (core/trust/verification.py)
    Column("verify", Text, nullable=False, server_default=text("'none'")),
    # JSON, how results are compared; empty: by digest (hub/settlement/verification/comparators.py)
    Column("compare", Text),
    Column("comparing", Text),  # the hub job whose answer it waits for; until then nobody may run it
    Column("runs", Integer, nullable=False, server_default="1"),  # that the hold can pay for
    Column("results", Integer, nullable=False, server_default="0"),  # reported, and not yet believed
    Column("avoid_owners", Text, nullable=False, server_default=text("''")),  # who has reported one already
    Column("verdict", Text),  # why the accepted result is believed
    # hub jobs: jobs that the hub runs about another job (hub/settlement/hub_jobs.py)
    Column("hub_job", Text),  # <kind>:<job id>:<number>; empty: somebody's own job
    Column("on_behalf_of", Text),  # whose job it is to nodes, where somebody else pays for it
    Column("taken_back", BigInteger),  # of the charge, because the result was proven wrong afterwards
    # mobility (core/jobs/checkpoints.py)
    Column("checkpoint_no", Integer),  # the attempt that made its checkpoint; empty: there is none
    Column("pinned", FreeText, nullable=False, server_default=text("''")),  # the host it moves to: name or id
    Column("moves", Integer, nullable=False, server_default="0"),
    Column("watched", Boolean, nullable=False, server_default=text("false")),  # its group is: see there
    Column("bundled", Integer, nullable=False, server_default="1"),  # items of its group that count here
    Column("carried", Integer),  # answers in its result, of each item one; empty: by a hub that kept no count
    Column("items_failed", Integer, nullable=False, server_default="0"),  # of them, where it succeeded
    # Its result was due for a check that nobody could do: until when its pay is held; 0: it has matured since. Empty: it
    # matures with the owner's other earnings.
    Column("held_until_ms", BigInteger),
    Column("ttl_ms", BigInteger),  # empty: as long as from created to expires; it has not waited anew yet
    CheckConstraint("deps_pending >= 0", name="deps_pending"),
    UniqueConstraint("group_id", "key"),
)
Index("ix_jobs_group", jobs.c.group_id, jobs.c.id)
Index("ix_jobs_ttl", jobs.c.expires_at_ms, **_where(_QUEUED))
Index("ix_jobs_open", jobs.c.state, jobs.c.queued_at_ms, jobs.c.id, **_where(_OPEN))
Index("ix_jobs_account", jobs.c.account_id, jobs.c.id)
Index("ix_jobs_watched", jobs.c.group_id, **_where(f"watched AND {_OPEN}"))
Index("ix_jobs_held", jobs.c.held_until_ms, **_where(_HELD_PAY))
Index("ix_jobs_hub_job", jobs.c.hub_job, unique=True, **_where("hub_job IS NOT NULL"))
#: SQLite uses a partial index only for a query that repeats its condition word by word, not as a parameter.
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
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Text, primary_key=True),  # <job id>-<number>: the fencing token
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("node_id", ForeignKey("nodes.id"), nullable=False),
    Column("owner_id", Text, nullable=False),  # account that owns the node
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
    Column("log_next", BigInteger, nullable=False, server_default="0"),  # number of the next piece of its log
    Column("stdout_chars", BigInteger, nullable=False, server_default="0"),  # that are kept
    # the price it was leased at, which never changes: spot × units, by this version of the price table
    Column("price", BigInteger, nullable=False, server_default="0"),  # microcredits per hour, whole job
    Column("spot", BigInteger, nullable=False, server_default="0"),  # per unit-hour
    Column("units", Integer, nullable=False, server_default="0"),  # thousandths
    Column("zone_tier", Text, nullable=False, server_default=text("''")),
    Column("zone_region", Text, nullable=False, server_default=text("''")),
    Column("price_version", Integer, nullable=False, server_default="0"),
    Column("billed_ms", BigInteger),
    Column("charge", BigInteger),  # what was paid for it
    # its result, while it waits to be compared with others
    Column("outcome", Text),  # names the result
    Column("streak", Integer, nullable=False, server_default="0"),  # of its node, when it was reported
    Column("result", FreeText),
    Column("result_artifact", Text),
    Column("items_failed", Integer, nullable=False, server_default="0"),  # of the items it carried
    Column("outputs", FreeText),  # JSON: name to digest
    Column("printed", Text),  # digest
    Column("printed_chars", BigInteger),
    # A lane runs its attempts one after the other: when it was opened, and what all of it has been paid for so far.
    Column("lane_since_ms", BigInteger, nullable=False, server_default="0"),
    Column("lane_billed_ms", BigInteger),
    # Where it went on from: an earlier attempt, at a checkpoint after so much of that one's time; and all the time and
    # money of the attempts before. The last one: its own time up to its newest checkpoint.
    Column("resumed_no", Integer),
    Column("resumed_ms", BigInteger),
    Column("covered_ms", BigInteger),
    Column("spent", BigInteger),
    Column("checkpoint_ms", BigInteger),
    Column("narrow", Boolean, nullable=False, server_default=text("false")),  # its place was no choice
    UniqueConstraint("job_id", "number"),
)
Index("ix_attempts_live", attempts.c.node_id, **_where(_LIVE))
Index("ix_attempts_lease", attempts.c.lease_until_ms, **_where(_LIVE))
Index("ix_attempts_lane", attempts.c.lane, attempts.c.lane_billed_ms, **_where("lane_billed_ms IS NOT NULL"))
Index("ix_attempts_results", attempts.c.node_id, attempts.c.finished_at_ms, **_where("outcome IS NOT NULL"))
Index("ix_attempts_late", attempts.c.node_id, **_where("state = 'expired'"))
IS_LIVE = text(f"attempts.{_LIVE}")
IS_LATE = text("attempts.state = 'expired'")
IS_BILLED = text("attempts.lane_billed_ms IS NOT NULL")

#: What an attempt used while it ran; only of those that ran long enough to be seen twice.
attempt_usage = Table(
    "attempt_usage",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id"), primary_key=True),
    Column("job_id", Text, nullable=False, index=True),
    Column("saved_at_ms", BigInteger, nullable=False, index=True),
    Column("body", Text, nullable=False),  # JSON, see hub/jobs/running/usage.py
)

#: Times without a break in which a node was online and that are over. The one that lasts is in `nodes`.
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
    # Where the bytes are in the blob store. A place is used once: who drops the row may erase it without looking.
    # empty: under the digest, as it was once
    Column("place", Text, nullable=False, server_default=text("''")),
)

#: Who may read an artifact, and what refers to it. job_id is empty for a plain upload.
artifact_refs = Table(
    "artifact_refs",
    metadata,
    Column("digest", ForeignKey("artifacts.digest"), primary_key=True),
    Column("account_id", Text, primary_key=True),
    Column("job_id", Text, primary_key=True),
    # upload, node, pending, kept; of jobs: input, output, result, payload, function …
    Column("role", Text, primary_key=True),
    Column("name", FreeText, primary_key=True),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("kept_until_ms", BigInteger),  # of role kept; empty: until it is let go
)
Index("ix_artifact_refs_job", artifact_refs.c.job_id)
Index("ix_artifact_refs_node", artifact_refs.c.created_at_ms, **_where(_OF_NODE))
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
    Column("final", Boolean, nullable=False),  # a job reached a state it never leaves
    Column("data", FreeText),
    sqlite_autoincrement=True,  # a number is never used twice, even when the newest events were pruned
)
Index("ix_events_account", events.c.account_id, events.c.seq)
Index("ix_events_job", events.c.job_id)
Index("ix_events_results", events.c.group_id, events.c.seq, **_where(_FINAL))
Index("ix_events_node", events.c.node_id, events.c.seq, **_where("node_id IS NOT NULL"))
Index("ix_events_group", events.c.group_id, events.c.seq, **_where(_IN_GROUP))
#: What people and the hub did, by its name. Nearly all events are of jobs, and those are found otherwise.
Index("ix_events_deeds", events.c.action, events.c.seq, **_where(_NO_JOB))
IS_IN_GROUP = text(_IN_GROUP.replace("group_id", "events.group_id"))
HAS_NO_JOB = text(_NO_JOB.replace("job_id", "events.job_id"))
IS_FINAL = text("events.final AND events.group_id IS NOT NULL")
