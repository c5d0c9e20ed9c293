"""Routes of groups and their collectors, and of the nodes that fetch them home."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request

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
)
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.http.rate_limit import limits_of
from computepool.hub.jobs import graph
from computepool.protocol.base import NAME_MAX
from computepool.protocol.jobs.children import MessagePage
from computepool.protocol.jobs.groups import (
    ArrivalReply,
    ArrivalRequest,
    DeliveryProblem,
    GroupPage,
    GroupRequest,
    GroupSummary,
    GroupView,
    ItemPage,
    KeyReportsReply,
    KeyReportsRequest,
    RegisterKeysReply,
    RegisterKeysRequest,
    ResultDeliveryView,
    ResultPage,
    ReturnHomeRequest,
    StatePage,
)
from computepool.protocol.jobs.views import GraphView

router = guarded_router()


@router.post("/groups", status_code=201, tags=["groups"], responses=refuses(404, 409))
async def create_group(body: GroupRequest, principal: Submitter, hub: HubDep, remembered: RememberedDep) -> GroupView:
    """Create a group for related jobs."""
    return await groups.create(hub, principal, body, remembered=remembered)


@router.get("/groups", tags=["groups"])
async def list_groups(
    principal: SignedIn,
    hub: HubDep,
    *,
    kind: Annotated[str | None, Query(pattern="^(map|slices|session|group)$")] = None,
    name: Annotated[
        str | None, Query(max_length=NAME_MAX, pattern=r"^[^\x00-\x1f\x7f]+$", description="Of this name alone")
    ] = None,
    q: Annotated[
        str, Query(max_length=NAME_MAX, pattern=r"^[^\x00-\x1f\x7f]*$", description="A part of the name; or its id")
    ] = "",
    after: Cursor = None,
    limit: Limit = 50,
) -> GroupPage:
    """List groups, newest first."""
    return await groups.page(hub, principal, kind=kind, name=name, text=q.strip(), after=after, limit=limit)


@router.get("/groups/{group_id}", tags=["groups"], responses=refuses(404))
async def get_group(group_id: IdPath, principal: SignedIn, hub: HubDep) -> GroupView:
    """Get a group, with its number of jobs in each state."""
    return await groups.get(hub, principal, group_id)


@router.get("/groups/{group_id}/graph", tags=["groups"], responses=refuses(404))
async def get_group_graph(group_id: IdPath, principal: SignedIn, hub: HubDep) -> GraphView:
    """Get the jobs of a group that come before or after other jobs."""
    await groups.check_owner(hub, principal, group_id)
    return await graph.of_group(hub, principal, group_id)


@router.get("/groups/{group_id}/results", tags=["groups"], responses=refuses(404))
async def get_results(
    group_id: IdPath, principal: SignedIn, hub: HubDep, *, after: Seq = 0, wait_ms: WaitMs, limit: Limit = PAGE_MAX
) -> ResultPage:
    """Get results in the order they finished, live by long poll."""
    return await groups.results(hub, principal, group_id, after=after, limit=limit, wait_ms=wait_ms)


@router.get("/groups/{group_id}/messages", tags=["groups"], responses=refuses(404))
async def get_messages(
    group_id: IdPath, principal: SignedIn, hub: HubDep, *, after: Seq = 0, wait_ms: WaitMs, limit: Limit = 100
) -> MessagePage:
    """Get messages from running jobs in order of arrival, live by long poll."""
    return await messages.page(hub, principal, group_id, after=after, limit=limit, wait_ms=wait_ms)


@router.post("/groups/{group_id}/cancel", tags=["groups"], responses=refuses(404))
async def cancel_group(group_id: IdPath, principal: MaySubmit, hub: HubDep) -> GroupView:
    """Cancel every unfinished job of the group; keys without a job fail."""
    return await groups.cancel(hub, principal, group_id)


@router.get("/groups/{group_id}/summary", tags=["groups"], responses=refuses(404))
async def get_summary(group_id: IdPath, principal: SignedIn, hub: HubDep) -> GroupSummary:
    """Summarise a group: counts, the start of each list, and the delivery state."""
    return await summaries.summary(hub, principal, group_id)


@router.get("/groups/{group_id}/items", tags=["groups"], responses=refuses(404))
async def get_items(
    group_id: IdPath,
    principal: SignedIn,
    hub: HubDep,
    *,
    which: Which = Which.ALL,
    after: Cursor = None,
    limit: Limit = 100,
) -> ItemPage:
    """List the group's items: its jobs, then keys without a job."""
    return await summaries.items(hub, principal, group_id, which=which, after=after, limit=limit)


