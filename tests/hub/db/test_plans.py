"""Frequent queries use an index, however many finished jobs there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from computepool.core.jobs.lifecycle import AttemptState, JobState, Reason
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.db import dialect, event_rows
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import rows as group_rows
from computepool.hub.jobs import attempt_rows, dependency_rows, rows as job_rows
from computepool.hub.lookup import reference_rows, search_rows
from computepool.hub.observability import vital_rows
from computepool.hub.trust import outcome_rows
from computepool.protocol.jobs.filters import EventFilter, JobFilter

MANY = [f"job_{number}" for number in range(600)]
ATTEMPTS = [f"{job_id}-1" for job_id in MANY]


def search(connection: Connection, **wanted: Any) -> None:
    search_rows.search_events(connection, EventFilter(**wanted), before=99, limit=9, window=50)


READS: dict[str, tuple[Callable[[Connection], Any], str]] = {
    "queue": (lambda c: job_rows.list_queued(c, since_ms=5, limit=9), "ix_jobs_open"),
    "queued by id": (lambda c: job_rows.get_queued(c, MANY), "sqlite_autoindex_jobs_1"),
    "waited too long": (lambda c: job_rows.overdue_jobs(c, now_ms=5, limit=9), "ix_jobs_ttl"),
    "leases run out": (lambda c: attempt_rows.overdue_attempts(c, now_ms=5, limit=9), "ix_attempts_lease"),
    "held by a node": (lambda c: attempt_rows.live_attempts(c, ["n"]), "ix_attempts_live"),
    "attempts of a job": (lambda c: attempt_rows.live_attempts_of_job(c, "j"), "sqlite_autoindex_attempts_2"),
    "states": (job_rows.count_states, "ix_jobs_open"),
    "open of an account": (lambda c: job_rows.count_open(c, "a"), "ix_jobs_"),
    "jobs of an account": (
        lambda c: job_rows.list_jobs(c, JobFilter(account_id="a"), before="j", limit=9, window=50),
        "ix_jobs_account",
    ),
    "jobs of an account by name": (
        lambda c: job_rows.list_jobs(c, JobFilter(account_id="a", text="x"), before="j", limit=9, window=50),
        "ix_jobs_account",
    ),
    "jobs of a group in some states": (
        lambda c: job_rows.list_jobs(c, JobFilter(group_id="g", states=["failed"]), before=None, limit=9, window=50),
        "ix_jobs_group",
    ),
    "jobs that run": (
        lambda c: job_rows.list_jobs(c, JobFilter(states=["running"]), before="j", limit=9, window=50),
        "ix_jobs_open",
    ),
    "jobs of an account by the beginning of an id": (
        lambda c: reference_rows.by_id(c, "job", "job_01k", whose="a", limit=9),
        "ix_jobs_account",
    ),
    "jobs by the beginning of an id": (
        lambda c: reference_rows.by_id(c, "job", "job_01k", whose=None, limit=9),
        "sqlite_autoindex_jobs_1",
    ),
    "jobs of an account by their whole name": (
        lambda c: reference_rows.by_name(c, "job", "x", account_id="a", window=50, limit=9),
        "ix_jobs_account",
    ),
    "newest job of an account": (lambda c: reference_rows.newest(c, "job", account_id="a"), "ix_jobs_account"),
    "dependents": (lambda c: dependency_rows.dependents(c, MANY), "ix_dependencies_after_id"),
    "results": (lambda c: group_rows.list_results(c, group_id="g", after=5, limit=9), "ix_events_results"),
    "search: own": (lambda c: search(c, only_account_id="a", text="x"), "ix_events_account"),
    "search: own, by what happened": (lambda c: search(c, only_account_id="a", action="node."), "ix_events_account"),
    "search: a job": (lambda c: search(c, job_id="j", text="x"), "ix_events_job"),
    "search: a node": (lambda c: search(c, node_id="n", action="node.o"), "ix_events_node"),
    "search: a group": (lambda c: search(c, group_id="g"), "ix_events_group"),
    "search: an action without a job": (lambda c: search(c, action="payout."), "ix_events_deeds"),
    "actions without a job": (search_rows.actions_without_job, "ix_events_deeds"),
    "first sign-in": (vital_rows.anybody_signed_in, "ix_events_deeds"),
    "outcomes of a node": (lambda c: outcome_rows.of_node(c, "n", before=5, limit=9), "ix_events_node"),
    "held by a node, with its jobs": (lambda c: outcome_rows.held_attempts(c, "n", limit=9), "ix_attempts_live"),
    "logs": (lambda c: event_rows.list_logs(c, job_id="j", after=5, limit=9), "ix_log_chunks_job"),
    "read by a node": (lambda c: artifact_rows.node_may_read(c, digest="d", node_id="n"), "sqlite_autoindex_"),
}
WRITES: dict[str, tuple[Callable[[Tx], Any], str]] = {
    "lease": (lambda tx: job_rows.lease_jobs(tx, MANY), "sqlite_autoindex_jobs_1"),
    "lock": (lambda tx: job_rows.lock_jobs(tx, MANY), "sqlite_autoindex_jobs_1"),
    "renew": (lambda tx: attempt_rows.renew_leases(tx, ATTEMPTS, until_ms=5), "sqlite_autoindex_attempts_1"),
    "finish": (
        lambda tx: job_rows.finish(tx, "j", state=JobState.FAILED, reason=Reason.TIMEOUT),
        "sqlite_autoindex_jobs_1",
    ),
    "finish many": (
        lambda tx: job_rows.finish_all(tx, MANY, state=JobState.FAILED, reason=Reason.TIMEOUT),
        "sqlite_autoindex_jobs_1",
    ),
    "release": (lambda tx: dependency_rows.count_down(tx, MANY, 1), "sqlite_autoindex_jobs_1"),
    "end": (
        lambda tx: attempt_rows.end_attempt(tx, "a", state=AttemptState.EXPIRED, reason=Reason.LEASE_LOST),
        "sqlite_autoindex_attempts_1",
    ),
}


@contextmanager
def explained(url: str) -> Iterator[tuple[Connection, list[str]]]:
    """A connection, and the plans of SQLite for the queries made with it."""
    engine = dialect.make_reader(url, 1)
    plans: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def explain(*said: Any) -> None:
        _, cursor, statement, parameters, _, many = said
        if statement.startswith(("SELECT", "UPDATE", "WITH")):
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters[0] if many else parameters)
            plans.extend(row[3] for row in cursor.fetchall())

    with engine.begin() as connection:
        yield connection, plans
    engine.dispose()


def check(plans: list[str], index: str) -> None:
    assert plans
    assert any(f"INDEX {index}" in line for line in plans), plans
    harmless = ("INDEX", "json_each", "CONSTANT ROW", "SCAN names", "SCAN near", "SCAN (subquery")
    scans = [line for line in plans if line.startswith("SCAN") and not any(word in line for word in harmless)]
    assert not scans, plans


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_queries_use_their_index(sqlite_url: str, name: str) -> None:
    with explained(sqlite_url) as (connection, plans):
        if name in READS:
            read, index = READS[name]
            read(connection)
        else:
            write, index = WRITES[name]
            write(Tx(connection=connection, now_ms=0))
    check(plans, index)


#: Searches on PostgreSQL, and the index that each uses if sequential scans are disabled.
SEARCHES: dict[str, tuple[dict[str, Any], str]] = {
    "own": ({"only_account_id": "a", "text": "x"}, "ix_events_account"),
    "a job": ({"job_id": "j", "text": "x"}, "ix_events_job"),
    "a node": ({"node_id": "n", "action": "node.o"}, "ix_events_node"),
    "a group": ({"group_id": "g"}, "ix_events_group"),
    "an action without a job": ({"action": "payout."}, "ix_events_deeds"),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_use_their_index_on_postgresql(migrated_url: str, name: str) -> None:
    wanted, index = SEARCHES[name]
    engine = dialect.make_reader(migrated_url, 1)
    asked: list[tuple[str, Any]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(*said: Any) -> None:
        if said[2].startswith(("SELECT events.seq", "SELECT min", "WITH")):
            asked.append((said[2], said[3]))

    with engine.begin() as connection:
        search(connection, **wanted)
        # Empty tables are scanned and sorted whatever indexes exist. A job has few events, which may be sorted.
        sorts = [] if name == "a job" else ["enable_sort"]
        for way in ("enable_seqscan", "enable_bitmapscan", *sorts):
            connection.exec_driver_sql(f"SET LOCAL {way} = off")
        plans = [
            "\n".join(connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())
            for statement, parameters in list(asked)
        ]
    engine.dispose()
    assert plans
    assert any(index in plan for plan in plans), plans
    assert not any("Seq Scan on events" in plan for plan in plans), plans
