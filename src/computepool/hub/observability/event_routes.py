"""Routes of events: pages, searches, a stream of events, and a stream of change notifications."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from computepool.hub.context import Hub
from computepool.hub.http import dependencies
from computepool.hub.http.dependencies import SEQ_MAX, HubDep, IdQuery, Limit, SearchText, Seq, SignedIn, TimeMs, WaitMs
from computepool.hub.http.guard import guarded_router
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.observability import events
from computepool.hub.observability.live import news
from computepool.protocol.accounts import EventPage, EventView, News
from computepool.protocol.jobs.filters import EventFilter

T = TypeVar("T")
_RETRY_MS = 1000

router = guarded_router(tags=["events"])


async def _event_filter(
    *,
    action: Annotated[
        str, Query(max_length=64, pattern=r"^[a-z_.]*$", description="The beginning of its name: `node.`, `job.failed`")
    ] = "",
    actor: Annotated[IdQuery, Query(description="Who did it: an account, a node, or `hub`")] = None,
    account_id: Annotated[IdQuery, Query(description="The account that it concerns")] = None,
    job_id: IdQuery = None,
    node_id: IdQuery = None,
    group_id: IdQuery = None,
    since_ms: TimeMs = None,
    until_ms: TimeMs = None,
    q: Annotated[SearchText, Query(description="A part of its name, reason or data; or an id")] = "",
) -> EventFilter:
    return EventFilter(
        action=action,
        actor=actor,
        account_id=account_id,
        job_id=job_id,
        node_id=node_id,
        group_id=group_id,
        since_ms=since_ms,
        until_ms=until_ms,
        text=q.strip(),
    )


@router.get("/events")
async def list_events(
    principal: SignedIn,
    hub: HubDep,
    filters: Annotated[EventFilter, Depends(_event_filter)],
    *,
    after: Seq = 0,
    before: Annotated[
        int | None, Query(ge=0, le=SEQ_MAX, description="Newest first, before this: `next` of the previous page")
    ] = None,
    newest: Annotated[bool, Query(description="Newest first")] = False,
    limit: Limit = 100,
    wait_ms: WaitMs,
) -> EventPage:
    """List state transitions, oldest first; or search them, newest first."""
    if newest or before is not None:
        return await events.search(hub, principal, before=before, limit=limit, filters=filters)
    return await events.page(hub, principal, after=after, limit=limit, filters=filters, wait_ms=wait_ms)


@dataclass(frozen=True, slots=True)
class _Listener:
    request: Request
    principal: Principal
    hub: Hub
    after: int

    async def follow(self, updates: AsyncIterator[T]) -> AsyncIterator[T]:
        """Pass updates on while the caller is signed in and may see what it could see at the start."""
        scope = access.scope(self.principal)
        async for update in updates:
            now = await dependencies.reload_caller(self.request)
            if now is None or access.scope(now) != scope:
                return
            yield update


async def _listener(
    request: Request,
    principal: SignedIn,
    hub: HubDep,
    *,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=SEQ_MAX, description="Continue after this event; by default from now on")
    ] = None,
) -> AsyncIterator[_Listener]:
    """Determined before the answer begins, so that the stream has every event after its beginning."""
    with hub.observability.open_stream(principal.account_id, most=hub.settings.streams_max):
        after = await events.newest(hub) if last_event_id is None else last_event_id
        yield _Listener(request, principal, hub, after)


Listener = Annotated[_Listener, Depends(_listener)]
#: Sent first, because a proxy may hold back even the headers until the first byte of the body.
_OPEN = ServerSentEvent(comment="open")


@router.get("/events/stream", response_class=EventSourceResponse)
async def stream_events(listener: Listener) -> AsyncIterator[EventView]:
    """Stream state transitions (server-sent events)."""
    yield _OPEN  # type: ignore[misc]
    updates = events.stream(listener.hub, listener.principal, after=listener.after)
    async for batch in listener.follow(updates):
        for event in batch:
            message = ServerSentEvent(data=event, event=event.action, id=str(event.seq), retry=_RETRY_MS)
            yield message  # type: ignore[misc]


@router.get("/events/news", response_class=EventSourceResponse)
async def stream_news(listener: Listener) -> AsyncIterator[News]:
    """Stream change notifications for open pages (server-sent events).
    `alive` events hold the longest time until the next message, in milliseconds.
    """
    yield _OPEN  # type: ignore[misc]
    alive = ServerSentEvent(event="alive", data=round(listener.hub.settings.news_alive_s * 1000))
    yield alive  # type: ignore[misc]
    updates = news.stream(listener.hub, listener.principal, after=listener.after)
    async for one in listener.follow(updates):
        message = alive if one is None else ServerSentEvent(data=one, id=str(one.cursor), retry=_RETRY_MS)
        yield message  # type: ignore[misc]
