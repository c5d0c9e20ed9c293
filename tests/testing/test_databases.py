"""Lent databases keep nothing from one test to the next."""

from __future__ import annotations

import psycopg
import pytest

from computepool.testing.databases import LentDatabases
from computepool.testing.postgres import PostgresServer

EVENT = "INSERT INTO events (at_ms, actor, action, final) VALUES (1, 'ann', 'job.succeeded', true) RETURNING seq"


@pytest.fixture
def lent(postgres: PostgresServer) -> LentDatabases:
    return LentDatabases(postgres)


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def test_a_returned_database_is_lent_again_empty_and_numbers_from_one(lent: LentDatabases) -> None:
    seen = ""
    for _ in range(2):
        with lent.one() as url, connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
            assert connection.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
            assert connection.execute(EVENT).fetchone() == (1,)
            seen = url
    with lent.one() as url:
        assert url == seen


def test_open_connections_are_closed_when_a_database_is_returned(lent: LentDatabases) -> None:
    with lent.one() as url:
        stayed = connect(url)
    with pytest.raises(psycopg.OperationalError):
        stayed.execute(EVENT)
    stayed.close()


def test_two_databases_lent_at_once_differ(lent: LentDatabases) -> None:
    with lent.one() as one, lent.one() as two:
        assert one != two


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE events ALTER COLUMN actor DROP NOT NULL",
        "ALTER TABLE transfers DISABLE TRIGGER ALL",
        "CREATE TABLE more (id text)",
        "DROP TABLE webhooks CASCADE",
        "CREATE INDEX more ON events (actor)",
        "ALTER TABLE events ALTER COLUMN actor SET DEFAULT 'nobody'",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$",
    ],
)
def test_a_changed_schema_is_not_lent_again(lent: LentDatabases, change: str) -> None:
    with lent.one() as url, connect(url) as connection:
        connection.execute(change)
    with lent.one() as other:
        assert other != url
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        connect(url)
