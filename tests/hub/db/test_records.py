"""Events, results, logs and artifacts are read back in order, page by page, without losses between pages."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest
from sqlalchemy import create_engine, delete, event, text
from sqlalchemy.exc import OperationalError

from computepool.core.errors import Conflict
from computepool.core.jobs.lifecycle import AttemptState, JobState, Reason
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts.rows import ListedReference
from computepool.hub.db import event_rows
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.session import Connection, Store, Tx
from computepool.hub.db.tables import events
from computepool.hub.groups import rows as group_rows
from computepool.hub.jobs import attempt_rows, rows as job_rows
from computepool.hub.lookup import search_rows
from computepool.protocol.jobs.filters import EventFilter
from computepool.testing.clock import FakeClock
from computepool.testing.factories import add_account, add_attempt, add_group, add_jobs, add_node
from tests.hub.db.conftest import MakeStore

# events and results


async def test_events_are_numbered_in_order_and_filtered(store: Store, clock: FakeClock) -> None:
    def unit(tx: Tx) -> None:
        tx.emit(actor="hub", action="one", job_id="j1", account_id="a")
        tx.emit(actor="hub", action="two", job_id="j2", account_id="a", before="queued", after="leased")
        tx.emit(actor="hub", action="three", node_id="n1")

    await store.write(unit)

    async def found(after: int = 0, **filters: Any) -> list[str]:
        found = partial(search_rows.growing_events, filters=EventFilter(**filters), after=after, limit=10, window=50)
        return [row.action for row in (await store.read(found)).rows]

    assert await found() == ["one", "two", "three"]
    assert await found(job_id="j2", node_id=None) == ["two"]
    assert await found(account_id="a") == ["one", "two"]
    assert await found(node_id="n1") == ["three"]
    assert await found(after=await store.read(event_rows.last_event)) == []
    [row] = await store.read(lambda c: EventRow.fetch(c, events.c.seq == 2))
    assert (row.at_ms, row.before, row.after, row.final) == (clock.now_ms(), "queued", "leased", False)


async def test_a_number_is_never_used_twice(store: Store) -> None:
    await store.write(lambda tx: tx.emit(actor="hub", action="one"))
    last = await store.read(event_rows.last_event)
    await store.write(lambda tx: tx.connection.execute(delete(events)) and None)
    await store.write(lambda tx: tx.emit(actor="hub", action="two"))
    assert await store.read(event_rows.last_event) > last


async def test_pages_of_groups(store: Store) -> None:
    def make(tx: Tx) -> tuple[str, list[str]]:
        account = add_account(tx)
        add_group(tx, account_id=account, kind="session")
        return account, [add_group(tx, account_id=account) for _ in range(4)]

    account, ids = await store.write(make)

    def page(connection: Connection, before: str | None) -> list[str]:
        rows = group_rows.list_groups(connection, account_id=account, kinds=["group", "map"], before=before, limit=3)
        return [row.id for row in rows]

    first = await store.read(lambda connection: page(connection, None))
    assert first + await store.read(lambda connection: page(connection, first[-1])) == ids[::-1]


async def test_a_key_names_one_job_of_a_group(store: Store) -> None:
    def make(tx: Tx) -> tuple[str, str]:
        account = add_account(tx)
        return account, add_group(tx, account_id=account)

    account, group = await store.write(make)
    await store.write(lambda tx: add_jobs(tx, account_id=account, group_id=group, key="same"))
    with pytest.raises(Conflict):
        await store.write(lambda tx: add_jobs(tx, account_id=account, group_id=group, key="same"))
    await store.write(lambda tx: add_jobs(tx, 2, account_id=account, key="same"))
    assert await store.read(lambda connection: job_rows.count_group(connection, group)) == {"queued": 1}


# logs


async def test_logs_are_counted_and_kept_in_order(store: Store) -> None:
    def make(tx: Tx) -> tuple[str, str, str]:
        node_id, (job_id,) = add_node(tx), add_jobs(tx)
        return node_id, job_id, add_attempt(tx, job_id, node_id=node_id)

    _, job_id, attempt_id = await store.write(make)
    grown = {"attempt": attempt_id, "size": 20, "next": 3, "chars": 7}
    await store.write(lambda tx: event_rows.grow_logs(tx, [grown]))
    row = (await store.write(lambda tx: attempt_rows.lock_attempts(tx, [attempt_id])))[attempt_id]
    assert (row.log_bytes, row.log_next, row.stdout_chars) == (20, 3, 7)
    lines = [f"line {number}\x00" for number in range(5)]
    rows = [{"job_id": job_id, "attempt_id": attempt_id, "stream": "stdout", "text": line} for line in lines]
    await store.write(lambda tx: event_rows.insert_logs(tx, rows))
    first = await store.read(lambda c: event_rows.list_logs(c, job_id=job_id, after=0, limit=3))
    rest = await store.read(lambda c: event_rows.list_logs(c, job_id=job_id, after=first[-1].seq, limit=3))
    text = await store.read(lambda c: list(event_rows.stdout_of(c, job_id=job_id, attempt_id=attempt_id)))
    assert text == [row.text for row in (*first, *rest)] == [line.replace("\x00", "\ufffd") for line in lines]


# artifacts


def reference(digest: str, account_id: str, **fields: str) -> dict[str, str]:
    return {"digest": digest, "account_id": account_id, "job_id": "", "role": "upload", "name": "file"} | fields


async def test_the_same_reference_twice_is_one(store: Store) -> None:
    def unit(tx: Tx) -> None:
        artifact_rows.insert_artifact(tx, digest="d1", size=5, place="p1")
        artifact_rows.insert_artifact(tx, digest="d1", size=5, place="p")
        artifact_rows.refer(tx, [reference("d1", "a")])
        artifact_rows.refer(tx, [reference("d1", "a"), reference("d1", "b")])
        artifact_rows.refer(tx, [])

    await store.write(unit)
    assert await store.read(lambda c: artifact_rows.get_sizes(c, ["d1", "d2"])) == {"d1": 5}
    assert await store.read(lambda c: artifact_rows.may_read(c, digest="d1", account_id="a"))
    assert not await store.read(lambda c: artifact_rows.may_read(c, digest="d1", account_id="c"))
    assert await store.write(lambda tx: artifact_rows.drop_refs(tx, digest="d1", account_id="a")) == 1
    assert await store.write(lambda tx: artifact_rows.drop_unused(tx, ["d1"])) == []
    assert await store.write(lambda tx: artifact_rows.drop_refs(tx, digest="d1", account_id="b")) == 1
    assert await store.write(lambda tx: artifact_rows.drop_unused(tx, ["d1"])) == ["p1"]
    assert await store.read(lambda c: artifact_rows.get_sizes(c, ["d1"])) == {}


async def test_another_hubs_sweep_cannot_delete_what_is_being_uploaded_again(
    migrated_url: str, make_store: MakeStore
) -> None:
    """Nothing refers to the artifact yet. Once it is being uploaded again, it must stay."""
    store, swept = make_store(migrated_url), list[str]()
    await store.write(lambda tx: artifact_rows.insert_artifact(tx, digest="d1", size=5, place="old"))
    other = create_engine(migrated_url)

    def sweep(*_: object) -> None:
        if not swept:
            swept.append("tried")
            with contextlib.suppress(OperationalError), other.begin() as connection:  # it would wait
                connection.execute(text("SET LOCAL lock_timeout = '100ms'"))
                connection.execute(text("DELETE FROM artifacts"))
                swept.append("done")

    def unit(tx: Tx) -> str:
        event.listen(tx.connection, "after_cursor_execute", sweep)
        return artifact_rows.insert_artifact(tx, digest="d1", size=5, place="new")

    try:
        assert await store.write(unit) == "old"
    finally:
        other.dispose()
    assert swept == ["tried"]
    assert await store.read(lambda c: artifact_rows.get_places(c, ["d1"])) == {"d1": "old"}


async def test_lost_bytes_are_replaced_by_a_new_upload(store: Store) -> None:
    def sent(place: str, lost: str | None = None) -> str:
        return store.write_now(
            lambda tx: artifact_rows.insert_artifact(tx, digest="d1", size=5, place=place, lost=lost)
        )

    assert [sent("a"), sent("b"), sent("c", lost="b"), sent("d", lost="a"), sent("e")] == list("aaadd")
    assert await store.read(lambda c: artifact_rows.get_places(c, ["d1"])) == {"d1": "d"}


async def test_nothing_refers_to_an_artifact_that_is_not_there(store: Store) -> None:
    with pytest.raises(Conflict):
        await store.write(lambda tx: artifact_rows.refer(tx, [reference("missing", "a")]))


async def test_pages_of_artifacts_lose_none_that_share_a_digest_and_a_moment(store: Store, clock: FakeClock) -> None:
    def unit(tx: Tx) -> None:
        artifact_rows.insert_artifact(tx, digest="d", size=1, place="p")
        artifact_rows.insert_artifact(tx, digest="e", size=1, place="p")
        rows = [reference("d", "a", job_id=f"j{number % 3}", name=f"f{number}") for number in range(9)]
        artifact_rows.refer(tx, [*rows, reference("e", "a")])

    await store.write(unit)
    clock.advance(1)
    await store.write(lambda tx: artifact_rows.refer(tx, [reference("d", "a", name="newest")]))
    found: list[ListedReference] = []
    while True:
        before = (found[-1].created_at_ms, found[-1].place) if found else None
        rows = await store.read(
            lambda c, before=before: artifact_rows.list_artifacts(
                c, account_id="a", job_id=None, before=before, limit=4
            )
        )
        found += rows
        if len(rows) < 4:
            break
    assert found[0].name == "newest"
    assert len(found) == len({row.place for row in found}) == 11
    of_job = await store.read(
        lambda c: artifact_rows.list_artifacts(c, account_id=None, job_id="j1", before=None, limit=99)
    )
    assert len(of_job) == 3


async def test_a_node_reads_what_the_jobs_it_holds_refer_to(store: Store) -> None:
    def unit(tx: Tx) -> tuple[str, str, str]:
        account, node_id = add_account(tx), add_node(tx)
        (job_id,) = add_jobs(tx, account_id=account)
        attempt_id = add_attempt(tx, job_id, node_id=node_id)
        artifact_rows.insert_artifact(tx, digest="d", size=1, place="p")
        artifact_rows.refer(tx, [reference("d", account, job_id=job_id, role="input")])
        return account, node_id, attempt_id

    account, node_id, attempt_id = await store.write(unit)
    job_id = attempt_id.rpartition("-")[0]

    async def may(node: str) -> bool:
        return await store.read(lambda c: artifact_rows.node_may_read(c, digest="d", node_id=node))

    assert await may(node_id)
    assert not await may("node_other")
    using = await store.read(lambda c: artifact_rows.open_jobs_using(c, digest="d", account_id=account))
    assert using == [job_id]

    def end(tx: Tx) -> None:
        attempt_rows.end_attempt(tx, attempt_id, state=AttemptState.EXPIRED, reason=Reason.LEASE_LOST)
        job_rows.finish(tx, job_id, state=JobState.FAILED, reason=Reason.LEASE_LOST)

    await store.write(end)
    assert not await may(node_id)
    assert await store.read(lambda c: artifact_rows.open_jobs_using(c, digest="d", account_id=account)) == []
