"""Rows of jobs. Every write that ends something repeats its precondition in its WHERE clause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, case, func, or_, select, true, update
from sqlalchemy.sql.dml import ReturningUpdate

from computepool.core.errors import InvariantViolation
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.artifacts import inline_rows
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.queries import before_cursor, matches, new_values, scalars
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import IS_OPEN, IS_QUEUED, jobs, specs
from computepool.hub.db.typed_rows import TypedRow
from computepool.protocol.jobs.filters import JobFilter

_HELD = [JobState.LEASED.value, JobState.RUNNING.value]
#: Waiting for nothing but a node.
_IS_PLACEABLE = (jobs.c.state == JobState.QUEUED.value, jobs.c.deps_pending == 0, jobs.c.comparing.is_(None))

#: To nodes, and in the rules of placement, a hub job belongs to the account that it is about.
SHOWN_ACCOUNT = func.coalesce(jobs.c.on_behalf_of, jobs.c.account_id).label("shown_account")


class QueuedJob(TypedRow, of=(jobs, SHOWN_ACCOUNT)):
    """What the dispatcher needs; the spec is cached by digest."""

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
    """What a grant needs."""

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
    """Without the columns that may be large."""

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
    job_faults: int
    node_faults: int
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
    run_when: str | None


class FullJobRow(JobRow, of=jobs):
    payload: str | None
    result: str | None


def insert_spec(tx: Tx, *, digest: str, body: str, account_id: str) -> None:
    """Store a spec once, and count it for the account that sent it first."""
    row = {"digest": digest, "body": body, "created_at_ms": tx.now_ms, "account_id": account_id}
    if _INSERT_SPEC.execute(tx.connection, [row]):
        inline_rows.count(tx, account_id, inline_rows.size_of(body))


def get_specs(connection: Connection, digests: Iterable[str]) -> dict[str, str]:
    matching = dialect.among(connection, specs.c.digest, digests)
    rows = connection.execute(select(specs.c.digest, specs.c.body).where(matching))
    return {row.digest: row.body for row in rows}


# Statements of a job's ordinary life are built once: building one takes longer than running it.
_INSERT_JOBS = Prepared(jobs.insert())
_INSERT_SPEC = Prepared(lambda connection: dialect.insert_ignore(connection, specs))


def new_row(tx: Tx, reason: Reason) -> dict[str, Any]:
    """The columns that are the same in all new jobs."""
    return {
        "state": JobState.QUEUED.value,
        "reason": reason.value,
        "attempt_no": 0,
        "job_faults": 0,
        "node_faults": 0,
        "ready_at_ms": tx.now_ms,
        "queued_at_ms": tx.now_ms,
        "created_at_ms": tx.now_ms,
    }


def insert_jobs(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    _INSERT_JOBS.execute(tx.connection, rows)
    for row in rows:
        if row.get("payload"):
            inline_rows.count(tx, row["account_id"], inline_rows.size_of(row["payload"]))


def count_open(connection: Connection, account_id: str) -> int:
    statement = select(func.count()).where(IS_OPEN, jobs.c.account_id == account_id, jobs.c.hub_job.is_(None))
    return connection.execute(statement).scalar_one()


def cost_since(connection: Connection, account_id: str, since_id: str) -> int:
    """What the account's jobs since then cost, or hold while they are unfinished."""
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


def get_full(connection: Connection, job_ids: Sequence[str]) -> list[FullJobRow]:
    return FullJobRow.fetch(connection, dialect.among(connection, jobs.c.id, job_ids), order=jobs.c.id)


def get_jobs(connection: Connection, job_ids: Sequence[str]) -> list[JobRow]:
    matching = dialect.among(connection, jobs.c.id, job_ids)
    return JobRow.all(connection.execute(JobRow.select().where(matching)))


def lock_jobs(tx: Tx, job_ids: Iterable[str]) -> dict[str, JobRow]:
    """Rows by id, locked in the order of ids, so that two transactions never wait for each other."""
    rows = _lock.rows(tx.connection, **dialect.ids(tx.connection, set(job_ids)))
    return {row.id: row for row in JobRow.all(rows)}


@Prepared
def _lock(connection: Connection) -> Select[Any]:
    matching = dialect.among_ids(connection.dialect.name, jobs.c.id)
    return JobRow.select().where(matching).order_by(jobs.c.id).with_for_update(key_share=True)


def _unindexed_conditions(filters: JobFilter) -> list[ColumnElement[bool]]:
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
    """Whether the database has to read rows that do not match."""
    return bool(_unindexed_conditions(filters))


