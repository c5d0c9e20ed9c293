"""Outcomes of one node by its events, and what it holds: for the page that shows where a reputation comes from."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, case, func, select

from computepool.core.jobs.lifecycle import AttemptState
from computepool.core.trust import reputation
from computepool.hub.db import dialect
from computepool.hub.db.session import AnyRow
from computepool.hub.db.tables import IS_LIVE, attempts, events, jobs
from computepool.hub.jobs.rows import SHOWN_ACCOUNT

_ACTIONS = sorted(reputation.ACTIONS)


def of_node(connection: Connection, node_id: str, *, before: int | None, limit: int) -> Sequence[AnyRow]:
    """Events that may say something about it, newest first."""
    statement = select(events).where(events.c.node_id == node_id, events.c.action.in_(_ACTIONS))
    if before is not None:
        statement = statement.where(events.c.seq < before)
    return connection.execute(statement.order_by(events.c.seq.desc()).limit(limit)).all()


def verified_at_once(connection: Connection, job_ids: Sequence[str]) -> set[str]:
    """Attempts at these jobs that were counted before their job's success was told."""
    if not job_ids:
        return set()
    statement = select(events.c.attempt_id).where(
        dialect.among(connection, events.c.job_id, sorted(set(job_ids))),
        events.c.action.in_(reputation.COUNTED_AT_ONCE),
        func.coalesce(events.c.reason, "") != reputation.RECHECKED,
    )
    return set(connection.execute(statement).scalars())


def kinds(connection: Connection, job_ids: Sequence[str]) -> dict[str, str]:
    if not job_ids:
        return {}
    wanted = dialect.among(connection, jobs.c.id, sorted(set(job_ids)))
    return {row.id: row.kind for row in connection.execute(select(jobs.c.id, jobs.c.kind).where(wanted))}


def held(connection: Connection, node_id: str, *, limit: int) -> Sequence[AnyRow]:
    """Live attempts of a node: what runs first, then what was there first."""
    waits = case((attempts.c.state == AttemptState.RUNNING.value, 0), else_=1)
    statement = (
        select(
            attempts.c.id,
            attempts.c.job_id,
            attempts.c.node_id,
            attempts.c.state,
            attempts.c.leased_at_ms,
            attempts.c.started_at_ms,
            attempts.c.price,
            jobs.c.name,
            jobs.c.errand,
            jobs.c.kind,
            jobs.c.spec_digest,
            jobs.c.longest_ms,
            SHOWN_ACCOUNT,
        )
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(attempts.c.node_id == node_id, IS_LIVE)
        .order_by(waits, attempts.c.leased_at_ms, attempts.c.id)
        .limit(limit)
    )
    return connection.execute(statement).all()


def count_held(connection: Connection, node_id: str) -> tuple[int, int]:
    """Running, and given to it but not started."""
    statement = select(attempts.c.state).where(attempts.c.node_id == node_id, IS_LIVE)
    states = list(connection.execute(statement).scalars())
    running = sum(state == AttemptState.RUNNING for state in states)
    return running, len(states) - running
