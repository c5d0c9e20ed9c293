"""Change notifications for open pages, a few times a second at most."""

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
    """Notifications, and None in between if nothing happened: a page that receives nothing for longer knows that the hub
    hangs. The caller checks with each of them whether the reader is still signed in.
    """
    whose, cursor, alive_s = access.scope(principal), after, hub.settings.news_alive_s
    now = asyncio.get_running_loop().time
    sent_s = now()
    watch, due = hub.signals.watch("events"), True
    try:
        while not hub.process.stopping:
            began_s, news = now(), None
            if due:  # the store is read only if something may have changed
                watch.close()
                watch = hub.signals.watch("events")
                news = await _since(hub, cursor, whose=whose)
            if news is None:
                await watch.wait(max(0, sent_s + alive_s - now()))
            # Events of other accounts end the wait, too, and must not delay the next message.
            if news is not None or now() - sent_s >= alive_s:
                cursor = cursor if news is None else news.cursor
                sent_s = now()
                yield news
            # Every commit in the pool wakes every page. The first after a pause is reported at once, the next ones together.
            await asyncio.sleep(max(0, began_s + hub.settings.news_every_s - now()))
            due = watch.fired
    finally:
        watch.close()


async def _since(hub: Hub, after: int, *, whose: str | None) -> News | None:
    most = hub.settings.news_events_max

    def load(connection: Connection) -> tuple[Sequence[TouchedEvent], int]:
        rows = event_rows.list_touched(connection, after=after, limit=most + 1, account_id=whose)
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
    """In the order of their first occurrence."""
    return [found for found in dict.fromkeys(ids) if found is not None]
