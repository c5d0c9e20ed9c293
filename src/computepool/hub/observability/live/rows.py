"""Rows of the live view: nodes that other hubs hear, what was settled lately, what happened lately."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, Connection, distinct, func, or_, select

from computepool.core.jobs.lifecycle import AttemptState, JobState, Reason
from computepool.core.money.ledger import Kind
from computepool.hub.db.money_tables import transfers
from computepool.hub.db.reputation_tables import reputations
from computepool.hub.db.session import AnyRow
from computepool.hub.db.tables import accounts, attempts, events, jobs, nodes
from computepool.hub.money import ledger_rows

MINUTE_MS = 60_000
_COSTS = (Kind.PAY.value, Kind.FEE.value)
_SUBMITTED = (Reason.SUBMITTED.value, Reason.WAITING_FOR_JOBS.value)
_MOVES = ("job.running", *(f"job.{state.value}" for state in (JobState.SUCCEEDED, JobState.FAILED)))
_ARRIVALS = ("node.online", "node.offline")


def heard_elsewhere(connection: Connection, *, since_ms: int, limit: int) -> Sequence[AnyRow]:
    """Nodes that some hub heard since then, with how much they run and what their status follows from."""
    running = (
        select(func.count())
        .where(attempts.c.node_id == nodes.c.id, attempts.c.state == AttemptState.RUNNING.value)
        .scalar_subquery()
    )
    statement = (
        select(
            *(nodes.c.id, nodes.c.account_id, nodes.c.state, nodes.c.profile, nodes.c.floor),
            *(nodes.c.last_seen_ms, nodes.c.cool_off_until_ms, nodes.c.departure),
            accounts.c.floor.label("owner_floor"),
            (func.coalesce(reputations.c.banned_at_ms, 0) > 0).label("banned"),
            running.label("running"),
        )
        .join(accounts, accounts.c.id == nodes.c.account_id)
        .outerjoin(reputations, reputations.c.node_id == nodes.c.id)
        .where(nodes.c.last_seen_ms >= since_ms, nodes.c.state != "revoked", nodes.c.departure.is_(None))
        .order_by(nodes.c.id)
        .limit(limit)
    )
    return connection.execute(statement).all()


def settled(connection: Connection, *, after: int | None, since_ms: int) -> tuple[int, Sequence[AnyRow]]:
    """What jobs cost by the transfers after that one (none: since then), by the minute; and the last that was counted."""
    first = ledger_rows.first_at(connection, since_ms) if after is None else after + 1
    minute = (transfers.c.at_ms // MINUTE_MS).label("minute")
    statement = (
        select(
            minute,
            func.sum(transfers.c.amount, type_=BigInteger).label("amount"),
            func.count(distinct(transfers.c.job_id)).label("jobs"),
        )
        .where(transfers.c.seq >= first, transfers.c.kind.in_(_COSTS))
        .group_by(minute)
    )
    last = connection.execute(select(func.max(transfers.c.seq))).scalar() or 0
    rows = connection.execute(statement.where(transfers.c.seq <= last)).all()
    return max(last, first - 1), rows


def moves(connection: Connection, *, after: int, until: int) -> Sequence[AnyRow]:
    """Jobs that were submitted, started and ended between two events, those that are alike together.

    Never hub jobs: people do not see them.
    """
    # The newest attempt: the one that the event is about, as long as it is read soon after.
    which = (events.c.action, jobs.c.kind, attempts.c.zone_tier, attempts.c.zone_region)
    own = (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.attempt_no)
    statement = (
        select(
            *which,
            func.count().label("alike"),
            func.max(events.c.seq).label("seq"),
            func.max(events.c.at_ms).label("at_ms"),
            func.max(attempts.c.price).label("price"),
            func.max(attempts.c.spot).label("spot"),
        )
        .select_from(events.join(jobs, jobs.c.id == events.c.job_id).outerjoin(attempts, own))
        .where(
            events.c.seq > after,
            events.c.seq <= until,
            jobs.c.errand.is_(None),
            or_(
                events.c.action.in_(_MOVES),
                (events.c.action == "job.queued") & events.c.reason.in_(_SUBMITTED),
            ),
        )
        .group_by(*which)
    )
    return connection.execute(statement).all()


def arrivals(connection: Connection, *, after: int, until: int) -> Sequence[AnyRow]:
    """Nodes that came or went between two events."""
    statement = (
        select(events.c.seq, events.c.at_ms, events.c.action, nodes.c.id, nodes.c.profile)
        .join(nodes, nodes.c.id == events.c.node_id)
        .where(events.c.seq > after, events.c.seq <= until, events.c.action.in_(_ARRIVALS))
        .order_by(events.c.seq)
    )
    return connection.execute(statement).all()
