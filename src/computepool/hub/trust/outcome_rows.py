"""A node's outcomes, from its events, and the attempts it holds: for its evidence page."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, case, func, select

from computepool.core.jobs.lifecycle import AttemptState
from computepool.core.trust import reputation
from computepool.hub.db import dialect
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.queries import before_cursor, by_key
from computepool.hub.db.tables import IS_LIVE, attempts, events, jobs
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.jobs.rows import SHOWN_ACCOUNT

_ACTIONS = sorted(reputation.ACTIONS)


class HeldAttempt(
    TypedRow, of=(attempts, jobs, SHOWN_ACCOUNT), joined=attempts.join(jobs, jobs.c.id == attempts.c.job_id)
):
    """A live attempt, with what is shown of its job."""

    id: str
    job_id: str
    node_id: str
    state: str
    leased_at_ms: int
    started_at_ms: int | None
    price: int
    name: str
    hub_job: str | None
    kind: str
    spec_digest: str
    longest_ms: int
    shown_account: str


def of_node(connection: Connection, node_id: str, *, before: int | None, limit: int) -> list[EventRow]:
    """Events that may count for the node's reputation, newest first."""
    which = events.c.node_id == node_id, events.c.action.in_(_ACTIONS), before_cursor(events.c.seq, before)
    return EventRow.fetch(connection, *which, order=events.c.seq.desc(), limit=limit)


def attempts_counted_at_once(connection: Connection, job_ids: Sequence[str]) -> set[str]:
    """Attempts at these jobs that were counted before the event of their job's success."""
    if not job_ids:
        return set()
    statement = select(events.c.attempt_id).where(
        dialect.among(connection, events.c.job_id, sorted(set(job_ids))),
        events.c.action.in_(reputation.COUNTED_AT_ONCE),
        func.coalesce(events.c.reason, "") != reputation.RECHECKED,
    )
    return set(connection.execute(statement).scalars())


def kinds(connection: Connection, job_ids: Sequence[str]) -> dict[str, str]:
    return by_key(connection, jobs.c.kind, key=jobs.c.id, among=sorted(set(job_ids))) if job_ids else {}


def held_attempts(connection: Connection, node_id: str, *, limit: int) -> list[HeldAttempt]:
    """Live attempts of a node: running ones first, then the oldest."""
    waits = case((attempts.c.state == AttemptState.RUNNING.value, 0), else_=1)
    order = waits, attempts.c.leased_at_ms, attempts.c.id
    return HeldAttempt.fetch(connection, attempts.c.node_id == node_id, IS_LIVE, order=order, limit=limit)


def count_held(connection: Connection, node_id: str) -> tuple[int, int]:
    """The number that run, and the number that have not started."""
    statement = select(attempts.c.state).where(attempts.c.node_id == node_id, IS_LIVE)
    states = list(connection.execute(statement).scalars())
    running = sum(state == AttemptState.RUNNING for state in states)
    return running, len(states) - running
