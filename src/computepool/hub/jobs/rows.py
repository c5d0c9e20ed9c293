"""Jobs. Every write that ends something says in its WHERE what it believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    case,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from computepool.core.errors import InvariantViolation
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.artifacts import inline_rows
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_OPEN, IS_QUEUED, jobs, specs
from computepool.hub.db.typed_rows import TypedRow
from computepool.protocol.jobs.filters import JobFilter

_HELD = [JobState.LEASED.value, JobState.RUNNING.value]

#: To nodes, and for where it may run, a hub job is a job of whoever it is about.
SHOWN_ACCOUNT = func.coalesce(jobs.c.on_behalf_of, jobs.c.account_id).label("shown_account")


class QueuedJob(TypedRow, of=(jobs, SHOWN_ACCOUNT)):
    """What the dispatcher needs; the spec is looked up by digest and cached."""

    id: str
    shown_account: str
    spec_digest: str
    priority: int
    avoid_node: str
    ready_at_ms: int
    queued_at_ms: int
    ceiling: int
    avoid_owners: str
    pinned: str


class LeasedJob(TypedRow, of=(jobs, SHOWN_ACCOUNT)):
    """All that a grant says about a job."""

    id: str
    attempt_no: int
    account_id: str
    shown_account: str
    hub_job: str | None
    group_id: str | None
    spec_digest: str
    payload: str | None
    payload_artifact: str | None
    item: int
    item_count: int
    hold: int
    runs: int
    longest_ms: int
    checkpoint_no: int | None


class JobRow(TypedRow, of=jobs):
    """Without what may be large."""

    id: str
    account_id: str
    group_id: str | None
    key: str | None
    item: int
    item_count: int
    name: str
    kind: str
    spec_digest: str
    priority: int
    retries: int
    state: str
    reason: str
    attempt_no: int
    accepted_attempt: int | None
    node_id: str | None
    avoid_node: str
    job_faults: int
    node_faults: int
    deps_pending: int
    ready_at_ms: int
    queued_at_ms: int
    created_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    expires_at_ms: int
    exit_code: int | None
    progress: float | None
    error: str | None
    result_artifact: str | None
    payload_artifact: str | None
    dropped_at_ms: int | None
    ceiling: int
    hold: int
    hold_earned: int
    longest_ms: int
    charge: int | None
    verify: str
    compare: str | None
    comparing: str | None
    runs: int
    results: int
    avoid_owners: str
    verdict: str | None
    hub_job: str | None
    on_behalf_of: str | None
    taken_back: int | None
    checkpoint_no: int | None
    pinned: str
    moves: int
    watched: bool
    bundled: int
    carried: int | None
    items_failed: int
    held_until_ms: int | None
    ttl_ms: int | None


class FullJobRow(JobRow, of=jobs):
    payload: str | None
    result: str | None


def insert_spec(tx: Tx, *, digest: str, body: str, account_id: str) -> None:
    """Kept once, whoever sends it, and counted for who sent it first."""
    row = {"digest": digest, "body": body, "created_at_ms": tx.now_ms, "account_id": account_id}
    if _INSERT_SPEC.execute(tx.connection, [row]):
        inline_rows.count(tx, account_id, inline_rows.size_of(body))


def get_specs(connection: Connection, digests: Iterable[str]) -> dict[str, str]:
    matching = dialect.among(connection, specs.c.digest, digests)
    rows = connection.execute(select(specs.c.digest, specs.c.body).where(matching))
    return {row.digest: row.body for row in rows}


_INSERT = Prepared(jobs.insert())
_INSERT_SPEC = Prepared(lambda connection: dialect.insert_ignore(connection, specs))


def insert_jobs(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    _INSERT.execute(tx.connection, rows)
    for row in rows:
        if row.get("payload"):
            inline_rows.count(tx, row["account_id"], inline_rows.size_of(row["payload"]))


def count_open(connection: Connection, account_id: str) -> int:
    statement = select(func.count()).where(IS_OPEN, jobs.c.account_id == account_id, jobs.c.hub_job.is_(None))
    return connection.execute(statement).scalar_one()


def cost_since(connection: Connection, account_id: str, since_id: str) -> int:
    """What the account's newer jobs cost, or, while they are unfinished, hold."""
    cost = func.coalesce(func.sum(func.coalesce(jobs.c.charge, jobs.c.hold)), 0)
    statement = select(cost).where(jobs.c.account_id == account_id, jobs.c.id >= since_id)
    return int(connection.execute(statement).scalar_one())


