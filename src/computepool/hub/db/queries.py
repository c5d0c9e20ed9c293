"""Short forms of common queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    bindparam,
    exists,
    func,
    select,
    true,
    update,
)

from computepool.hub.db import dialect
from computepool.hub.db.session import Tx
from computepool.hub.db.typed_rows import Condition

V = TypeVar("V")


def count(connection: Connection, *where: Condition) -> int:
    return int(connection.execute(select(func.count()).where(*where)).scalar_one())


def matches(column: ColumnElement[Any], value: object) -> ColumnElement[bool]:
    """A condition that holds for rows with this value, or for all rows if it is None."""
    return true() if value is None else column == value


def before_cursor(column: ColumnElement[Any], cursor: object) -> ColumnElement[bool]:
    """A condition for the next page of a list, newest first; without a cursor, for the first page."""
    return true() if cursor is None else column < cursor


def any_row(connection: Connection, *where: Condition) -> bool:
    return bool(connection.execute(select(exists().where(*where))).scalar())


def scalars(connection: Connection, statement: Select[Any]) -> list[Any]:
    """The values of the statement's only column."""
    return list(connection.execute(statement).scalars())


def by_key(
    connection: Connection, column: Column[Any], *, key: Column[Any], among: Iterable[str] | None
) -> dict[str, Any]:
    """The values of a column by key, of these keys or (None) of all. A key without a row is left out."""
    which = true() if among is None else dialect.among(connection, key, among)
    return dict(connection.execute(select(key, column).where(which)).all())


def new_values(*columns: str) -> dict[str, BindParameter[Any]]:
    """Values for an UPDATE of many rows: each of the columns from a parameter `new_<column>`."""
    return {name: bindparam(f"new_{name}") for name in columns}


def differences(stored: Mapping[str, V], expected: Mapping[str, V], *, default: V) -> list[str]:
    """The names whose stored value is not the expected one. A missing name stands for the default."""
    names = stored.keys() | expected.keys()
    return sorted(name for name in names if stored.get(name, default) != expected.get(name, default))


def set_where(tx: Tx, table: Table, *where: Condition, **columns: Any) -> int:
    """Update the rows that meet the conditions. Returns their number."""
    return tx.connection.execute(update(table).where(*where).values(**columns)).rowcount
