"""Numbers in the database about the hub's health. Each query reads a small table or uses an index."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, select

from computepool.core.jobs.lifecycle import JobState
from computepool.core.money.payouts import PayoutState
from computepool.hub.db import dialect
from computepool.hub.db.group_tables import webhooks
from computepool.hub.db.money_tables import IS_UNDECIDED, payouts
from computepool.hub.db.queries import any_row
from computepool.hub.db.tables import HAS_NO_JOB, IS_OPEN, approvals, events, hubs, jobs, nodes
from computepool.hub.db.typed_rows import Condition

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
    versions: dict[str, int]  #: of recently seen agents
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
    """Nodes and hubs seen since `seen_since_ms` are alive; requests from before `requested_since_ms` have expired."""
    queue = _numbers(
        connection,
        *(IS_OPEN, jobs.c.state == JobState.QUEUED.value, jobs.c.deps_pending == 0),
        queued=func.count(),
        oldest_queued_ms=func.min(jobs.c.queued_at_ms),
    )
    resting = _count(nodes.c.cool_off_until_ms > now_ms)
    enrolled = _numbers(connection, nodes.c.state != "revoked", nodes=func.count(), resting=resting)
    live, dead = hubs.c.seen_at_ms >= seen_since_ms, hubs.c.seen_at_ms < seen_since_ms
    served = _numbers(connection, hubs_live=_count(live), hubs_dead=_count(dead))
    off, fails = webhooks.c.disabled_at_ms.is_not(None), webhooks.c.failing_since_ms.is_not(None)
    called = _numbers(connection, webhooks_disabled=_count(off), webhooks_failing=_count(~off & fails))
    paid = _numbers(
        connection,
        IS_UNDECIDED,
        payouts_waiting=_count(payouts.c.state == PayoutState.REQUESTED.value),
        payouts_unknown=_count(payouts.c.state == PayoutState.UNKNOWN.value),
        oldest_payout_ms=func.min(payouts.c.created_at_ms),
    )
    pending = _numbers(
        connection,
        *(approvals.c.state == "pending", approvals.c.requested_at_ms > requested_since_ms),
        approvals=func.count(),
        oldest_approval_ms=func.min(approvals.c.requested_at_ms),
    )
    newest = select(events.c.at_ms).order_by(events.c.seq.desc()).limit(1)
    return Vitals(
        size_bytes=dialect.size_bytes(connection),
        clock_ms=dialect.clock_ms(connection),
        newest_event_ms=connection.execute(newest).scalar(),
        versions=_versions(connection, since_ms=seen_since_ms),
        **{**queue, **enrolled, **served, **called, **paid, **pending},
    )


def _numbers(connection: Connection, *where: Condition, **columns: ColumnElement[int]) -> dict[str, Any]:
    """Numbers about the rows of one table."""
    statement = select(*(column.label(name) for name, column in columns.items())).where(*where)
    return dict(connection.execute(statement).one()._mapping)


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """The number of rows for which the condition holds."""
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


def anybody_signed_in(connection: Connection) -> bool:
    return any_row(connection, HAS_NO_JOB, events.c.action == SIGNED_IN)


def _versions(connection: Connection, *, since_ms: int) -> dict[str, int]:
    recent = select(nodes.c.profile).where(nodes.c.state != "revoked", nodes.c.last_seen_ms >= since_ms)
    rows = connection.execute(recent.limit(_PROFILES_READ)).scalars()
    return dict(Counter(str(json.loads(profile).get("version") or "unknown") for profile in rows))
