"""Names of accounts, nodes, jobs and groups by id, for lists."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, select

from computepool.hub.db import dialect, tables


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
    found: dict[str, str] = {}
    requested = ((tables.accounts, accounts), (tables.nodes, nodes), (tables.jobs, jobs), (tables.groups, groups))
    for table, ids in requested:
        if not ids:
            continue
        statement = select(table.c.id, table.c.name).where(dialect.among(connection, table.c.id, sorted(set(ids))))
        if whose is not None and table is not tables.nodes:
            owner = table.c.id if table is tables.accounts else table.c.account_id
            statement = statement.where(owner == whose)
        found |= {row.id: row.name for row in connection.execute(statement)}
    return found
