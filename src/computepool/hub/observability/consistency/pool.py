"""Rows that break a rule of the pool, found by reading a snapshot of the whole database.

The guarded writes of jobs and attempts keep these rules at every commit. Checking them again from outside finds the damage
of a bug, a crash or a manual change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Text, and_, case, cast, exists, func, literal, or_, select

from computepool.core.errors import NotFound
from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, TERMINAL, AttemptState, JobState, Reason, When, may_become
from computepool.core.retention import ReferenceRole
from computepool.core.trust.verification import Mode
from computepool.hub.db import dialect
from computepool.hub.db.group_tables import (
    account_secrets,
    checkpoints,
    expected_jobs,
    schedules,
    volume_versions,
    volumes,
)
from computepool.hub.db.tables import (
    IS_OPEN,
    accounts,
    artifact_refs,
    attempts,
    dependencies,
    events,
    groups,
    jobs,
    log_chunks,
    nodes,
    signing_keys,
)
from computepool.hub.groups.rows import HAS_JOB, PENDING

#: The ids of what breaks a rule.
Finder = Callable[[Connection], list[str]]


_Build = Callable[[], Select[Any]]
_Read = Callable[[Connection, Select[Any]], list[str]]


class InvariantRules(dict[str, Finder]):
    """Finders by the rule that they check. It decorates the functions that find what breaks a rule."""

    def function(self, rule: str) -> Callable[[Finder], Finder]:
        return lambda find: self.setdefault(rule, find)

    def statement(self, rule: str, *, read: _Read | None = None) -> Callable[[_Build], _Build]:
        """For a function that makes a statement, once, when it is first needed: that is half the work on a small database."""

        def add(build: _Build) -> _Build:
            build = cache(build)
            self[rule] = lambda connection: (read or ids)(connection, build())
            return build

        return add


RULES = InvariantRules()
PAY_RULES = InvariantRules()  #: about money, decided by attempts alone

_LIVE = sorted(state.value for state in LIVE_ATTEMPT)
_TERMINAL = sorted(state.value for state in TERMINAL)
_HELD = [JobState.LEASED.value, JobState.RUNNING.value]
_SUCCEEDED = AttemptState.SUCCEEDED.value

_live_count = (
    select(func.count())
    .where(attempts.c.job_id == jobs.c.id, attempts.c.state.in_(_LIVE))
    .correlate(jobs)
    .scalar_subquery()
)
_newest = and_(attempts.c.job_id == jobs.c.id, attempts.c.number == jobs.c.attempt_no)
_accepted = and_(attempts.c.job_id == jobs.c.id, attempts.c.number == jobs.c.accepted_attempt)


@contextmanager
def snapshot(url: str) -> Iterator[Connection]:
    """A read-only snapshot of the database. Hubs may go on writing."""
    file = dialect.sqlite_file(url)
    if file is not None and not file.exists():
        raise NotFound(f"There is no database at {file}.")
    engine = dialect.make_reader(url, 1)
    try:
        # Both databases know this level; with the two options PostgreSQL never aborts such a transaction.
        options = {"postgresql_readonly": True, "postgresql_deferrable": True}
        with engine.connect() as connection:
            chosen = connection.execution_options(isolation_level="SERIALIZABLE", **options)
            with chosen.begin():
                yield chosen
    finally:
        engine.dispose()


def ids(connection: Connection, statement: Select[Any]) -> list[str]:
    return sorted({str(found) for found in connection.execute(statement).scalars()})


def _jobs(*broken: ColumnElement[bool]) -> Select[Any]:
    return select(jobs.c.id).where(*broken)


# acceptance


@RULES.function("a job has at most one accepted attempt")
def accepted_twice(connection: Connection) -> list[str]:
    """Several attempts may succeed if results are compared, each of another owner."""
    results = select(attempts.c.job_id).where(attempts.c.state == _SUCCEEDED)
    twice = results.group_by(attempts.c.job_id, attempts.c.owner_id).having(func.count() > 1)
    believed = results.join(jobs, jobs.c.id == attempts.c.job_id).where(jobs.c.verify == Mode.NONE.value)
    several = believed.group_by(attempts.c.job_id).having(func.count() > 1)
    return sorted({*ids(connection, twice), *ids(connection, several)})


@RULES.statement("an accepted attempt was reported as succeeded")
def accepted_without_success() -> Select[Any]:
    proof = exists().where(_accepted, attempts.c.state == _SUCCEEDED, attempts.c.report_digest.is_not(None))
    return _jobs(jobs.c.accepted_attempt.is_not(None), ~proof)


@RULES.statement("a job has succeeded exactly when an attempt was accepted")
def success_not_accepted() -> Select[Any]:
    """A job has succeeded exactly when an attempt was accepted, and a succeeded attempt is the accepted one, or one that
    was compared with it."""
    other = exists().where(
        attempts.c.job_id == jobs.c.id,
        attempts.c.state == _SUCCEEDED,
        or_(jobs.c.verify == Mode.NONE.value, attempts.c.outcome.is_(None)),
        attempts.c.number != func.coalesce(jobs.c.accepted_attempt, 0),
    )
    succeeded = jobs.c.state == JobState.SUCCEEDED.value
    return _jobs(or_(succeeded != jobs.c.accepted_attempt.is_not(None), other))


# attempts


@RULES.statement("a finished job has no live attempt")
def finished_but_live() -> Select[Any]:
    return _jobs(jobs.c.state.in_(_TERMINAL), _live_count > 0)


@RULES.statement("a queued job has no live attempt")
def queued_but_live() -> Select[Any]:
    return _jobs(jobs.c.state == JobState.QUEUED.value, _live_count > 0)


@RULES.statement("a leased or running job has one live attempt, its newest")
def held_without_one_attempt() -> Select[Any]:
    """Exactly one, the newest, in the job's own state, on the job's node."""
    same = exists().where(_newest, attempts.c.state == jobs.c.state, attempts.c.node_id == jobs.c.node_id)
    return _jobs(jobs.c.state.in_(_HELD), or_(_live_count != 1, ~same))


@RULES.statement("all unfinished members of a gang wait, or all are held, with as many attempts")
def divided_gangs() -> Select[Any]:
    other = jobs.alias("other")
    waits, other_waits = jobs.c.state == JobState.QUEUED.value, other.c.state == JobState.QUEUED.value
    differs = or_(waits != other_waits, jobs.c.attempt_no != other.c.attempt_no)
    divided = exists().where(other.c.gang == jobs.c.gang, other.c.finished_at_ms.is_(None), differs)
    return _jobs(jobs.c.gang.is_not(None), jobs.c.finished_at_ms.is_(None), divided)


@RULES.statement("a job's attempt number is that of its newest attempt")
def numbers_out_of_step() -> Select[Any]:
    """Attempts are numbered 1, 2, 3 … and the job knows the last number."""
    own = attempts.c.job_id == jobs.c.id
    last = select(func.coalesce(func.max(attempts.c.number), 0)).where(own).correlate(jobs).scalar_subquery()
    count = select(func.count()).where(own).correlate(jobs).scalar_subquery()
    return _jobs(or_(last != jobs.c.attempt_no, count != jobs.c.attempt_no))


@RULES.statement("an attempt is named after its job and number")
def misnamed_attempts() -> Select[Any]:
    """An attempt's id is its fencing token and names its job and number."""
    named = attempts.c.job_id + literal("-") + cast(attempts.c.number, Text)
    return select(attempts.c.id).where(attempts.c.id != named)


