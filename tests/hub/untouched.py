"""A check that a refused request changed nothing: the whole database before and after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import select

from computepool.hub.db.session import Connection
from computepool.hub.db.tables import metadata
from computepool.testing.hub import HubDouble

#: Tables and columns that the running hub updates by itself.
UPDATED_BY_HUB = {
    "hubs": None,
    "spots": None,
    "market_counts": None,
    "api_keys": "last_used_ms",
    "nodes": "last_seen_ms",
    "attempts": "lease_until_ms",
}


async def everything(hub: HubDouble) -> dict[str, list[Any]]:
    def load(connection: Connection) -> dict[str, list[Any]]:
        found = {}
        for table in metadata.sorted_tables:
            skipped = UPDATED_BY_HUB.get(table.name, "")
            columns = [column for column in table.columns if skipped is not None and column.name != skipped]
            if columns:
                found[table.name] = sorted(map(repr, connection.execute(select(*columns)).all()))
        return found

    return await hub.hub.store.read(load)


@asynccontextmanager
async def untouched(hub: HubDouble) -> AsyncIterator[None]:
    before = await everything(hub)
    queued = len(hub.hub.jobs.queue.backlog)
    yield
    after = await everything(hub)
    changed = {name: set(after[name]) ^ set(before[name]) for name in after if after[name] != before[name]}
    assert not changed
    assert len(hub.hub.jobs.queue.backlog) == queued