@router.get("/groups/{group_id}/states", tags=["groups"], responses=refuses(404), response_model_exclude_defaults=True)
async def get_states(
    group_id: IdPath,
    principal: SignedIn,
    hub: HubDep,
    *,
    after: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 2000,
) -> StatePage:
    """Get only the state of each item, thousands per reply."""
    return await summaries.states(hub, principal, group_id, after=after, limit=limit)


@router.get("/groups/{group_id}/drain", tags=["groups"], responses=refuses(404))
async def drain_group(group_id: IdPath, principal: SignedIn, hub: HubDep, wait_ms: WaitMs) -> GroupView:
    """Wait until the group is complete, or until wait_ms have passed."""
    return await collector.drain(hub, principal, group_id, wait_ms=wait_ms)


@router.post("/groups/{group_id}/keys", tags=["groups"], responses=refuses(404, 409, 413, 429))
async def register_keys(
    request: Request,
    group_id: IdPath,
    body: RegisterKeysRequest,
    principal: MaySubmit,
    hub: HubDep,
    *,
    remembered: RememberedDep,
) -> RegisterKeysReply:
    """Register keys that the group expects, with or without a job."""
    limits_of(request.app.state).submissions.take(principal.account_id)
    return await collector.register(hub, principal, group_id, request=body, remembered=remembered)


@router.post("/groups/{group_id}/reports", tags=["groups"], responses=refuses(404, 409, 429))
async def report_keys(
    request: Request,
    group_id: IdPath,
    body: KeyReportsRequest,
    principal: MaySubmit,
    hub: HubDep,
    *,
    remembered: RememberedDep,
) -> KeyReportsReply:
    """Report outcomes of keys without a job; the first report of a key counts."""
    limits_of(request.app.state).submissions.take(principal.account_id)
    return await collector.report(hub, principal, group_id, request=body, remembered=remembered)


@router.post("/groups/{group_id}/return-home", tags=["groups"], responses=refuses(404, 409))
async def return_home(group_id: IdPath, body: ReturnHomeRequest, principal: MaySubmit, hub: HubDep) -> GroupView:
    """Deliver the results to one of your nodes when the group is complete; repeat, redirect or cancel that."""
    return await collector.return_home(hub, principal, group_id, request=body)


@router.get("/result-deliveries/{group_id}", tags=["agent"], responses=refuses(404))
async def get_result_delivery(group_id: IdPath, node: Node, hub: HubDep) -> ResultDeliveryView:
    """Get what the home node has to fetch."""
    return await result_delivery.get(hub, node, group_id)


@router.get("/result-deliveries/{group_id}/items", tags=["agent"], responses=refuses(404))
async def get_result_delivery_items(
    group_id: IdPath, node: Node, hub: HubDep, *, after: Cursor = None, limit: Limit = 100
) -> ItemPage:
    """List the items to fetch; their artifacts are readable until delivery."""
    return await result_delivery.items(hub, node, group_id, after=after, limit=limit)


@router.post("/result-deliveries/{group_id}/problem", status_code=204, tags=["agent"], responses=refuses(404))
async def report_delivery_problem(group_id: IdPath, body: DeliveryProblem, node: Node, hub: HubDep) -> None:
    """Report why delivery has not succeeded yet."""
    await result_delivery.report_problem(hub, node, group_id, request=body)


@router.post("/result-deliveries/{group_id}/arrival", tags=["agent"], responses=refuses(404, 409))
async def report_arrival(group_id: IdPath, body: ArrivalRequest, node: Node, hub: HubDep) -> ArrivalReply:
    """Report that everything was delivered and verified."""
    return await result_delivery.record_arrival(hub, node, group_id, request=body)
