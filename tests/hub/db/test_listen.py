"""What one hub commits wakes the others, and after a gap they look at everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from computepool.core.errors import Conflict
from computepool.hub.db.listen import Listener
from computepool.hub.db.schema import migrate
from computepool.hub.db.session import Tx
from computepool.testing.postgres import PostgresServer
from tests.hub.db.conftest import MakeStore


class Heard:
    """Collects what a listener says, and waits for it."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self._changed = asyncio.Event()

    def __call__(self, topics: set[str]) -> None:
        self.topics |= topics
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def all_of(self, *topics: str) -> None:
        await self.until(lambda: self.topics >= set(topics))


async def test_a_hub_hears_the_others_and_not_itself(
    migrated_postgres_url: str, make_store: MakeStore
) -> None:
    mine, other = make_store(migrated_postgres_url), make_store(migrated_postgres_url)
    heard = Heard()
    listener = Listener(migrated_postgres_url, hub_id=mine.hub_id, receive=heard)
    listener.start()
    await heard.all_of("*")
    await mine.write(lambda tx: tx.touch("job:mine"))
    await other.write(lambda tx: tx.touch("job:1", "queue"))
    await heard.all_of("job:1", "queue")
    assert "job:mine" not in heard.topics
    heard.topics.clear()
    await other.write(lambda tx: tx.touch(*(f"job:{number}" for number in range(5_000))))
    await heard.all_of("*")
    await listener.stop()


async def test_what_was_rolled_back_is_not_heard(migrated_postgres_url: str, make_store: MakeStore) -> None:
    store = make_store(migrated_postgres_url)
    heard = Heard()
    listener = Listener(migrated_postgres_url, hub_id="another", receive=heard)
    listener.start()
    await heard.all_of("*")

    def refused(tx: Tx) -> None:
        tx.touch("job:never")
        raise Conflict

    await asyncio.gather(
        store.write(lambda tx: tx.touch("job:before")), store.write(refused), return_exceptions=True
    )
    await store.write(lambda tx: tx.touch("job:after"))
    await heard.all_of("job:before", "job:after")
    assert "job:never" not in heard.topics
    await listener.stop()


@pytest.mark.soak
async def test_after_a_lost_connection_everything_is_looked_at(make_store: MakeStore) -> None:
    with PostgresServer() as server:
        url = server.fresh_database()
        migrate(url)
        heard = Heard()
        listener = Listener(url, hub_id="hub", receive=heard)
        listener.start()
        await heard.all_of("*")
        heard.topics.clear()
        await asyncio.to_thread(server.restart)
        await heard.all_of("*")
        other = make_store(url)
        other.hub_id = "other"
        await other.write(lambda tx: tx.touch("queue"))
        await heard.all_of("queue")
        await listener.stop()


async def test_on_sqlite_there_is_nobody_to_hear(sqlite_url: str) -> None:
    listener = Listener(sqlite_url, hub_id="hub", receive=lambda _: None)
    listener.start()
    await listener.stop()