@RULES.statement("an attempt has an end time exactly when it is over")
def ended_without_time() -> Select[Any]:
    """An attempt is over exactly when it has an end time, and a reported one is over."""
    live = attempts.c.state.in_(_LIVE)
    broken = or_(live != attempts.c.finished_at_ms.is_(None), and_(live, attempts.c.report_digest.is_not(None)))
    return select(attempts.c.id).where(broken)


@RULES.statement("a job has an end time exactly when it is finished")
def finished_without_time() -> Select[Any]:
    return _jobs(jobs.c.state.in_(_TERMINAL) != jobs.c.finished_at_ms.is_not(None))


# dependencies

_before = jobs.alias("before")
_LOST = sorted(set(_TERMINAL) - {JobState.SUCCEEDED.value})
_before_failed = _before.c.state.in_(_LOST) & (_before.c.reason != Reason.SKIPPED.value)
_runs_after_failure = func.coalesce(jobs.c.run_when, "") == When.FAILURE.value


def _comes_after(*which: ColumnElement[bool]) -> ColumnElement[bool]:
    """A job comes after such a job."""
    return exists().where(dependencies.c.job_id == jobs.c.id, _before.c.id == dependencies.c.after_id, *which)


def _of_those_before(what: ColumnElement[int]) -> ColumnElement[int]:
    joined = select(what).select_from(dependencies.join(_before, _before.c.id == dependencies.c.after_id))
    return joined.where(dependencies.c.job_id == jobs.c.id).correlate(jobs).scalar_subquery()


