"""Routes of accounts, keys, sign-in, events and the hub itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from computepool.hub.api import deps, examples, health
from computepool.hub.api.deps import (
    SEQ_MAX,
    Admin,
    Anyone,
    Cursor,
    HubDep,
    IdPath,
    IdQuery,
    Limit,
    Moment,
    RememberedDep,
    Seq,
    SignedIn,
    WaitMs,
    Words,
    for_body,
)
from computepool.hub.api.problems import refuses
from computepool.hub.api.ratelimit import guessing
from computepool.hub.services import (
    approvals,
    conduct,
    events,
    hubkeys,
    identity,
    links,
    news,
    queries,
    quotas,
)
from computepool.protocol.accounts import (
    AccountPage,
    AccountRequest,
    AccountView,
    EventPage,
    EventView,
    HubInfo,
    LinkReply,
    News,
    QuotaRequest,
    SignInReply,
    SignInRequest,
)
from computepool.protocol.filters import EventFilter
from computepool.protocol.hubkeys import HubKeys
from computepool.protocol.version import PROTOCOL

router = APIRouter()
router.include_router(health.router)


@router.get("/hub", tags=["hub"], summary="Name, version and size of the pool, and who you are")
async def hub_info(principal: Anyone, hub: HubDep) -> HubInfo:
    sessions = hub.registry.sessions
    running = sum(len(session.attempts) for session in sessions)
    account = None if principal is None else await identity.get_account(hub, principal.account_id)
    return HubInfo(
        name=hub.settings.name,
        version=version("computepool"),
        protocol=PROTOCOL,
        time_ms=hub.now_ms(),
        nodes_online=len(sessions),
        nodes=await queries.enrolled(hub),
        queued=len(hub.backlog),
        running=running,
        account=account,
        setup=not await queries.signed_in_before(hub),
        signin_hint="" if account is not None else queries.SIGN_IN_HINT,
    )


@router.get("/hub/keys", tags=["agent"], summary="The hub's public signing keys")
async def hub_keys(hub: HubDep, _caller: Anyone) -> HubKeys:
    return hub.secrets.published


@router.post(
    "/hub/keys/rotate",
    tags=["hub"],
    summary="Sign with the next key from now on",
    responses=refuses(409),
)
async def rotate_hub_key(admin: Admin, hub: HubDep) -> HubKeys:
    return await hubkeys.rotate(hub, admin)


@router.get("/me", tags=["accounts"], summary="The account of this key")
async def me(principal: SignedIn, hub: HubDep) -> AccountView:
    return conduct.shown(hub, await identity.get_account(hub, principal.account_id))


@router.get("/accounts", tags=["accounts"], summary="List accounts")
async def list_accounts(
    _admin: Admin, hub: HubDep, *, after: Cursor = None, limit: Limit = 100
) -> AccountPage:
    return conduct.shown_all(hub, await identity.list_accounts(hub, after=after, limit=limit))


@router.post(
    "/accounts", status_code=201, tags=["accounts"], summary="Create an account", responses=refuses(409)
)
async def create_account(
    request: Request,
    body: Annotated[AccountRequest, Body(openapi_examples=examples.ACCOUNT)],
    admin: Admin,
    hub: HubDep,
    key: RememberedDep,
) -> AccountView:
    remembered = for_body(key, admin, await request.body())
    waits = approvals.grants_wait(hub, admin)
    return await identity.create_account(hub, admin, body, remembered=remembered, waits=waits)


@router.post(
    "/accounts/{account_id}/link",
    status_code=201,
    tags=["accounts"],
    summary="A one-time sign-in link for somebody",
    responses=refuses(404),
)
async def create_link(account_id: IdPath, admin: Admin, hub: HubDep) -> LinkReply:
    return await links.create(hub, admin, account_id)


@router.put(
    "/accounts/{account_id}/quotas",
    tags=["accounts"],
    summary="Set how much an account may use",
    responses=refuses(404),
)
async def set_quotas(
    account_id: IdPath,
    body: Annotated[QuotaRequest, Body(openapi_examples=examples.QUOTAS)],
    admin: Admin,
    hub: HubDep,
) -> AccountView:
    return await quotas.change(hub, admin, account_id, request=body)


@router.post("/signin", tags=["accounts"], summary="Exchange a one-time code for a key or a browser session")
async def sign_in(
    request: Request,
    response: Response,
    body: Annotated[SignInRequest, Body(openapi_examples=examples.SIGN_IN)],
    hub: HubDep,
    _caller: Anyone,
) -> SignInReply:
    with guessing(request, body.code):
        reply = await identity.sign_in(hub, body)
    if body.kind == "key":
        return reply
    deps.set_cookie(request, response, reply.key or "")
    return reply.model_copy(update={"key": None})


async def _event_filter(
    *,
    action: Annotated[
        str,
        Query(max_length=64, pattern=r"^[a-z_.]*$", description="How its name begins: `node.`, `job.failed`"),
    ] = "",
    actor: Annotated[IdQuery, Query(description="Who did it: an account, a node, or `hub`")] = None,
    account_id: Annotated[IdQuery, Query(description="Whom it concerns")] = None,
    job_id: IdQuery = None,
    node_id: IdQuery = None,
    group_id: IdQuery = None,
    since_ms: Moment = None,
    until_ms: Moment = None,
    q: Annotated[Words, Query(description="A part of its name, reason or data; or an id")] = "",
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


@router.get(
    "/events", tags=["events"], summary="Every state transition, oldest first; or searched, newest first"
)
async def list_events(
    principal: SignedIn,
    hub: HubDep,
    wanted: Annotated[EventFilter, Depends(_event_filter)],
    *,
    after: Seq = 0,
    before: Annotated[
        int | None,
        Query(ge=0, le=SEQ_MAX, description="Newest first, from before this: `next` of the page before"),
    ] = None,
    newest: Annotated[bool, Query(description="Newest first")] = False,
    limit: Limit = 100,
    wait_ms: WaitMs,
) -> EventPage:
    if newest or before is not None:
        return await events.search(hub, principal, before=before, limit=limit, wanted=wanted)
    return await events.page(hub, principal, after=after, limit=limit, wanted=wanted, wait_ms=wait_ms)


async def _resume_after(
    hub: HubDep,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=SEQ_MAX, description="Go on after this event; without it, from now on")
    ] = None,
) -> int:
    """Settled before the answer begins: what happens once the caller sees it begin is part of it."""
    return await events.newest(hub) if last_event_id is None else last_event_id


@router.get(
    "/events/stream",
    tags=["events"],
    response_class=EventSourceResponse,
    summary="The same, live (server-sent events)",
)
async def stream_events(
    request: Request,
    principal: SignedIn,
    hub: HubDep,
    after: Annotated[int, Depends(_resume_after)],
) -> AsyncIterator[EventView]:
    # A proxy may keep even the headers until the first byte of the body; a browser then does not know that it is heard.
    yield ServerSentEvent(comment="open")  # type: ignore[misc]
    async for batch in events.stream(hub, principal, after=after):
        if not await deps.still_signed_in(request):
            return
        for event in batch:
            yield ServerSentEvent(  # type: ignore[misc]
                data=event, event=event.action, id=str(event.seq), retry=1000
            )


@router.get(
    "/events/news",
    tags=["events"],
    response_class=EventSourceResponse,
    summary="What changed, live, for pages that show it (server-sent events)",
)
async def stream_news(
    request: Request,
    principal: SignedIn,
    hub: HubDep,
    after: Annotated[int, Depends(_resume_after)],
) -> AsyncIterator[News]:
    yield ServerSentEvent(comment="open")  # type: ignore[misc]
    async for told in news.stream(hub, principal, after=after):
        if not await deps.still_signed_in(request):
            return
        if told is not None:
            yield ServerSentEvent(data=told, id=str(told.cursor), retry=1000)  # type: ignore[misc]
