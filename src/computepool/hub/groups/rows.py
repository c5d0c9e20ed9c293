"""Rows of groups, of the keys that they expect, and of their jobs as the collector sees them.

If a group is *watched*, its jobs are marked in their own rows, and an index contains those that are open. So finding out
whether it is complete costs the same for groups of any size, and nothing for unwatched groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, exists, func, select, update

from computepool.core.jobs.lifecycle import JobState
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.group_tables import IS_PENDING, expected_jobs
from computepool.hub.db.queries import any_row, before_cursor, count, matches, scalars, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import (
    IS_COMING_HOME,
    IS_FINAL,
    IS_OPEN,
    IS_WATCHED,
    artifact_refs,
    artifacts,
    events,
    groups,
    jobs,
    nodes,
)
from computepool.hub.db.typed_rows import TypedRow
from computepool.hub.jobs.rows import JobRow

PENDING, HAS_JOB, SUCCEEDED, FAILED = "pending", "job", "succeeded", "failed"
WAITING, ARRIVED = "waiting", "arrived"
#: How many groups one search reads.
SEARCH_WINDOW = 20_000
#: Groups that a node is asked to fetch at once; the others follow when these have arrived.
_DELIVERIES_MAX = 20
#: Artifacts of a job that are delivered to its group's home.
_RESULT_ROLES = ("output", "result")
#: Groups that their homes have not fetched yet; until then all their artifacts are kept.
GOES_HOME = groups.c.return_home & groups.c.home.is_not(None) & (func.coalesce(groups.c.home_state, WAITING) == WAITING)


class GroupRow(TypedRow, of=groups):
    id: str
    account_id: str
    name: str
    kind: str
    created_at_ms: int
    watched: bool
    expected: int
    duplicates: int
    completed_at_ms: int | None
    rounds: int
    home: str | None
    return_home: bool
    home_state: str | None
    home_at_ms: int | None
    home_reason: str | None
    home_arrival: str | None


class ExpectedKeyRow(TypedRow, of=expected_jobs):
    group_id: str
    key: str
    state: str
    meta: str | None
    result: str | None
    error: str | None
    duplicates: int
    registered_at_ms: int
    reported_at_ms: int | None


class ResultRow(
    TypedRow,
    of=(
        events.c.seq,
        events.c.data.label("event_data"),
        jobs.c.id.is_not(None).label("has_job"),
        exists().where(artifact_refs.c.job_id == jobs.c.id, artifact_refs.c.role == "output").label("has_outputs"),
        jobs,
    ),
):
    """How a job of a group ended; or, without a job, a key that was reported from outside, which `event_data` names."""

    seq: int
    event_data: str | None
    has_job: bool
    has_outputs: bool
    id: str
    key: str | None
    item: int
    state: str
    reason: str
    exit_code: int | None
    error: str | None
    kind: str
    result: str | None
    result_artifact: str | None
    dropped_at_ms: int | None
    bundled: int
    carried: int | None
    started_at_ms: int | None
    finished_at_ms: int | None


class GroupJobRow(
    JobRow,
    of=(jobs, expected_jobs.c.meta, expected_jobs.c.duplicates.label("duplicates")),
    joined=jobs.outerjoin(
        expected_jobs, (expected_jobs.c.group_id == jobs.c.group_id) & (expected_jobs.c.key == jobs.c.key)
    ),
):
    result: str | None
    meta: str | None
    duplicates: int | None


class JobStateRow(TypedRow, of=jobs):
    """Without the columns that may be large."""

    id: str
    key: str | None
    state: str
    bundled: int
    items_failed: int


_BY_ID = GroupRow.select().where(groups.c.id == bindparam("group"))
_GROUP = Prepared(_BY_ID)
_LOCKED = Prepared(_BY_ID.with_for_update(key_share=True))
_SHARED = Prepared(_BY_ID.with_for_update(read=True))
_RESULTS = Prepared(
    ResultRow.select()
    .select_from(events)
    .outerjoin(jobs, jobs.c.id == events.c.job_id)
    .where(IS_FINAL, events.c.group_id == bindparam("group"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("most"))
)
_WAITING = select(
    exists().where(jobs.c.group_id == bindparam("group"), IS_WATCHED)
    | exists().where(expected_jobs.c.group_id == bindparam("group"), IS_PENDING)
)
_SET_META = Prepared(
    update(expected_jobs)
    .where(expected_jobs.c.group_id == bindparam("group"), expected_jobs.c.key == bindparam("name"))
    .values(meta=bindparam("words"))
)
_REPORT = Prepared(
    update(expected_jobs)
    .where(expected_jobs.c.group_id == bindparam("group"), expected_jobs.c.key == bindparam("name"), IS_PENDING)
    .values(
        state=bindparam("outcome"), result=bindparam("value"), error=bindparam("words"), reported_at_ms=bindparam("at")
    )
)
_EXPECTED = Prepared(
    lambda connection: select(nodes.c.id).where(
        dialect.among_ids(connection.dialect.name, nodes.c.id),
        exists().where(IS_COMING_HOME, groups.c.home == nodes.c.id),
    )
)
_COMING_HOME = Prepared(
    select(groups.c.id)
    .where(IS_COMING_HOME, groups.c.home == bindparam("node"))
    .order_by(groups.c.id)
    .limit(bindparam("most"))
)


def insert_group(tx: Tx, *, group_id: str, account_id: str, name: str, kind: str, **columns: Any) -> None:
    row = {"id": group_id, "account_id": account_id, "name": name, "kind": kind, **columns}
    tx.connection.execute(groups.insert().values(created_at_ms=tx.now_ms, **row))


def get_group(connection: Connection, group_id: str) -> GroupRow | None:
    return GroupRow.one(_GROUP.first(connection, group=group_id))


def lock_group(tx: Tx, group_id: str) -> GroupRow | None:
    """Until the transaction ends, nothing else registers or reports keys, submits jobs into it, or completes it."""
    return GroupRow.one(_LOCKED.first(tx.connection, group=group_id))


def join_group(tx: Tx, row: GroupRow) -> GroupRow | None:
    """The group, known as `row`, which stays as it is until the transaction ends.

    Several transactions may submit into an unwatched group at the same time. A watched one is locked, because its row may be
    written next, and two transactions that share the row would wait for each other.
    """
    now: GroupRow | None = row
    if not row.watched and tx.connection.dialect.name == "postgresql":  # on SQLite there is only one writer
        now = GroupRow.one(_SHARED.first(tx.connection, group=row.id))
    return lock_group(tx, row.id) if now is not None and now.watched else now


def set_group(tx: Tx, group_id: str, **columns: Any) -> None:
    set_where(tx, groups, groups.c.id == group_id, **columns)


def add_duplicates(tx: Tx, group_id: str, count: int) -> None:
    set_group(tx, group_id, duplicates=groups.c.duplicates + count)


def list_groups(
    connection: Connection,
    *,
    account_id: str | None,
    kinds: Sequence[str],
    before: str | None,
    limit: int,
    name: str | None = None,
) -> list[GroupRow]:
    statement = _newest(account_id=account_id, kinds=kinds, before=before).where(matches(groups.c.name, name))
    return GroupRow.all(connection.execute(statement.limit(limit)))


def search_groups(
    connection: Connection, text: str, *, account_id: str | None, kinds: Sequence[str], before: str | None, limit: int
) -> tuple[list[GroupRow], str | None]:
    """Groups with `text` in their name, or as their id; and the last group that was read, if there may be more. No index has
    names, so only `SEARCH_WINDOW` rows are read."""
    newest = _newest(account_id=account_id, kinds=kinds, before=before)
    near = newest.limit(SEARCH_WINDOW).subquery("near")
    named = near.c.name.icontains(text, autoescape=True) | (near.c.id == text)
    found = select(near).where(named).order_by(near.c.id.desc()).limit(limit)
    rows = GroupRow.all(connection.execute(found))
    if len(rows) == limit:
        return rows, rows[-1].id
    ids = newest.with_only_columns(groups.c.id)
    return rows, connection.execute(ids.offset(SEARCH_WINDOW - 1).limit(1)).scalar()


def _newest(*, account_id: str | None, kinds: Sequence[str], before: str | None) -> Select[Any]:
    which = groups.c.kind.in_(kinds), matches(groups.c.account_id, account_id), before_cursor(groups.c.id, before)
    return GroupRow.select().where(*which).order_by(groups.c.id.desc())


def list_results(connection: Connection, *, group_id: str, after: int, limit: int) -> list[ResultRow]:
    return ResultRow.all(_RESULTS.rows(connection, group=group_id, after=after, most=limit))


def watch_jobs(tx: Tx, group_id: str) -> None:
    """Mark its open jobs. Jobs that end meanwhile are locked, so none is missed."""
    set_where(tx, jobs, jobs.c.group_id == group_id, IS_OPEN, ~jobs.c.watched, watched=True)


def is_waiting(connection: Connection, group_id: str) -> bool:
    return bool(connection.execute(_WAITING, {"group": group_id}).scalar())


def is_open(connection: Connection, group_id: str) -> bool:
    """Whether a job of the group, which need not be watched, is unfinished."""
    return any_row(connection, jobs.c.group_id == group_id, IS_OPEN)


def has_jobs(connection: Connection, group_id: str) -> bool:
    return any_row(connection, jobs.c.group_id == group_id)


# expected keys


def get_expected(connection: Connection, group_id: str, keys: Iterable[str]) -> dict[str, ExpectedKeyRow]:
    matching = dialect.among(connection, expected_jobs.c.key, keys)
    rows = ExpectedKeyRow.fetch(connection, expected_jobs.c.group_id == group_id, matching)
    return {row.key: row for row in rows}


def keys_of_jobs(connection: Connection, group_id: str, keys: Iterable[str]) -> set[str]:
    matching = dialect.among(connection, jobs.c.key, keys)
    return set(connection.execute(select(jobs.c.key).where(jobs.c.group_id == group_id, matching)).scalars())


def insert_expected(tx: Tx, group_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    shared = {"group_id": group_id, "registered_at_ms": tx.now_ms}
    tx.connection.execute(expected_jobs.insert(), [{**shared, **row} for row in rows])


def set_meta(tx: Tx, group_id: str, meta: Mapping[str, str | None]) -> None:
    rows = [{"group": group_id, "name": key, "words": text} for key, text in sorted(meta.items())]
    _SET_META.execute(tx.connection, rows)


def give_to_jobs(tx: Tx, group_id: str, keys: Iterable[str]) -> None:
    """Jobs with these keys were submitted: from now on the jobs' outcomes are those of the keys."""
    matching = dialect.among(tx.connection, expected_jobs.c.key, keys)
    set_where(tx, expected_jobs, expected_jobs.c.group_id == group_id, IS_PENDING, matching, state=HAS_JOB)