@RULES.statement("a job counts the unfinished jobs it waits for")
def wrong_dependency_count() -> Select[Any]:
    """A waiting job counts the jobs it still waits for; a placed one waits for none."""
    pending = func.count().filter(_before.c.state.not_in(_TERMINAL))
    waits = case((_runs_after_failure & _comes_after(_before_failed), 0), else_=_of_those_before(pending))
    counted = [JobState.QUEUED.value, *_HELD, JobState.SUCCEEDED.value]
    return _jobs(jobs.c.state.in_(counted), waits != jobs.c.deps_pending)


@RULES.statement("no queued job waits for one that failed")
def waits_for_failed() -> Select[Any]:
    """A job that can never start must not stay queued."""
    needs_success = jobs.c.run_when.is_(None) & _comes_after(_before.c.state.in_(_LOST))
    needs_failure = _runs_after_failure & _comes_after() & ~_comes_after(_before.c.state.not_in(_TERMINAL))
    return _jobs(jobs.c.state == JobState.QUEUED.value, needs_success | (needs_failure & ~_comes_after(_before_failed)))


@RULES.statement("a job whose results are compared waits for an answer")
def waits_for_no_answer() -> Select[Any]:
    """A job that waits for a comparison is queued, and the comparison is unfinished."""
    comparing_job = jobs.alias("comparing_job")
    under_way = exists().where(comparing_job.c.id == jobs.c.comparing, comparing_job.c.state.not_in(_TERMINAL))
    waiting = and_(jobs.c.comparing.is_not(None), jobs.c.state.not_in(_TERMINAL))
    return _jobs(waiting, or_(jobs.c.state != JobState.QUEUED.value, ~under_way))


# events


def _transitions() -> Select[Any]:
    """Every transition of every job, with the one before it."""
    in_job: dict[str, Any] = {"partition_by": events.c.job_id, "order_by": events.c.seq}
    return select(
        events.c.job_id,
        events.c.before,
        events.c.after,
        func.lag(events.c.after).over(**in_job).label("previous"),
        func.row_number().over(**in_job).label("place"),
    ).where(events.c.action.like("job.%"))


@RULES.function("a job's events follow each other without a gap")
def broken_histories(connection: Connection) -> list[str]:
    """A job's events start with its submission and follow each other without a gap, by allowed transitions."""
    broken = set()
    for row in connection.execute(_transitions()):
        if row.place == 1:
            good = row.before is None and row.after == JobState.QUEUED.value
        else:
            good = row.before == row.previous and may_become(JobState(row.before), JobState(row.after))
        if not good:
            broken.add(str(row.job_id))
    return sorted(broken)


@RULES.statement("a job's last event states its state")
def last_event_differs() -> Select[Any]:
    newest = (
        select(events.c.job_id, func.max(events.c.seq).label("seq"))
        .where(events.c.action.like("job.%"))
        .group_by(events.c.job_id)
        .subquery()
    )
    last = select(events.c.job_id, events.c.after).join(newest, newest.c.seq == events.c.seq).subquery()
    joined = jobs.outerjoin(last, last.c.job_id == jobs.c.id)
    statement = select(jobs.c.id).select_from(joined)
    return statement.where(func.coalesce(last.c.after, "") != jobs.c.state)


@RULES.statement("a finished job has one final event, an unfinished one none")
def not_one_final_event() -> Select[Any]:
    """A finished job has one final event, by which its result is delivered; an unfinished one has none."""
    final = select(func.count()).where(events.c.job_id == jobs.c.id, events.c.final).correlate(jobs).scalar_subquery()
    finished = jobs.c.state.in_(_TERMINAL)
    return _jobs(or_(and_(finished, final != 1), and_(~finished, final != 0)))


