"""The schema of a database: creates it, or migrates it to the newest version.

A new database is created from the tables; an existing one is migrated. The migrations are part of the package, so an
installed hub needs no other files. Either happens in one transaction, DDL included, on both databases: a hub that is killed
half-way leaves the old schema, never half of the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from computepool.core.errors import Unavailable
from computepool.hub.db import dialect, group_tables, money_tables, reputation_tables, tables

_SCRIPTS = Path(__file__).parent / "migrations"
#: All modules that declare tables.
TABLES = (tables, reputation_tables, money_tables, group_tables)


def migrate(url: str, *, rebuild: Sequence[Callable[[Connection], None]] = ()) -> None:
    """Bring the database to the newest schema. Hubs that start together migrate one after the other.

    After a migration, each function of `rebuild` recreates a table that caches others; no single migration could, because
    it does not know the tables of later ones. To change how such a table is computed, add an empty migration.
    """
    file = dialect.sqlite_file(url)
    if file is not None:
        # It holds the hub's private keys.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    engine = dialect.make_migrator(url)
    try:
        with engine.begin() as connection:
            dialect.lock_schema(connection)
            found = MigrationContext.configure(connection).get_current_revision()
            if found is None:
                tables.metadata.create_all(connection, checkfirst=False)
                command.stamp(_config(connection), "head")
            elif not _is_newest(found):
                command.upgrade(_config(connection), "head")
                dialect.check_foreign_keys(connection)
                for recreate in rebuild:
                    recreate(connection)
    finally:
        engine.dispose()


def _is_newest(found: str) -> bool:
    known = {script.revision for script in scripts().walk_revisions()}
    if found in known:
        return found == scripts().get_current_head()
    oldest = min(known)
    if found < oldest:
        raise Unavailable(
            f"The database has schema {found}, and this version of ComputePool migrates from {oldest} on: first start "
            "the previous version on it once, then this one."
        )
    raise Unavailable(
        f"The database has schema {found}, which this version of ComputePool does not know: a newer version created it. "
        "Install that version again, or restore an older backup."
    )


@cache
def scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_SCRIPTS))


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
