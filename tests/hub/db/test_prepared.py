"""Prepared statements behave like SQLAlchemy's own."""

from __future__ import annotations

import pytest
from sqlalchemy import bindparam, event, insert, select, update
from sqlalchemy.exc import IntegrityError

from computepool.core.errors import Conflict
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.session import Store, Tx
from computepool.hub.db.tables import accounts, events


async def test_a_value_that_is_missing_is_an_error_and_not_null(store: Store) -> None:
    change = Prepared(update(accounts).where(accounts.c.id == bindparam("which")).values(name=bindparam("to")))
    with pytest.raises(KeyError, match="to"):
        await store.write(lambda tx: change.execute(tx.connection, [{"which": "a"}]))


async def test_a_prepared_insert_returns_nothing(store: Store) -> None:
    add = Prepared(insert(events))
    sql = await store.read(lambda connection: add._compile(connection, {"action": "a"}).sql)
    assert "RETURNING" not in sql


async def test_prepared_rows_have_python_values(store: Store) -> None:
    """Booleans are numbers to SQLite."""
    final = Prepared(select(events.c.action, events.c.final).where(events.c.actor == bindparam("who")))

    def unit(tx: Tx) -> None:
        for action, ends in (("a", True), ("b", False)):
            tx.connection.execute(insert(events).values(at_ms=1, actor="x", action=action, final=ends))

    await store.write(unit)
    found = await store.read(lambda connection: final.rows(connection, who="x"))
    assert found == [("a", True), ("b", False)]
    assert all(type(ends) is bool for _, ends in found)
    assert await store.read(lambda connection: final.first(connection, who="y")) is None


async def test_an_error_is_the_one_that_sqlalchemy_would_raise(store: Store) -> None:
    add = Prepared(insert(accounts))
    row = {"id": "a", "name": "a", "roles": "", "created_at_ms": 1}

    def twice(tx: Tx) -> None:
        add.execute(tx.connection, [row])
        with pytest.raises(IntegrityError), tx.connection.begin_nested():
            add.execute(tx.connection, [row])

    await store.write(twice)
    with pytest.raises(Conflict):
        await store.write(lambda tx: add.execute(tx.connection, [row]))


async def test_statement_listeners_see_prepared_statements(store: Store) -> None:
    names, seen = Prepared(select(accounts.c.name)), list[str]()

    def unit(tx: Tx) -> list[tuple[str]]:
        event.listen(tx.connection, "before_cursor_execute", lambda *said: seen.append(said[2]))
        return [(row[0],) for row in names.rows(tx.connection)]

    assert await store.write(unit) == []
    assert [sql.split()[0] for sql in seen] == ["SELECT"]
