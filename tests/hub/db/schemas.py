"""Schemas of databases: what one has, and an old one, taken from a dump.

`schema_0010.sql.gz` is the dump of a SQLite hub with schema 0010, after a wrong result of which two rechecks still wait, a
group that waits for its home, a request for approval, a measured node and a checkpoint. Its secrets were removed.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
from contextlib import closing
from graphlib import TopologicalSorter
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, text

from computepool.hub.db import dialect, schema
from computepool.hub.db.tables import metadata

OLD = "0010"
_DUMP = Path(__file__).with_name(f"schema_{OLD}.sql.gz")
_REFUSE = "EXECUTE FUNCTION refuse_transfer_change()"
_POSTGRESQL_TRIGGERS = [
    """CREATE FUNCTION refuse_transfer_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'transfers are never changed or removed'; END $$""",
    f"CREATE TRIGGER transfers_change BEFORE UPDATE OR DELETE ON transfers FOR EACH ROW {_REFUSE}",
    f"CREATE TRIGGER transfers_truncate BEFORE TRUNCATE ON transfers FOR EACH STATEMENT {_REFUSE}",
]


def restore(file: Path | str) -> sqlite3.Connection:
    """The old database as a SQLite file, with all its rows."""
    database = sqlite3.connect(file)
    database.executescript(gzip.decompress(_DUMP.read_bytes()).decode())
    return database


def create_old(url: str) -> None:
    """An empty database with the old schema."""
    with closing(restore(":memory:")) as source:
        query = (
            "SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' ORDER BY rowid"
        )
        found = source.execute(query).fetchall()
    tables = {name: sql for name, kind, sql in found if kind == "table"}
    # A new database of that version had its indexes in the order of the declarations; the dumped one did not.
    declared = [index.name for table in metadata.tables.values() for index in table.indexes]
    found.sort(key=lambda row: declared.index(row[0]) if row[0] in declared else len(declared))
    others = [sql for _, kind, sql in found if kind != "table"]
    if not dialect.is_sqlite(url):
        tables = {name: _for_postgresql(name, sql) for name, sql in tables.items()}
        others = [sql for sql in others if "TRIGGER" not in sql] + _POSTGRESQL_TRIGGERS
    referred = {name: set(re.findall(r"REFERENCES (\w+)", sql)) for name, sql in tables.items()}
    engine = create_engine(dialect.postgres_url(url))
    with engine.begin() as connection:
        in_order = (tables[name] for name in TopologicalSorter(referred).static_order())
        for statement in (*in_order, *others, f"INSERT INTO alembic_version VALUES ('{OLD}')"):
            connection.execute(text(statement))
    engine.dispose()


def _for_postgresql(table: str, sql: str) -> str:
    if table == "log_chunks":
        return sql.replace("seq INTEGER", "seq BIGSERIAL")
    return sql.replace("INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", f"BIGSERIAL CONSTRAINT pk_{table} PRIMARY KEY")


def newest() -> str | None:
    """The newest version. Raises when the migrations branch."""
    return schema.scripts().get_current_head()


def version_of(url: str) -> str | None:
    engine = dialect.make_reader(url, 1)
    with engine.begin() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    engine.dispose()
    return found


def differences(url: str) -> list[object]:
    """What a database has other than the declared tables."""
    engine = dialect.make_reader(url, 1)
    with engine.begin() as connection:
        opts = {"compare_type": True, "compare_server_default": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=opts), metadata)
    engine.dispose()
    return list(found)
