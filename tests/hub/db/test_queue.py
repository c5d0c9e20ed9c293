"""The queue: a job goes to one node however many ask, and changes state only from the expected one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from computepool.core.errors import InvariantViolation
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.hub.db.session import Connection, Store, Tx
from computepool.hub.jobs import dependency_rows, rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.protocol.jobs.filters import JobFilter
from computepool.testing.clock import FakeClock
from computepool.testing.factories import acceptance_row, add_account, add_attempt, add_group, add_jobs, add_node
from tests.hub.db.conftest import MakeStore

PENDING = {JobState.QUEUED, JobState.LEASED, JobState.RUNNING}


async def job(store: Store, job_id: str) -> JobRow:
    row = await store.read(lambda connection: job_rows.get_job(connection, job_id))
    assert row is not None
    return row


async def leased_job(store: Store, **columns: Any) -> tuple[str, str, str]:
    """(job, node, attempt)"""

    def unit(tx: Tx) -> tuple[str, str, str]:
        (job_id,), node_id = add_jobs(tx, **columns), add_node(tx)
        return job_id, node_id, add_attempt(tx, job_id, node_id=node_id)

    return await store.write(unit)


# leasing


async def test_fifty_pollers_and_one_job_give_one_lease(store: Store) -> None:
    (job_id,) = await store.write(add_jobs)
    won = await asyncio.gather(*(store.write(lambda tx: job_rows.lease_jobs(tx, [job_id])) for _ in range(50)))
    assert sorted(map(len, won)) == [0] * 49 + [1]
    row = await job(store, job_id)
    assert (row.state, row.attempt_no) == (JobState.LEASED, 1)


async def test_two_hubs_never_lease_the_same_job(migrated_url: str, make_store: MakeStore) -> None:
    hubs = [make_store(migrated_url) for _ in range(2)]
    ids = await hubs[0].write(lambda tx: add_jobs(tx, 40))
    asked = [
        hub.write(lambda tx, part=ids[start : start + 8]: job_rows.lease_jobs(tx, part))
        for start in range(0, 40, 4)
        for hub in hubs
    ]
    won = [job_id for leased in await asyncio.gather(*asked) for job_id in leased]
    assert sorted(won) == ids


async def test_a_job_locked_by_another_hub_is_skipped(migrated_url: str, make_store: MakeStore) -> None:
    store = make_store(migrated_url)
    first, second = await store.write(lambda tx: add_jobs(tx, 2))
    engine = create_engine(migrated_url)
    with engine.begin() as other:
        other.execute(text("SELECT 1 FROM jobs WHERE id = :id FOR UPDATE"), {"id": first})
        leased = await asyncio.wait_for(store.write(lambda tx: job_rows.lease_jobs(tx, [first, second])), timeout=20)
    engine.dispose()
    assert set(leased) == {second}


async def test_queries_accept_more_ids_than_a_statement_has_parameters(store: Store) -> None:
    """SQLite stops at 32 766 parameters, PostgreSQL's protocol at 65 535."""
    (job_id,) = await store.write(add_jobs)
    many = [f"job_{number}" for number in range(70_000)] + [job_id]
    assert [row.id for row in await store.read(lambda c: job_rows.get_queued(c, many))] == [job_id]
    assert set(await store.write(lambda tx: job_rows.lock_jobs(tx, many))) == {job_id}
    assert set(await store.write(lambda tx: job_rows.lease_jobs(tx, many))) == {job_id}


async def test_the_queue_is_read_in_order_without_waiting_jobs(store: Store, clock: FakeClock) -> None:
    def unit(tx: Tx) -> list[str]:
        account = add_account(tx)
        old = add_jobs(tx, 2, account_id=account, queued_at_ms=tx.now_ms - 1000)
        new = add_jobs(tx, 1, account_id=account)
        add_jobs(tx, account_id=account, after=(old[0],))
        add_jobs(tx, account_id=account, state="succeeded")
        return [*old, *new]

    ids = await store.write(unit)

    def queued(connection: Connection, since_ms: int = 0, limit: int = 10) -> list[str]:
        return [row.id for row in job_rows.list_queued(connection, since_ms=since_ms, limit=limit)]

    assert await store.read(queued) == ids
    assert await store.read(lambda connection: queued(connection, limit=2)) == ids[:2]
    assert await store.read(lambda connection: queued(connection, since_ms=clock.now_ms())) == ids[2:]


# requeueing


async def test_requeue_is_refused_when_the_job_moved_on(store: Store) -> None:
    job_id, _, _ = await leased_job(store)

    def requeue(tx: Tx, attempt_no: int) -> bool:
        return job_rows.requeue(tx, job_id, attempt_no=attempt_no, reason=Reason.LEASE_LOST.value)

    assert not await store.write(lambda tx: requeue(tx, 0))
    assert not await store.write(lambda tx: requeue(tx, 2))
    assert (await job(store, job_id)).state == JobState.LEASED
    assert await store.write(lambda tx: requeue(tx, 1))
    row = await job(store, job_id)
    assert (row.state, row.node_id, row.progress, row.started_at_ms) == (JobState.QUEUED, None, None, None)
    assert not await store.write(lambda tx: requeue(tx, 1))


