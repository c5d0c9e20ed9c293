"""Routes of groups and their collectors, and of the nodes that fetch them home."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query, Request

from computepool.hub.groups import collector, groups, messages, result_delivery, summaries
from computepool.hub.groups.summaries import Which
from computepool.hub.http.dependencies import (
    PAGE_MAX,
    Cursor,
    HubDep,
    IdPath,
    Limit,
    MaySubmit,
    Node,
    RememberedDep,
    Seq,
    SignedIn,
    Submitter,
    WaitMs,
    for_body,
)
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi import examples
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.http.rate_limit import take_submission
from computepool.protocol.base import NAME_MAX
from computepool.protocol.jobs.children import MessagePage
from computepool.protocol.jobs.groups import (
    ArrivalReply,
    ArrivalRequest,
    GroupPage,
    GroupRequest,
    GroupSummary,
    GroupView,
    HomecomingView,
    HomeTrouble,
    ItemPage,
    KeyReportsReply,
    KeyReportsRequest,
    RegisterKeysReply,
    RegisterKeysRequest,
    ResultPage,
    ReturnHomeRequest,
    StatePage,
)

router = guarded()


@router.post(
    "/groups",
    status_code=201,
    tags=["groups"],
    summary="Make a group for jobs that belong together",
    responses=refuses(404, 409),
)
async def create_group(
    request: Request,
    body: Annotated[GroupRequest, Body(openapi_examples=examples.GROUP)],
    principal: Submitter,
    hub: HubDep,
    key: RememberedDep,
) -> GroupView:
    remembered = for_body(key, principal, await request.body())
    return await groups.create(hub, principal, body, remembered=remembered)


@router.get("/groups", tags=["groups"], summary="List groups, newest first")
async def list_groups(
    principal: SignedIn,
    hub: HubDep,
    *,
    kind: Annotated[str | None, Query(pattern="^(map|slices|session|group)$")] = None,
    name: Annotated[
        str | None,
        Query(max_length=NAME_MAX, pattern=r"^[^\x00-\x1f\x7f]+$", description="Of this name alone"),
    ] = None,
    q: Annotated[
        str,
        Query(
            max_length=NAME_MAX, pattern=r"^[^\x00-\x1f\x7f]*$", description="A part of the name; or its id"
        ),
    ] = "",
    after: Cursor = None,
    limit: Limit = 50,
) -> GroupPage:
    if q.strip():
        return await groups.search(hub, principal, q.strip(), kind=kind, after=after, limit=limit)
    return await groups.page(hub, principal, kind=kind, name=name, after=after, limit=limit)


@router.get(
    "/groups/{group_id}",
    tags=["groups"],
    summary="A group and how many of its jobs are in which state",
    responses=refuses(404),
)
async def get_group(group_id: IdPath, principal: SignedIn, hub: HubDep) -> GroupView:
    return await groups.get(hub, principal, group_id)


@router.get(
    "/groups/{group_id}/results",
    tags=["groups"],
    summary="What finished, in the order it did, live by long poll",
    responses=refuses(404),
)
async def get_results(
    group_id: IdPath,
    principal: SignedIn,
    hub: HubDep,
    *,
    after: Seq = 0,
    wait_ms: WaitMs,
    limit: Limit = PAGE_MAX,
) -> ResultPage:
    return await groups.results(hub, principal, group_id, after=after, limit=limit, wait_ms=wait_ms)


@router.get(
    "/groups/{group_id}/messages",
    tags=["groups"],
    summary="What running jobs told the collector, in the order it came, live by long poll",
    responses=refuses(404),
)
async def get_messages(
    group_id: IdPath, principal: SignedIn, hub: HubDep, *, after: Seq = 0, wait_ms: WaitMs, limit: Limit = 100
) -> MessagePage:
    return await messages.page(hub, principal, group_id, after=after, limit=limit, wait_ms=wait_ms)


@router.post(
    "/groups/{group_id}/cancel",
    tags=["groups"],
    summary="Cancel every unfinished job of the group; keys without a job fail",
    responses=refuses(404),
)
async def cancel_group(group_id: IdPath, principal: MaySubmit, hub: HubDep) -> GroupView:
    return await groups.cancel(hub, principal, group_id)


@router.get(
    "/groups/{group_id}/summary",
    tags=["groups"],
    summary="What the collector knows: counts, the beginning of each list, where it is, where it goes",
    responses=refuses(404),
)
async def get_summary(group_id: IdPath, principal: SignedIn, hub: HubDep) -> GroupSummary:
    return await summaries.summary(hub, principal, group_id)


@router.get(
    "/groups/{group_id}/items",
    tags=["groups"],
    summary="Everything the group is about, page by page: its jobs, then the keys without one",
    responses=refuses(404),
)
async def get_items(
    group_id: IdPath,
    principal: SignedIn,
    hub: HubDep,
    *,
    which: Which = Which.ALL,
    after: Cursor = None,
    limit: Limit = 100,
) -> ItemPage:
    return await summaries.items(hub, principal, group_id, which=which, after=after, limit=limit)


@router.get(
    "/groups/{group_id}/states",
    tags=["groups"],
    summary="In which state each item is, and no more: thousands in one answer",
    responses=refuses(404),
    response_model_exclude_defaults=True,
)
async def get_states(
    group_id: IdPath,
    principal: SignedIn,
    hub: HubDep,
    *,
    after: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 2_000,
) -> StatePage:
    return await summaries.states(hub, principal, group_id, after=after, limit=limit)


@router.get(
    "/groups/{group_id}/drain",
    tags=["groups"],
    summary="The group when it is complete, or as it is when wait_ms are over",
    responses=refuses(404),
)
async def drain_group(group_id: IdPath, principal: SignedIn, hub: HubDep, wait_ms: WaitMs) -> GroupView:
    return await collector.drain(hub, principal, group_id, wait_ms=wait_ms)


@router.post(
    "/groups/{group_id}/keys",
    tags=["groups"],
    summary="Register keys that the group waits for, with or without a job",
    responses=refuses(404, 409, 413, 429),
)
async def register_keys(
    request: Request,
    group_id: IdPath,
    body: Annotated[RegisterKeysRequest, Body(openapi_examples=examples.REGISTER_KEYS)],
    principal: MaySubmit,
    hub: HubDep,
    *,
    key: RememberedDep,
) -> RegisterKeysReply:
    take_submission(request, principal.account_id)
    remembered = for_body(key, principal, await request.body())
    return await collector.register(hub, principal, group_id, request=body, remembered=remembered)


@router.post(
    "/groups/{group_id}/reports",
    tags=["groups"],
    summary="Report how keys without a job ended; the first report of a key stands",
    responses=refuses(404, 409, 429),
)
async def report_keys(
    request: Request,
    group_id: IdPath,
    body: Annotated[KeyReportsRequest, Body(openapi_examples=examples.KEY_REPORTS)],
    principal: MaySubmit,
    hub: HubDep,
    *,
    key: RememberedDep,
) -> KeyReportsReply:
    take_submission(request, principal.account_id)
    remembered = for_body(key, principal, await request.body())
    return await collector.report(hub, principal, group_id, request=body, remembered=remembered)


@router.post(
    "/groups/{group_id}/return-home",
    tags=["groups"],
    summary="Bring the results to a node of yours when the group is complete; again, elsewhere, or not at all",
    responses=refuses(404, 409),
)
async def return_home(
    group_id: IdPath,
    body: Annotated[ReturnHomeRequest, Body(openapi_examples=examples.RETURN_HOME)],
    principal: MaySubmit,
    hub: HubDep,
) -> GroupView:
    return await collector.return_home(hub, principal, group_id, request=body)


# the home node


@router.get(
    "/homecomings/{group_id}",
    tags=["agent"],
    summary="What a home node is to bring home",
    responses=refuses(404),
)
async def get_homecoming(group_id: IdPath, node: Node, hub: HubDep) -> HomecomingView:
    return await result_delivery.get(hub, node, group_id)


@router.get(
    "/homecomings/{group_id}/items",
    tags=["agent"],
    summary="Its items, page by page; their artifacts can be read while the group waits for its home",
    responses=refuses(404),
)
async def get_homecoming_items(
    group_id: IdPath, node: Node, hub: HubDep, *, after: Cursor = None, limit: Limit = 100
) -> ItemPage:
    return await result_delivery.items(hub, node, group_id, after=after, limit=limit)


@router.post(
    "/homecomings/{group_id}/trouble",
    status_code=204,
    tags=["agent"],
    summary="Why it is not home yet",
    responses=refuses(404),
)
async def report_trouble(
    group_id: IdPath,
    body: Annotated[HomeTrouble, Body(openapi_examples=examples.HOME_TROUBLE)],
    node: Node,
    hub: HubDep,
) -> None:
    await result_delivery.trouble(hub, node, group_id, request=body)


@router.post(
    "/homecomings/{group_id}/arrival",
    tags=["agent"],
    summary="Everything is home and verified",
    responses=refuses(404, 409),
)
async def report_arrival(
    group_id: IdPath,
    body: Annotated[ArrivalRequest, Body(openapi_examples=examples.ARRIVAL)],
    node: Node,
    hub: HubDep,
) -> ArrivalReply:
    return await result_delivery.arrived(hub, node, group_id, request=body)
