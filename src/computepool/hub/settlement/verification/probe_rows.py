"""Jobs that can test a node on probation, and its tests so far."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, exists, func, or_, select

from computepool.core.jobs.lifecycle import AttemptState
from computepool.core.trust.verification import VerificationVerdict
from computepool.hub.db import dialect
from computepool.hub.db.queries import any_row
from computepool.hub.db.tables import IS_OPEN, accounts, attempts, jobs
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.settlement.verification.recheck_rows import can_be_checked

KIND = "probe"  #: of hub jobs


class ProbeCandidate(TypedRow, of=jobs):
    id: str
    account_id: str
    spec_digest: str
    ceiling: int


def is_open(connection: Connection, node_id: str) -> bool:
    """Whether a test waits for the node, or is with it."""
    return any_row(connection, IS_OPEN, jobs.c.pinned == node_id, jobs.c.hub_job.like(f"{KIND}:%"))


def submitters(connection: Connection, node_id: str, *, since_ms: int) -> set[str]:
    """Accounts with whose jobs the node was tested since then."""
    statement = select(jobs.c.on_behalf_of).where(
        jobs.c.hub_job.like(f"{KIND}:%"), jobs.c.pinned == node_id, jobs.c.created_at_ms >= since_ms
    )
    return set(connection.execute(statement).scalars())


def probe_candidates(
    connection: Connection,
    *,
    owner_id: str,
    created_before_ms: int,
    since_id: str,
    cost_max: int,
    each: int,
    limit: int,
) -> list[ProbeCandidate]:
    """Jobs since then on which nodes of several owners agreed, but none of this owner's: the newest `each` of every submitter,
    and the newest of all submitters before anybody's second, so that nobody crowds out the others.

    Only of accounts older than that time, other than this owner's, that did not choose the nodes that agreed.
    """
    unfit = exists().where(attempts.c.job_id == jobs.c.id, or_(attempts.c.owner_id == owner_id, attempts.c.narrow))
    place = func.row_number().over(partition_by=jobs.c.account_id, order_by=jobs.c.id.desc())
    found = (
        ProbeCandidate.select()
        .add_columns(place.label("place"))
        .join(accounts, accounts.c.id == jobs.c.account_id)
        .where(
            jobs.c.id >= since_id,
            jobs.c.verdict == VerificationVerdict.CONFIRMED.value,
            jobs.c.account_id != owner_id,
            jobs.c.hold <= cost_max * jobs.c.runs,
            accounts.c.created_at_ms <= created_before_ms,
            ~unfit,
            *can_be_checked(KIND),
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
    """By job, the owners whose nodes agreed on its result."""
    matching = dialect.among(connection, attempts.c.job_id, job_ids)
    done = attempts.c.state == AttemptState.SUCCEEDED.value
    found: dict[str, set[str]] = {}
    for row in connection.execute(select(attempts.c.job_id, attempts.c.owner_id).where(matching, done)):
        found.setdefault(row.job_id, set()).add(row.owner_id)
    return found