async def test_the_time_to_live_restarts_with_each_wait_unless_the_wait_continues(
    store: Store, clock: FakeClock
) -> None:
    job_id, _, _ = await leased_job(store)
    ttl_ms = job_rows.ttl_ms_of(await job(store, job_id))

    async def again(attempt_no: int, *, waits_on: bool) -> int:
        clock.advance(1_000)
        said = {"attempt_no": attempt_no, "reason": "lease_lost", "waits_on": waits_on}
        assert await store.write(lambda tx: job_rows.requeue(tx, job_id, **said))
        await store.write(lambda tx: job_rows.lease_jobs(tx, [job_id]))
        row = await job(store, job_id)
        assert job_rows.ttl_ms_of(row) == ttl_ms
        return int(row.expires_at_ms)

    ends = await again(1, waits_on=False)
    assert ends == clock.now_ms() + ttl_ms
    assert await again(2, waits_on=True) == ends
    assert await again(3, waits_on=False) == clock.now_ms() + ttl_ms


async def test_a_job_is_requeued_once_however_many_try(store: Store) -> None:
    job_id, _, _ = await leased_job(store)
    done = await asyncio.gather(
        *(store.write(lambda tx: job_rows.requeue(tx, job_id, attempt_no=1, reason="lease_lost")) for _ in range(20))
    )
    assert done.count(True) == 1


# ending


async def test_a_result_is_accepted_at_most_once(store: Store, clock: FakeClock) -> None:
    job_id, node_id, _ = await leased_job(store)
    row = acceptance_row(await job(store, job_id), node_id=node_id, now_ms=clock.now_ms())
    await store.write(lambda tx: job_rows.accept(tx, [row]))
    with pytest.raises(InvariantViolation):
        await store.write(lambda tx: job_rows.accept(tx, [row | {"new_accepted_attempt": 2, "new_result": "other"}]))
    full = await store.read(lambda connection: job_rows.get_job_full(connection, job_id))
    assert full is not None
    assert (full.state, full.accepted_attempt, full.result) == (JobState.SUCCEEDED, 1, "1")


async def test_accepting_one_job_twice_rolls_back_the_whole_batch(store: Store, clock: FakeClock) -> None:
    def unit(tx: Tx) -> tuple[list[str], str]:
        ids, node_id = add_jobs(tx, 3), add_node(tx)
        for job_id in ids:
            add_attempt(tx, job_id, node_id=node_id)
        return ids, node_id

    ids, node_id = await store.write(unit)
    rows = [acceptance_row(await job(store, id_), node_id=node_id, now_ms=clock.now_ms()) for id_ in ids]
    await store.write(lambda tx: job_rows.accept(tx, rows[1:2]))
    with pytest.raises(InvariantViolation):
        await store.write(lambda tx: job_rows.accept(tx, rows))
    states = [(await job(store, id_)).state for id_ in ids]
    assert states == [JobState.LEASED, JobState.SUCCEEDED, JobState.LEASED]


@pytest.mark.parametrize("state", sorted(set(JobState) - PENDING))
async def test_a_finished_job_stays_as_it_is(store: Store, clock: FakeClock, state: JobState) -> None:
    job_id, node_id, _ = await leased_job(store)
    assert await store.write(lambda tx: job_rows.finish(tx, job_id, state=state, reason=Reason.TIMEOUT))
    row = acceptance_row(await job(store, job_id), node_id=node_id, now_ms=clock.now_ms())
    for other in set(JobState) - PENDING:
        assert not await store.write(
            lambda tx, other=other: job_rows.finish(tx, job_id, state=other, reason=Reason.COMPLETED)
        )
    with pytest.raises(InvariantViolation):
        await store.write(lambda tx: job_rows.accept(tx, [row]))
    assert not await store.write(lambda tx: job_rows.requeue(tx, job_id, attempt_no=1, reason="lease_lost"))
    assert await store.write(lambda tx: job_rows.lease_jobs(tx, [job_id])) == {}
    after = await job(store, job_id)
    assert (after.state, after.reason) == (state, Reason.TIMEOUT)


async def test_a_late_result_ends_a_requeued_job(store: Store, clock: FakeClock) -> None:
    job_id, node_id, _ = await leased_job(store)
    await store.write(lambda tx: job_rows.requeue(tx, job_id, attempt_no=1, reason="lease_lost"))
    row = acceptance_row(await job(store, job_id), node_id=node_id, now_ms=clock.now_ms())
    await store.write(lambda tx: job_rows.accept(tx, [row]))
    assert await store.write(lambda tx: job_rows.lease_jobs(tx, [job_id])) == {}


