"""Jobs that a node on probation can be tested with, and its tests so far."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, exists, func, or_, select

from computepool.core.jobs.lifecycle import AttemptState
from computepool.core.trust.verification import Mode
from computepool.hub.db import dialect
from computepool.hub.db.tables import IS_OPEN, accounts, attempts, jobs
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.settlement.verification.recheck_rows import has_hub_job, varies


class ProbeCandidate(TypedRow, of=jobs):
    """A job that a node can be tested with."""

    id: str
    account_id: str
    spec_digest: str
    ceiling: int


def is_open(connection: Connection, node_id: str, *, kind: str) -> bool:
    """Whether a test waits for the node, or is with it."""
    statement = select(jobs.c.id).where(IS_OPEN, jobs.c.pinned == node_id, jobs.c.hub_job.like(f"{kind}:%"))
    return connection.execute(statement.limit(1)).first() is not None


def submitters(connection: Connection, node_id: str, *, kind: str, since_ms: int) -> set[str]:
    """Whose jobs the node was tested with since then."""
    statement = select(jobs.c.on_behalf_of).where(
        jobs.c.hub_job.like(f"{kind}:%"), jobs.c.pinned == node_id, jobs.c.created_at_ms >= since_ms
    )
    return set(connection.execute(statement).scalars())


def confirmed(
    connection: Connection,
    *,
    kind: str,
    verdict: str,
    owner_id: str,
    created_before_ms: int,
    since_id: str,
    cost_max: int,
    each: int,
    limit: int,
) -> list[ProbeCandidate]:
    """Jobs since then that several owners' nodes did alike, none of this owner's among them; the newest `each` of every
    submitter, and the newest of all of them before anybody's second: nobody crowds out the others.

    Of submitters with an account from before that time, who are not this owner, and who did not choose whose nodes agree;
    and of programs that did not vary since.
    """
    unfit = exists().where(
        attempts.c.job_id == jobs.c.id, or_(attempts.c.owner_id == owner_id, attempts.c.narrow)
    )
    place = func.row_number().over(partition_by=jobs.c.account_id, order_by=jobs.c.id.desc())
    found = (
        ProbeCandidate.select()
        .add_columns(place.label("place"))
        .join(accounts, accounts.c.id == jobs.c.account_id)
        .where(
            jobs.c.id >= since_id,
            jobs.c.verdict == verdict,
            jobs.c.verify != Mode.NONE.value,
            or_(jobs.c["compare"].is_(None), jobs.c["compare"].like('{"tolerance"%')),
            jobs.c.hub_job.is_(None),
            jobs.c.account_id != owner_id,
            jobs.c.hold <= cost_max * jobs.c.runs,
            accounts.c.created_at_ms <= created_before_ms,
            ~unfit,
            ~varies(),
            ~has_hub_job(kind),
        )
        .subquery()
    )
    statement = (
        select(*(found.c[name] for name in ProbeCandidate.columns))
        .where(found.c.place <= each)
        .order_by(found.c.place, found.c.id.desc())
    )
    return ProbeCandidate.all(connection.execute(statement.limit(limit)))


def owners_of(connection: Connection, job_ids: Sequence[str]) -> dict[str, set[str]]:
    """By job, whose nodes came to its result."""
    matching = dialect.among(connection, attempts.c.job_id, job_ids)
    done = attempts.c.state == AttemptState.SUCCEEDED.value
    found: dict[str, set[str]] = {}
    for row in connection.execute(select(attempts.c.job_id, attempts.c.owner_id).where(matching, done)):
        found.setdefault(row.job_id, set()).add(row.owner_id)
    return found
