"""Databases for the ledger's tests: migrated once, and copied for every test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from computepool.hub.db.schema import migrate
from computepool.testing.postgres import PostgresServer

#: `fresh("sqlite")`, `fresh("postgresql")`: the address of a migrated, empty database of its own.
Fresh = Callable[[str], str]


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "hub.sqlite"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="module")
def fresh(
    request: pytest.FixtureRequest, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fresh]:
    made: list[str] = []

    def make(database: str) -> str:
        if database == "sqlite":
            folder = tmp_path_factory.mktemp("money")
            return f"sqlite:///{shutil.copy(sqlite_template, folder / 'hub.sqlite')}"
        server: PostgresServer = request.getfixturevalue("postgres")
        made.append(server.fresh_database(migrate))
        return made[-1]

    yield make
    for url in made:
        request.getfixturevalue("postgres").drop_database(url)
