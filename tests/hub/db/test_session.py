"""Shared commits: each write gets its own result, and a failing one affects no other."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest
from sqlalchemy import select, text

from computepool.core.errors import BadRequest, Conflict, InvariantViolation, Unavailable
from computepool.hub.app import open_store
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.session import Commit, Connection, Store, Tx
from computepool.hub.db.tables import accounts as account_table, events as event_table
from computepool.hub.identity import rows as account_rows
from computepool.hub.lookup import search_rows
from computepool.protocol.jobs.filters import EventFilter
from computepool.testing.clock import FakeClock
from computepool.testing.factories import add_account
from tests.hub.db.conftest import MakeStore
from tests.hub.writer_gate import Gate


def names(connection: Connection) -> set[str]:
    return set(connection.execute(select(account_table.c.name)).scalars())


def events(connection: Connection) -> list[EventRow]:
    return EventRow.fetch(connection, order=event_table.c.seq)


def make_account(name: str, *, fail: BaseException | None = None):  # type: ignore[no-untyped-def]
    def unit(tx: Tx) -> str:
        add_account(tx, name=name)
        tx.emit(actor=name, action="account.created")
        tx.touch(f"account:{name}")
        if fail is not None:
            raise fail
        return name

    return unit


async def test_many_writes_at_once_each_get_their_own_answer(store: Store) -> None:
    gate = Gate(store)
    await gate.closed()
    waiting = asyncio.gather(*(store.write(make_account(f"a{number}")) for number in range(300)))
    await asyncio.sleep(0)
    await gate.open()
    assert await waiting == [f"a{number}" for number in range(300)]
    assert await store.read(names) == {f"a{number}" for number in range(300)}
    assert [event.actor for event in await store.read(events)] == [f"a{number}" for number in range(300)]


async def test_a_shared_transaction_is_one_commit(url: str, make_store: MakeStore) -> None:
    commits: list[Commit] = []
    store = make_store(url, on_commit=commits.append)
    gate = Gate(store)
    await gate.closed()
    waiting = asyncio.gather(*(store.write(make_account(f"a{number}")) for number in range(5)))
    await asyncio.sleep(0)
    await gate.open()
    await waiting
    assert [commit.topics for commit in commits] == [{"events"} | {f"account:a{number}" for number in range(5)}]


async def test_a_failing_write_is_undone_and_affects_no_other(url: str, make_store: MakeStore) -> None:
    commits: list[Commit] = []
    store = make_store(url, on_commit=commits.append)
    gate = Gate(store)
    await gate.closed()
    failures = {3: Conflict("no"), 5: ValueError("bug"), 7: InvariantViolation("rule")}
    waiting = asyncio.gather(
        *(store.write(make_account(f"a{number}", fail=failures.get(number))) for number in range(10)),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    await gate.open()
    answers = await waiting
    good = {f"a{number}" for number in range(10) if number not in failures}
    assert {number: answers[number] for number in failures} == failures
    assert {answer for answer in answers if isinstance(answer, str)} == good
    assert await store.read(names) == good
    assert {event.actor for event in await store.read(events)} == good
    assert [commit.topics for commit in commits] == [{"events"} | {f"account:{name}" for name in good}]


async def test_a_violated_constraint_is_a_conflict_for_its_caller_only(store: Store) -> None:
    def twice(tx: Tx) -> None:
        for _ in range(2):
            tx.connection.execute(account_table.insert().values(id="same", name="same", roles="", created_at_ms=0))

    gate = Gate(store)
    await gate.closed()
    waiting = asyncio.gather(
        store.write(make_account("before")),
        store.write(twice),
        store.write(make_account("after")),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    await gate.open()
    before, broken, after = await waiting
    assert (before, after) == ("before", "after")
    assert isinstance(broken, Conflict)
    assert await store.read(names) == {"before", "after"}
    with pytest.raises(Conflict):
        await store.write(twice)


async def test_a_value_that_cannot_be_stored_is_a_bad_request(store: Store) -> None:
    def unit(tx: Tx) -> None:
        tx.connection.execute(account_table.insert().values(id="a", name="a", roles="", created_at_ms=2**80))

    if "sqlite" in store.url:
        with pytest.raises(OverflowError):  # from the driver; no request can cause it
            await store.write(unit)
    else:
        with pytest.raises(BadRequest):
            await store.write(unit)
    assert await store.read(names) == set()


async def test_a_cancelled_caller_does_not_affect_the_other_writes(store: Store) -> None:
    gate = Gate(store)
    await gate.closed()
    gone = asyncio.ensure_future(store.write(make_account("gone")))
    stays = asyncio.ensure_future(store.write(make_account("stays")))
    await asyncio.sleep(0)
    gone.cancel()
    await gate.open()
    assert await stays == "stays"
    assert await store.read(names) == {"gone", "stays"}


async def test_stopping_finishes_queued_writes_and_refuses_later_ones(url: str, clock: FakeClock) -> None:
    store = open_store(url, clock=clock, hub_id="hub", group_commit_max=3)
    store.start()
    waiting = asyncio.gather(*(store.write(make_account(f"a{number}")) for number in range(20)))
    await asyncio.sleep(0)
    await store.stop()
    assert len(await waiting) == 20
    with pytest.raises(Unavailable):
        await store.write(make_account("late"))
    with pytest.raises(Unavailable):
        await store.read(names)


async def test_writing_without_an_event_loop(store: Store) -> None:
    assert store.write_now(make_account("now")) == "now"
    with pytest.raises(Conflict):
        store.write_now(make_account("never", fail=Conflict()))
    assert store.read_now(names) == {"now"}


async def test_every_unit_sees_the_time_of_its_transaction(store: Store, clock: FakeClock) -> None:
    assert await store.write(lambda tx: tx.now_ms) == clock.now_ms()
    clock.advance(5)
    assert await store.write(lambda tx: tx.now_ms) == clock.now_ms()


async def test_readers_never_see_a_partial_transaction(store: Store) -> None:
    seen: list[set[str]] = []

    def unit(tx: Tx) -> None:
        add_account(tx, name="first")
        seen.append(store.read_now(names))
        add_account(tx, name="second")

    await store.write(unit)
    assert seen == [set()]
    assert await store.read(names) == {"first", "second"}


async def test_two_hubs_with_the_same_key_at_once_have_one_effect(migrated_url: str, make_store: MakeStore) -> None:
    """Both find nothing and insert. The one that fails tries again, and finds the other's row."""
    first, second = make_store(migrated_url), make_store(migrated_url)
    both_looked = threading.Barrier(2, timeout=30)
    tries: list[str] = []

    def once(hub: str, tx: Tx) -> str:
        tries.append(hub)
        row = account_rows.get_reply(tx.connection, account_id="a", route="r", key="k")
        if row is not None:
            return str(row.reply)
        if len(tries) <= 2:
            both_looked.wait()
        account_rows.insert_reply(tx, account_id="a", route="r", key="k", request_hash="h", reply=hub)
        return hub

    answers = await asyncio.gather(
        first.write(lambda tx: once("first", tx)), second.write(lambda tx: once("second", tx))
    )
    assert answers[0] == answers[1]
    assert len(tries) == 3


