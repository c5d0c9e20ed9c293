"""All differences between SQLite and PostgreSQL: engines, locks, notifications, and the few statements that differ."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    literal,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from computepool.core.errors import InvariantViolation, Unavailable
from computepool.hub.db.compiled_statements import run
from computepool.hub.db.failures import OutcomeUnknown

CHANNEL = "computepool"
#: Two arbitrary numbers: the advisory locks that a hub holds while it numbers events, and while it migrates.
_EVENT_ORDER_LOCK = 0x706F6F6C
_SCHEMA_LOCK = 0x706F6F6D
_BUSY_TIMEOUT_MS = 10_000
_BUSY_PAUSE_S = 0.01
_WAL_KEPT_BYTES = 64 * 1024 * 1024
_OUTCOME_TRIES = 50
_OUTCOME_PAUSE_S = 0.1

#: Both sides notice a dead peer within a minute. A hub that lost power during a transaction must not keep the others from
#: numbering events until the system's own time-out, which is hours.
KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_POSTGRES = {
    **KEEPALIVE,
    "options": "-c idle_in_transaction_session_timeout=30000 -c tcp_keepalives_idle=30 "
    "-c tcp_keepalives_interval=10 -c tcp_keepalives_count=3",
}


def is_sqlite(url: str) -> bool:
    return make_url(url).get_backend_name() == "sqlite"


def sqlite_file(url: str) -> Path | None:
    database = make_url(url).database if is_sqlite(url) else None
    return Path(database) if database else None


def make_writer(url: str) -> Engine:
    if is_sqlite(url):
        return _sqlite_engine(url, begin="BEGIN IMMEDIATE", pool_size=1)
    return _postgres_engine(url, pool_size=1, pre_ping=False)


def make_migrator(url: str) -> Engine:
    """Like the writer, but SQLite checks foreign keys only at the end, because migrations copy and rename tables."""
    if is_sqlite(url):
        return _sqlite_engine(url, begin="BEGIN IMMEDIATE", pool_size=1, foreign_keys="OFF")
    return make_writer(url)


def make_reader(url: str, threads: int) -> Engine:
    if is_sqlite(url):
        return _sqlite_engine(url, begin="BEGIN", pool_size=threads)
    return _postgres_engine(url, pool_size=threads, pre_ping=True)


def _postgres_engine(url: str, *, pool_size: int, pre_ping: bool) -> Engine:
    address = postgres_url(url)
    arguments = {name: value for name, value in _POSTGRES.items() if name not in make_url(address).query}
    return create_engine(
        address, pool_size=pool_size, max_overflow=0, pool_pre_ping=pre_ping, pool_recycle=3600, connect_args=arguments
    )


def postgres_url(url: str) -> str:
    """The address with our driver's name; hosting services hand out `postgres://` and `postgresql://`."""
    parsed = make_url(url)
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    return parsed.render_as_string(hide_password=False)


