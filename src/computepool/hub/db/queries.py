"""Short forms of what the rows of many tables ask and change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    TextClause,
    exists,
    func,
    select,
    update,
)

from computepool.hub.db import dialect
from computepool.hub.db.session import Tx

Condition: TypeAlias = ColumnElement[bool] | TextClause


def count(connection: Connection, *where: Condition) -> int:
    return int(connection.execute(select(func.count()).where(*where)).scalar_one())


def there_is(connection: Connection, *where: Condition) -> bool:
    return bool(connection.execute(select(exists().where(*where))).scalar())


def values(connection: Connection, statement: Select[Any]) -> list[Any]:
    """Of the statement's only column."""
    return list(connection.execute(statement).scalars())


def by_key(
    connection: Connection, column: Column[Any], *, key: Column[Any], among: Iterable[str]
) -> dict[str, Any]:
    """What a column holds in the rows with these keys; a key without a row is left out."""
    rows = connection.execute(select(key, column).where(dialect.among(connection, key, among)))
    return dict(rows.all())


def set_where(tx: Tx, table: Table, *where: Condition, **columns: Any) -> int:
    """Change the rows of which this is still so; how many they were."""
    return tx.connection.execute(update(table).where(*where).values(**columns)).rowcount
