"""Watched groups when several hubs work on one database: completion is seen by exactly one of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, create_engine, text

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.db.session import Store, Tx, _Write
from computepool.hub.groups import collector, rows as group_rows
from computepool.hub.groups.rows import GroupRow
from computepool.hub.jobs import rows as job_rows
from computepool.testing.factories import add_account, add_group, add_jobs
from computepool.testing.waiting import wait_until
from tests.hub.db.conftest import MakeStore


def end(job_id: str, group_id: str, *, watched: bool, then: Callable[[], object]) -> Callable[[Tx], None]:
    """End a job like settlement, which reads from the job's row whether its group is watched."""

    def unit(tx: Tx) -> None:
        row = job_rows.lock_jobs(tx, [job_id])[job_id]
        assert row.watched is watched
        job_rows.finish(tx, job_id, state=JobState.FAILED, reason=Reason.TIMEOUT)
        if row.watched:
            tx.changed_groups.add(group_id)
        then()

    return unit


def make(tx: Tx, *, count: int, watched: bool) -> tuple[str, list[str]]:
    account = add_account(tx)
    group = add_group(tx, account_id=account)
    if watched:
        group_rows.set_group(tx, group, watched=True)
    return group, add_jobs(tx, count, account_id=account, group_id=group, watched=watched)


async def rounds(store: Store, group: str) -> int:
    row = await store.read(lambda connection: group_rows.get_group(connection, group))
    assert row is not None
    return int(row.rounds)


async def two(url: str, make_store: MakeStore) -> tuple[Store, Store]:
    first, second = make_store(url), make_store(url)
    return first, second


async def test_a_group_completes_once_if_its_last_jobs_end_on_two_hubs_at_once(
    migrated_url: str, make_store: MakeStore
) -> None:
    """Each ends its own job and does not see the other's. Without a lock, nobody would notice the completion."""
    first, second = await two(migrated_url, make_store)
    group, (one, other) = await first.write(lambda tx: make(tx, count=2, watched=True))
    both = threading.Barrier(2, timeout=20)
    await asyncio.gather(
        first.write(end(one, group, watched=True, then=both.wait)),
        second.write(end(other, group, watched=True, then=both.wait)),
    )
    assert await rounds(first, group) == 1


async def test_watching_a_group_waits_for_a_job_that_ends_at_another_hub(
    migrated_url: str, make_store: MakeStore
) -> None:
    """The hub that ends the job read its row before the group was watched, so watching must wait for it and then check."""
    first, second = await two(migrated_url, make_store)
    group, (one,) = await first.write(lambda tx: make(tx, count=1, watched=False))
    ended, watching = threading.Event(), threading.Event()

    def hold() -> None:
        ended.set()
        assert watching.wait(60)

    def begin(tx: Tx) -> None:
        assert ended.wait(60)
        row = group_rows.lock_group(tx, group)
        assert row is not None
        threading.Thread(target=when_blocked, args=(tx.connection.engine, watching.set)).start()
        collector.watch(tx, row)

    await asyncio.gather(first.write(end(one, group, watched=False, then=hold)), second.write(begin))
    assert await rounds(first, group) == 1


def when_blocked(engine: Engine, then: Callable[[], None]) -> None:
    """Once some transaction of this database waits for a lock."""
    query = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    own = create_engine(engine.url)
    with own.connect() as connection:
        wait_until(lambda: connection.execute(query).scalar_one(), 60)
    own.dispose()
    then()


async def test_two_hubs_reopen_a_complete_group_without_a_deadlock(
    migrated_url: str, make_store: MakeStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If both held a shared lock on its row and then wrote it, each would wait for the other."""
    first, second = await two(migrated_url, make_store)
    group, _ = await first.write(lambda tx: make(tx, count=1, watched=True))
    await first.write(lambda tx: group_rows.set_group(tx, group, completed_at_ms=1))
    account = await first.read(lambda connection: group_rows.get_group(connection, group).account_id)  # type: ignore[union-attr]
    read, reopen = threading.Barrier(2), collector._reopen

    def opened(tx: Tx, row: GroupRow, *, actor: str) -> None:
        meet(read)
        reopen(tx, row, actor=actor)

    def join(tx: Tx) -> None:
        collector.join(tx, group, keys=[], account_id=account)
        add_jobs(tx, 1, account_id=account, group_id=group, watched=True)

    monkeypatch.setattr(collector, "_reopen", opened)
    await asyncio.gather(first.write(join), second.write(join))
    row = await first.read(lambda connection: group_rows.get_group(connection, group))
    assert row is not None
    assert row.completed_at_ms is None
    assert "deadlock" not in caplog.text


async def test_two_hubs_end_jobs_of_two_groups_without_a_deadlock(
    migrated_url: str, make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Each in one transaction, because concurrent writes share a commit."""
    first, second = await two(migrated_url, make_store)
    one, (a1, a2) = await first.write(lambda tx: make(tx, count=2, watched=True))
    other, (b1, b2) = await first.write(lambda tx: make(tx, count=2, watched=True))
    half = threading.Barrier(2)

    def batch(*units: Callable[[Tx], None]) -> list[_Write]:
        return [_Write(unit) for unit in units]

    orders = (
        (first, batch(end(a1, one, watched=True, then=lambda: None), end(b1, other, watched=True, then=lambda: meet(half)))),
        (second, batch(end(b2, other, watched=True, then=lambda: None), end(a2, one, watched=True, then=lambda: meet(half)))),
    )  # fmt: skip
    await asyncio.gather(*(asyncio.to_thread(store._commit, jobs_) for store, jobs_ in orders))
    assert [job.error for _, jobs_ in orders for job in jobs_] == [None] * 4
    assert (await rounds(first, one), await rounds(first, other)) == (1, 1)
    assert "deadlock" not in caplog.text


def meet(others: threading.Barrier) -> None:
    """Wait for the other thread to get here at the same time. If it is blocked, continue alone."""
    with contextlib.suppress(threading.BrokenBarrierError):
        others.wait(0.5)


async def test_completion_is_found_by_indexes_alone(store: Store) -> None:
    """It is checked at the end of each job, however many jobs the group has."""
    group, _ = await store.write(lambda tx: make(tx, count=3, watched=True))
    plans: list[str] = []

    def look(tx: Tx) -> None:
        explain = "EXPLAIN " if tx.connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
        if tx.connection.dialect.name == "postgresql":
            tx.connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        text = str(group_rows._WAITING.compile(tx.connection, compile_kwargs={"literal_binds": False}))
        for name in ("%(group)s", "%(group)s::VARCHAR", "?"):
            text = text.replace(name, f"'{group}'")
        plans.extend(str(row) for row in tx.connection.exec_driver_sql(explain + text))

    await store.write(look)
    whole = " ".join(plans)
    assert "ix_jobs_watched" in whole
    assert "ix_expected_jobs_pending" in whole
