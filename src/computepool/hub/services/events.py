"""The audit trail: every transition, readable by those it concerns, as pages or as a live stream."""

from __future__ import annotations

from collections.abc import AsyncIterator

from computepool.hub.services import access, views
from computepool.hub.services.access import Principal
from computepool.hub.services.context import Hub
from computepool.hub.store import records
from computepool.protocol.accounts import EventPage, EventView

_STREAM_BATCH = 500
_STREAM_WAIT_S = 15.0


async def page(
    hub: Hub,
    principal: Principal,
    *,
    after: int,
    limit: int,
    job_id: str | None,
    node_id: str | None,
    wait_ms: int,
) -> EventPage:
    deadline_ms = hub.now_ms() + wait_ms
    while True:
        with hub.signals.watch("events") as watch:
            rows = await hub.store.read(
                lambda connection: records.list_events(
                    connection,
                    after=after,
                    limit=limit,
                    account_id=access.scope(principal),
                    job_id=job_id,
                    node_id=node_id,
                )
            )
            left_ms = deadline_ms - hub.now_ms()
            if rows or left_ms <= 0 or hub.stopping:
                break
            await watch.wait(left_ms / 1000)
    events = [views.event_view(row) for row in rows]
    return EventPage(events=events, cursor=events[-1].seq if events else after)


async def newest(hub: Hub) -> int:
    return await hub.store.read(records.last_event)


async def stream(hub: Hub, principal: Principal, *, after: int) -> AsyncIterator[list[EventView]]:
    """Batches of events as they happen; an empty batch now and then keeps the connection alive."""
    cursor = after
    while not hub.stopping:
        page_ = await page(
            hub,
            principal,
            after=cursor,
            limit=_STREAM_BATCH,
            job_id=None,
            node_id=None,
            wait_ms=round(_STREAM_WAIT_S * 1000),
        )
        cursor = page_.cursor
        yield page_.events