def _sqlite_engine(url: str, *, begin: str, pool_size: int, foreign_keys: str = "ON") -> Engine:
    pragmas = {
        "busy_timeout": _BUSY_TIMEOUT_MS,  # first, because the next pragma may have to wait for another process
        "journal_mode": "WAL",
        "journal_size_limit": _WAL_KEPT_BYTES,
        "synchronous": "FULL",  # an acknowledged commit survives a power cut; NORMAL may roll it back
        "foreign_keys": foreign_keys,
    }
    arguments = {"check_same_thread": False}
    engine = create_engine(url, pool_size=pool_size, max_overflow=0, connect_args=arguments)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we send BEGIN ourselves; the driver would delay it
        cursor = connection.cursor()
        for name, value in pragmas.items():
            _set_pragma(cursor, f"PRAGMA {name}={value}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        run(connection, begin, ()).close()

    return engine


def _set_pragma(cursor: sqlite3.Cursor, statement: str) -> None:
    """Retry while the file is busy: if several connections switch it to WAL at once, SQLite refuses some without waiting."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute(statement)
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(_BUSY_PAUSE_S)


@contextmanager
def hub_lock(url: str) -> Iterator[None]:
    """The right to use a SQLite database, which one hub has at a time. PostgreSQL needs none."""
    database = sqlite_file(url)
    if database is None:
        yield
        return
    path = database.resolve()  # so that two names of one file lead to the same lock
    with _take_lock(path.with_name(f"{path.name}.lock")):
        yield


def _take_lock(path: Path) -> IO[str]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        holder = handle.read().strip()
        handle.close()
        who = f"Another hub (process {holder})" if holder else "Another hub"
        raise Unavailable(
            f"{who} already serves the SQLite database {path.with_suffix('')}. Stop it first, or set DATABASE_URL "
            "to a PostgreSQL database, which several hubs can share."
        ) from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle


# migrations


def lock_schema(connection: Connection) -> None:
    """Keep other hubs from migrating until this transaction ends. On SQLite, BEGIN IMMEDIATE already does."""
    if _is_postgres(connection):
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})


def check_foreign_keys(connection: Connection) -> None:
    """Check what SQLite did not check while the migration ran."""
    if _is_postgres(connection):
        return
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if broken:
        raise InvariantViolation(f"The migration broke {len(broken)} foreign keys, the first in {broken[0][0]}.")


# the end of a transaction


def lock_event_order(connection: Connection) -> str | None:
    """Keep other hubs from numbering events until this transaction ends: a cursor must never skip a number that is
    committed later. Returns the transaction's id on PostgreSQL.
    """
    if not _is_postgres(connection):
        return None
    statement = text("SELECT CAST(pg_current_xact_id() AS text), pg_advisory_xact_lock(:key)")
    return str(connection.execute(statement, {"key": _EVENT_ORDER_LOCK}).scalar_one())


def notify(connection: Connection, payload: str) -> str | None:
    """Notify the other hubs if this transaction commits. Returns the transaction's id on PostgreSQL."""
    if not _is_postgres(connection):
        return None
    statement = text("SELECT CAST(pg_current_xact_id() AS text), pg_notify(:channel, :payload)")
    return str(connection.execute(statement, {"channel": CHANNEL, "payload": payload}).scalar_one())


def was_committed(engine: Engine, xid: str) -> bool:
    """Whether a transaction was committed although its COMMIT was never answered. Raises OutcomeUnknown."""
    for _ in range(_OUTCOME_TRIES):
        try:
            with engine.connect() as connection:
                status = connection.execute(text("SELECT pg_xact_status(CAST(:xid AS xid8))"), {"xid": xid}).scalar()
        except DBAPIError:
            status = "in progress"  # the database is not reachable yet
        if status != "in progress":
            return status == "committed"
        time.sleep(_OUTCOME_PAUSE_S)
    raise OutcomeUnknown(retry_after_s=1)


# facts about the database


def size_bytes(connection: Connection) -> int:
    if _is_postgres(connection):
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int(pages) * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def clock_ms(connection: Connection) -> int | None:
    """The database server's time. SQLite has none but this machine's."""
    if not _is_postgres(connection):
        return None
    statement = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")
    return int(connection.execute(statement).scalar_one())


# statements. SQLite ignores `with_for_update`: it has a single writer.


def _is_postgres(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def among(connection: Connection, column: Column[Any], values: Iterable[str]) -> ColumnElement[bool]:
    """`column IN values` with a single parameter, because drivers limit the number of parameters."""
    if _is_postgres(connection):
        return column == any_(literal(list(values), postgresql.ARRAY(Text)))
    listed = func.json_each(json.dumps(list(values))).table_valued("value")
    return column.in_(select(listed.c.value))


def ids(connection: Connection, values: Iterable[str]) -> dict[str, Any]:
    """The parameter of a statement that was built with `among_ids`."""
    return {"ids": list(values) if _is_postgres(connection) else json.dumps(list(values))}


def among_ids(name: str, column: Column[Any]) -> ColumnElement[bool]:
    """`among` for a prepared statement: building it anew would cost more than running it."""
    if name == "postgresql":
        return column == any_(bindparam("ids", type_=postgresql.ARRAY(Text)))
    listed = func.json_each(bindparam("ids", type_=Text)).table_valued("value")
    return column.in_(select(listed.c.value))


def skip_locked(name: str, key: Column[Any], *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Rows that meet the conditions and that no other hub has locked. SQLite has one writer and needs no row locks; the
    subquery would take it four times as long."""
    if name != "postgresql":
        return and_(*conditions)
    return key.in_(select(key).where(*conditions).with_for_update(skip_locked=True, key_share=True))


def insert_ignore(connection: Connection, table: Any) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that leaves an existing row as it is."""
    return _insert(connection, table).on_conflict_do_nothing()


def upsert(
    connection: Connection, table: Any, *, key: Sequence[str], update: Sequence[str], add: Sequence[str] = ()
) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that updates the columns `update` of an existing row, and adds to the columns `add`."""
    statement = _insert(connection, table)
    changes = {name: statement.excluded[name] for name in update}
    changes |= {name: table.c[name] + statement.excluded[name] for name in add}
    return statement.on_conflict_do_update(index_elements=list(key), set_=changes)


def _insert(connection: Connection, table: Any) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if _is_postgres(connection) else sqlite.insert(table)


def byte_length(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[int]:
    """The length of a text in bytes. SQLite counts characters unless the value is cast to bytes."""
    counted = func.octet_length(column) if _is_postgres(connection) else func.length(cast(column, LargeBinary))
    return func.coalesce(counted, 0)