def count_states(connection: Connection) -> dict[str, int]:
    statement = select(jobs.c.state, func.count().label("jobs")).where(IS_OPEN).group_by(jobs.c.state)
    return {row.state: row.jobs for row in connection.execute(statement)}


def get_job(connection: Connection, job_id: str) -> JobRow | None:
    return JobRow.one(_JOB.first(connection, job=job_id))


_JOB = Prepared(JobRow.select().where(jobs.c.id == bindparam("job")))


def get_job_full(connection: Connection, job_id: str) -> FullJobRow | None:
    return FullJobRow.first(connection.execute(FullJobRow.select().where(jobs.c.id == job_id)))


def get_jobs(connection: Connection, job_ids: Sequence[str]) -> list[JobRow]:
    matching = dialect.among(connection, jobs.c.id, job_ids)
    return JobRow.all(connection.execute(JobRow.select().where(matching)))


def lock_jobs(tx: Tx, job_ids: Iterable[str]) -> dict[str, JobRow]:
    """Rows by id, locked in sorted order, so that two transactions never wait for each other in a circle."""
    rows = _LOCK.rows(tx.connection, **dialect.ids(tx.connection, set(job_ids)))
    return {row.id: row for row in JobRow.all(rows)}


# The statements of a job's ordinary life are built once: building one takes longer than running it.


def _lock_jobs(connection: Connection) -> Select[Any]:
    name = connection.dialect.name
    matching = JobRow.select().where(dialect.among_ids(name, jobs.c.id)).order_by(jobs.c.id)
    return dialect.for_update(name, matching)


_LOCK = Prepared(_lock_jobs)


def _matching(filters: JobFilter) -> list[ColumnElement[bool]]:
    """What no index says."""
    found: list[ColumnElement[bool]] = []
    if filters.states:
        found.append(jobs.c.state.in_(filters.states))
    if filters.kind is not None:
        found.append(jobs.c.kind == filters.kind)
    if filters.node_id is not None:
        found.append(jobs.c.node_id == filters.node_id)
    if filters.text:
        words = [jobs.c[name].icontains(filters.text, autoescape=True) for name in ("name", "key")]
        found.append(or_(*words, jobs.c.id == filters.text))
    return found


def is_search(filters: JobFilter) -> bool:
    """Whether rows have to be looked at that may not be wanted."""
    return bool(_matching(filters))


def _in_hand(connection: Connection, filters: JobFilter, *, most: int) -> list[Any]:
    """What nodes have now is little, and an index has it: it is found however many newer jobs wait."""
    if not filters.states or not set(filters.states).issubset(_HELD):
        return []
    held = select(jobs.c.id).where(IS_OPEN, jobs.c.state.in_(filters.states)).limit(most + 1)
    ids = connection.execute(held).scalars().all()
    return [dialect.among(connection, jobs.c.id, ids)] if len(ids) <= most else []


def list_jobs(
    connection: Connection, filters: JobFilter, *, before: str | None, limit: int, window: int
) -> tuple[list[JobRow], str | None]:
    """Newest first, of the next `window` jobs of the account or group; and where to go on, if there is more.

    Hub jobs are the hub's own affair.
    """
    led: list[Any] = [jobs.c.hub_job.is_(None)]
    led += [] if filters.account_id is None else [jobs.c.account_id == filters.account_id]
    led += [] if filters.group_id is None else [jobs.c.group_id == filters.group_id]
    led += [] if before is None else [jobs.c.id < before]
    led += [] if filters.since_id is None else [jobs.c.id >= filters.since_id]
    led += [] if filters.until_id is None else [jobs.c.id < filters.until_id]
    led += _in_hand(connection, filters, most=window)
    newest, matching = jobs.c.id.desc(), _matching(filters)
    last: str | None = None
    if matching:
        # Where to stop, whatever is found until there.
        end = select(jobs.c.id).where(*led).order_by(newest).offset(window - 1).limit(1)
        last = connection.execute(end).scalar()
    if last is not None:
        led.append(jobs.c.id >= last)
    statement = JobRow.select().where(*led, *matching).order_by(newest).limit(limit)
    rows = JobRow.all(connection.execute(statement))
    return rows, rows[-1].id if len(rows) == limit else last


