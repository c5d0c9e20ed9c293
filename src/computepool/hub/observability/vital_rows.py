"""Numbers about the hub's database that tell the operator how the hub is. Reads only; each is small or has an index."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, case, func, select

from computepool.core.jobs.lifecycle import JobState
from computepool.core.money.payouts import PayoutState
from computepool.hub.db import dialect
from computepool.hub.db.group_tables import webhooks
from computepool.hub.db.money_tables import IS_UNDECIDED, payouts
from computepool.hub.db.tables import HAS_NO_JOB, IS_OPEN, approvals, events, hubs, jobs, nodes

_PROFILES_READ = 5_000
SIGNED_IN = "account.signed_in"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    size_bytes: int
    clock_ms: int | None
    newest_event_ms: int | None
    queued: int
    oldest_queued_ms: int | None
    nodes: int  #: enrolled and not revoked
    resting: int  #: of them, cooling off
    versions: dict[str, int]  #: of the agents that were heard lately
    hubs_live: int
    hubs_dead: int
    webhooks_disabled: int
    webhooks_failing: int
    payouts_waiting: int
    payouts_unknown: int
    oldest_payout_ms: int | None
    approvals: int
    oldest_approval_ms: int | None


def read(connection: Connection, *, now_ms: int, seen_since_ms: int, requested_since_ms: int) -> Vitals:
    """`seen_since_ms`: nodes and hubs that were heard since then are alive; `requested_since_ms`: older questions lapsed."""
    waits = (IS_OPEN, jobs.c.state == JobState.QUEUED.value, jobs.c.deps_pending == 0)
    queue = connection.execute(
        select(func.count().label("total"), func.min(jobs.c.queued_at_ms).label("oldest")).where(*waits)
    ).one()
    enrolled = connection.execute(
        select(
            func.count().label("total"), _count(nodes.c.cool_off_until_ms > now_ms).label("resting")
        ).where(nodes.c.state != "revoked")
    ).one()
    served = connection.execute(
        select(
            _count(hubs.c.seen_at_ms >= seen_since_ms).label("live"),
            _count(hubs.c.seen_at_ms < seen_since_ms).label("dead"),
        )
    ).one()
    webhook_counts = connection.execute(
        select(
            _count(webhooks.c.disabled_at_ms.is_not(None)).label("disabled"),
            _count(webhooks.c.disabled_at_ms.is_(None) & webhooks.c.failing_since_ms.is_not(None)).label(
                "failing"
            ),
        )
    ).one()
    paid = connection.execute(
        select(
            _count(payouts.c.state == PayoutState.REQUESTED.value).label("waiting"),
            _count(payouts.c.state == PayoutState.UNKNOWN.value).label("unknown"),
            func.min(payouts.c.created_at_ms).label("oldest"),
        ).where(IS_UNDECIDED)
    ).one()
    pending = connection.execute(
        select(func.count().label("total"), func.min(approvals.c.requested_at_ms).label("oldest")).where(
            approvals.c.state == "pending", approvals.c.requested_at_ms > requested_since_ms
        )
    ).one()
    newest = select(events.c.at_ms).order_by(events.c.seq.desc()).limit(1)
    return Vitals(
        size_bytes=dialect.size_bytes(connection),
        clock_ms=dialect.clock_ms(connection),
        newest_event_ms=connection.execute(newest).scalar(),
        queued=queue.total,
        oldest_queued_ms=queue.oldest,
        nodes=enrolled.total,
        resting=enrolled.resting,
        versions=_versions(connection, since_ms=seen_since_ms),
        hubs_live=served.live,
        hubs_dead=served.dead,
        webhooks_disabled=webhook_counts.disabled,
        webhooks_failing=webhook_counts.failing,
        payouts_waiting=paid.waiting,
        payouts_unknown=paid.unknown,
        oldest_payout_ms=paid.oldest,
        approvals=pending.total,
        oldest_approval_ms=pending.oldest,
    )


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """Of rows, those for which it holds."""
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


def anybody_signed_in(connection: Connection) -> bool:
    """Whether a person ever has."""
    statement = select(events.c.seq).where(HAS_NO_JOB, events.c.action == SIGNED_IN).limit(1)
    return connection.execute(statement).first() is not None


def _versions(connection: Connection, *, since_ms: int) -> dict[str, int]:
    recent = select(nodes.c.profile).where(nodes.c.state != "revoked", nodes.c.last_seen_ms >= since_ms)
    rows = connection.execute(recent.limit(_PROFILES_READ)).scalars()
    return dict(Counter(str(json.loads(profile).get("version") or "unknown") for profile in rows))
