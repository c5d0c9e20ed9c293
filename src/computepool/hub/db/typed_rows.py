"""Typed rows. A class lists its columns once; its SELECT, its types and a check of them at import follow from that.

    class NodeName(TypedRow, of=nodes):
        id: str
        name: str

    NodeName.find(connection, nodes.c.id == node_id)
    NodeName.fetch(connection, nodes.c.account_id == owner, order=nodes.c.name)

Rows are tuples, because thousands are made every second. A subclass adds columns. A class with columns of several tables
names their join as `joined`.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self, TypeAlias, dataclass_transform

from sqlalchemy import Column, ColumnElement, Connection, FromClause, Result, Select, Table, TextClause, select

Condition: TypeAlias = ColumnElement[bool] | TextClause
_Source: TypeAlias = Table | ColumnElement[Any]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _RowType(type):
    columns: dict[str, ColumnElement[Any]]  #: by field, in order
    joined: tuple[FromClause, ...] = ()  #: at most one; without it, the tables of the columns are read

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        of: _Source | tuple[_Source, ...] = (),
        joined: FromClause | None = None,
    ) -> _RowType:
        made = super().__new__(cls, name, bases, {**namespace, "__slots__": ()})
        inherited = made.columns if bases != (tuple,) else {}
        sources = of if isinstance(of, tuple) else (of,)
        own = {
            field: _column(f"{name}.{field}", kind, sources)
            for field, kind in namespace.get("__annotations__", {}).items()
        }
        for place, field in enumerate(own, start=len(inherited)):
            setattr(made, field, property(itemgetter(place)))
        made.columns = {**inherited, **own}
        if joined is not None:
            made.joined = (joined,)
        return made


def _column(field: str, kind: str, sources: Iterable[_Source]) -> ColumnElement[Any]:
    """The column that a field is read from. Raises TypeError if none has its name and type."""
    name = field.rpartition(".")[2]
    for source in sources:
        found = source.c.get(name) if isinstance(source, Table) else source
        if found is not None and getattr(found, "name", None) == name:
            _check(field, kind, found)
            return found
    raise TypeError(f"{field}: no column of this name")


def _check(field: str, kind: str, column: ColumnElement[Any]) -> None:
    stored = column.type.python_type.__name__
    # Only a table's own column knows whether it may be NULL; for an expression, either type is accepted.
    allowed = (stored, f"{stored} | None")
    expected = allowed[column.nullable :][:1] if isinstance(column, Column) else allowed
    if kind not in expected:
        raise TypeError(f"{field}: declared {kind}, and the column holds {expected[0]}")


class TypedRow(tuple[Any, ...], metaclass=_RowType):
    __slots__ = ()

    if not TYPE_CHECKING:

        def __new__(cls, **fields):
            return tuple.__new__(cls, (fields.pop(name) for name in cls.columns))

    @classmethod
    def select(cls) -> Select[Any]:
        return select(*cls.columns.values()).select_from(*cls.joined)

    @classmethod
    def find(cls, connection: Connection, *where: Condition) -> Self | None:
        """The first row that meets the conditions."""
        return cls.first(connection.execute(cls.select().where(*where)))

    @classmethod
    def fetch(
        cls,
        connection: Connection,
        *where: Condition,
        order: ColumnElement[Any] | tuple[ColumnElement[Any], ...] = (),
        limit: int | None = None,
    ) -> list[Self]:
        """All rows that meet the conditions, or the first `limit` of them."""
        columns = order if isinstance(order, tuple) else (order,)
        return cls.all(connection.execute(cls.select().where(*where).order_by(*columns).limit(limit)))

    @classmethod
    def all(cls, result: Iterable[Iterable[Any]]) -> list[Self]:
        new = tuple.__new__
        return [new(cls, row) for row in result]

    @classmethod
    def first(cls, result: Result[Any]) -> Self | None:
        row = result.first()
        return None if row is None else tuple.__new__(cls, row)

    @classmethod
    def one(cls, row: tuple[Any, ...] | None) -> Self | None:
        return None if row is None else tuple.__new__(cls, row)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(type(self).columns, self, strict=True))
