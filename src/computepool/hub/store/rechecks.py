"""Results that were believed without a check, and what becomes of them when they are checked after all."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, exists, func, literal, or_, select, update

from computepool.core.jobs import AttemptState
from computepool.core.verification import Mode
from computepool.hub.store.session import AnyRow, Tx
from computepool.hub.store.tables import attempts, jobs, varying_specs

#: Of a node's results, so many are looked at, the newest: most of them may have been checked already.
_LOOKED_AT_MAX = 5_000


def unchecked(
    connection: Connection,
    node_id: str,
    *,
    kind: str,
    verdicts: Sequence[str],
    since_ms: int,
    limit: int,
) -> Sequence[AnyRow]:
    """The node's accepted results that nobody compared and no errand of this kind is about; the newest first.

    Only of jobs of others whose submitters want their results compared, and whose results do not vary. Those that
    only the submitter's function could compare stay as they are.
    """
    recent = (
        select(
            attempts.c.job_id,
            attempts.c.number,
            attempts.c.owner_id,
            attempts.c.finished_at_ms,
            attempts.c.charge,
        )
        .where(
            attempts.c.node_id == node_id,
            attempts.c.outcome.is_not(None),
            attempts.c.finished_at_ms >= since_ms,
            attempts.c.state == AttemptState.SUCCEEDED.value,
            # Where it went on from somebody's checkpoint, nobody could say whose work was wrong.
            attempts.c.resumed_no.is_(None),
        )
        .order_by(attempts.c.finished_at_ms.desc())
        .limit(_LOOKED_AT_MAX)
        .subquery()
    )
    other = jobs.alias("other")
    asked = exists().where(other.c.errand == literal(f"{kind}:") + jobs.c.id + literal(":1"))
    varies = exists().where(
        varying_specs.c.account_id == jobs.c.account_id, varying_specs.c.spec_digest == jobs.c.spec_digest
    )
    accepted = (recent.c.job_id == jobs.c.id) & (recent.c.number == jobs.c.accepted_attempt)
    statement = (
        select(jobs.c.id, recent.c.owner_id, recent.c.charge)
        .select_from(jobs.join(recent, accepted))
        .where(
            jobs.c.verdict.in_(verdicts),
            jobs.c.verify != Mode.NONE.value,
            or_(jobs.c["compare"].is_(None), jobs.c["compare"].like('{"tolerance"%')),
            jobs.c.errand.is_(None),
            jobs.c.account_id != recent.c.owner_id,
            ~varies,
            ~asked,
        )
        .order_by(recent.c.finished_at_ms.desc(), jobs.c.id)
        .limit(limit)
    )
    return connection.execute(statement).all()


def spent_on(connection: Connection, owner_id: str, *, payer: str, since_id: str) -> int:
    """What errands about this owner's results cost the payer since then, or may yet cost."""
    cost = func.coalesce(func.sum(func.coalesce(jobs.c.charge, jobs.c.hold)), 0)
    statement = select(cost).where(
        jobs.c.account_id == payer,
        jobs.c.id >= since_id,
        jobs.c.avoid_owners.contains(owner_id, autoescape=True),
    )
    return int(connection.execute(statement).scalar_one())


def find_errand(connection: Connection, errand: str) -> AnyRow | None:
    return connection.execute(select(jobs).where(jobs.c.errand == errand)).first()


def accepted_attempt(connection: Connection, job: AnyRow) -> AnyRow:
    wanted = select(attempts).where(attempts.c.job_id == job.id, attempts.c.number == job.accepted_attempt)
    return connection.execute(wanted).one()


def change_verdict(tx: Tx, job_id: str, *, before: Sequence[str], after: str) -> bool:
    """False: it is not what the caller believed."""
    statement = update(jobs).where(jobs.c.id == job_id, jobs.c.verdict.in_(before)).values(verdict=after)
    return tx.connection.execute(statement).rowcount == 1


def set_taken_back(tx: Tx, job_id: str, amount: int) -> None:
    tx.connection.execute(update(jobs).where(jobs.c.id == job_id).values(taken_back=amount))
