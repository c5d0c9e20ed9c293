"""Statements that are compiled once refuse what SQLAlchemy itself would refuse, and ask for no more than it would."""

from __future__ import annotations

import pytest
from sqlalchemy import bindparam, insert, update

from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.session import Store
from computepool.hub.db.tables import accounts, events


async def test_a_value_that_is_missing_is_an_error_and_not_null(store: Store) -> None:
    change = Prepared(
        update(accounts).where(accounts.c.id == bindparam("which")).values(name=bindparam("to"))
    )
    with pytest.raises(KeyError, match="to"):
        await store.write(lambda tx: change.execute(tx.connection, [{"which": "a"}]))


async def test_nothing_is_asked_back(store: Store) -> None:
    add = Prepared(insert(events))
    sql = await store.read(lambda connection: add._compile(connection, {"action": "a"}).sql)
    assert "RETURNING" not in sql
