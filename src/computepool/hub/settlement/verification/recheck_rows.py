"""Results that were believed without a check, and what the checks that follow change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, exists, func, literal, or_, select

from computepool.core.jobs.lifecycle import AttemptState
from computepool.core.trust.verification import Mode
from computepool.hub.db import dialect
from computepool.hub.db.queries import scalars, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_HELD, attempts, jobs, varying_specs
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.rows import FullJobRow, JobRow

KIND = "recheck"  #: of hub jobs
#: After so many rechecks without agreement the result stands: nobody can tell who was wrong.
RECHECKS_MAX = 2
#: How many of a node's newest results are looked at; most of them may have been checked already.
_LOOKED_AT_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedResult:
    """A job whose accepted result nobody compared, with the owner whose node ran it and its charge."""

    id: str
    owner_id: str
    charge: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldResult(UncheckedResult):
    account_id: str
    spec_digest: str
    ceiling: int
    avoid_owners: str


def unchecked_results(
    connection: Connection, node_id: str, *, verdicts: Sequence[str], since_ms: int, limit: int
) -> list[UncheckedResult]:
    """The node's accepted results of other submitters' jobs that can still be checked, newest first."""
    recent = (
        select(attempts.c.job_id, attempts.c.number, attempts.c.owner_id, attempts.c.finished_at_ms, attempts.c.charge)
        .where(
            attempts.c.node_id == node_id,
            attempts.c.outcome.is_not(None),
            attempts.c.finished_at_ms >= since_ms,
            attempts.c.state == AttemptState.SUCCEEDED.value,
            # Of an attempt that resumed from a checkpoint nobody could say whose work was wrong.
            attempts.c.resumed_no.is_(None),
        )
        .order_by(attempts.c.finished_at_ms.desc())
        .limit(_LOOKED_AT_MAX)
        .subquery()
    )
    accepted = (recent.c.job_id == jobs.c.id) & (recent.c.number == jobs.c.accepted_attempt)
    statement = (
        select(jobs.c.id, recent.c.owner_id, recent.c.charge)
        .select_from(jobs.join(recent, accepted))
        .where(jobs.c.verdict.in_(verdicts), jobs.c.account_id != recent.c.owner_id, *can_be_checked(KIND))
        .order_by(recent.c.finished_at_ms.desc(), jobs.c.id)
        .limit(limit)
    )
    return [UncheckedResult(**row._mapping) for row in connection.execute(statement)]


def can_be_checked(kind: str) -> list[ColumnElement[bool]]:
    """Jobs whose submitters want results compared, in a way that needs no function of theirs; whose programs do not vary; and
    about which there is no hub job of this kind."""
    return [
        jobs.c.verify != Mode.NONE.value,
        or_(jobs.c["compare"].is_(None), jobs.c["compare"].like('{"tolerance"%')),
        jobs.c.hub_job.is_(None),
        ~exists().where(
            varying_specs.c.account_id == jobs.c.account_id, varying_specs.c.spec_digest == jobs.c.spec_digest
        ),
        ~_has_hub_job(kind),
    ]


def _has_hub_job(kind: str) -> ColumnElement[bool]:
    other = jobs.alias("other")
    return exists().where(other.c.hub_job == literal(f"{kind}:") + jobs.c.id + literal(":1"))


def held_results(connection: Connection, *, verdict: str, after: str, limit: int) -> list[HeldResult]:
    """Jobs after that one whose pay is held and that can be checked."""
    accepted = (attempts.c.job_id == jobs.c.id) & (attempts.c.number == jobs.c.accepted_attempt)
    columns = (jobs.c.id, jobs.c.account_id, jobs.c.spec_digest, jobs.c.ceiling, jobs.c.avoid_owners)
    statement = (
        select(*columns, attempts.c.owner_id, attempts.c.charge)
        .select_from(jobs.join(attempts, accepted))
        .where(
            IS_HELD,
            jobs.c.id > after,
            jobs.c.verdict == verdict,
            attempts.c.resumed_no.is_(None),
            *can_be_checked(KIND),
        )
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return [HeldResult(**row._mapping) for row in connection.execute(statement)]


def without_hub_job(connection: Connection, job_ids: Sequence[str], *, kind: str) -> list[str]:
    matching = dialect.among(connection, jobs.c.id, job_ids)
    return scalars(connection, select(jobs.c.id).where(matching, ~_has_hub_job(kind)).order_by(jobs.c.id))


def hold_until(tx: Tx, job_id: str, until_ms: int) -> None:
    """For a job whose pay is held. 0: the pay has matured, or was taken back."""
    set_where(tx, jobs, jobs.c.id == job_id, IS_HELD, held_until_ms=until_ms)


def due_jobs(connection: Connection, *, now_ms: int, limit: int) -> list[str]:
    """Jobs whose pay is due: it was held for long enough, or the result has been confirmed."""
    statement = select(jobs.c.id).where(IS_HELD, jobs.c.held_until_ms <= now_ms)
    return scalars(connection, statement.order_by(jobs.c.id).limit(limit))


def spent_on(connection: Connection, owner_id: str, *, payer: str, since_id: str) -> int:
    """What hub jobs about this owner's results have cost the payer since then, or may still cost."""
    cost = func.coalesce(func.sum(func.coalesce(jobs.c.charge, jobs.c.hold)), 0)
    statement = select(cost).where(
        jobs.c.account_id == payer, jobs.c.id >= since_id, jobs.c.avoid_owners.contains(owner_id, autoescape=True)
    )
    return int(connection.execute(statement).scalar_one())


def find_recheck(connection: Connection, job_id: str, number: int) -> FullJobRow | None:
    return FullJobRow.find(connection, jobs.c.hub_job == f"{KIND}:{job_id}:{number}")


def accepted_attempt(connection: Connection, job: JobRow) -> AttemptRow:
    [found] = AttemptRow.fetch(connection, attempts.c.job_id == job.id, attempts.c.number == job.accepted_attempt)
    return found


def change_verdict(tx: Tx, job_id: str, *, before: Sequence[str], after: str) -> bool:
    """False: the verdict was another one."""
    return set_where(tx, jobs, jobs.c.id == job_id, jobs.c.verdict.in_(before), verdict=after) == 1


def set_taken_back(tx: Tx, job_id: str, amount: int) -> None:
    set_where(tx, jobs, jobs.c.id == job_id, taken_back=amount)
