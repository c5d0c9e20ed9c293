"""Statements of a job's ordinary life, compiled once and handed to the driver: SQLAlchemy's own work for every statement and
row costs more than the database's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
_Processors = tuple[tuple[int, _Process], ...]  #: by place, for the values that need one


@dataclass(frozen=True, slots=True)
class _Compiled:
    sql: str
    pick: Callable[[Row], Any]  #: the parameters of a row as the driver takes them
    constants: dict[str, Any]  #: what the statement itself says
    processors: tuple[tuple[str, _Process], ...]  #: of parameters, for the values that need one
    fetched: _Processors  #: of columns

    def arranged(self, row: Row) -> Any:
        if self.constants:
            row = {**self.constants, **row}
        changed = {name: process(row[name]) for name, process in self.processors if row[name] is not None}
        return self.pick({**row, **changed} if changed else row)

    def read(self, row: Sequence[Any]) -> Fetched:
        values = list(row)
        for place, process in self.fetched:
            values[place] = process(values[place])
        return tuple(values)


class Prepared:
    """One statement. With `execute`, an INSERT or UPDATE for one row or many, with the same columns in each; with `rows` and
    `first`, one that returns rows."""

    def __init__(self, make: Callable[[Connection], Executable] | Executable) -> None:
        self._make = make
        self._known: dict[tuple[str, ...], _Compiled] = {}

    def execute(self, connection: Connection, rows: Sequence[Row]) -> int:
        """How many rows it changed or made."""
        compiled = self._compiled(connection, rows[0], many=True)
        arranged = compiled.arranged
        cursor = _run(connection, compiled.sql, [arranged(row) for row in rows])
        count: int = cursor.rowcount
        cursor.close()
        return count

    def rows(self, connection: Connection, **parameters: Any) -> list[Fetched]:
        compiled = self._compiled(connection, parameters, many=False)
        cursor = _run(connection, compiled.sql, compiled.arranged(parameters))
        found: list[Fetched] = cursor.fetchall()
        cursor.close()
        return list(map(compiled.read, found)) if compiled.fetched else found

    def first(self, connection: Connection, **parameters: Any) -> Fetched | None:
        found = self.rows(connection, **parameters)
        return found[0] if found else None

    def _compiled(self, connection: Connection, row: Row, *, many: bool) -> _Compiled:
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
        assert not compiled.post_compile_params, (
            "a list of values has no fixed number of places: see dialect.among_ids"
        )
        constants = {name: value for name, value in compiled.params.items() if name not in row}
        return _Compiled(
            sql=compiled.string,
            pick=_values_of(compiled.positiontup) if compiled.positional else dict,
            constants=constants,
            processors=tuple(_processors(compiled)),
            fetched=() if many else _fetched(connection, compiled),
        )


def _values_of(names: Sequence[str]) -> Callable[[Row], tuple[Any, ...]]:
    """In the order of their places. An `itemgetter` of several names is much quicker than a loop."""
    return itemgetter(*names) if len(names) > 1 else lambda row: tuple(row[name] for name in names)


def _processors(compiled: Any) -> Iterator[tuple[str, _Process]]:
    as_numbers = not compiled.dialect.supports_native_boolean
    for bind, name in compiled.bind_names.items():
        if (process := compiled._bind_processors.get(name)) is not None:
            yield name, _NUMBERS.__getitem__ if as_numbers and isinstance(bind.type, Boolean) else process


#: Booleans for a driver that has none. It would take them as they are, but looks for an adapter of each, which is slow.
_NUMBERS = {False: 0, True: 1}


def _fetched(connection: Connection, compiled: Any) -> _Processors:
    """How the driver's values become those of the columns' types. Of ours only booleans differ, and not on PostgreSQL."""
    types: list[Any] = [column.type for column in compiled._result_columns]
    booleans = [(place, type_) for place, type_ in enumerate(types) if isinstance(type_, Boolean)]
    found: list[tuple[int, Any]] = [
        (place, type_.result_processor(connection.dialect, None))  # type: ignore[no-untyped-call]
        for place, type_ in booleans
    ]
    return tuple((place, process) for place, process in found if process is not None)


def _run(connection: Connection, sql: str, parameters: Any) -> Any:
    """The driver's cursor, after one row of parameters or a list of them. Errors are SQLAlchemy's."""
    watched = connection.dispatch
    if watched.before_cursor_execute or watched.after_cursor_execute:
        return connection.exec_driver_sql(sql, parameters)  # somebody wants to see every statement
    cursor = connection.connection.cursor()
    try:
        (cursor.executemany if isinstance(parameters, list) else cursor.execute)(sql, parameters)
    except connection.dialect.loaded_dbapi.Error as error:
        raise _translated(connection, error, cursor, sql=sql, parameters=parameters) from error
    return cursor


def _translated(
    connection: Connection, error: Exception, cursor: Any, *, sql: str, parameters: Any
) -> Exception:
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, connection.connection, cursor)  # type: ignore[arg-type]
    if lost:
        connection.invalidate(error)
    return DBAPIError.instance(
        sql,
        parameters,
        error,
        dialect.loaded_dbapi.Error,
        connection_invalidated=lost,
        dialect=dialect,
    )
