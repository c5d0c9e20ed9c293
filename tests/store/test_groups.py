"""Watched groups when several hubs work on one database: completion is seen by exactly one of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from computepool.core.jobs import JobState, Reason
from computepool.hub.services import collector
from computepool.hub.store import groups, jobs
from computepool.hub.store.session import Store, Tx
from computepool.testing.factories import add_account, add_group, add_jobs
from tests.store.conftest import MakeStore


def end(job_id: str, group_id: str, *, watched: bool, then: Callable[[], object]) -> Callable[[Tx], None]:
    """As settlement does: the job's row says whether its group is watched."""

    def unit(tx: Tx) -> None:
        row = jobs.lock_jobs(tx, [job_id])[job_id]
        assert row.watched is watched
        jobs.finish(tx, job_id, state=JobState.FAILED, reason=Reason.TIMEOUT)
        if row.watched:
            tx.closing.add(group_id)
        then()

    return unit


def make(tx: Tx, *, count: int, watched: bool) -> tuple[str, list[str]]:
    account = add_account(tx)
    group = add_group(tx, account_id=account)
    if watched:
        groups.set_group(tx, group, watched=True)
    return group, add_jobs(tx, count, account_id=account, group_id=group, watched=watched)


async def rounds(store: Store, group: str) -> int:
    row = await store.read(lambda connection: groups.get_group(connection, group))
    assert row is not None
    return int(row.rounds)


async def two(url: str, make_store: MakeStore) -> tuple[Store, Store]:
    first, second = make_store(url), make_store(url)
    first.on_closing = second.on_closing = collector.close
    return first, second


async def test_the_last_two_jobs_end_on_two_hubs_at_once(
    migrated_postgres_url: str, make_store: MakeStore
) -> None:
    """Each has ended its own, and does not see the other's: without a turn for each, nobody would notice."""
    first, second = await two(migrated_postgres_url, make_store)
    group, (one, other) = await first.write(lambda tx: make(tx, count=2, watched=True))
    both = threading.Barrier(2, timeout=20)
    await asyncio.gather(
        first.write(end(one, group, watched=True, then=both.wait)),
        second.write(end(other, group, watched=True, then=both.wait)),
    )
    assert await rounds(first, group) == 1


async def test_a_group_is_watched_while_its_last_job_ends_elsewhere(
    migrated_postgres_url: str, make_store: MakeStore
) -> None:
    """The hub that ends the job read its row before: so who begins to watch has to wait for it, and then look."""
    first, second = await two(migrated_postgres_url, make_store)
    group, (one,) = await first.write(lambda tx: make(tx, count=1, watched=False))
    ended, watching = threading.Event(), threading.Event()

    def hold() -> None:
        ended.set()
        assert watching.wait(20)

    def begin(tx: Tx) -> None:
        assert ended.wait(20)
        row = groups.lock_group(tx, group)
        assert row is not None
        threading.Timer(0.2, watching.set).start()  # by then it stands before the job's row
        collector.watch(tx, row)

    await asyncio.gather(
        first.write(end(one, group, watched=False, then=hold)),
        second.write(begin),
    )
    assert await rounds(first, group) == 1


async def test_completion_is_found_by_indexes_alone(store: Store) -> None:
    """However many jobs of the group are over: the question is asked at the end of each."""
    group, _ = await store.write(lambda tx: make(tx, count=3, watched=True))
    plans: list[str] = []

    def look(tx: Tx) -> None:
        explain = "EXPLAIN " if tx.connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
        if tx.connection.dialect.name == "postgresql":
            tx.connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        text = str(groups._WAITING.compile(tx.connection, compile_kwargs={"literal_binds": False}))
        for name in ("%(group)s", "%(group)s::VARCHAR", "?"):
            text = text.replace(name, f"'{group}'")
        plans.extend(str(row) for row in tx.connection.exec_driver_sql(explain + text))

    await store.write(look)
    whole = " ".join(plans)
    assert "ix_jobs_watched" in whole
    assert "ix_expected_jobs_pending" in whole
