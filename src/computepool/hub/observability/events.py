"""The audit trail: every transition, readable by those it concerns, as pages, by search, or as a live stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.session import Connection
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import views
from computepool.hub.lookup import name_rows, search_rows
from computepool.hub.lookup.search_rows import SearchPage
from computepool.protocol.accounts import EventPage, EventView
from computepool.protocol.jobs.filters import EventFilter

_STREAM_BATCH = 500
_STREAM_WAIT_S = 15.0
#: Events looked at in one read, and in one request: a search that finds little gives up here and can be gone on with.
_WINDOW = 20_000
_LOOKED_AT_MAX = 1_000_000
#: Between two looks for something particular.
_PAUSE_S = 0.25
EVERYTHING = EventFilter()
BEFORE_ALL = 2**62


def _own(principal: Principal, filters: EventFilter) -> EventFilter:
    """Whatever is asked for, people find their own events, and administrators everybody's."""
    return replace(filters, whose=access.scope(principal))


async def page(
    hub: Hub, principal: Principal, *, after: int, limit: int, wait_ms: int, filters: EventFilter = EVERYTHING
) -> EventPage:
    """Oldest first, those after a number; waits for one."""
    events, cursor = await _next(hub, _own(principal, filters), after=after, limit=limit, wait_ms=wait_ms)
    return EventPage(events=events, cursor=cursor, names=await _names(hub, principal, events))


async def _next(
    hub: Hub, own: EventFilter, *, after: int, limit: int, wait_ms: int
) -> tuple[list[EventView], int]:
    deadline_ms = hub.now_ms() + wait_ms
    cursor, looked = after, 0
    while True:
        with hub.signals.watch("events") as watch:
            found = await _look(hub, own, search_rows.growing_events, after=cursor, limit=limit)
            looked += 0 if found.seen is None else _WINDOW
            # Also past what is not wanted: nothing is looked at twice, by this request or by the next one.
            cursor = max(cursor, found.upto or 0) if found.seen is None else found.seen
            left_ms = deadline_ms - hub.now_ms()
            if found.rows or looked >= _LOOKED_AT_MAX or hub.process.stopping:
                break
            if found.seen is not None:
                continue  # there is more to look at before anything has to be waited for
            if left_ms <= 0:
                break
            await watch.wait(left_ms / 1000)
        if found.upto is not None:
            # Every commit of the pool wakes it, and most have nothing that is wanted.
            await asyncio.sleep(min(_PAUSE_S, max(0, deadline_ms - hub.now_ms()) / 1000))
    events = [views.event_view(row) for row in found.rows]
    return events, max([cursor, *(event.seq for event in events)])


async def _look(hub: Hub, filters: EventFilter, find: Callable[..., SearchPage], **where: int) -> SearchPage:
    async with hub.jobs.searches if search_rows.is_search(filters) else nullcontext():
        return await hub.store.read(lambda connection: find(connection, filters, **where, window=_WINDOW))


async def search(
    hub: Hub, principal: Principal, *, before: int | None, limit: int, filters: EventFilter
) -> EventPage:
    """Newest first. `next` goes on where this ended, also where nothing was found so far."""
    own = _own(principal, filters)
    newest = await hub.store.read(event_rows.last_event)
    start = BEFORE_ALL if before is None else before
    if filters.until_ms is not None:
        until_ms = filters.until_ms
        start = min(start, 1 + await hub.store.read(lambda c: search_rows.number_at(c, until_ms)))
    rows: list[EventRow] = []
    at: int | None = start
    found = SearchPage()
    looked = 0
    while at is not None and len(rows) < limit and looked < _LOOKED_AT_MAX:
        found = await _look(hub, own, search_rows.search_events, before=at, limit=limit - len(rows))
        rows += found.rows
        looked += _WINDOW
        at = found.seen
    events = [views.event_view(row) for row in rows]
    return EventPage(
        events=events,
        cursor=newest,
        next=at,
        searched_to_ms=None if at is None else found.seen_ms,
        names=await _names(hub, principal, events),
    )


async def _names(hub: Hub, principal: Principal, events: Sequence[EventView]) -> dict[str, str]:
    """Of what these events are about. Nodes are everybody's to see; the rest is its account's, or an administrator's."""
    if not events:
        return {}
    whose = access.scope(principal)
    ids = {name: _ids(events, name) for name in ("account_id", "actor", "job_id", "node_id", "group_id")}

    def load(connection: Connection) -> dict[str, str]:
        return name_rows.of(
            connection,
            accounts=ids["account_id"] | ids["actor"],
            nodes=ids["node_id"] | ids["actor"],
            jobs=ids["job_id"],
            groups=ids["group_id"],
            whose=whose,
        )

    return await hub.store.read(load)


def _ids(events: Iterable[EventView], name: str) -> set[str]:
    return {str(value) for event in events if (value := getattr(event, name)) is not None}


async def newest(hub: Hub) -> int:
    return await hub.store.read(event_rows.last_event)


async def stream(hub: Hub, principal: Principal, *, after: int) -> AsyncIterator[list[EventView]]:
    """Batches of events as they happen; an empty batch now and then keeps the connection alive."""
    cursor, own = after, _own(principal, EVERYTHING)
    wait_ms = round(_STREAM_WAIT_S * 1000)
    while not hub.process.stopping:
        batch, cursor = await _next(hub, own, after=cursor, limit=_STREAM_BATCH, wait_ms=wait_ms)
        yield batch
