"""A store on each database, with the schema made once and copied, and a clock that stands still."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from computepool.hub.app import open_store
from computepool.hub.db.schema import migrate
from computepool.hub.db.session import Commit, Store
from computepool.hub.db.tables import metadata
from computepool.testing.clock import FakeClock
from computepool.testing.postgres import PostgresServer

MakeStore = Callable[..., Store]


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "hub.sqlite"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """The address of a migrated SQLite database of its own."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'hub.sqlite')}"


@pytest.fixture(scope="session")
def postgres_tables(postgres: PostgresServer) -> Engine:
    url = postgres.fresh_database()
    migrate(url)
    return create_engine(url)


@pytest.fixture
def migrated_postgres_url(postgres_tables: Engine) -> str:
    """The address of a migrated, empty PostgreSQL database: emptied for each test, which is quicker than a new one."""
    with postgres_tables.begin() as connection:
        names = ", ".join(metadata.tables)
        # The ledger refuses to be emptied; only the test server's superuser may switch that off, for this moment.
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))
    postgres_tables.dispose()
    return postgres_tables.url.render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    name = {"sqlite": "sqlite_url", "postgresql": "migrated_postgres_url"}[request.param]
    return request.getfixturevalue(name)


@pytest.fixture
async def make_store(clock: FakeClock) -> AsyncIterator[MakeStore]:
    """Started stores, stopped after the test: as many hubs on one database as a test asks for."""
    stores: list[Store] = []

    def make(url: str, *, follow: Callable[[Commit], None] = lambda _commit: None, **options: int) -> Store:
        store = open_store(url, clock=clock, hub_id=f"hub{len(stores)}", **options)
        store.start(follow)
        stores.append(store)
        return store

    yield make
    for store in stores:
        await store.stop()


@pytest.fixture
async def store(url: str, make_store: MakeStore) -> Store:
    return make_store(url)