def count_group(connection: Connection, group_id: str) -> dict[str, int]:
    """In items, by state. Items that raised are failed, although the job that carried them succeeded."""
    items, failed = func.sum(jobs.c.bundled), func.sum(jobs.c.items_failed)
    statement = (
        select(jobs.c.state, items.label("items"), failed.label("failed"))
        .where(jobs.c.group_id == group_id)
        .group_by(jobs.c.state)
    )
    counts: Counter[str] = Counter()
    for row in connection.execute(statement):
        counts[row.state] += int(row.items) - int(row.failed)
        counts[JobState.FAILED.value] += int(row.failed)
    return {state: count for state, count in counts.items() if count}


_TAKE_UNITS = (
    update(jobs)
    .where(
        jobs.c.id == bindparam("job"),
        jobs.c.group_id == bindparam("group"),
        jobs.c.finished_at_ms.is_not(None),
    )
    .values(
        bundled=case((jobs.c.bundled > bindparam("taken"), jobs.c.bundled - bindparam("taken")), else_=0),
        items_failed=case(
            (jobs.c.items_failed > bindparam("taken"), jobs.c.items_failed - bindparam("taken")), else_=0
        ),
    )
)


def take_units(tx: Tx, group_id: str, taken: Mapping[str, int]) -> None:
    """From finished jobs of the group whose items were sent again: each counts once, where it is now."""
    if taken:
        rows = [{"job": job_id, "group": group_id, "taken": count} for job_id, count in sorted(taken.items())]
        tx.connection.execute(_TAKE_UNITS, rows)


def open_in_group(connection: Connection, group_id: str) -> list[str]:
    statement = select(jobs.c.id).where(jobs.c.group_id == group_id, IS_OPEN).order_by(jobs.c.id)
    return list(connection.execute(statement).scalars())


# the queue


def list_queued(connection: Connection, *, since_ms: int, limit: int) -> list[QueuedJob]:
    """Jobs that may be given to a node, oldest first; those waiting for other jobs are not among them."""
    statement = (
        QueuedJob.select()
        .where(
            IS_OPEN,
            jobs.c.state == JobState.QUEUED.value,
            jobs.c.deps_pending == 0,
            jobs.c.comparing.is_(None),
            jobs.c.queued_at_ms >= since_ms,
        )
        .order_by(jobs.c.queued_at_ms, jobs.c.id)
        .limit(limit)
    )
    return QueuedJob.all(connection.execute(statement))


def get_queued(connection: Connection, job_ids: Sequence[str]) -> list[QueuedJob]:
    """Those of the given jobs that wait for a node."""
    statement = QueuedJob.select().where(
        dialect.among(connection, jobs.c.id, job_ids),
        jobs.c.state == JobState.QUEUED.value,
        jobs.c.deps_pending == 0,
        jobs.c.comparing.is_(None),
    )
    return QueuedJob.all(connection.execute(statement))


def lease_jobs(tx: Tx, job_ids: Sequence[str]) -> dict[str, LeasedJob]:
    """Queued → leased for those still queued and not being taken by another hub; the losers are absent."""
    rows = _LEASE.rows(tx.connection, **dialect.ids(tx.connection, job_ids))
    return {row.id: row for row in LeasedJob.all(rows)}


def _lease_jobs(connection: Connection) -> ReturningUpdate[*tuple[Any, ...]]:
    name = connection.dialect.name
    queued = jobs.c.state == JobState.QUEUED.value
    matching = select(jobs.c.id).where(
        dialect.among_ids(name, jobs.c.id), queued, jobs.c.deps_pending == 0, jobs.c.comparing.is_(None)
    )
    return (
        update(jobs)
        .where(jobs.c.id.in_(dialect.skip_locked(name, matching)), queued)
        .values(
            state=JobState.LEASED.value,
            reason=Reason.PLACED.value,
            attempt_no=jobs.c.attempt_no + 1,
        )
        .returning(*LeasedJob.columns.values())
    )


_LEASE = Prepared(_lease_jobs)

#: How long a job may wait in the queue, each time anew.
TTL_MS = func.coalesce(jobs.c.ttl_ms, jobs.c.expires_at_ms - jobs.c.created_at_ms)


def ttl_ms_of(row: JobRow) -> int:
    return row.expires_at_ms - row.created_at_ms if row.ttl_ms is None else row.ttl_ms


