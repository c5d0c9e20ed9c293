"""The schema: a migrated database equals a new one, on both databases, whoever starts and whenever the hub dies."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from computepool.core.errors import Unavailable
from computepool.hub.db import dialect, schema
from computepool.hub.db.tables import metadata
from tests.hub.db import schemas

#: Migrates argv[1] and dies as if by kill -9 right after the statement number argv[2].
DIE_HALF_WAY = """
import os, sys
from sqlalchemy import Engine, event
from computepool.hub.db.schema import migrate

left = int(sys.argv[2])

@event.listens_for(Engine, "after_cursor_execute")
def count(*_):
    global left
    left -= 1
    if left == 0:
        os._exit(137)

migrate(sys.argv[1])
"""

#: All columns, constraints, indexes and triggers of PostgreSQL, as text.
CATALOGUE = """
SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default)
  FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
ORDER BY 1
"""
TABLES = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type <> 'trigger' ORDER BY name"
#: In the order of creation, by which SQLite chooses between two that fit equally well.
INDEXES = "SELECT tbl_name || ' ' || name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY tbl_name, rowid"
TRIGGERS = "SELECT sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name"


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'made.sqlite'}"
    return request.getfixturevalue("postgres_url")


def tables_in(url: str) -> set[str]:
    engine = create_engine(dialect.postgres_url(url))
    try:
        return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def described(url: str, query: str) -> list[str]:
    engine = create_engine(dialect.postgres_url(url))
    try:
        with engine.connect() as connection:
            said = connection.execute(text(query)).scalars()
            return [" ".join(line.split()) for line in said if "alembic_version" not in line]
    finally:
        engine.dispose()


def test_migrating_creates_the_tables_and_is_idempotent(empty_url: str) -> None:
    schema.migrate(empty_url)
    assert schemas.version_of(empty_url) == schemas.newest()
    schema.migrate(empty_url)
    assert schemas.differences(empty_url) == []
    assert tables_in(empty_url) == {*metadata.tables, "alembic_version"}


def test_a_migrated_sqlite_database_equals_a_new_one(sqlite_url: str, tmp_path: Path) -> None:
    old = f"sqlite:///{tmp_path / 'old.sqlite'}"
    schemas.create_old(old)
    schema.migrate(old)
    made, wanted = described(old, TABLES), described(sqlite_url, TABLES)
    assert list(map(definitions, made)) == list(map(definitions, wanted))
    assert described(old, TRIGGERS) == described(sqlite_url, TRIGGERS) != []
    assert described(old, INDEXES) == described(sqlite_url, INDEXES) != []


def definitions(statement: str) -> list[str]:
    """The columns and constraints, sorted: a column added by a migration is the last one, whatever tables.py says."""
    depth, found = 0, [""]
    for character in statement.rstrip(" )"):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 1:
            found.append("")
        else:
            found[-1] += character
    return sorted(" ".join(part.split()).rstrip(")").rstrip() for part in found)


def test_a_migrated_postgresql_database_equals_a_new_one(migrated_url: str, postgres_url: str) -> None:
    schemas.create_old(postgres_url)
    schema.migrate(postgres_url)
    made = described(migrated_url, CATALOGUE)
    assert len(made) > 150
    assert made == described(postgres_url, CATALOGUE)


@pytest.mark.soak
def test_hubs_that_start_together_migrate_once(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(schema.migrate, [empty_url] * 4))
    assert schemas.differences(empty_url) == []


@pytest.mark.soak
def test_many_connections_open_a_new_file_at_once(tmp_path: Path) -> None:
    """SQLite itself refuses about one in a hundred of these without waiting."""
    for number in range(80):
        engines = [dialect.make_migrator(f"sqlite:///{tmp_path}/{number}.sqlite") for _ in range(8)]
        together = threading.Barrier(len(engines))

        def open_(engine: Engine, together: threading.Barrier = together) -> str:
            together.wait()
            with engine.connect() as connection:
                return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one())

        with ThreadPoolExecutor(len(engines)) as pool:
            assert set(pool.map(open_, engines)) == {"wal"}
        for engine in engines:
            engine.dispose()


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ("9999", "schema 9999, which .* a newer version created it. Install that version again"),
        ("0009", "schema 0009, and .* migrates from 0010 on: first start the previous version on it once"),
    ],
)
def test_a_database_of_an_unknown_version_is_refused_with_advice(url: str, found: str, sentence: str) -> None:
    engine = create_engine(dialect.postgres_url(url))
    stamp = text("UPDATE alembic_version SET version_num = :found")
    with engine.begin() as connection:
        connection.execute(stamp, {"found": found})
    with pytest.raises(Unavailable, match=sentence):
        schema.migrate(url)
    assert schemas.version_of(url) == found
    with engine.begin() as connection:
        connection.execute(stamp, {"found": schemas.newest()})
    engine.dispose()
    schema.migrate(url)


@pytest.mark.parametrize("statement", [pytest.param(4, marks=pytest.mark.soak), 25])
def test_a_migration_killed_half_way_changes_nothing(empty_url: str, statement: int) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DIE_HALF_WAY, empty_url, str(statement)], check=False, capture_output=True
    )
    assert died.returncode == 137, died.stderr.decode()
    assert tables_in(empty_url) == set()
    schema.migrate(empty_url)
    assert schemas.differences(empty_url) == []


@pytest.mark.parametrize("name", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_postgresql_address_uses_our_driver(name: str) -> None:
    assert dialect.postgres_url(f"{name}://me:secret@host/db") == "postgresql+psycopg://me:secret@host/db"
    assert not dialect.is_sqlite(f"{name}://host/db")


def test_a_new_sqlite_database_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """It holds the keys that the hub signs with; `pool hub link` may create it before the first start."""
    file = tmp_path / "new" / "hub.sqlite"
    schema.migrate(f"sqlite:///{file}")
    with dialect.hub_lock(f"sqlite:///{tmp_path / 'other' / 'hub.sqlite'}"):
        pass
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o700
