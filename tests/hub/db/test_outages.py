"""Full disks, lost servers and kill -9: callers get the right error, and nothing acknowledged is lost or repeated."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from computepool.core.errors import OutOfSpace, Unavailable
from computepool.hub.app import open_store
from computepool.hub.db import dialect
from computepool.hub.db.dialect import hub_lock
from computepool.hub.db.schema import migrate
from computepool.hub.db.session import Connection, Store, Tx
from computepool.hub.identity import rows as account_rows
from computepool.testing.clock import FakeClock
from computepool.testing.factories import add_account
from computepool.testing.postgres import PostgresServer
from computepool.testing.waiting import eventually
from tests.hub.db.conftest import MakeStore

PER_WORKER = 200  #: so many that they are still writing when the server is stopped for the second time
HOLD_LOCK = """
import sys
from computepool.hub.db.dialect import hub_lock
with hub_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
#: Writes accounts named by numbers until it dies, and prints each number after its write was acknowledged.
WRITE_UNTIL_DEAD = """
import asyncio, sys
from computepool.hub.app import open_store
from computepool.testing.clock import FakeClock
from computepool.testing.factories import add_account

def unit(name):
    def write(tx):
        add_account(tx, name=name)
        tx.emit(actor=name, action="account.created")
    return write

async def main():
    store = open_store(sys.argv[1], clock=FakeClock(), hub_id="hub")
    store.start()
    async def one(number):
        await store.write(unit(str(number)))
        print(number, flush=True)
    for start in range(0, 100_000, 20):
        await asyncio.gather(*(one(number) for number in range(start, start + 20)))

asyncio.run(main())
"""


def names(connection: Connection) -> set[str]:
    return {row.name for row in account_rows.list_accounts(connection, after="", limit=1_000_000)}


def event_actors(connection: Connection) -> list[str]:
    return list(connection.execute(text("SELECT actor FROM events ORDER BY seq")).scalars())


# a full disk


async def test_a_full_disk_is_reported_and_changes_nothing(sqlite_url: str, make_store: MakeStore) -> None:
    store = make_store(sqlite_url)
    await store.write(lambda tx: add_account(tx, name="before"))

    def limit(tx: Tx) -> None:
        pages = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 2}")

    def fill(tx: Tx) -> None:
        for _ in range(100):
            add_account(tx, name=f"{os.urandom(2_000).hex()}")
        tx.emit(actor="big", action="account.created")

    await store.write(limit)
    answers = await asyncio.gather(
        store.write(fill),
        store.write(lambda tx: add_account(tx, name="small")),
        store.write(fill),
        return_exceptions=True,
    )
    assert isinstance(answers[0], OutOfSpace)
    assert isinstance(answers[2], OutOfSpace)
    assert "nothing was changed" in answers[0].detail
    assert await store.read(names) == {"before", "small"}
    assert await store.read(event_actors) == []
    await store.write(lambda tx: tx.connection.exec_driver_sql("PRAGMA max_page_count=1000000") and None)
    await store.write(fill)
    assert await store.read(event_actors) == ["big"]


# a lost server


class Client:
    """Repeats each write until it is acknowledged, like the SDK."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.refused: list[Unavailable] = []
        self.acknowledged: set[str] = set()

    async def make_accounts(self, prefix: str, count: int) -> None:
        left = [f"{prefix}-{number}" for number in range(count)]
        while left:
            if await self._make_account(left[-1]):
                left.pop()
            else:
                await asyncio.sleep(0.02)

    async def _make_account(self, name: str) -> bool:
        def unit(tx: Tx) -> None:
            if account_rows.insert_account(tx, account_id=name, name=name, roles=[]):
                tx.emit(actor=name, action="account.created")

        try:
            await self.store.write(unit)
        except Unavailable as error:
            self.refused.append(error)
            return False
        self.acknowledged.add(name)
        return True


@pytest.mark.soak
async def test_a_server_restart_under_load_loses_and_repeats_nothing(
    durable_postgres: PostgresServer, make_store: MakeStore
) -> None:
    url = durable_postgres.fresh_database()
    migrate(url)
    store = make_store(url, group_commit_max=8)
    client = Client(store)
    load = [asyncio.ensure_future(client.make_accounts(f"worker{number}", PER_WORKER)) for number in range(6)]
    for acknowledged in (40, 120):
        await eventually(lambda least=acknowledged: len(client.acknowledged) >= least)
        client.refused.clear()
        await asyncio.to_thread(durable_postgres.stop, immediate=True)
        with pytest.raises(Unavailable):
            await store.read(names)
        await eventually(lambda: bool(client.refused))
        await asyncio.to_thread(durable_postgres.start)
    await asyncio.gather(*load)
    assert len(client.acknowledged) == 6 * PER_WORKER
    assert await store.read(names) == client.acknowledged
    assert sorted(await store.read(event_actors)) == sorted(client.acknowledged)


async def test_a_commit_whose_answer_was_lost_is_not_repeated(
    migrated_url: str, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks right after the server committed: the unit must not run a second time."""
    store = make_store(migrated_url)
    runs: list[str] = []
    asked: list[str] = []
    really = dialect.was_committed

    def looked_up(engine: object, transaction: str) -> bool:
        asked.append(transaction)
        return really(engine, transaction)  # type: ignore[arg-type]

    monkeypatch.setattr(dialect, "was_committed", looked_up)

    def unit(tx: Tx) -> str:
        runs.append("run")
        break_at_commit(tx.connection, after=True)
        tx.emit(actor="once", action="done")
        return "done"

    assert await store.write(unit) == "done"
    assert (len(runs), len(asked)) == (1, 1)
    assert await store.read(event_actors) == ["once"]


