"""Rows of attempts, with their leases and reports. Every write that ends one repeats its precondition in its WHERE clause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, bindparam, delete, func, select, update

from computepool.core.errors import InvariantViolation
from computepool.core.jobs.lifecycle import CONTESTED, AttemptState, JobState, Reason
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.queries import by_key, new_values
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_BILLED, IS_LIVE, attempt_usage, attempts, jobs, nodes
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.jobs.rows import SHOWN_ACCOUNT, lock_jobs


class AttemptRow(TypedRow, of=attempts):
    id: str
    job_id: str
    number: int
    node_id: str
    owner_id: str
    lane: str
    gpus: str
    state: str
    reason: str
    lease_until_ms: int
    leased_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    report_digest: str | None
    exit_code: int | None
    error: str | None
    usage: str | None
    log_bytes: int
    log_next: int
    stdout_chars: int
    price: int
    spot: int
    units: int
    zone_tier: str
    zone_region: str
    price_version: int
    billed_ms: int | None
    charge: int | None
    outcome: str | None
    streak: int
    result: str | None
    result_artifact: str | None
    items_failed: int
    outputs: str | None
    printed: str | None
    printed_chars: int | None
    lane_since_ms: int
    lane_billed_ms: int | None
    resumed_no: int | None
    covered_ms: int | None
    spent: int | None
    checkpoint_ms: int | None
    narrow: bool


class NamedAttempt(AttemptRow, of=nodes.c.name.label("node_name")):
    node_name: str


class OwnedAttempt(
    AttemptRow, of=select(jobs.c.account_id).where(jobs.c.id == attempts.c.job_id).scalar_subquery().label("account_id")
):
    """With the account of its job."""

    account_id: str


class LiveAttemptRow(AttemptRow, of=(jobs, SHOWN_ACCOUNT)):
    """With the columns of its job that a grant needs."""

    shown_account: str
    hub_job: str | None
    group_id: str | None
    spec_digest: str
    payload: str | None
    payload_artifact: str | None
    item: int
    item_count: int
    ceiling: int
    hold: int
    runs: int
    longest_ms: int
    avoid_owners: str
    pinned: str
    gang: str | None


class AttemptKey(TypedRow, of=attempts):
    id: str
    job_id: str
    number: int
    node_id: str


class UnableAttempt(TypedRow, of=attempts):
    id: str
    number: int
    node_id: str
    owner_id: str
    reason: str


_LIVE = [AttemptState.LEASED.value, AttemptState.RUNNING.value]


def attempt_id(job_id: str, number: int) -> str:
    return f"{job_id}-{number}"


def job_id_of(attempt_id: str) -> str:
    return attempt_id.rpartition("-")[0]


_INSERT = Prepared(attempts.insert())


def insert_attempts(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    _INSERT.execute(tx.connection, rows)


def get_attempts(connection: Connection, job_id: str) -> list[NamedAttempt]:
    statement = (
        NamedAttempt.select()
        .join(nodes, nodes.c.id == attempts.c.node_id)
        .where(attempts.c.job_id == job_id)
        .order_by(attempts.c.number)
    )
    return NamedAttempt.all(connection.execute(statement))


def owners_failed(connection: Connection, job_id: str, reasons: Sequence[str]) -> set[str]:
    """Owners of nodes on which the job failed for any other reason than these."""
    statement = select(attempts.c.owner_id).where(
        attempts.c.job_id == job_id, attempts.c.state == AttemptState.FAILED.value, attempts.c.reason.not_in(reasons)
    )
    return set(connection.execute(statement).scalars())


def unable(connection: Connection, job_id: str) -> list[UnableAttempt]:
    """Attempts of the job whose nodes reported that they could not run it."""
    statement = UnableAttempt.select().where(
        attempts.c.job_id == job_id,
        attempts.c.state == AttemptState.FAILED.value,
        attempts.c.reason.in_(sorted(CONTESTED)),
    )
    return UnableAttempt.all(connection.execute(statement.order_by(attempts.c.node_id, attempts.c.id)))


def lock_attempts(tx: Tx, attempt_ids: Iterable[str]) -> dict[str, OwnedAttempt]:
    rows = _lock.rows(tx.connection, **dialect.ids(tx.connection, set(attempt_ids)))
    return {row.id: row for row in OwnedAttempt.all(rows)}


@Prepared
def _lock(connection: Connection) -> Select[Any]:
    matching = dialect.among_ids(connection.dialect.name, attempts.c.id)
    return OwnedAttempt.select().where(matching).order_by(attempts.c.id).with_for_update(key_share=True)


def live_attempts(connection: Connection, node_ids: Sequence[str]) -> dict[str, list[LiveAttemptRow]]:
    """By node, the attempts that it holds according to the store."""
    found: dict[str, list[LiveAttemptRow]] = {}
    for row in LiveAttemptRow.all(_live_of_nodes.rows(connection, **dialect.ids(connection, node_ids))):
        found.setdefault(row.node_id, []).append(row)
    return found


@Prepared
def _live_of_nodes(connection: Connection) -> Select[Any]:
    matching = dialect.among_ids(connection.dialect.name, attempts.c.node_id)
    joined = LiveAttemptRow.select().join(jobs, jobs.c.id == attempts.c.job_id)
    return joined.where(matching, IS_LIVE).order_by(attempts.c.id)


def live_attempts_of_job(connection: Connection, job_id: str) -> list[AttemptRow]:
    statement = AttemptRow.select().where(attempts.c.job_id == job_id, IS_LIVE)
    return AttemptRow.all(connection.execute(statement))


_REPORT = Prepared(
    update(attempts)
    .where(attempts.c.id == bindparam("attempt"), attempts.c.report_digest.is_(None))
    .values(
        **new_values(
            "state", "reason", "report_digest", "exit_code", "error", "usage", "started_at_ms", "finished_at_ms"
        ),
        **new_values("outcome", "streak", "result", "result_artifact", "outputs"),
        **new_values("printed", "printed_chars", "items_failed"),
        # A late report does not clear these: the attempt may be paid for a checkpoint from which another one resumed.
        **{
            name: func.coalesce(bindparam(f"new_{name}", type_=BigInteger), attempts.c[name])
            for name in ("billed_ms", "lane_billed_ms", "charge")
        },
    )
)


def lanes_billed(connection: Connection, lanes: Iterable[str]) -> dict[str, int]:
    """By lane, the time that has been billed so far (ms)."""
    return dict(_lanes_billed.rows(connection, **dialect.ids(connection, lanes)))


@Prepared
def _lanes_billed(connection: Connection) -> Select[Any]:
    matching = dialect.among_ids(connection.dialect.name, attempts.c.lane)
    newest = func.max(attempts.c.lane_billed_ms)
    return select(attempts.c.lane, newest).where(matching, IS_BILLED).group_by(attempts.c.lane)


def report_attempts(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Each row with `attempt`, and the new columns as `new_<column>`."""
    if _REPORT.execute(tx.connection, rows) != len(rows):
        raise InvariantViolation("an attempt would have been reported twice")


