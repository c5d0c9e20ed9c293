"""Statements of a job's ordinary life, compiled once: SQLAlchemy's own work for every row costs more than the database's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.sql.dml import UpdateBase

Row = Mapping[str, Any]
_Process = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Compiled:
    sql: str
    names: tuple[str, ...]  #: of the parameters, in the order of their places
    constants: dict[str, Any]  #: what the statement itself says
    processors: tuple[tuple[int, _Process], ...]  #: of the columns' types, by place, for those that have one
    positional: bool

    def arranged(self, row: Row) -> Any:
        given = {**self.constants, **row} if self.constants else row
        values = [given[name] for name in self.names]
        for place, process in self.processors:
            if values[place] is not None:
                values[place] = process(values[place])
        return tuple(values) if self.positional else dict(zip(self.names, values, strict=True))


class Prepared:
    """An INSERT or UPDATE for one row or many, with the same columns in each. It returns no rows."""

    def __init__(self, make: Callable[[Connection], UpdateBase] | UpdateBase) -> None:
        self._make = make
        self._known: dict[tuple[str, ...], _Compiled] = {}

    def execute(self, connection: Connection, rows: Sequence[Row]) -> int:
        """How many rows it changed or made."""
        key = (connection.dialect.name, *rows[0])
        compiled = self._known.get(key)
        if compiled is None:
            compiled = self._known[key] = self._compile(connection, rows[0])
        arranged = compiled.arranged
        return connection.exec_driver_sql(compiled.sql, [arranged(row) for row in rows]).rowcount

    def _compile(self, connection: Connection, row: Row) -> _Compiled:
        statement = self._make if isinstance(self._make, UpdateBase) else self._make(connection)
        compiled: Any = statement.compile(
            dialect=connection.dialect, column_keys=list(row), for_executemany=True
        )
        missing = [bind.key for bind in compiled.binds.values() if bind.required and bind.key not in row]
        if missing:
            raise KeyError(*missing)
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
            positional=compiled.positional,
        )