async def test_a_commit_that_never_reached_the_server_is_retried(migrated_url: str, make_store: MakeStore) -> None:
    store = make_store(migrated_url)
    runs: list[str] = []

    def unit(tx: Tx) -> str:
        runs.append("run")
        if len(runs) == 1:
            break_at_commit(tx.connection, after=False)
        tx.emit(actor="once", action="done")
        return "done"

    assert await store.write(unit) == "done"
    assert len(runs) == 2
    assert await store.read(event_actors) == ["once"]


def break_at_commit(connection: Connection, *, after: bool) -> None:
    """Cut the connection at the next COMMIT, before or after the server received it."""
    driver = connection.connection.driver_connection
    assert driver is not None
    commit = driver.commit

    def cut() -> None:
        if after:
            commit()
        with socket.socket(fileno=os.dup(driver.pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)
        driver.execute("SELECT 1")  # notices the closed connection, as the answer to COMMIT would have

    driver.commit = cut


async def test_an_unreachable_server_fails_all_waiting_writes_at_once(clock: FakeClock, tmp_path: Path) -> None:
    store = open_store(f"postgresql://nobody@/none?host={tmp_path}", clock=clock, hub_id="hub")
    store.start()
    answers = await asyncio.wait_for(
        asyncio.gather(*(store.write(add_account) for _ in range(50)), return_exceptions=True), timeout=20
    )
    assert {type(answer) for answer in answers} == {Unavailable}
    with pytest.raises(Unavailable):
        await store.read(names)
    await store.stop()


# kill -9


@pytest.mark.parametrize("crash_at", ["before_commit:3", pytest.param("", marks=pytest.mark.soak)])
def test_acknowledged_writes_survive_kill_9(url: str, crash_at: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_UNTIL_DEAD, url],
        stdout=subprocess.PIPE,
        env={**os.environ, "COMPUTEPOOL_CRASH_AT": crash_at},
        text=True,
    )
    assert process.stdout is not None
    said: set[str] = set()
    for line in process.stdout:
        said.add(line.strip())
        if not crash_at and len(said) == 100:
            process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=30) in (137, -signal.SIGKILL)
    process.stdout.close()
    store = open_store(url, clock=FakeClock(), hub_id="next")
    kept = store.read_now(names)
    assert said <= kept
    assert sorted(store.read_now(event_actors)) == sorted(kept)
    store.close()


@pytest.mark.soak
def test_a_second_hub_on_one_sqlite_database_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'data' / 'hub.sqlite'}"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    other_name = tmp_path / "alias.sqlite"
    other_name.symlink_to(tmp_path / "data" / "hub.sqlite")
    for same in (url, f"sqlite:///{other_name}"):
        with pytest.raises(Unavailable) as refusal, hub_lock(same):
            pass
        assert f"process {holder.pid}" in refusal.value.detail
        assert "PostgreSQL" in refusal.value.detail
    with hub_lock(f"sqlite:///{tmp_path / 'another.sqlite'}"):
        holder.kill()
    holder.communicate(timeout=30)
    with hub_lock(url):
        pass


def test_a_lock_that_was_released_can_be_taken_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'hub.sqlite'}"
    with hub_lock(url), pytest.raises(Unavailable), hub_lock(url):
        pass
    with hub_lock(url):
        pass


def test_hubs_on_postgresql_need_no_lock(postgres: PostgresServer) -> None:
    url = postgres.url("postgres")
    with hub_lock(url), hub_lock(url):
        pass