def _held_jobs(connection: Connection, filters: JobFilter, *, most: int) -> list[ColumnElement[bool]]:
    """Jobs that nodes hold are few, and have an index: they are found however many newer jobs wait."""
    if not filters.states or not set(filters.states).issubset(_HELD):
        return []
    ids = scalars(connection, select(jobs.c.id).where(IS_OPEN, jobs.c.state.in_(filters.states)).limit(most + 1))
    return [dialect.among(connection, jobs.c.id, ids)] if len(ids) <= most else []


def list_jobs(
    connection: Connection, filters: JobFilter, *, before: str | None, limit: int, window: int
) -> tuple[list[JobRow], str | None]:
    """Matching jobs among the next `window` of the account or group, newest first, and the cursor to continue from, if there
    may be more. Hub jobs are left out."""
    indexed = [
        jobs.c.hub_job.is_(None),
        matches(jobs.c.account_id, filters.account_id),
        matches(jobs.c.group_id, filters.group_id),
        before_cursor(jobs.c.id, before),
        true() if filters.since_id is None else jobs.c.id >= filters.since_id,
        before_cursor(jobs.c.id, filters.until_id),
        *_held_jobs(connection, filters, most=window),
    ]
    newest, others = jobs.c.id.desc(), _unindexed_conditions(filters)
    last: str | None = None
    if others:  # they are checked row by row: only so far, whatever is found
        end = select(jobs.c.id).where(*indexed).order_by(newest).offset(window - 1).limit(1)
        last = connection.execute(end).scalar()
    if last is not None:
        indexed.append(jobs.c.id >= last)
    statement = JobRow.select().where(*indexed, *others).order_by(newest).limit(limit)
    rows = JobRow.all(connection.execute(statement))
    return rows, rows[-1].id if len(rows) == limit else last


def count_group(connection: Connection, group_id: str) -> dict[str, int]:
    """Items by state. Items that raised count as failed, although the job that carried them succeeded."""
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


_TAKE_ITEMS = Prepared(
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.group_id == bindparam("group"), jobs.c.finished_at_ms.is_not(None))
    .values(
        bundled=case((jobs.c.bundled > bindparam("taken"), jobs.c.bundled - bindparam("taken")), else_=0),
        items_failed=case(
            (jobs.c.items_failed > bindparam("taken"), jobs.c.items_failed - bindparam("taken")), else_=0
        ),
    )
)


def take_items(tx: Tx, group_id: str, taken: Mapping[str, int]) -> None:
    """Items of these finished jobs were submitted again: no longer count them here, so that each counts once."""
    rows = [{"job": job_id, "group": group_id, "taken": count} for job_id, count in sorted(taken.items())]
    _TAKE_ITEMS.execute(tx.connection, rows)


def open_in_group(connection: Connection, group_id: str) -> list[str]:
    return scalars(connection, select(jobs.c.id).where(jobs.c.group_id == group_id, IS_OPEN).order_by(jobs.c.id))


# the queue


def list_queued(connection: Connection, *, since_ms: int, limit: int) -> list[QueuedJob]:
    """Jobs that wait for nothing but a node, oldest first."""
    waiting = QueuedJob.select().where(IS_OPEN, *_IS_PLACEABLE, jobs.c.queued_at_ms >= since_ms)
    return QueuedJob.all(connection.execute(waiting.order_by(jobs.c.queued_at_ms, jobs.c.id).limit(limit)))


def get_queued(connection: Connection, job_ids: Sequence[str]) -> list[QueuedJob]:
    """The given jobs, without those that do not wait for a node."""
    statement = QueuedJob.select().where(dialect.among(connection, jobs.c.id, job_ids), *_IS_PLACEABLE)
    return QueuedJob.all(connection.execute(statement))


def lease_jobs(tx: Tx, job_ids: Sequence[str], *, node_id: str | None = None) -> dict[str, LeasedJob]:
    """Lease the jobs that are still queued and that no other hub is leasing; returns these. `node_id`: the node of all of
    them; if there are several, `set_nodes` stores the node of each."""
    if len(job_ids) == 1:
        rows = _LEASE_ONE.rows(tx.connection, job=job_ids[0], node=node_id)
    else:
        rows = _LEASE.rows(tx.connection, **dialect.ids(tx.connection, job_ids), node=node_id)
    return {row.id: row for row in LeasedJob.all(rows)}


