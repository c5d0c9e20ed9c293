"""News of changes for every page that is open: a few times a second at most, however much happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.event_rows import TouchedEvent
from computepool.hub.db.session import Connection
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.protocol.accounts import News


async def stream(hub: Hub, principal: Principal, *, after: int) -> AsyncIterator[News | None]:
    """None now and then, where nothing happened: a page that hears nothing for longer knows that the hub hangs.

    With each word is looked whether the reader is still signed in.
    """
    whose, cursor, alive_s = access.scope(principal), after, hub.settings.news_alive_s
    now = asyncio.get_running_loop().time
    sent_s = now()
    watch, due = hub.signals.watch("events"), True
    try:
        while not hub.process.stopping:
            looked_s, news = now(), None
            if due:  # the store is asked only when something may have changed
                watch.close()
                watch = hub.signals.watch("events")
                news = await _since(hub, cursor, whose=whose)
            if news is None:
                await watch.wait(max(0, sent_s + alive_s - now()))
            # Others' events wake it, too, and are no reason to stay silent for longer.
            if news is not None or now() - sent_s >= alive_s:
                cursor = cursor if news is None else news.cursor
                sent_s = now()
                yield news
            # Every commit of the pool wakes every page. The first after a pause is told at once, the next ones together.
            await asyncio.sleep(max(0, looked_s + hub.settings.news_every_s - now()))
            due = watch.fired
    finally:
        watch.close()


async def _since(hub: Hub, after: int, *, whose: str | None) -> News | None:
    most = hub.settings.news_events_max

    def load(connection: Connection) -> tuple[Sequence[TouchedEvent], int]:
        rows = event_rows.list_touched(connection, after=after, limit=most + 1, whose=whose)
        if not rows:
            return rows, after
        return rows, rows[-1].seq if len(rows) <= most else event_rows.last_event(connection)

    rows, cursor = await hub.store.read(load)
    if not rows:
        return None
    return News(
        cursor=cursor,
        events=len(rows),
        kinds=sorted({row.action.partition(".")[0] for row in rows}),
        job_ids=_distinct(row.job_id for row in rows),
        group_ids=_distinct(row.group_id for row in rows),
        node_ids=_distinct(row.node_id for row in rows),
        partial=len(rows) > most,
    )


def _distinct(ids: Iterable[str | None]) -> list[str]:
    """In the order in which they were named first."""
    return [found for found in dict.fromkeys(ids) if found is not None]