def end_attempt(tx: Tx, id_: str, *, state: AttemptState, reason: Reason) -> bool:
    """End a live attempt without a report: it expired, or was cancelled or superseded."""
    statement = (
        update(attempts)
        .where(attempts.c.id == id_, IS_LIVE)
        .values(state=state.value, reason=reason.value, finished_at_ms=tx.now_ms)
    )
    return tx.connection.execute(statement).rowcount == 1


def start_attempts(tx: Tx, attempt_ids: Sequence[str]) -> list[AttemptKey]:
    """Mark leased attempts and their jobs as running; returns those that changed."""
    # Jobs before attempts, as everywhere: two hubs that lock in opposite orders would wait for each other.
    lock_jobs(tx, {job_id_of(id_) for id_ in attempt_ids})
    statement = (
        update(attempts)
        .where(dialect.among(tx.connection, attempts.c.id, attempt_ids), attempts.c.state == AttemptState.LEASED.value)
        .values(state=AttemptState.RUNNING.value, reason=Reason.STARTED.value, started_at_ms=tx.now_ms)
        .returning(*AttemptKey.columns.values())
    )
    started = AttemptKey.all(tx.connection.execute(statement))
    _START.execute(tx.connection, [{"job": row.job_id, "no": row.number, "now": tx.now_ms} for row in started])
    return started


