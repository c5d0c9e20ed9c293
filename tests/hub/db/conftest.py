"""A store on each database, with the newest schema in it, and a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from computepool.hub.app import open_store
from computepool.hub.db.session import Commit, Store
from computepool.testing import databases
from computepool.testing.clock import FakeClock

MakeStore = Callable[..., Store]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of a migrated SQLite database of its own."""
    file = tmp_path / "hub.sqlite"
    file.write_bytes(databases.migrated_sqlite())
    return f"sqlite:///{file}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    name = {"sqlite": "sqlite_url", "postgresql": "migrated_url"}[request.param]
    return request.getfixturevalue(name)


@pytest.fixture
async def make_store(clock: FakeClock) -> AsyncIterator[MakeStore]:
    """Makes started stores, as many hubs on one database as a test needs; they stop after the test."""
    stores: list[Store] = []

    def make(url: str, *, on_commit: Callable[[Commit], None] = lambda _commit: None, **options: int) -> Store:
        store = open_store(url, clock=clock, hub_id=f"hub{len(stores)}", **options)
        store.start(on_commit)
        stores.append(store)
        return store

    yield make
    for store in stores:
        await store.stop()


@pytest.fixture
async def store(url: str, make_store: MakeStore) -> Store:
    return make_store(url)