def _lease(connection: Connection, which: ColumnElement[bool]) -> ReturningUpdate[*tuple[Any, ...]]:
    queued, *_ = _IS_PLACEABLE
    return (
        update(jobs)
        .where(dialect.skip_locked(connection.dialect.name, jobs.c.id, which, *_IS_PLACEABLE), queued)
        .values(
            state=JobState.LEASED.value,
            reason=Reason.PLACED.value,
            attempt_no=jobs.c.attempt_no + 1,
            node_id=bindparam("node"),
        )
        .returning(*LeasedJob.columns.values())
    )


_LEASE = Prepared(lambda connection: _lease(connection, dialect.among_ids(connection.dialect.name, jobs.c.id)))
#: SQLite finds a single job without temporary tables, in a fifth of the time.
_LEASE_ONE = Prepared(lambda connection: _lease(connection, jobs.c.id == bindparam("job")))
_SET_NODE = Prepared(update(jobs).where(jobs.c.id == bindparam("job")).values(node_id=bindparam("node")))


def set_nodes(tx: Tx, nodes: Mapping[str, str]) -> None:
    """By job; only for jobs that this transaction leased."""
    _SET_NODE.execute(tx.connection, [{"job": job_id, "node": node_id} for job_id, node_id in nodes.items()])


#: How long a job may wait in the queue each time.
TTL_MS = func.coalesce(jobs.c.ttl_ms, jobs.c.expires_at_ms - jobs.c.created_at_ms)


def ttl_ms_of(row: JobRow) -> int:
    return row.expires_at_ms - row.created_at_ms if row.ttl_ms is None else row.ttl_ms


def requeue(tx: Tx, job_id: str, *, attempt_no: int, waits_on: bool = False, **changes: Any) -> bool:
    """Queue the job again, unless it has moved on since `attempt_no`. It may wait as long as before once more, but not with
    `waits_on`, because it has not run; nor may a hub job, whose result would come too late."""
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
    """End an unfinished job."""
    statement = (
        update(jobs)
        .where(jobs.c.id == job_id, IS_OPEN)
        .values(state=state.value, reason=reason.value, finished_at_ms=tx.now_ms, charge=0, **changes)
    )
    return tx.connection.execute(statement).rowcount == 1


def finish_all(tx: Tx, job_ids: Iterable[str], *, state: JobState, reason: Reason) -> list[str]:
    """End many jobs, which the caller has locked; returns those that were unfinished, sorted."""
    statement = (
        update(jobs)
        # With IS_OPEN, SQLite would read all open jobs.
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
        jobs.c.hold >= bindparam("new_charge"),
        IS_OPEN,
    )
    .values(
        state=JobState.SUCCEEDED.value,
        progress=1.0,
        **new_values("reason", "accepted_attempt", "node_id", "started_at_ms", "finished_at_ms", "exit_code", "result"),
        **new_values("result_artifact", "charge", "verdict", "held_until_ms", "items_failed"),
    )
)


def accept(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Store the jobs' accepted results (`Run.accepted_row`). The caller has locked the jobs, so if one does not match, a rule
    is broken."""
    if _ACCEPT.execute(tx.connection, rows) != len(rows):
        raise InvariantViolation("a job would have been accepted twice, or charged more than its hold")
    for row in rows:
        if row["new_result"]:
            inline_rows.count(tx, row["account"], inline_rows.size_of(row["new_result"]))


_PROGRESS = Prepared(
    update(jobs)
    .where(
        jobs.c.id == bindparam("job"),
        jobs.c.attempt_no == bindparam("no"),
        or_(*(jobs.c.state == state for state in _HELD)),  # IN does not work with many rows at once
    )
    .values(progress=bindparam("share"))
)


def set_progress(tx: Tx, progress: Mapping[str, float]) -> None:
    """By attempt. Attempts that are no longer their job's newest are ignored."""
    rows = []
    for id_, share in sorted(progress.items()):
        job_id, _, number = id_.rpartition("-")
        rows.append({"job": job_id, "no": int(number), "share": share})
    _PROGRESS.execute(tx.connection, rows)


def overdue_jobs(connection: Connection, *, now_ms: int, limit: int) -> list[str]:
    """Jobs that were queued for too long. Jobs that wait for a host have another limit (`checkpoint_rows.stranded_jobs`)."""
    late = select(jobs.c.id).where(IS_QUEUED, jobs.c.expires_at_ms < now_ms, jobs.c.pinned == "")
    return scalars(connection, late.limit(limit))
