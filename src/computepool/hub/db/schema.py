"""The schema's version: bring a database to the newest one, and say which one it has.

A new database is made from the tables, one that is there is migrated. The migrations are part of the package, so an
installed hub needs no files beside it. Either is one transaction, DDL included, on both databases: a hub killed half-way
leaves the old schema, never half of the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from computepool.core.errors import Unavailable
from computepool.hub.db import dialect
from computepool.hub.db.group_tables import metadata

_SCRIPTS = Path(__file__).parent / "migrations"


def migrate(url: str, *, rebuild: Sequence[Callable[[Connection], None]] = ()) -> None:
    """Bring the database to the newest schema. Hubs that start together do it one after the other.

    `rebuild`: makes a table again that is a cache of others, because no single migration knows the tables of all that
    come after it. A change of its rule needs an empty migration and nothing else.
    """
    _make_folder(url)
    engine = dialect.make_migrator(url)
    try:
        with engine.begin() as connection:
            dialect.lock_schema(connection)
            found = MigrationContext.configure(connection).get_current_revision()
            if found is None:
                metadata.create_all(connection, checkfirst=False)
                command.stamp(_config(connection), "head")
            elif not _is_newest(found):
                command.upgrade(_config(connection), "head")
                dialect.check_foreign_keys(connection)
                for make_again in rebuild:
                    make_again(connection)
    finally:
        engine.dispose()


def _is_newest(found: str) -> bool:
    scripts = _scripts()
    known = {script.revision for script in scripts.walk_revisions()}
    if found not in known:
        oldest = min(known)
        raise Unavailable(
            f"The database has schema {found}, and this version of ComputePool migrates from {oldest} on: start the "
            "version before this one on it once, then this one."
            if found < oldest
            else f"The database has schema {found}, which this version of ComputePool does not know: a newer one made "
            "it. Install that version again, or restore a backup from before."
        )
    return found == scripts.get_current_head()


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_SCRIPTS))


def current(url: str) -> str | None:
    """The schema's version; None for a database without one."""
    engine = dialect.make_reader(url, 1)
    try:
        with engine.begin() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def head() -> str | None:
    """The version this program was written for. Raises when the migrations branch."""
    return _scripts().get_current_head()


def differences(url: str) -> list[object]:
    """What a database has other than tables.py says; empty when they agree."""
    engine = dialect.make_reader(url, 1)
    try:
        with engine.begin() as connection:
            context = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True}
            )
            return list(compare_metadata(context, metadata))
    finally:
        engine.dispose()


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connection
    return config


def _make_folder(url: str) -> None:
    """SQLite makes the file, not the folder it is in."""
    database = dialect.sqlite_file(url)
    if database is not None:
        database.parent.mkdir(parents=True, exist_ok=True)