_START = Prepared(
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.attempt_no == bindparam("no"), jobs.c.state == JobState.LEASED.value)
    .values(state=JobState.RUNNING.value, reason=Reason.STARTED.value, started_at_ms=bindparam("now"))
)


def renew_leases(tx: Tx, attempt_ids: Sequence[str], *, until_ms: int) -> set[str]:
    """Returns the attempts that are still live; the others must stop."""
    matching = dialect.among(tx.connection, attempts.c.id, attempt_ids)
    return _extend(tx, select(attempts.c.id).where(matching, attempts.c.state.in_(_LIVE)), until_ms)


def extend_all_leases(tx: Tx, *, until_ms: int) -> int:
    """Of all live attempts; returns their number."""
    return len(_extend(tx, select(attempts.c.id).where(IS_LIVE), until_ms))


def _extend(tx: Tx, matching: Select[Any], until_ms: int) -> set[str]:
    """Never shortens a lease: a message that was delayed must not take back what a newer one gave."""
    rows = tx.connection.execute(matching.order_by(attempts.c.id).with_for_update(key_share=True))
    alive = set(rows.scalars())
    tx.connection.execute(
        update(attempts)
        .where(dialect.among(tx.connection, attempts.c.id, alive), attempts.c.lease_until_ms < until_ms)
        .values(lease_until_ms=until_ms)
    )
    return alive


def overdue_attempts(connection: Connection, *, now_ms: int, limit: int) -> list[AttemptKey]:
    statement = (
        AttemptKey.select()
        .where(IS_LIVE, attempts.c.lease_until_ms < now_ms)
        .order_by(attempts.c.lease_until_ms)
        .limit(limit)
    )
    return AttemptKey.all(connection.execute(statement))


# resource usage over time: one row for each attempt, as compact JSON


def usage_of_job(connection: Connection, job_id: str) -> dict[str, str]:
    """By attempt."""
    statement = select(attempt_usage.c.attempt_id, attempt_usage.c.body).where(attempt_usage.c.job_id == job_id)
    return {row.attempt_id: row.body for row in connection.execute(statement)}


def usage_of(connection: Connection, attempt_ids: Iterable[str]) -> dict[str, str]:
    return by_key(connection, attempt_usage.c.body, key=attempt_usage.c.attempt_id, among=attempt_ids)


def put_usage(tx: Tx, rows: Sequence[tuple[str, str, str]]) -> None:
    """Each with attempt, job and body. Attempts that no longer exist are left out."""
    ids = [attempt_id for attempt_id, _, _ in rows]
    matching = dialect.among(tx.connection, attempts.c.id, ids)
    known = set(tx.connection.execute(select(attempts.c.id).where(matching)).scalars())
    values = [
        {"attempt_id": attempt_id, "job_id": job_id, "saved_at_ms": tx.now_ms, "body": body}
        for attempt_id, job_id, body in rows
        if attempt_id in known
    ]
    if values:
        newer = ("saved_at_ms", "body")
        tx.connection.execute(dialect.upsert(tx.connection, attempt_usage, key=("attempt_id",), update=newer), values)


def prune_usage(tx: Tx, *, before_ms: int) -> None:
    tx.connection.execute(delete(attempt_usage).where(attempt_usage.c.saved_at_ms < before_ms))
