"""Attempts are the fencing tokens: reported once, renewed only while they live, ended once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from computepool.core.errors import InvariantViolation
from computepool.core.jobs.lifecycle import NODE_FAULTS, AttemptState, JobState, Reason
from computepool.hub.db.session import Connection, Store, Tx
from computepool.hub.jobs import attempt_rows, rows as job_rows
from computepool.hub.jobs.attempt_rows import NamedAttempt
from computepool.testing.clock import FakeClock
from computepool.testing.factories import LEASE_MS, add_attempt, add_jobs, add_node, report_row

OVER = sorted(set(AttemptState) - {AttemptState.LEASED, AttemptState.RUNNING})


async def leased(store: Store, count: int = 1) -> tuple[list[str], str]:
    """(attempts, their node)"""

    def unit(tx: Tx) -> tuple[list[str], str]:
        node_id = add_node(tx)
        return [add_attempt(tx, id_, node_id=node_id) for id_ in add_jobs(tx, count)], node_id

    return await store.write(unit)


def job_of(attempt_id: str) -> str:
    return attempt_id.rpartition("-")[0]


async def attempt(store: Store, attempt_id: str) -> NamedAttempt:
    rows = await store.read(lambda connection: attempt_rows.get_attempts(connection, job_of(attempt_id)))
    return next(row for row in rows if row.id == attempt_id)


async def test_an_attempt_is_reported_once(store: Store, clock: FakeClock) -> None:
    (one, two), _ = await leased(store, 2)
    rows = [report_row(id_, now_ms=clock.now_ms(), new_report_digest=f"first {id_}") for id_ in (one, two)]
    await store.write(lambda tx: attempt_rows.report_attempts(tx, rows[:1]))
    with pytest.raises(InvariantViolation):
        await store.write(
            lambda tx: attempt_rows.report_attempts(tx, [row | {"new_report_digest": "again"} for row in rows])
        )
    assert (await attempt(store, one)).report_digest == f"first {one}"
    assert (await attempt(store, two)).report_digest is None
    await store.write(lambda tx: attempt_rows.report_attempts(tx, rows[1:]))


async def test_a_jobs_error_may_contain_any_character(store: Store, clock: FakeClock) -> None:
    (id_,), _ = await leased(store)
    words = "before\x00after \U0001f600 \u2028"
    row = report_row(id_, now_ms=clock.now_ms(), new_error=words, state=AttemptState.FAILED)
    await store.write(lambda tx: attempt_rows.report_attempts(tx, [row]))
    assert (await attempt(store, id_)).error == words.replace("\x00", "\ufffd")


async def test_starting_moves_attempt_and_job_together_once(store: Store, clock: FakeClock) -> None:
    (one, two), _ = await leased(store, 2)
    clock.advance(7)
    started = await store.write(lambda tx: attempt_rows.start_attempts(tx, [one, "job_unknown-1"]))
    assert [row.id for row in started] == [one]
    assert await store.write(lambda tx: attempt_rows.start_attempts(tx, [one])) == []
    job = await store.read(lambda connection: job_rows.get_job(connection, job_of(one)))
    assert job is not None
    assert (job.state, job.started_at_ms) == (JobState.RUNNING, clock.now_ms())
    assert (await attempt(store, one)).state == AttemptState.RUNNING
    assert (await attempt(store, two)).state == AttemptState.LEASED


async def test_an_old_attempt_starts_nothing(store: Store) -> None:
    (old,), node_id = await leased(store)

    def again(tx: Tx) -> str:
        attempt_rows.end_attempt(tx, old, state=AttemptState.EXPIRED, reason=Reason.LEASE_LOST)
        job_rows.requeue(tx, job_of(old), attempt_no=1, reason=Reason.LEASE_LOST.value)
        return add_attempt(tx, job_of(old), node_id=node_id)

    new = await store.write(again)
    assert new == f"{job_of(old)}-2"
    assert await store.write(lambda tx: attempt_rows.start_attempts(tx, [old])) == []
    await store.write(lambda tx: job_rows.set_progress(tx, {old: 0.9}))
    job = await store.read(lambda connection: job_rows.get_job(connection, job_of(old)))
    assert job is not None
    assert (job.state, job.progress) == (JobState.LEASED, None)
    await store.write(lambda tx: job_rows.set_progress(tx, {new: 0.25}))
    job = await store.read(lambda connection: job_rows.get_job(connection, job_of(old)))
    assert job is not None
    assert job.progress == 0.25


@pytest.mark.parametrize("state", OVER)
async def test_only_live_attempts_are_renewed(store: Store, clock: FakeClock, state: AttemptState) -> None:
    (alive, over), _ = await leased(store, 2)
    await store.write(lambda tx: attempt_rows.end_attempt(tx, over, state=state, reason=Reason.SUPERSEDED))
    until_ms = clock.now_ms() + 2 * LEASE_MS
    asked = [alive, over, "job_unknown-1"]
    assert await store.write(lambda tx: attempt_rows.renew_leases(tx, asked, until_ms=until_ms)) == {alive}
    assert (await attempt(store, alive)).lease_until_ms == until_ms
    assert (await attempt(store, over)).lease_until_ms == clock.now_ms() + LEASE_MS


async def test_a_late_renewal_shortens_no_lease(store: Store, clock: FakeClock) -> None:
    (id_,), _ = await leased(store)
    for until_ms in (clock.now_ms() + 5 * LEASE_MS, clock.now_ms() + 1):
        assert await store.write(lambda tx, until=until_ms: attempt_rows.renew_leases(tx, [id_], until_ms=until)) == {
            id_
        }
    assert (await attempt(store, id_)).lease_until_ms == clock.now_ms() + 5 * LEASE_MS


async def test_after_a_start_every_live_lease_is_extended_by_the_grace(store: Store, clock: FakeClock) -> None:
    (alive, over), _ = await leased(store, 2)
    await store.write(
        lambda tx: attempt_rows.end_attempt(tx, over, state=AttemptState.EXPIRED, reason=Reason.LEASE_LOST)
    )
    until_ms = clock.now_ms() + 3 * LEASE_MS
    assert await store.write(lambda tx: attempt_rows.extend_all_leases(tx, until_ms=until_ms)) == 1
    assert (await attempt(store, alive)).lease_until_ms == until_ms


async def test_leases_run_out_one_millisecond_after_their_end(store: Store, clock: FakeClock) -> None:
    (id_,), _ = await leased(store)

    def overdue(connection: Connection) -> list[str]:
        return [row.id for row in attempt_rows.overdue_attempts(connection, now_ms=clock.now_ms(), limit=10)]

    clock.advance(LEASE_MS)
    assert await store.read(overdue) == []
    clock.advance(1)
    assert await store.read(overdue) == [id_]
    await store.write(
        lambda tx: attempt_rows.end_attempt(tx, id_, state=AttemptState.EXPIRED, reason=Reason.LEASE_LOST)
    )
    assert await store.read(overdue) == []


async def test_an_attempt_ends_once_however_many_try(store: Store) -> None:
    (id_,), _ = await leased(store)

    def end(state: AttemptState) -> Any:
        return store.write(lambda tx: attempt_rows.end_attempt(tx, id_, state=state, reason=Reason.LEASE_LOST))

    ended = await asyncio.gather(*(end(state) for state in (AttemptState.EXPIRED, AttemptState.CANCELLED) * 10))
    assert ended.count(True) == 1
    assert ended[0]


async def test_a_nodes_live_attempts_can_be_granted_again(store: Store) -> None:
    ids, node_id = await leased(store, 3)
    await store.write(
        lambda tx: attempt_rows.end_attempt(tx, ids[1], state=AttemptState.EXPIRED, reason=Reason.LEASE_LOST)
    )
    held = await store.read(lambda connection: attempt_rows.live_attempts(connection, [node_id]))
    rows = held[node_id]
    assert [row.id for row in rows] == [ids[0], ids[2]]
    assert all(row.spec_digest and row.shown_account for row in rows)
    of_job = await store.read(lambda connection: attempt_rows.live_attempts_of_job(connection, job_of(ids[0])))
    assert [row.id for row in of_job] == [ids[0]]


async def test_only_the_jobs_own_failures_count_against_it(store: Store, clock: FakeClock) -> None:
    """Owner A failed it, owner B's node broke, owner C failed it twice."""
    faults = [fault.value for fault in NODE_FAULTS]
    (job_id,) = await store.write(add_jobs)
    tries = [("A", Reason.EXIT_NONZERO), ("B", Reason.NODE_ERROR), ("C", Reason.SIGNAL), ("C", Reason.TIMEOUT)]
    for number, (owner, reason) in enumerate(tries, start=1):

        def fail(tx: Tx, *, number: int = number, owner: str = owner, reason: Reason = reason) -> None:
            id_ = add_attempt(tx, job_id, node_id=add_node(tx), owner_id=owner)
            row = report_row(id_, now_ms=tx.now_ms, state=AttemptState.FAILED, new_reason=reason.value)
            attempt_rows.report_attempts(tx, [row])
            assert job_rows.requeue(tx, job_id, attempt_no=number, reason=reason.value)

        await store.write(fail)
    assert await store.read(lambda connection: attempt_rows.owners_failed(connection, job_id, faults)) == {"A", "C"}
