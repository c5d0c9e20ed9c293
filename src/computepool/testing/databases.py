"""Databases with the newest schema. They are copied or emptied instead of migrated, which is most of a small hub's start."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from computepool.hub.db import dialect
from computepool.hub.db.schema import migrate
from computepool.hub.settings import Settings
from computepool.testing.postgres import PostgresServer


def place(settings: Settings) -> None:
    """Give a hub without a SQLite file one that is already migrated."""
    file = dialect.sqlite_file(settings.url)
    if file is None or file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(migrated_sqlite())


@cache
def migrated_sqlite() -> bytes:
    with tempfile.TemporaryDirectory(prefix="computepool-schema-") as folder:
        file = Path(folder, "hub.sqlite")
        migrate(f"sqlite:///{file}")
        return file.read_bytes()


class LentDatabases:
    """PostgreSQL databases with the newest schema, lent to one test after another: emptying one takes a tenth of the time of
    copying and dropping it."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._empty: list[tuple[str, str]] = []

    @contextmanager
    def one(self) -> Iterator[str]:
        if not self._empty:
            url = self._server.fresh_database(migrate)
            with _connection(url) as connection:
                self._empty.append((url, _schema(connection)))
        url, schema = self._empty.pop()
        yield url
        with _connection(url) as connection:
            # A hub that a test left behind must not write into the next test's database.
            connection.execute(_DISCONNECT)
            connection.execute(_EMPTY)
            unchanged = _schema(connection) == schema
        if unchanged:
            self._empty.append((url, schema))
        else:
            self._server.drop_database(url)


_DISCONNECT = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
# The ledger refuses to be emptied; only the test server's superuser may switch that off for a transaction. TRUNCATE would
# create new files for every table and index.
_EMPTY = """DO $$
DECLARE name text;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
            AND relname <> 'alembic_version' LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
    PERFORM setval(oid, 1, false) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S';
END $$"""
# Any change of the schema rewrites one of these rows, and xmin names the transaction that did.
_SCHEMA = """SELECT md5(string_agg(row_version, ' ' ORDER BY row_version)) FROM (
    SELECT 'class', oid, 0, xmin FROM pg_class WHERE oid >= 16384
    UNION ALL SELECT 'attribute', attrelid, attnum, xmin FROM pg_attribute WHERE attrelid >= 16384
    UNION ALL SELECT 'constraint', oid, 0, xmin FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT 'trigger', oid, 0, xmin FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT 'default', oid, 0, xmin FROM pg_attrdef WHERE oid >= 16384
    UNION ALL SELECT 'function', oid, 0, xmin FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT 'setting', setdatabase, 0, xmin FROM pg_db_role_setting
) AS row (kind, id, number, version), concat_ws(',', kind, id, number, version) AS row_version"""


def _connection(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def _schema(connection: psycopg.Connection[tuple[Any, ...]]) -> str:
    row = connection.execute(_SCHEMA).fetchone()
    assert row is not None
    return str(row[0])
