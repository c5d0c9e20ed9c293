"""Names of accounts, nodes, jobs and groups by id, for lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import Connection, Table, select

from computepool.hub.db import dialect
from computepool.hub.db.tables import accounts, groups, jobs, nodes


def of(
    connection: Connection,
    *,
    accounts: Collection[str] = (),
    nodes: Collection[str] = (),
    jobs: Collection[str] = (),
    groups: Collection[str] = (),
    whose: str | None,
) -> dict[str, str]:
    """`whose`: only accounts, jobs and groups of this account, or None for all. Everybody may see all nodes."""
    found = _names_of(connection, _TABLES["nodes"], nodes)
    if whose is None:
        found |= _names_of(connection, _TABLES["accounts"], accounts)
    elif whose in accounts:
        found |= _names_of(connection, _TABLES["accounts"], [whose])
    for name, ids in (("jobs", jobs), ("groups", groups)):
        found |= _names_of(connection, _TABLES[name], ids, whose=whose)
    return found


_TABLES = {"accounts": accounts, "nodes": nodes, "jobs": jobs, "groups": groups}


def _names_of(connection: Connection, table: Table, ids: Iterable[str], *, whose: str | None = None) -> dict[str, str]:
    requested = sorted(set(ids))
    if not requested:
        return {}
    statement = select(table.c.id, table.c.name).where(dialect.among(connection, table.c.id, requested))
    if whose is not None:
        statement = statement.where(table.c.account_id == whose)
    return {row.id: row.name for row in connection.execute(statement)}
