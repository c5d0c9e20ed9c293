"""Migrations: they make exactly the tables of tables.py, on both databases, once, whoever starts and whenever it dies."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from computepool.core.errors import Unavailable
from computepool.hub.db import dialect, schema
from computepool.hub.db.money_tables import metadata

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

#: Everything PostgreSQL knows of columns, constraints and indexes, in words.
CATALOGUE = """
SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default)
  FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
ORDER BY 1
"""
TABLES = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type <> 'trigger' ORDER BY name"


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'made.sqlite'}"
    address: str = request.getfixturevalue("postgres_url")
    return address


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


def test_the_migrations_have_one_head() -> None:
    assert schema.head() is not None


def test_migrating_makes_the_tables_and_nothing_more_the_second_time(empty_url: str) -> None:
    schema.migrate(empty_url)
    assert schema.current(empty_url) == schema.head()
    schema.migrate(empty_url)
    assert schema.differences(empty_url) == []
    assert tables_in(empty_url) == {*metadata.tables, "alembic_version"}


def test_sqlite_gets_word_for_word_what_the_tables_say(sqlite_url: str, tmp_path: Path) -> None:
    direct = f"sqlite:///{tmp_path / 'direct.sqlite'}"
    engine = create_engine(direct)
    metadata.create_all(engine)
    engine.dispose()
    made, wanted = described(sqlite_url, TABLES), described(direct, TABLES)
    assert list(map(definitions, made)) == list(map(definitions, wanted))


def definitions(statement: str) -> list[str]:
    """Of columns and constraints. A column that a later migration added stands at the end, whatever tables.py says."""
    depth, found = 0, [""]
    for character in statement.rstrip(" )"):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 1:
            found.append("")
        else:
            found[-1] += character
    return sorted(" ".join(part.split()).rstrip(")").rstrip() for part in found)


def test_a_pool_from_before_money_goes_on(empty_url: str) -> None:
    """Its jobs have cost nothing, and nothing was set aside for those that wait."""
    schema.migrate(empty_url, to="0001")
    engine = create_engine(dialect.postgres_url(empty_url))
    account = "INSERT INTO accounts (id, name, roles, created_at_ms) VALUES ('acc_1', 'ann', 'submitter', 1)"
    spec = "INSERT INTO specs (digest, body, created_at_ms) VALUES ('d', '{}', 1)"
    job = (
        "INSERT INTO jobs (id, account_id, item, item_count, name, kind, spec_digest, priority, retries, state, reason, "
        "attempt_no, job_faults, node_faults, deps_pending, ready_at_ms, queued_at_ms, created_at_ms, expires_at_ms, "
        "finished_at_ms) VALUES ('{id}', 'acc_1', 0, 1, 'n', 'command', 'd', 0, 0, '{state}', 'submitted', "
        "0, 0, 0, 0, 1, 1, 1, 9, {finished})"
    )
    with engine.begin() as connection:
        for statement in (account, spec):
            connection.execute(text(statement))
        connection.execute(text(job.format(id="job_1", state="failed", finished="5")))
        connection.execute(text(job.format(id="job_2", state="queued", finished="NULL")))
    schema.migrate(empty_url)
    assert schema.current(empty_url) == schema.head()
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT id, hold, charge FROM jobs ORDER BY id")).all()
        assert [tuple(row) for row in rows] == [("job_1", 0, 0), ("job_2", 0, None)]
        assert list(connection.execute(text("SELECT floor FROM accounts")).scalars()) == [None]
    engine.dispose()


def test_postgresql_gets_word_for_word_what_the_tables_say(
    migrated_postgres_url: str, postgres_url: str
) -> None:
    engine = create_engine(postgres_url)
    metadata.create_all(engine)
    engine.dispose()
    made = described(migrated_postgres_url, CATALOGUE)
    assert len(made) > 150
    assert made == described(postgres_url, CATALOGUE)


def test_hubs_that_start_together_migrate_once(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(schema.migrate, [empty_url] * 4))
    assert schema.differences(empty_url) == []


def test_a_new_file_is_opened_by_many_at_once(tmp_path: Path) -> None:
    """SQLite itself refuses about one of a hundred of these without waiting."""
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


def test_a_database_of_a_newer_version_is_refused_with_a_sentence(url: str) -> None:
    engine = create_engine(dialect.postgres_url(url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Unavailable, match="schema 9999"):
        schema.migrate(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": schema.head()})
    engine.dispose()
    schema.migrate(url)


@pytest.mark.parametrize("statement", [4, 25])
def test_killed_half_way_nothing_was_changed(empty_url: str, statement: int) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DIE_HALF_WAY, empty_url, str(statement)], check=False, capture_output=True
    )
    assert died.returncode == 137, died.stderr.decode()
    assert tables_in(empty_url) == set()
    schema.migrate(empty_url)
    assert schema.differences(empty_url) == []


@pytest.mark.parametrize("name", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_a_postgresql_address_means_our_driver(name: str) -> None:
    assert dialect.postgres_url(f"{name}://me:secret@host/db") == "postgresql+psycopg://me:secret@host/db"
    assert not dialect.is_sqlite(f"{name}://host/db")
