"""Commits of one hub wake the others, which check everything after a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from computepool.core.errors import Conflict
from computepool.hub.db.listen import Listener
from computepool.hub.db.schema import migrate
from computepool.hub.db.session import Tx
from computepool.testing.postgres import PostgresServer
from computepool.testing.waiting import eventually
from tests.hub.db.conftest import MakeStore


@asynccontextmanager
async def listening(url: str, hub_id: str) -> AsyncIterator[set[str]]:
    """The topics that a listener has received since it connected."""
    topics: set[str] = set()
    listener = Listener(url, hub_id=hub_id, receive=topics.update)
    listener.start()
    await eventually(lambda: "*" in topics)
    topics.clear()
    yield topics
    await listener.stop()


async def test_a_hub_receives_the_topics_of_other_hubs_and_not_its_own(
    migrated_url: str, make_store: MakeStore
) -> None:
    mine, other = make_store(migrated_url), make_store(migrated_url)
    async with listening(migrated_url, mine.hub_id) as topics:
        await mine.write(lambda tx: tx.touch("job:mine"))
        await other.write(lambda tx: tx.touch("job:1", "queue"))
        await eventually(lambda: topics == {"job:1", "queue"})
        await other.write(lambda tx: tx.touch(*(f"job:{number}" for number in range(5_000))))
        await eventually(lambda: "*" in topics)


async def test_topics_of_a_unit_that_was_rolled_back_are_not_sent(migrated_url: str, make_store: MakeStore) -> None:
    store = make_store(migrated_url)

    def refused(tx: Tx) -> None:
        tx.touch("job:never")
        raise Conflict

    async with listening(migrated_url, "another") as topics:
        await asyncio.gather(
            store.write(lambda tx: tx.touch("job:before")), store.write(refused), return_exceptions=True
        )
        await store.write(lambda tx: tx.touch("job:after"))
        await eventually(lambda: topics == {"job:before", "job:after"})


@pytest.mark.soak
async def test_a_lost_connection_is_restored_and_everything_checked(make_store: MakeStore) -> None:
    with PostgresServer() as server:
        url = server.fresh_database(migrate)
        async with listening(url, "hub") as topics:
            await asyncio.to_thread(server.restart)
            await eventually(lambda: "*" in topics)
            other = make_store(url)
            other.hub_id = "other"
            await other.write(lambda tx: tx.touch("queue"))
            await eventually(lambda: "queue" in topics)


async def test_a_hub_on_sqlite_has_nobody_to_listen_to(sqlite_url: str) -> None:
    listener = Listener(sqlite_url, hub_id="hub", receive=lambda _: None)
    listener.start()
    await listener.stop()
