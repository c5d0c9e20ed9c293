"""The only place that knows SQLite from PostgreSQL: engines, locks, notifications, and the few statements that differ."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, Engine, Select, create_engine, event, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.sql.dml import Insert

from computepool.core.errors import InvariantViolation, Unavailable

CHANNEL = "computepool"
#: Any two numbers; every hub of a pool takes the same lock before it numbers events (see order_events).
_EVENT_ORDER_LOCK = 0x706F6F6C
_SCHEMA_LOCK = 0x706F6F6D
_BUSY_TIMEOUT_MS = 10_000


def is_sqlite(url: str) -> bool:
    return make_url(url).get_backend_name() == "sqlite"


def make_writer(url: str) -> Engine:
    if is_sqlite(url):
        return _sqlite_engine(url, begin="BEGIN IMMEDIATE", pool_size=1)
    return create_engine(_psycopg(url), pool_size=1, max_overflow=0, pool_pre_ping=False, pool_recycle=3600)


def make_migrator(url: str) -> Engine:
    """Like the writer, but SQLite looks at foreign keys only at the end (check_foreign_keys): tables are copied and renamed."""
    if is_sqlite(url):
        return _sqlite_engine(url, begin="BEGIN IMMEDIATE", pool_size=1, foreign_keys="OFF")
    return make_writer(url)


def make_reader(url: str, threads: int) -> Engine:
    if is_sqlite(url):
        return _sqlite_engine(url, begin="BEGIN", pool_size=threads)
    return create_engine(
        _psycopg(url), pool_size=threads, max_overflow=0, pool_pre_ping=True, pool_recycle=3600
    )


def _psycopg(url: str) -> str:
    """`postgres://` and `postgresql://`, as hosting services hand them out, mean the driver we ship."""
    parsed = make_url(url)
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    return parsed.render_as_string(hide_password=False)


def _sqlite_engine(url: str, *, begin: str, pool_size: int, foreign_keys: str = "ON") -> Engine:
    pragmas = {
        "busy_timeout": _BUSY_TIMEOUT_MS,  # first: the next one may have to wait for another process
        "journal_mode": "WAL",
        "synchronous": "FULL",  # an acknowledged commit survives a power cut; NORMAL may roll it back
        "foreign_keys": foreign_keys,
    }
    engine = create_engine(
        url, pool_size=pool_size, max_overflow=0, connect_args={"check_same_thread": False}
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, or the driver would delay it
        cursor = connection.cursor()
        for name, value in pragmas.items():
            cursor.execute(f"PRAGMA {name}={value}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


class HubLock:
    """On SQLite one hub owns the database; PostgreSQL serves many. Held until the process ends, even by kill -9."""

    def __init__(self, url: str) -> None:
        self._file: IO[str] | None = None
        if is_sqlite(url) and (database := make_url(url).database):
            self._file = self._take(Path(database).with_suffix(".lock"))

    def _take(self, path: Path) -> IO[str]:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "another process"
            handle.close()
            raise Unavailable(
                f"Another hub (process {holder}) already serves this SQLite database. Stop it first, "
                "or set DATABASE_URL to a PostgreSQL database, which several hubs can share."
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        return handle

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def make_folder(url: str) -> None:
    """SQLite makes the file, not the folder it is in."""
    if is_sqlite(url) and (database := make_url(url).database):
        Path(database).parent.mkdir(parents=True, exist_ok=True)


def lock_schema(connection: Connection) -> None:
    """Until this transaction ends nobody else migrates. On SQLite the explicit BEGIN IMMEDIATE already says so."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})


def check_foreign_keys(connection: Connection) -> None:
    """Before a migration commits: SQLite was not looking while it ran."""
    if connection.dialect.name == "sqlite" and (
        broken := connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    ):
        raise InvariantViolation(f"the migration broke {len(broken)} references, the first in {broken[0][0]}")


def order_events(connection: Connection) -> None:
    """Hubs number events one after the other, so that a cursor never skips a number committed a moment later."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _EVENT_ORDER_LOCK})


def notify(connection: Connection, payload: str) -> None:
    """Tell the other hubs when (and only if) this transaction commits."""
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("SELECT pg_notify(:channel, :payload)"), {"channel": CHANNEL, "payload": payload}
        )


def skip_locked(connection: Connection, statement: Select[Any]) -> Select[Any]:
    """Rows another hub is taking at this moment are left to it. SQLite has one writer, which needs no row locks."""
    return (
        statement.with_for_update(skip_locked=True) if connection.dialect.name == "postgresql" else statement
    )


def for_update(connection: Connection, statement: Select[Any]) -> Select[Any]:
    return statement.with_for_update() if connection.dialect.name == "postgresql" else statement


def insert_ignore(connection: Connection, table: Any) -> Insert:
    """INSERT that leaves an existing row alone."""
    maker = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return maker(table).on_conflict_do_nothing()


def upsert(connection: Connection, table: Any, *, key: Sequence[str], update: Sequence[str]) -> Insert:
    maker = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = maker(table)
    changes = {name: statement.excluded[name] for name in update}
    return statement.on_conflict_do_update(index_elements=list(key), set_=changes)


def is_transient(error: DBAPIError) -> bool:
    """Worth running the same transaction once more: serialisation, deadlock, lost connection."""
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    return state in {"40001", "40P01"} or (
        isinstance(error, OperationalError) and "server closed" in str(error)
    )


def is_disk_full(error: DBAPIError) -> bool:
    return "disk is full" in str(error.orig) or getattr(error.orig, "sqlstate", None) == "53100"
