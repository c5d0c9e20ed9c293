"""Statements of the hot paths, compiled once and passed straight to the driver.

What SQLAlchemy does for every statement and row would cost more time than the database itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import Boolean, Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.dml import UpdateBase

Row = Mapping[str, Any]
Fetched = tuple[Any, ...]
_Process = Callable[[Any], Any]
_Processors = tuple[tuple[int, _Process], ...]  #: by position, for the values that need one


@dataclass(frozen=True, slots=True)
class _Compiled:
    sql: str
    arrange: Callable[[Row], Any]  #: turns a row into the driver's parameters
    fetched: _Processors  #: of the columns it returns

    def read(self, row: Sequence[Any]) -> Fetched:
        values = list(row)
        for place, process in self.fetched:
            values[place] = process(values[place])
        return tuple(values)


class Prepared:
    """A statement. `execute` runs an INSERT or UPDATE for one or more rows, which all have the same columns; `rows` and
    `first` run a statement that returns rows."""

    def __init__(self, make: Callable[[Connection], Executable] | Executable) -> None:
        self._make = make
        self._known: dict[tuple[str, ...], _Compiled] = {}

    def execute(self, connection: Connection, rows: Sequence[Row]) -> int:
        """Return the number of rows inserted or updated."""
        if not rows:
            return 0
        compiled = self._compile_once(connection, rows[0], many=True)
        cursor = run(connection, compiled.sql, list(map(compiled.arrange, rows)))
        count: int = cursor.rowcount
        cursor.close()
        return count

    def rows(self, connection: Connection, **parameters: Any) -> list[Fetched]:
        compiled = self._compile_once(connection, parameters, many=False)
        cursor = run(connection, compiled.sql, compiled.arrange(parameters))
        found: list[Fetched] = cursor.fetchall()
        cursor.close()
        return list(map(compiled.read, found)) if compiled.fetched else found

    def first(self, connection: Connection, **parameters: Any) -> Fetched | None:
        found = self.rows(connection, **parameters)
        return found[0] if found else None

    def _compile_once(self, connection: Connection, row: Row, *, many: bool) -> _Compiled:
        key = (connection.dialect.name, *row)
        compiled = self._known.get(key)
        if compiled is None:
            compiled = self._known[key] = self._compile(connection, row, many=many)
        return compiled

    def _compile(self, connection: Connection, row: Row, *, many: bool = True) -> _Compiled:
        statement = self._make if isinstance(self._make, Executable) else self._make(connection)
        options = {"column_keys": list(row), "for_executemany": True} if many else {}
        assert isinstance(statement, UpdateBase) or not many
        compiled: Any = statement.compile(dialect=connection.dialect, **options)  # type: ignore[attr-defined]
        missing = [bind.key for bind in compiled.binds.values() if bind.required and bind.key not in row]
        if missing:
            raise KeyError(*missing)
        assert not compiled.post_compile_params, "an IN list has no fixed number of parameters: see dialect.among_ids"
        constants = {name: value for name, value in compiled.params.items() if name not in row}
        return _Compiled(
            sql=compiled.string,
            arrange=_arrangement(compiled, constants),
            fetched=() if many else _result_processors(connection, compiled),
        )


def _arrangement(compiled: Any, constants: dict[str, Any]) -> Callable[[Row], Any]:
    """A function that turns a row and the statement's own constants into the driver's parameters, by position or by name."""
    names = compiled.positiontup if compiled.positional else list(compiled.bind_names.values())
    values = _values_of(names) if compiled.positional else dict
    places = range(len(names)) if compiled.positional else names
    found = [(place, _processor(compiled, name)) for place, name in zip(places, names, strict=True)]
    processors = [(place, process) for place, process in found if process is not None]
    if not constants and not processors:
        return values
    if not processors:
        return lambda row: values({**constants, **row})

    def arrange(row: Row) -> Any:
        given: Any = values({**constants, **row} if constants else row)
        if compiled.positional:
            given = list(given)
        for place, process in processors:
            if given[place] is not None:
                given[place] = process(given[place])
        return tuple(given) if compiled.positional else given

    return arrange


def _values_of(names: Sequence[str]) -> Callable[[Row], Any]:
    """An `itemgetter` of several names is much faster than a loop."""
    return itemgetter(*names) if len(names) > 1 else lambda row: tuple(row[name] for name in names)


def _processor(compiled: Any, name: str) -> _Process | None:
    if isinstance(compiled.binds[name].type, Boolean) and not compiled.dialect.supports_native_boolean:
        return _NUMBERS.__getitem__
    process: _Process | None = compiled._bind_processors.get(name)
    return process


#: SQLite has no booleans. Its driver accepts them, but looks up an adapter for each one, which is slow.
_NUMBERS = {False: 0, True: 1}


def _result_processors(connection: Connection, compiled: Any) -> _Processors:
    """Conversions from the driver's values to Python's. Only booleans need one, and only on SQLite."""
    types: list[Any] = [column.type for column in compiled._result_columns]
    booleans = [(place, type_) for place, type_ in enumerate(types) if isinstance(type_, Boolean)]
    found: list[tuple[int, Any]] = [
        (place, type_.result_processor(connection.dialect, None))  # type: ignore[no-untyped-call]
        for place, type_ in booleans
    ]
    return tuple((place, process) for place, process in found if process is not None)


def run(connection: Connection, sql: str, parameters: Any) -> Any:
    """Execute with one row of parameters or a list of rows. Returns the driver's cursor; raises SQLAlchemy's errors."""
    watched = connection.dispatch
    if watched.before_cursor_execute or watched.after_cursor_execute:
        return connection.exec_driver_sql(sql, parameters)  # a listener expects to see every statement
    cursor = connection.connection.cursor()
    try:
        (cursor.executemany if isinstance(parameters, list) else cursor.execute)(sql, parameters)
    except connection.dialect.loaded_dbapi.Error as error:
        raise _translate(connection, error, cursor, sql=sql, parameters=parameters) from error
    return cursor


def _translate(connection: Connection, error: Exception, cursor: Any, *, sql: str, parameters: Any) -> Exception:
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, connection.connection, cursor)  # type: ignore[arg-type]
    if lost:
        connection.invalidate(error)
    return DBAPIError.instance(
        sql, parameters, error, dialect.loaded_dbapi.Error, connection_invalidated=lost, dialect=dialect
    )