# references


@RULES.statement("a job's group exists and has the job's owner")
def lost_groups() -> Select[Any]:
    own = exists().where(groups.c.id == jobs.c.group_id, groups.c.account_id == jobs.c.account_id)
    return _jobs(jobs.c.group_id.is_not(None), ~own)


@RULES.function("every reference leads to an existing object")
def lost_references(connection: Connection) -> list[str]:
    """References to objects that do not exist, where the schema has no foreign key."""
    owner = exists().where(accounts.c.id == jobs.c.account_id)
    place = exists().where(nodes.c.id == jobs.c.node_id)
    found = ids(connection, _jobs(or_(~owner, and_(jobs.c.node_id.is_not(None), ~place))))
    of_job = [
        (artifact_refs.c.job_id, artifact_refs.c.job_id != ""),
        (log_chunks.c.job_id, log_chunks.c.job_id != ""),
        (events.c.job_id, events.c.job_id.is_not(None)),
    ]
    for column, given in of_job:
        found += ids(connection, select(column).where(given, ~exists().where(jobs.c.id == column)))
    written = exists().where(attempts.c.id == log_chunks.c.attempt_id)
    return found + ids(connection, select(log_chunks.c.attempt_id).where(~written))


# groups

_open_job = exists().where(jobs.c.group_id == groups.c.id, IS_OPEN).correlate(groups)
_any_job = exists().where(jobs.c.group_id == groups.c.id).correlate(groups)
_pending_key = (
    exists().where(expected_jobs.c.group_id == groups.c.id, expected_jobs.c.state == PENDING).correlate(groups)
)
_job_of_key = (
    exists()
    .where(jobs.c.group_id == expected_jobs.c.group_id, jobs.c.key == expected_jobs.c.key)
    .correlate(expected_jobs)
)


@RULES.statement("a watched group is complete exactly when it waits for nothing")
def wrongly_complete() -> Select[Any]:
    """Complete while it waits for something; or watched, waiting for nothing, and not complete."""
    waits = or_(_open_job, _pending_key)
    early = and_(groups.c.completed_at_ms.is_not(None), waits)
    missed = and_(groups.c.watched, groups.c.completed_at_ms.is_(None), ~waits, or_(_any_job, groups.c.expected > 0))
    return select(groups.c.id).where(or_(early, missed))


@RULES.statement("the open jobs of a watched group are marked as watched")
def unwatched_jobs() -> Select[Any]:
    """Jobs whose end would not complete their watched group."""
    of_group = select(jobs.c.id).join(groups, groups.c.id == jobs.c.group_id)
    return of_group.where(IS_OPEN, groups.c.watched, ~jobs.c.watched)


@RULES.function("a group's keys are counted, and have a job exactly when their state says so")
def wrong_keys(connection: Connection) -> list[str]:
    """Groups whose keys are counted wrongly, or whose keys and jobs do not match."""
    counted = select(func.count()).where(expected_jobs.c.group_id == groups.c.id).correlate(groups).scalar_subquery()
    wrong = select(groups.c.id).where(groups.c.expected != counted)
    says = expected_jobs.c.state == HAS_JOB
    astray = select(expected_jobs.c.group_id).where(or_(and_(says, ~_job_of_key), and_(~says, _job_of_key)))
    return sorted({*ids(connection, wrong), *ids(connection, astray)})


@RULES.statement("a group's home is a node of its owner")
def strange_homes() -> Select[Any]:
    """A home must be a node of the group's account, and only a complete group is delivered, if that was requested."""
    own = exists().where(nodes.c.id == groups.c.home, nodes.c.account_id == groups.c.account_id).correlate(groups)
    ready = and_(groups.c.return_home, groups.c.completed_at_ms.is_not(None))
    return select(groups.c.id).where(
        or_(and_(groups.c.home.is_not(None), ~own), and_(groups.c.home_state.is_not(None), ~ready))
    )


# checkpoints: where a job resumes, and what is paid for work that another attempt used

