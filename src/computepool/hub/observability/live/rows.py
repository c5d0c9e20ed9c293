"""Rows of the live view: nodes of other hubs, recent payments and recent activity."""

from __future__ import annotations

from sqlalchemy import BigInteger, Connection, distinct, func, or_, select

from computepool.core.jobs.lifecycle import AttemptState, JobState, Reason
from computepool.core.money.ledger import Kind
from computepool.hub.db.money_tables import transfers
from computepool.hub.db.reputation_tables import reputations
from computepool.hub.db.tables import accounts, attempts, events, jobs, nodes
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.money import ledger_rows
from computepool.hub.nodes.rows import NodeStanding

MINUTE_MS = 60_000
_COSTS = (Kind.PAY.value, Kind.FEE.value)
_SUBMITTED = (Reason.SUBMITTED.value, Reason.WAITING_FOR_JOBS.value)
_MOVES = ("job.running", *(f"job.{state.value}" for state in (JobState.SUCCEEDED, JobState.FAILED)))
_ARRIVALS = ("node.online", "node.offline")


class NodeElsewhere(
    NodeStanding,
    of=(
        (func.coalesce(reputations.c.banned_at_ms, 0) > 0).label("banned"),
        select(func.count())
        .where(attempts.c.node_id == nodes.c.id, attempts.c.state == AttemptState.RUNNING.value)
        .scalar_subquery()
        .label("running"),
    ),
    joined=nodes.join(accounts, accounts.c.id == nodes.c.account_id).outerjoin(
        reputations, reputations.c.node_id == nodes.c.id
    ),
):
    """A node that polls some hub, with the number of its running attempts."""

    banned: bool
    running: int


_MINUTE = (transfers.c.at_ms // MINUTE_MS).label("minute")


class SettledMinute(
    TypedRow,
    of=(
        _MINUTE,
        func.sum(transfers.c.amount, type_=BigInteger).label("amount"),
        func.count(distinct(transfers.c.job_id)).label("jobs"),
    ),
):
    minute: int
    amount: int
    jobs: int


class Move(
    TypedRow,
    of=(
        events.c.action,
        jobs.c.kind,
        attempts.c.zone_tier.label("zone_tier"),
        attempts.c.zone_region.label("zone_region"),
        func.count().label("alike"),
        func.max(events.c.seq).label("seq"),
        func.max(events.c.at_ms).label("at_ms"),
        func.max(attempts.c.price).label("price"),
        func.max(attempts.c.spot).label("spot"),
    ),
):
    """Similar jobs that made the same transition."""

    action: str
    kind: str
    zone_tier: str | None
    zone_region: str | None
    alike: int
    seq: int
    at_ms: int
    price: int | None
    spot: int | None


class Arrival(
    TypedRow,
    of=(events.c.seq, events.c.at_ms, events.c.action, nodes),
    joined=events.join(nodes, nodes.c.id == events.c.node_id),
):
    """A node that came online or went offline."""

    seq: int
    at_ms: int
    action: str
    id: str
    profile: str


def nodes_elsewhere(connection: Connection, *, since_ms: int, limit: int) -> list[NodeElsewhere]:
    """Nodes that some hub has seen since then."""
    which = nodes.c.last_seen_ms >= since_ms, nodes.c.state != "revoked", nodes.c.departure.is_(None)
    return NodeElsewhere.fetch(connection, *which, order=nodes.c.id, limit=limit)


def settled_minutes(connection: Connection, *, after: int | None, since_ms: int) -> tuple[int, list[SettledMinute]]:
    """The last transfer counted, and the costs of jobs by the minute, after a transfer, or (None) since a time."""
    first = ledger_rows.first_at(connection, since_ms) if after is None else after + 1
    statement = SettledMinute.select().where(transfers.c.seq >= first, transfers.c.kind.in_(_COSTS)).group_by(_MINUTE)
    last = connection.execute(select(func.max(transfers.c.seq))).scalar() or 0
    rows = connection.execute(statement.where(transfers.c.seq <= last))
    return max(last, first - 1), SettledMinute.all(rows)


def moves(connection: Connection, *, after: int, until: int) -> list[Move]:
    """Jobs that were submitted, started or ended between two events, similar ones together, without hub jobs."""
    # The newest attempt is the event's attempt if it is read soon after.
    which = (events.c.action, jobs.c.kind, attempts.c.zone_tier, attempts.c.zone_region)
    own = (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.attempt_no)
    statement = (
        Move.select()
        .select_from(events.join(jobs, jobs.c.id == events.c.job_id).outerjoin(attempts, own))
        .where(
            events.c.seq > after,
            events.c.seq <= until,
            jobs.c.hub_job.is_(None),
            or_(events.c.action.in_(_MOVES), (events.c.action == "job.queued") & events.c.reason.in_(_SUBMITTED)),
        )
        .group_by(*which)
    )
    return Move.all(connection.execute(statement))


def arrivals(connection: Connection, *, after: int, until: int) -> list[Arrival]:
    """Nodes that came online or went offline between two events."""
    which = events.c.seq > after, events.c.seq <= until, events.c.action.in_(_ARRIVALS)
    return Arrival.fetch(connection, *which, order=events.c.seq)
