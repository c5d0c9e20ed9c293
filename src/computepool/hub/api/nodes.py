"""Routes of nodes. The poll and the report are the hot ones: plain Starlette endpoints, with twins that document them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from computepool.core.resources import NodeState
from computepool.hub.api import deps
from computepool.hub.api.deps import Cursor, DispatcherDep, HubDep, Limit, Node, Provider, SignedIn
from computepool.hub.api.errors import invalid
from computepool.hub.api.ratelimit import registrations
from computepool.hub.services import logs, nodes, settlement
from computepool.hub.services.access import NodePrincipal
from computepool.protocol.nodes import (
    CompleteReply,
    CompleteRequest,
    EnrolCodeReply,
    LogsRequest,
    NextReply,
    NextRequest,
    NodePage,
    NodeStateRequest,
    NodeView,
    NodeWhyView,
    RegisterReply,
    RegisterRequest,
)

router = APIRouter()


def add_hot_routes(app: FastAPI) -> None:
    """Before the router: these answer, the documented twins below never see a request."""
    app.add_route("/next", _hot_next, methods=["POST"], include_in_schema=False)
    app.add_route("/complete", _hot_complete, methods=["POST"], include_in_schema=False)


async def _hot_next(request: Request) -> Response:
    node = await _node(request)
    try:
        body = NextRequest.model_validate_json(await request.body())
    except ValidationError as error:
        return invalid(error)
    reply, effects = await nodes.next_(deps.get_hub(request), node, body)
    dispatcher = deps.get_dispatcher(request)
    if effects is not None or body.profile is not None:
        await dispatcher.follow(effects)
        dispatcher.kick()
    return Response(reply.model_dump_json(exclude_defaults=True), media_type="application/json")


async def _hot_complete(request: Request) -> Response:
    node = await _node(request)
    try:
        body = CompleteRequest.model_validate_json(await request.body())
    except ValidationError as error:
        return invalid(error)
    reply = await _complete(deps.get_hub(request), deps.get_dispatcher(request), node, body)
    return Response(reply.model_dump_json(), media_type="application/json")


async def _node(request: Request) -> NodePrincipal:
    authenticator = deps.get_authenticator(request)
    token = deps.bearer(request) or ""
    return authenticator.peek_node(token) or await authenticator.node(token)


async def _complete(
    hub: HubDep, dispatcher: DispatcherDep, node: Node, body: CompleteRequest
) -> CompleteReply:
    reply, settled = await settlement.complete(hub, node, body)
    dispatcher.settled(node.node_id, body, settled.over)
    session = hub.registry.get(node.node_id)
    if settled.cool_off is not None and session is not None:
        session.cool_off_until_ms = settled.cool_off[1]
        hub.registry.refresh(session, hub.now_ms())
    await dispatcher.follow(settled.effects)
    return reply


@router.post("/next", tags=["agent"], summary="The long poll: heartbeat, lease renewal and claim in one")
async def next_(body: NextRequest, node: Node, hub: HubDep) -> NextReply:
    reply, _ = await nodes.next_(hub, node, body)
    return reply


@router.post(
    "/complete", tags=["agent"], summary="Report how attempts ended; every report gets a definite answer"
)
async def complete(
    body: CompleteRequest, node: Node, hub: HubDep, dispatcher: DispatcherDep
) -> CompleteReply:
    return await _complete(hub, dispatcher, node, body)


@router.post(
    "/heartbeat", tags=["agent"], summary="Renew leases and tell what runs, without waiting or claiming"
)
async def heartbeat(body: NextRequest, node: Node, hub: HubDep, dispatcher: DispatcherDep) -> NextReply:
    reply, effects = await nodes.next_(hub, node, body, poll=False)
    await dispatcher.follow(effects)
    return reply


@router.post("/logs", status_code=204, tags=["agent"], summary="What running attempts printed")
async def receive_logs(body: LogsRequest, node: Node, hub: HubDep) -> None:
    await logs.receive(hub, node, body)


@router.post("/nodes/register", status_code=201, tags=["agent"], summary="Enrol a node with a one-time code")
async def register(
    request: Request, body: RegisterRequest, hub: HubDep, _caller: deps.Anyone
) -> RegisterReply:
    registrations(request).take()
    return await nodes.register(hub, body)


@router.post(
    "/nodes/codes", status_code=201, tags=["nodes"], summary="A one-time code to enrol a node of yours"
)
async def enrol_code(principal: Provider, hub: HubDep) -> EnrolCodeReply:
    return await nodes.enrol_code(hub, principal)


@router.get("/nodes", tags=["nodes"], summary="List nodes")
async def list_nodes(
    principal: SignedIn,
    hub: HubDep,
    *,
    mine: Annotated[bool, Query(description="Only nodes of your account")] = False,
    after: Cursor = None,
    limit: Limit = 100,
) -> NodePage:
    return await nodes.page(hub, principal, mine=mine, after=after, limit=limit)


@router.get("/nodes/{node_id}", tags=["nodes"], summary="One node")
async def get_node(node_id: str, principal: SignedIn, hub: HubDep) -> NodeView:
    return await nodes.get(hub, principal, node_id)


@router.get("/nodes/{node_id}/why", tags=["nodes"], summary="Why the node has (no) work")
async def why(node_id: str, principal: SignedIn, hub: HubDep) -> NodeWhyView:
    return await nodes.why(hub, principal, node_id)


@router.post("/nodes/{node_id}/state", tags=["nodes"], summary="Pause, resume or drain a node of yours")
async def set_state(
    node_id: str, body: NodeStateRequest, principal: SignedIn, hub: HubDep, dispatcher: DispatcherDep
) -> NodeView:
    view = await nodes.set_state(hub, principal, node_id, NodeState(body.state))
    dispatcher.kick()
    return view


@router.post(
    "/nodes/{node_id}/revoke",
    tags=["nodes"],
    summary="Refuse the node's key from now on; its jobs run elsewhere",
)
async def revoke(node_id: str, principal: SignedIn, hub: HubDep, dispatcher: DispatcherDep) -> NodeView:
    view, effects = await nodes.revoke(hub, principal, node_id)
    await dispatcher.follow(effects)
    return view