async def test_jobs_that_waited_too_long_are_found(store: Store, clock: FakeClock) -> None:
    def unit(tx: Tx) -> tuple[str, str]:
        account = add_account(tx)
        (late,) = add_jobs(tx, account_id=account, expires_at_ms=tx.now_ms - 1)
        (fine,) = add_jobs(tx, account_id=account, expires_at_ms=tx.now_ms + 1)
        add_jobs(tx, account_id=account, expires_at_ms=0, state="running")
        return late, fine

    late, fine = await store.write(unit)

    def overdue(connection: Connection) -> list[str]:
        return job_rows.overdue_jobs(connection, now_ms=clock.now_ms(), limit=10)

    assert await store.read(overdue) == [late]
    clock.advance(10)
    assert sorted(await store.read(overdue)) == sorted([late, fine])


# dependencies


async def test_a_job_waits_for_all_its_dependencies(store: Store) -> None:
    def unit(tx: Tx) -> tuple[list[str], str]:
        account = add_account(tx)
        first = add_jobs(tx, 2, account_id=account)
        return first, add_jobs(tx, account_id=account, after=tuple(first))[0]

    first, last = await store.write(unit)
    assert await store.write(lambda tx: job_rows.lease_jobs(tx, [last])) == {}
    assert await store.read(lambda connection: [row.after_id for row in dependency_rows.get(connection, last)]) == first
    waiting = await store.read(lambda connection: dependency_rows.dependents(connection, first))
    assert [(row.job_id, row.after_id) for row in waiting] == [(last, id_) for id_ in first]
    assert await store.write(lambda tx: dependency_rows.count_down(tx, [last], 1)) == {last: 1}
    assert (await job(store, last)).reason == Reason.WAITING_FOR_JOBS
    assert await store.write(lambda tx: dependency_rows.count_down(tx, [last], 1)) == {last: 0}
    assert (await job(store, last)).reason == Reason.WAITING_FOR_NODE
    assert set(await store.write(lambda tx: job_rows.lease_jobs(tx, [last]))) == {last}


async def test_a_cancelled_dependent_is_not_released(store: Store) -> None:
    def unit(tx: Tx) -> str:
        account = add_account(tx)
        (first,) = add_jobs(tx, account_id=account)
        return add_jobs(tx, account_id=account, after=(first,))[0]

    last = await store.write(unit)
    await store.write(lambda tx: job_rows.finish(tx, last, state=JobState.CANCELLED, reason=Reason.CANCELLED_BY_USER))
    assert await store.write(lambda tx: dependency_rows.count_down(tx, [last], 1)) == {}


# reading


async def test_pages_of_jobs_meet_without_gap_or_overlap(store: Store) -> None:
    def unit(tx: Tx) -> tuple[str, str, list[str]]:
        account = add_account(tx)
        group = add_group(tx, account_id=account)
        mine = add_jobs(tx, 25, account_id=account, group_id=group, key=None)
        add_jobs(tx, 5)
        return account, group, mine

    account, group, mine = await store.write(unit)

    async def walk(window: int = 1_000, **filters: Any) -> list[str]:
        found: list[str] = []
        before: str | None = None
        while True:
            rows, before = await store.read(
                lambda connection, before=before: job_rows.list_jobs(
                    connection, JobFilter(**filters), before=before, limit=7, window=window
                )
            )
            found += [row.id for row in rows]
            if before is None:
                return found

    for window in (1, 3, 7, 1_000):  # however many are scanned at once
        assert await walk(window, account_id=account) == mine[::-1]
        assert await walk(window, text=mine[3]) == [mine[3]]
    assert await walk(group_id=group) == mine[::-1]
    assert len(await walk()) == 30
    assert await walk(states=["succeeded"]) == []
    assert len(await walk(states=["queued", "failed"])) == 30


async def test_counts_follow_the_states(store: Store) -> None:
    def unit(tx: Tx) -> tuple[str, str, list[str]]:
        account = add_account(tx)
        group = add_group(tx, account_id=account)
        return account, group, add_jobs(tx, 4, account_id=account, group_id=group)

    account, group, ids = await store.write(unit)
    await store.write(lambda tx: job_rows.lease_jobs(tx, ids[:1]))
    await store.write(lambda tx: job_rows.finish(tx, ids[1], state=JobState.FAILED, reason=Reason.TIMEOUT))
    assert await store.read(job_rows.count_states) == {"queued": 2, "leased": 1}
    assert await store.read(lambda connection: job_rows.count_open(connection, account)) == 3
    assert await store.read(lambda connection: job_rows.count_group(connection, group)) == {
        "queued": 2,
        "leased": 1,
        "failed": 1,
    }
    assert await store.read(lambda connection: job_rows.open_in_group(connection, group)) == [ids[0], *ids[2:]]
