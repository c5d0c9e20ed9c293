"""Statements of a job's ordinary life, compiled once and handed to the driver: SQLAlchemy's own work for every statement and
row costs more than the database's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    names: tuple[str, ...]  #: of the parameters, in the order of their places
    constants: dict[str, Any]  #: what the statement itself says
    processors: _Processors  #: of parameters
    fetched: _Processors  #: of columns
    positional: bool

    def arranged(self, row: Row) -> Any:
        given = {**self.constants, **row} if self.constants else row
        values = [given[name] for name in self.names]
        for place, process in self.processors:
            if values[place] is not None:
                values[place] = process(values[place])
        return tuple(values) if self.positional else dict(zip(self.names, values, strict=True))

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
        names = tuple(compiled.positiontup if compiled.positional else compiled.bind_names.values())
        processors: Mapping[str, _Process] = compiled._bind_processors
        constants = {name: value for name, value in compiled.params.items() if name not in row}
        return _Compiled(
            sql=compiled.string,
            names=names,
            constants=constants,
            processors=tuple(
                (place, processors[name]) for place, name in enumerate(names) if name in processors
            ),
            fetched=() if many else _fetched(connection, compiled),
            positional=compiled.positional,
        )


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