def report(tx: Tx, group_id: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """Store the outcomes of pending keys; returns how many were pending."""
    return _REPORT.execute(tx.connection, [{"group": group_id, "at": tx.now_ms, **row} for row in rows])


def count_duplicates(tx: Tx, group_id: str, counts: Mapping[str, int]) -> None:
    """Add to the counts of duplicate reports, given by key, and to their sum in the group."""
    if counts:
        add_duplicates(tx, group_id, sum(counts.values()))
    for key, again in sorted(counts.items()):
        one = expected_jobs.c.group_id == group_id, expected_jobs.c.key == key
        set_where(tx, expected_jobs, *one, duplicates=expected_jobs.c.duplicates + again)


def pending_keys(connection: Connection, group_id: str, *, limit: int) -> list[str]:
    statement = (
        select(expected_jobs.c.key)
        .where(expected_jobs.c.group_id == group_id, IS_PENDING)
        .order_by(expected_jobs.c.key)
        .limit(limit)
    )
    return scalars(connection, statement)


def count_of_account(connection: Connection, account_id: str) -> int:
    return count(connection, groups.c.account_id == account_id)


def words_of_account(connection: Connection, account_id: str) -> int:
    """The length in characters of keys, their metadata, and what was reported for them from outside."""
    columns = (expected_jobs.c.key, expected_jobs.c.meta, expected_jobs.c.result, expected_jobs.c.error)
    each = sum((func.coalesce(func.length(column), 0) for column in columns[1:]), func.length(columns[0]))
    statement = (
        select(func.coalesce(func.sum(each), 0))
        .join(groups, groups.c.id == expected_jobs.c.group_id)
        .where(groups.c.account_id == account_id, groups.c.expected > 0)
    )
    return int(connection.execute(statement).scalar_one())


def count_keys(connection: Connection, group_id: str) -> dict[str, int]:
    """Keys without a job, by state."""
    statement = (
        select(expected_jobs.c.state, func.count().label("keys"))
        .where(expected_jobs.c.group_id == group_id, expected_jobs.c.state != HAS_JOB)
        .group_by(expected_jobs.c.state)
    )
    return {row.state: row.keys for row in connection.execute(statement)}


# pages of jobs and keys


def page_jobs(
    connection: Connection, group_id: str, *, states: Sequence[str], after: str, limit: int
) -> list[GroupJobRow]:
    """With `states`, only jobs with items that count as one of these."""
    which = [jobs.c.group_id == group_id, jobs.c.id > after]
    if states:
        counts = jobs.c.state.in_(states) & (jobs.c.bundled > jobs.c.items_failed)
        if JobState.FAILED.value in states:
            counts |= jobs.c.items_failed > 0
        which.append(counts)
    return GroupJobRow.fetch(connection, *which, order=jobs.c.id, limit=limit)


def page_job_states(connection: Connection, group_id: str, *, after: str, limit: int) -> list[JobStateRow]:
    return JobStateRow.fetch(connection, jobs.c.group_id == group_id, jobs.c.id > after, order=jobs.c.id, limit=limit)


def page_keys(
    connection: Connection, group_id: str, *, states: Sequence[str], after: str, limit: int
) -> list[ExpectedKeyRow]:
    shown = expected_jobs.c.state.in_(states) if states else expected_jobs.c.state != HAS_JOB
    which = expected_jobs.c.group_id == group_id, expected_jobs.c.key > after, shown
    return ExpectedKeyRow.fetch(connection, *which, order=expected_jobs.c.key, limit=limit)


def groups_to_fetch(connection: Connection, node_id: str) -> list[str]:
    """The groups that this node is to fetch next, oldest first."""
    return [group_id for (group_id,) in _COMING_HOME.rows(connection, node=node_id, most=_DELIVERIES_MAX)]


def with_groups_to_fetch(connection: Connection, node_ids: Sequence[str]) -> list[str]:
    """The given nodes for which a group waits."""
    return [node_id for (node_id,) in _EXPECTED.rows(connection, **dialect.ids(connection, node_ids))]


def count_items(connection: Connection, group_id: str) -> int:
    of_group = select(func.count()).where(jobs.c.group_id == group_id).scalar_subquery()
    others = (
        select(func.count())
        .where(expected_jobs.c.group_id == group_id, expected_jobs.c.state != HAS_JOB)
        .scalar_subquery()
    )
    return int(connection.execute(select(of_group + others)).scalar_one())


def _digests(group_id: str) -> Select[Any]:
    return (
        select(artifact_refs.c.digest)
        .join(jobs, jobs.c.id == artifact_refs.c.job_id)
        .where(
            jobs.c.group_id == group_id,
            artifact_refs.c.account_id == jobs.c.account_id,
            artifact_refs.c.role.in_(_RESULT_ROLES),
        )
        .distinct()
    )


def count_files(connection: Connection, group_id: str) -> tuple[int, int]:
    """The number of different artifacts that its jobs produced, and their bytes."""
    found = _digests(group_id).subquery()
    statement = select(func.count(), func.coalesce(func.sum(artifacts.c.size), 0)).where(
        artifacts.c.digest.in_(select(found.c.digest))
    )
    row = connection.execute(statement).one()
    return int(row[0]), int(row[1])


def digests_of(connection: Connection, group_id: str, *, limit: int) -> list[str]:
    return scalars(connection, _digests(group_id).order_by(artifact_refs.c.digest).limit(limit))


def home_may_read(connection: Connection, *, digest: str, node_id: str) -> bool:
    """A node may read artifacts of the groups of its owner whose home it is, while they wait to be fetched."""
    return any_row(
        connection,
        artifact_refs.c.digest == digest,
        artifact_refs.c.role.in_(_RESULT_ROLES),
        artifact_refs.c.job_id == jobs.c.id,
        artifact_refs.c.account_id == groups.c.account_id,
        jobs.c.group_id == groups.c.id,
        groups.c.home == nodes.c.id,
        groups.c.account_id == nodes.c.account_id,
        nodes.c.id == node_id,
        IS_COMING_HOME,
    )