_later = attempts.alias("later")


@RULES.statement("an unfinished job names its checkpoint, a finished one has none")
def lost_checkpoints() -> Select[Any]:
    joined = jobs.outerjoin(checkpoints, checkpoints.c.job_id == jobs.c.id)
    made = exists().where(attempts.c.job_id == jobs.c.id, attempts.c.number == checkpoints.c.attempt_no)
    differs = func.coalesce(checkpoints.c.attempt_no, 0) != func.coalesce(jobs.c.checkpoint_no, 0)
    nowhere = and_(checkpoints.c.job_id.is_not(None), ~made)
    late = and_(checkpoints.c.job_id.is_not(None), jobs.c.state.in_(_TERMINAL))
    return select(jobs.c.id).select_from(joined).where(or_(differs, nowhere, late))


def was_used() -> ColumnElement[bool]:
    """Whether an attempt that was paid for resumed from this one's checkpoint."""
    return exists().where(
        _later.c.job_id == attempts.c.job_id, _later.c.resumed_no == attempts.c.number, _later.c.charge.is_not(None)
    )


@PAY_RULES.function("work without a result is paid for if another attempt used it")
def paid_for_unused_work(connection: Connection) -> list[str]:
    """An attempt without a result is paid at most up to the checkpoint that a paid attempt resumed from, and all attempts
    of a run together at most up to the job's time limit."""
    used = exists().where(
        _later.c.job_id == attempts.c.job_id,
        _later.c.resumed_no == attempts.c.number,
        _later.c.number > attempts.c.number,
        _later.c.charge.is_not(None),
        attempts.c.billed_ms <= _later.c.resumed_ms,
    )
    unused = select(attempts.c.id).where(
        attempts.c.charge.is_not(None), attempts.c.state != AttemptState.SUCCEEDED.value, ~used
    )
    return sorted({*ids(connection, unused), *_over_the_limit(connection)})


def _over_the_limit(connection: Connection) -> list[str]:
    chained = exists().where(_later.c.job_id == jobs.c.id, _later.c.resumed_no.is_not(None))
    statement = (
        select(jobs.c.longest_ms, attempts.c.id, attempts.c.job_id, attempts.c.number)
        .add_columns(attempts.c.resumed_no, attempts.c.billed_ms)
        .join(attempts, attempts.c.job_id == jobs.c.id)
        .where(chained, attempts.c.charge.is_not(None))
        .order_by(attempts.c.job_id, attempts.c.number)
    )
    found = []
    for _, rows in groupby(connection.execute(statement), key=lambda row: row.job_id):
        total: dict[int, int] = {}  # by attempt: the time of its run up to its end
        for row in rows:
            total[row.number] = (row.billed_ms or 0) + total.get(row.resumed_no, 0)
            if total[row.number] > row.longest_ms:
                found.append(str(row.id))
    return found


# secrets and schedules


@RULES.statement("secrets are encrypted with a key that the hub has")
def lost_secrets() -> Select[Any]:
    joined = account_secrets.join(signing_keys, signing_keys.c.kid == account_secrets.c.kid)
    return select(account_secrets.c.name).select_from(joined).where(signing_keys.c.private_key.is_(None))


@RULES.statement("a schedule has a next tick if and only if it is active")
def stuck_schedules() -> Select[Any]:
    return select(schedules.c.id).where((schedules.c.state == "active") != schedules.c.next_at_ms.is_not(None))


# volumes


@RULES.statement("the head of a volume is one of its versions")
def missing_heads() -> Select[Any]:
    version = exists().where(volume_versions.c.volume_id == volumes.c.id, volume_versions.c.number == volumes.c.head)
    return select(volumes.c.id).where(volumes.c.head != 0, or_(~version, volumes.c.head > volumes.c.last))


@RULES.statement("a version of a volume keeps its manifest")
def lost_manifests() -> Select[Any]:
    key = volume_versions.c.volume_id + "." + cast(volume_versions.c.number, Text)
    kept = exists().where(
        artifact_refs.c.digest == volume_versions.c.manifest,
        artifact_refs.c.role == ReferenceRole.VOLUME.value,
        artifact_refs.c.name == key,
    )
    return select(key).where(~kept)
