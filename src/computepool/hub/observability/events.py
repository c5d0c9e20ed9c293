"""The audit trail: every state transition, as pages, by search or as a stream, for the accounts that it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.event_rows import EventRow
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import views
from computepool.hub.lookup import name_rows, search_rows
from computepool.hub.lookup.search_rows import SearchPage
from computepool.protocol.accounts import EventPage, EventView
from computepool.protocol.jobs.filters import EventFilter

_STREAM_BATCH = 500
_STREAM_WAIT_S = 15.0
#: Events scanned in one read, and in one request; a search that finds little stops there, and its cursor continues it.
_WINDOW = 20_000
_SCANNED_MAX = 1_000_000
_PAUSE_S = 0.25  #: between two searches for matching events
EVERYTHING = EventFilter()
_NEWEST = 2**62


def _visible(principal: Principal, filters: EventFilter) -> EventFilter:
    """Limit the filter to the caller's own events, except for administrators."""
    return replace(filters, only_account_id=access.scope(principal))


async def page(
    hub: Hub, principal: Principal, *, after: int, limit: int, wait_ms: int, filters: EventFilter = EVERYTHING
) -> EventPage:
    """Events after a number, oldest first. Waits for one."""
    events, cursor = await _next(hub, _visible(principal, filters), after=after, limit=limit, wait_ms=wait_ms)
    return EventPage(events=events, cursor=cursor, names=await _names(hub, principal, events))


async def _next(hub: Hub, filters: EventFilter, *, after: int, limit: int, wait_ms: int) -> tuple[list[EventView], int]:
    deadline_ms = hub.now_ms() + wait_ms
    cursor, scanned = after, 0
    while True:
        with hub.signals.watch("events") as watch:
            found = await _scan(hub, filters, search_rows.growing_events, after=cursor, limit=limit)
            scanned += 0 if found.seen is None else _WINDOW
            # The cursor also passes events that do not match, so that no event is scanned twice.
            cursor = max(cursor, found.upto or 0) if found.seen is None else found.seen
            left_ms = deadline_ms - hub.now_ms()
            if found.rows or scanned >= _SCANNED_MAX or hub.process.stopping:
                break
            if found.seen is not None:
                continue  # there are more events to scan
            if left_ms <= 0:
                break
            await watch.wait(left_ms / 1000)
        if found.upto is not None:
            # Every commit in the pool wakes this loop, and most have no matching event.
            await asyncio.sleep(min(_PAUSE_S, max(0, deadline_ms - hub.now_ms()) / 1000))
    events = [views.event_view(row) for row in found.rows]
    return events, max([cursor, *(event.seq for event in events)])


async def _scan(hub: Hub, filters: EventFilter, find: Callable[..., SearchPage], **where: int) -> SearchPage:
    async with hub.jobs.searches if search_rows.is_search(filters) else nullcontext():
        return await hub.store.read(find, filters, **where, window=_WINDOW)


async def search(hub: Hub, principal: Principal, *, before: int | None, limit: int, filters: EventFilter) -> EventPage:
    """Matching events, newest first. `next` continues the search, even if nothing was found so far."""
    visible = _visible(principal, filters)
    newest = await hub.store.read(event_rows.last_event)
    start = _NEWEST if before is None else before
    if (until_ms := filters.until_ms) is not None:
        start = min(start, 1 + await hub.store.read(search_rows.number_at, until_ms))
    at: int | None = start
    rows: list[EventRow] = []
    found, scanned = SearchPage(), 0
    while at is not None and len(rows) < limit and scanned < _SCANNED_MAX:
        found = await _scan(hub, visible, search_rows.search_events, before=at, limit=limit - len(rows))
        rows += found.rows
        scanned += _WINDOW
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
    """Names of the objects in these events. Everybody may see nodes; the rest is for its account and administrators."""
    if not events:
        return {}
    whose = access.scope(principal)
    ids = {name: _ids(events, name) for name in ("account_id", "actor", "job_id", "node_id", "group_id")}
    named = {
        "accounts": ids["account_id"] | ids["actor"],
        "nodes": ids["node_id"] | ids["actor"],
        "jobs": ids["job_id"],
        "groups": ids["group_id"],
    }
    return await hub.store.read(name_rows.of, **named, whose=whose)


def _ids(events: Iterable[EventView], name: str) -> set[str]:
    return {str(value) for event in events if (value := getattr(event, name)) is not None}


async def newest(hub: Hub) -> int:
    return await hub.store.read(event_rows.last_event)


async def stream(hub: Hub, principal: Principal, *, after: int) -> AsyncIterator[list[EventView]]:
    """Batches of events as they happen. Empty ones in between keep the connection alive."""
    cursor, visible = after, _visible(principal, EVERYTHING)
    wait_ms = round(_STREAM_WAIT_S * 1000)
    while not hub.process.stopping:
        batch, cursor = await _next(hub, visible, after=cursor, limit=_STREAM_BATCH, wait_ms=wait_ms)
        yield batch
