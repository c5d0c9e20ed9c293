"""Watched groups when several hubs work on one database: completion is seen by exactly one of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.db.session import Store, Tx, _Job
from computepool.hub.groups import collector
from computepool.hub.groups import rows as group_rows
from computepool.hub.groups.rows import GroupRow
from computepool.hub.jobs import rows as job_rows
from computepool.testing.factories import add_account, add_group, add_jobs
from tests.hub.db.conftest import MakeStore


def end(job_id: str, group_id: str, *, watched: bool, then: Callable[[], object]) -> Callable[[Tx], None]:
    """As settlement does: the job's row says whether its group is watched."""

    def unit(tx: Tx) -> None:
        row = job_rows.lock_jobs(tx, [job_id])[job_id]
        assert row.watched is watched
        job_rows.finish(tx, job_id, state=JobState.FAILED, reason=Reason.TIMEOUT)
        if row.watched:
            tx.closing.add(group_id)
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
        row = group_rows.lock_group(tx, group)
        assert row is not None
        threading.Timer(0.2, watching.set).start()  # by then it stands before the job's row
        collector.watch(tx, row)

    await asyncio.gather(
        first.write(end(one, group, watched=False, then=hold)),
        second.write(begin),
    )
    assert await rounds(first, group) == 1


async def test_two_hubs_open_a_complete_group_again_at_once(
    migrated_postgres_url: str,
    make_store: MakeStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both would share its row, and then both write it: each waits for the other until PostgreSQL ends one of them."""
    first, second = await two(migrated_postgres_url, make_store)
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


async def test_two_hubs_end_jobs_of_two_groups_in_opposite_orders(
    migrated_postgres_url: str, make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Each in one transaction, because writes that come at the same time share a commit."""
    first, second = await two(migrated_postgres_url, make_store)
    one, (a1, a2) = await first.write(lambda tx: make(tx, count=2, watched=True))
    other, (b1, b2) = await first.write(lambda tx: make(tx, count=2, watched=True))
    half = threading.Barrier(2)

    def batch(*units: Callable[[Tx], None]) -> list[_Job]:
        return [_Job(unit) for unit in units]

    orders = (
        (first, batch(end(a1, one, watched=True, then=lambda: None), end(b1, other, watched=True, then=lambda: meet(half)))),
        (second, batch(end(b2, other, watched=True, then=lambda: None), end(a2, one, watched=True, then=lambda: meet(half)))),
    )  # fmt: skip
    await asyncio.gather(*(asyncio.to_thread(store._commit, jobs_) for store, jobs_ in orders))
    assert [job.error for _, jobs_ in orders for job in jobs_] == [None] * 4
    assert (await rounds(first, one), await rounds(first, other)) == (1, 1)
    assert "deadlock" not in caplog.text


def meet(others: threading.Barrier) -> None:
    """Where the other one can come here at the same time it does; where it has to wait, we go on alone."""
    with contextlib.suppress(threading.BrokenBarrierError):
        others.wait(0.5)


async def test_completion_is_found_by_indexes_alone(store: Store) -> None:
    """However many jobs of the group are over: the question is asked at the end of each."""
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
