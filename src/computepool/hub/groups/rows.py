"""Groups: their rows, the keys they expect, and their jobs as the collector sees them.

A group is *watched* when somebody wants to know that it is complete. Its jobs say so in their own rows, and an index
holds those of them that are open: to find out costs the same however large the group is, and others pay nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, exists, func, select, update

from computepool.core.jobs.lifecycle import JobState
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.group_tables import IS_PENDING, expected_jobs
from computepool.hub.db.queries import count, set_where, there_is, values
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
#: How many groups one search looks at.
SEARCH_WINDOW = 20_000
#: What of a job goes home with its group.
_RESULT_ROLES = ("output", "result")


#: Its home has not fetched it yet, and will: until then everything of it is kept.
GOES_HOME = (
    groups.c.return_home
    & groups.c.home.is_not(None)
    & (func.coalesce(groups.c.home_state, WAITING) == WAITING)
)


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
    of=(events.c.seq, events.c.data.label("event_data"), jobs.c.id.is_not(None).label("has_job"), jobs),
):
    """How a job of a group ended. Without a job: a key that was reported from outside, which `told` names."""

    seq: int
    event_data: str | None
    has_job: bool
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


class GroupJobRow(JobRow, of=(jobs, expected_jobs.c.meta, expected_jobs.c.duplicates.label("duplicates"))):
    result: str | None
    meta: str | None
    duplicates: int | None


class JobStateRow(TypedRow, of=jobs):
    """The least about a job, from rows that may hold large results."""

    id: str
    key: str | None
    state: str
    bundled: int
    items_failed: int


def insert_group(tx: Tx, *, group_id: str, account_id: str, name: str, kind: str, **columns: Any) -> None:
    row = {"id": group_id, "account_id": account_id, "name": name, "kind": kind, **columns}
    tx.connection.execute(groups.insert().values(created_at_ms=tx.now_ms, **row))


def get_group(connection: Connection, group_id: str) -> GroupRow | None:
    return GroupRow.one(_GROUP.first(connection, group=group_id))


_BY_ID = GroupRow.select().where(groups.c.id == bindparam("group"))
_GROUP = Prepared(_BY_ID)
_LOCKED = Prepared(lambda connection: dialect.for_update(connection.dialect.name, _BY_ID))
_SHARED = Prepared(lambda connection: dialect.for_share(connection.dialect.name, _BY_ID))


def lock_group(tx: Tx, group_id: str) -> GroupRow | None:
    """Nobody else registers, reports, submits into or completes it until the transaction ends."""
    return GroupRow.one(_LOCKED.first(tx.connection, group=group_id))


def join_group(tx: Tx, row: GroupRow) -> GroupRow | None:
    """What it is, known as `row`, stays as it is now until the transaction ends. Others may submit into it at the same time,
    unless it is watched: then its row may be written next, and two that share it would wait for each other.
    """
    now: GroupRow | None = row
    if not row.watched and tx.connection.dialect.name == "postgresql":  # on SQLite nobody else writes
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
    statement = _newest(account_id=account_id, kinds=kinds, before=before).limit(limit)
    if name is not None:
        statement = statement.where(groups.c.name == name)
    return GroupRow.all(connection.execute(statement))


def search_groups(
    connection: Connection,
    text: str,
    *,
    account_id: str | None,
    kinds: Sequence[str],
    before: str | None,
    limit: int,
) -> tuple[list[GroupRow], str | None]:
    """Those with `text` in their name, or as their id. No index has that, so only so many are looked at in one go: the
    second is the last one that was, when there may be more."""
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
    statement = GroupRow.select().where(groups.c.kind.in_(kinds)).order_by(groups.c.id.desc())
    if account_id is not None:
        statement = statement.where(groups.c.account_id == account_id)
    if before is not None:
        statement = statement.where(groups.c.id < before)
    return statement


# results, in the order in which they came


def list_results(connection: Connection, *, group_id: str, after: int, limit: int) -> list[ResultRow]:
    """What finished of a group."""
    return ResultRow.all(_RESULTS.rows(connection, group=group_id, after=after, most=limit))


_RESULTS = Prepared(
    ResultRow.select()
    .select_from(events)
    .outerjoin(jobs, jobs.c.id == events.c.job_id)
    .where(IS_FINAL, events.c.group_id == bindparam("group"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("most"))
)


# is it complete?


def watch_jobs(tx: Tx, group_id: str) -> None:
    """Its open jobs, from now on. Those that end meanwhile hold their rows, so none is missed."""
    set_where(tx, jobs, jobs.c.group_id == group_id, IS_OPEN, ~jobs.c.watched, watched=True)


def is_waiting(connection: Connection, group_id: str) -> bool:
    """Whether a watched group waits for anything."""
    return bool(connection.execute(_WAITING, {"group": group_id}).scalar())


_WAITING = select(
    exists().where(jobs.c.group_id == bindparam("group"), IS_WATCHED)
    | exists().where(expected_jobs.c.group_id == bindparam("group"), IS_PENDING)
)


def is_open(connection: Connection, group_id: str) -> bool:
    """The same of any group: whether one of its jobs is unfinished."""
    return there_is(connection, jobs.c.group_id == group_id, IS_OPEN)


def has_jobs(connection: Connection, group_id: str) -> bool:
    return there_is(connection, jobs.c.group_id == group_id)


# expected keys


def get_expected(connection: Connection, group_id: str, keys: Iterable[str]) -> dict[str, ExpectedKeyRow]:
    matching = dialect.among(connection, expected_jobs.c.key, keys)
    statement = ExpectedKeyRow.select().where(expected_jobs.c.group_id == group_id, matching)
    return {row.key: row for row in ExpectedKeyRow.all(connection.execute(statement))}


def keys_of_jobs(connection: Connection, group_id: str, keys: Iterable[str]) -> set[str]:
    matching = dialect.among(connection, jobs.c.key, keys)
    return set(connection.execute(select(jobs.c.key).where(jobs.c.group_id == group_id, matching)).scalars())


def insert_expected(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        tx.connection.execute(
            expected_jobs.insert(), [{"registered_at_ms": tx.now_ms, **row} for row in rows]
        )


_SET_META = (
    update(expected_jobs)
    .where(expected_jobs.c.group_id == bindparam("group"), expected_jobs.c.key == bindparam("name"))
    .values(meta=bindparam("words"))
)


def set_meta(tx: Tx, group_id: str, meta: Mapping[str, str | None]) -> None:
    if meta:
        rows = [{"group": group_id, "name": key, "words": text} for key, text in sorted(meta.items())]
        tx.connection.execute(_SET_META, rows)


def give_to_jobs(tx: Tx, group_id: str, keys: Iterable[str]) -> None:
    """Jobs with these keys were submitted: what becomes of the keys is what becomes of the jobs."""
    matching = dialect.among(tx.connection, expected_jobs.c.key, keys)
    set_where(tx, expected_jobs, expected_jobs.c.group_id == group_id, IS_PENDING, matching, state=HAS_JOB)


_REPORT = (
    update(expected_jobs)
    .where(
        expected_jobs.c.group_id == bindparam("group"), expected_jobs.c.key == bindparam("name"), IS_PENDING
    )
    .values(
        state=bindparam("outcome"),
        result=bindparam("value"),
        error=bindparam("words"),
        reported_at_ms=bindparam("at"),
    )
)


def report(tx: Tx, group_id: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """How keys ended that waited for it; returns how many did."""
    if not rows:
        return 0
    rowcount = tx.connection.execute(
        _REPORT, [{"group": group_id, "at": tx.now_ms, **row} for row in rows]
    ).rowcount
    return int(rowcount)


def count_duplicates(tx: Tx, group_id: str, counts: Mapping[str, int]) -> None:
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
    return values(connection, statement)


def count_of_account(connection: Connection, account_id: str) -> int:
    return count(connection, groups.c.account_id == account_id)


def words_of_account(connection: Connection, account_id: str) -> int:
    """How long keys, their metadata and what was reported of them from outside are, in characters."""
    columns = (expected_jobs.c.key, expected_jobs.c.meta, expected_jobs.c.result, expected_jobs.c.error)
    each = sum((func.coalesce(func.length(column), 0) for column in columns[1:]), func.length(columns[0]))
    statement = (
        select(func.coalesce(func.sum(each), 0))
        .join(groups, groups.c.id == expected_jobs.c.group_id)
        .where(groups.c.account_id == account_id, groups.c.expected > 0)
    )
    return int(connection.execute(statement).scalar_one())


def count_keys(connection: Connection, group_id: str) -> dict[str, int]:
    """Those without a job, by state."""
    statement = (
        select(expected_jobs.c.state, func.count().label("keys"))
        .where(expected_jobs.c.group_id == group_id, expected_jobs.c.state != HAS_JOB)
        .group_by(expected_jobs.c.state)
    )
    return {row.state: row.keys for row in connection.execute(statement)}


# pages of both


def page_jobs(
    connection: Connection, group_id: str, *, states: Sequence[str], after: str, limit: int
) -> list[GroupJobRow]:
    """With `states`: those that have items which count as one of these."""
    statement = (
        GroupJobRow.select()
        .outerjoin(
            expected_jobs, (expected_jobs.c.group_id == jobs.c.group_id) & (expected_jobs.c.key == jobs.c.key)
        )
        .where(jobs.c.group_id == group_id, jobs.c.id > after)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    if states:
        counts = jobs.c.state.in_(states) & (jobs.c.bundled > jobs.c.items_failed)
        if JobState.FAILED.value in states:
            counts |= jobs.c.items_failed > 0
        statement = statement.where(counts)
    return GroupJobRow.all(connection.execute(statement))


def page_job_states(connection: Connection, group_id: str, *, after: str, limit: int) -> list[JobStateRow]:
    statement = (
        JobStateRow.select()
        .where(jobs.c.group_id == group_id, jobs.c.id > after)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return JobStateRow.all(connection.execute(statement))


def page_keys(
    connection: Connection, group_id: str, *, states: Sequence[str], after: str, limit: int
) -> list[ExpectedKeyRow]:
    """Keys without a job."""
    statement = (
        ExpectedKeyRow.select()
        .where(expected_jobs.c.group_id == group_id, expected_jobs.c.key > after)
        .where(expected_jobs.c.state.in_(states) if states else expected_jobs.c.state != HAS_JOB)
        .order_by(expected_jobs.c.key)
        .limit(limit)
    )
    return ExpectedKeyRow.all(connection.execute(statement))


# home


def coming_home(connection: Connection, *, node_id: str, limit: int) -> list[str]:
    """Groups that wait for this node to fetch them, the oldest first."""
    return [group_id for (group_id,) in _COMING_HOME.rows(connection, node=node_id, most=limit)]


def with_groups_to_fetch(connection: Connection, node_ids: Sequence[str]) -> list[str]:
    """Those of these nodes for which a group waits."""
    return [node_id for (node_id,) in _EXPECTED.rows(connection, **dialect.ids(connection, node_ids))]


def _expected(connection: Connection) -> Select[Any]:
    waiting = select(groups.c.id).where(IS_COMING_HOME, groups.c.home == nodes.c.id)
    matching = dialect.among_ids(connection.dialect.name, nodes.c.id)
    return select(nodes.c.id).where(matching, waiting.exists())


_EXPECTED = Prepared(_expected)
_COMING_HOME = Prepared(
    select(groups.c.id)
    .where(IS_COMING_HOME, groups.c.home == bindparam("node"))
    .order_by(groups.c.id)
    .limit(bindparam("most"))
)


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
    """How many different artifacts its jobs left, and their bytes."""
    found = _digests(group_id).subquery()
    statement = select(func.count(), func.coalesce(func.sum(artifacts.c.size), 0)).where(
        artifacts.c.digest.in_(select(found.c.digest))
    )
    row = connection.execute(statement).one()
    return int(row[0]), int(row[1])


def digests_of(connection: Connection, group_id: str, *, limit: int) -> list[str]:
    return values(connection, _digests(group_id).order_by(artifact_refs.c.digest).limit(limit))


def home_may_read(connection: Connection, *, digest: str, node_id: str) -> bool:
    """A node may read what the jobs of a group left that it is fetching home, for its own owner."""
    return there_is(
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