def requeue(tx: Tx, job_id: str, *, attempt_no: int, waits_on: bool = False, **changes: Any) -> bool:
    """Back to the queue, unless the job moved on since `attempt_no`. `waits_on`: it never stopped waiting, and has no
    more time for it than before; nor has a hub job, which is of use until then."""
    if not waits_on:
        ends_ms = case((jobs.c.hub_job.is_(None), TTL_MS + tx.now_ms), else_=jobs.c.expires_at_ms)
        changes |= {"ttl_ms": TTL_MS, "expires_at_ms": ends_ms}
    statement = (
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.attempt_no == attempt_no, jobs.c.state.in_(_HELD))
        .values(
            state=JobState.QUEUED.value,
            queued_at_ms=tx.now_ms,
            node_id=None,
            started_at_ms=None,
            progress=None,
            **changes,
        )
    )
    return tx.connection.execute(statement).rowcount == 1


def finish(tx: Tx, job_id: str, *, state: JobState, reason: Reason, **changes: Any) -> bool:
    """To a state it never leaves, at most once."""
    statement = (
        update(jobs)
        .where(jobs.c.id == job_id, IS_OPEN)
        .values(state=state.value, reason=reason.value, finished_at_ms=tx.now_ms, charge=0, **changes)
    )
    return tx.connection.execute(statement).rowcount == 1


def finish_all(tx: Tx, job_ids: Iterable[str], *, state: JobState, reason: Reason) -> list[str]:
    """The same for many, which the caller has locked: those that were not over yet, in sorted order."""
    statement = (
        update(jobs)
        # Not IS_OPEN: SQLite would look through all open jobs.
        .where(dialect.among(tx.connection, jobs.c.id, job_ids), jobs.c.finished_at_ms.is_(None))
        .values(state=state.value, reason=reason.value, finished_at_ms=tx.now_ms, charge=0)
        .returning(jobs.c.id)
    )
    return sorted(tx.connection.execute(statement).scalars())


_ACCEPT = Prepared(
    update(jobs)
    .where(
        jobs.c.id == bindparam("job"),
        jobs.c.account_id == bindparam("account"),
        jobs.c.accepted_attempt.is_(None),
        jobs.c.hold >= bindparam("cost"),
        IS_OPEN,
    )
    .values(
        state=JobState.SUCCEEDED.value,
        reason=bindparam("why"),
        accepted_attempt=bindparam("number"),
        node_id=bindparam("node"),
        started_at_ms=bindparam("started"),
        finished_at_ms=bindparam("finished"),
        exit_code=bindparam("code"),
        result=bindparam("value"),
        result_artifact=bindparam("artifact"),
        charge=bindparam("cost"),
        verdict=bindparam("believed"),
        held_until_ms=bindparam("held"),
        items_failed=bindparam("raised"),
        progress=1.0,
    )
)


def accept(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """The jobs' one accepted result. The caller holds the locks, so a row that no longer fits is a broken rule."""
    if rows and _ACCEPT.execute(tx.connection, rows) != len(rows):
        raise InvariantViolation("a job would have been accepted twice, or charged more than is set aside")
    for row in rows:
        if row["value"]:
            inline_rows.count(tx, row["account"], inline_rows.size_of(row["value"]))


_PROGRESS = (
    update(jobs)
    .where(
        jobs.c.id == bindparam("job"),
        jobs.c.attempt_no == bindparam("no"),
        or_(*(jobs.c.state == state for state in _HELD)),  # many rows at once do not go with IN
    )
    .values(progress=bindparam("share"))
)


def set_progress(tx: Tx, progress: Mapping[str, float]) -> None:
    """By attempt. What an attempt says after its job went on without it is ignored."""
    rows = []
    for id_, share in sorted(progress.items()):
        job_id, _, number = id_.rpartition("-")
        rows.append({"job": job_id, "no": int(number), "share": share})
    if rows:
        tx.connection.execute(_PROGRESS, rows)


def overdue_jobs(connection: Connection, *, now_ms: int, limit: int) -> list[str]:
    """Queued longer than their time to live. Those that wait for a host have a time of their own (`stranded`)."""
    late = select(jobs.c.id).where(IS_QUEUED, jobs.c.expires_at_ms < now_ms)
    statement = late.where(jobs.c.pinned == "").limit(limit)
    return list(connection.execute(statement).scalars())