async def test_a_deadlock_between_two_hubs_is_retried(migrated_url: str, make_store: MakeStore) -> None:
    first, second = make_store(migrated_url), make_store(migrated_url)
    one, two = await first.write(lambda tx: (add_account(tx), add_account(tx)))
    both_hold = threading.Barrier(2, timeout=30)
    tries: list[int] = []

    def in_order(order: tuple[str, str], tx: Tx) -> None:
        tx.connection.execute(text("SET LOCAL deadlock_timeout = '50ms'"))
        tries.append(1)
        meet = len(tries) <= 2
        for account_id in order:
            tx.connection.execute(text("UPDATE accounts SET roles = roles || 'x' WHERE id = :id"), {"id": account_id})
            if meet:
                both_hold.wait()
                meet = False

    await asyncio.gather(
        first.write(lambda tx: in_order((one, two), tx)), second.write(lambda tx: in_order((two, one), tx))
    )
    roles = await first.read(
        lambda connection: [account_rows.get_account(connection, id_).roles[-2:] for id_ in (one, two)]  # type: ignore[union-attr]
    )
    assert roles == ["xx", "xx"]
    assert len(tries) >= 3


async def test_a_cursor_over_events_never_skips_one_while_two_hubs_write(
    migrated_url: str, make_store: MakeStore
) -> None:
    stores = [make_store(migrated_url) for _ in range(2)]
    reader = make_store(migrated_url)
    seen: list[int] = []
    done = asyncio.Event()

    async def follow() -> None:
        cursor = 0
        while True:
            finished = done.is_set()
            page = await reader.read(
                partial(search_rows.growing_events, filters=EventFilter(), after=cursor, limit=50, window=50)
            )
            seen.extend(row.seq for row in page.rows)
            cursor = seen[-1] if seen else 0
            if finished and not page.rows:
                return

    async def write(store: Store, number: int) -> None:
        def unit(tx: Tx) -> None:
            for _ in range(3):
                tx.emit(actor=store.hub_id, action=f"write{number}")

        await store.write(unit)

    following = asyncio.ensure_future(follow())
    for start in range(0, 200, 20):
        await asyncio.gather(*(write(store, n) for store in stores for n in range(start, start + 20)))
    done.set()
    await following
    assert len(seen) == 2 * 200 * 3
    assert seen == sorted(set(seen))
