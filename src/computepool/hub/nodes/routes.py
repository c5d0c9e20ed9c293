"""Routes of nodes. hub/fast_path.py usually answers polls and reports, by the same functions."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query, Request, Response
from pydantic import AfterValidator, StringConstraints
from starlette.datastructures import State

from computepool.core.fleet.node_status import NodeStatus
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.http.dependencies import (
    Admin,
    Anyone,
    Cursor,
    HubDep,
    IdPath,
    Limit,
    MayProvide,
    MayRead,
    Node,
    Provider,
    SignedIn,
)
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi import examples
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.http.rate_limit import client_ip, limit_sign_in, limits_of
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs.running import checkpoints, logs
from computepool.hub.nodes import node_list, nodes
from computepool.hub.nodes.joining import enrolment, progress
from computepool.hub.nodes.owner import earnings, owner_rules
from computepool.hub.scheduling import departures, node_poll
from computepool.hub.settlement import settle as settlement
from computepool.hub.trust import evidence, hardware, reputation
from computepool.protocol.jobs.checkpoints import CheckpointReply, CheckpointReport
from computepool.protocol.jobs.requirements import REQUIREMENT_CHARS_MAX, check_requirements
from computepool.protocol.money.market import OwnNodeView
from computepool.protocol.nodes.evidence import EvidencePage, NodeWork
from computepool.protocol.nodes.hardware import HardwareReport, HardwareView
from computepool.protocol.nodes.joining import EnrolCodeReply, EnrolCodeRequest, JoinCodePage, JoinStatus
from computepool.protocol.nodes.nodes import (
    CompleteReply,
    CompleteRequest,
    LogsRequest,
    NextReply,
    NextRequest,
    NodePage,
    NodeStateRequest,
    NodeView,
    NodeWhyView,
    RegisterReply,
    RegisterRequest,
    RekeyReply,
    RekeyRequest,
    ReviewReply,
    ReviewRequest,
)
from computepool.protocol.nodes.rules import NodeRules, NodeRulesView

_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

router = guarded_router()
_ONE_NODE = EnrolCodeRequest()
_ANY_STATE: list[NodeState] = []
_ANY_STATUS: list[NodeStatus] = []
_ANY_SOFTWARE: list[str] = []


async def poll(
    state: State, node: NodePrincipal, body: NextRequest, *, address: str | None, claims: bool = True
) -> NextReply:
    hub: Hub = state.hub
    if body.profile is not None or body.cached is not None or body.stopping:
        limits_of(state).arrivals.take(node.node_id)
    return await node_poll.next_(hub, node, body, poll=claims, address=address)


@router.post("/next", tags=["agent"])
async def next_(request: Request, body: NextRequest, node: Node) -> NextReply:
    """Poll for work: heartbeat, lease renewal and claim in one."""
    return await poll(request.app.state, node, body, address=client_ip(request.scope))


@router.post("/complete", tags=["agent"], responses=refuses(403))
async def complete(body: CompleteRequest, node: Node, hub: HubDep) -> CompleteReply:
    """Report outcomes of attempts; each report gets a final verdict."""
    return await settlement.complete(hub, node, body)


@router.post("/heartbeat", tags=["agent"])
async def heartbeat(
    request: Request, body: Annotated[NextRequest, Body(openapi_examples=examples.HEARTBEAT)], node: Node
) -> NextReply:
    """Renew leases and report running attempts, without claiming work."""
    return await poll(request.app.state, node, body, address=client_ip(request.scope), claims=False)


@router.post("/logs", status_code=204, tags=["agent"])
async def receive_logs(body: LogsRequest, node: Node, hub: HubDep) -> None:
    """Send the output of running attempts."""
    await logs.receive(hub, node, body)


@router.post("/checkpoint", tags=["agent"], responses=refuses(403, 404))
async def receive_checkpoint(body: CheckpointReport, node: Node, hub: HubDep) -> CheckpointReply:
    """Store a checkpoint of a running attempt, from which the next attempt resumes."""
    return await checkpoints.receive(hub, node, body)


@router.post("/hardware", tags=["agent"], responses=refuses(403, 409))
async def receive_hardware(body: HardwareReport, node: Node, hub: HubDep) -> HardwareView:
    """Report a requested hardware measurement; replies with the resulting classification."""
    return await hardware.receive(hub, node, body)


@router.post("/nodes/register", status_code=201, tags=["agent"], responses=refuses(401, 403, 409))
async def register(request: Request, body: RegisterRequest, hub: HubDep, _caller: Anyone) -> RegisterReply:
    """Enrol a node with a one-time code."""
    limits_of(request.app.state).registrations.take()
    with limit_sign_in(request, body.code):
        return await enrolment.register(hub, body)


@router.post("/nodes/rekey", tags=["agent"], responses=refuses(403, 409))
async def rekey(request: Request, body: RekeyRequest, node: Node, hub: HubDep) -> RekeyReply:
    """Replace the node's own key; the old one signs the new one."""
    limits_of(request.app.state).arrivals.take(node.node_id)
    return await enrolment.rekey(hub, node, body)


@router.post("/nodes/codes", status_code=201, tags=["nodes"])
async def enrol_code(principal: Provider, hub: HubDep, body: EnrolCodeRequest = _ONE_NODE) -> EnrolCodeReply:
    """Create a code to enrol one or more nodes."""
    return await enrolment.enrol_code(hub, principal, body)


@router.get("/nodes/codes", tags=["nodes"])
async def join_codes(principal: Provider, hub: HubDep) -> JoinCodePage:
    """List your open join codes."""
    return await enrolment.join_codes(hub, principal)


@router.get("/nodes/codes/{code_id}", tags=["nodes"], responses=refuses(404))
async def join_status(code_id: IdPath, principal: Provider, hub: HubDep) -> JoinStatus:
    """Show the progress of the machines that use a code."""
    return await progress.status(hub, principal, code_id)


@router.delete("/nodes/codes/{code_id}", status_code=204, tags=["nodes"], responses=refuses(404))
async def end_join_code(code_id: IdPath, principal: Provider, hub: HubDep) -> None:
    """Revoke a join code; nodes that joined stay."""
    await enrolment.end_join_code(hub, principal, code_id)


@router.get("/nodes", tags=["nodes"])
async def list_nodes(
    principal: SignedIn,
    hub: HubDep,
    *,
    mine: Annotated[bool, Query(description="Only nodes of your account")] = False,
    state: Annotated[
        list[NodeState], Query(max_length=4, description="States set by their owners; may be repeated; by default all")
    ] = _ANY_STATE,
    status: Annotated[
        list[NodeStatus], Query(max_length=16, description="Current statuses; may be repeated; by default all")
    ] = _ANY_STATUS,
    online: Annotated[bool | None, Query(description="Only nodes that are online, or offline")] = None,
    q: Annotated[str, Query(max_length=200, description="A part of its name or of its owner's name, or its id")] = "",
    tier: Annotated[str, Query(max_length=64, description="The tier in force, whatever the node claims")] = "",
    region: Annotated[str, Query(max_length=64, description="The region of its prices")] = "",
    software: Annotated[
        list[Annotated[str, StringConstraints(max_length=REQUIREMENT_CHARS_MAX)]],
        Query(max_length=16, description="Packages, such as torch>=2.4, that one of its environments has; repeatable"),
        AfterValidator(lambda texts: list(check_requirements(texts))),
    ] = _ANY_SOFTWARE,
    after: Cursor = None,
    limit: Limit = 100,
) -> NodePage:
    """List nodes."""
    filters = node_list.NodeFilter(
        mine=mine,
        states=[each.value for each in state],
        statuses=status,
        text=q,
        online=online,
        tier=tier,
        region=region,
        software=frozenset(software),
    )
    return await node_list.page(hub, principal, filters, after=after, limit=limit)


@router.get("/nodes/self", tags=["agent"], responses=refuses(404))
async def get_own_node(node: Node, hub: HubDep) -> OwnNodeView:
    """Get the calling node's owner and earnings."""
    return await earnings.own_view(hub, node)


@router.post(
    "/nodes/self/speed",
    tags=["agent"],
    response_class=Response,
    responses={200: {"description": "What was sent", "content": _BYTES}, **refuses(413)},
)
async def echo(request: Request, _node: Node) -> Response:
    """Get back what was sent, with which a node measures the speed of its connection."""
    return Response(await request.body(), media_type="application/octet-stream")


@router.post("/nodes/leave", tags=["agent"], responses=refuses(404))
async def leave(node: Node, hub: HubDep) -> OwnNodeView:
    """Remove the calling node from the pool; its jobs run elsewhere."""
    return await departures.leave(hub, node)


@router.get("/nodes/{node_id}", tags=["nodes"], responses=refuses(404))
async def get_node(node_id: IdPath, principal: SignedIn, hub: HubDep) -> NodeView:
    """Get a node."""
    return await nodes.get(hub, principal, node_id)


@router.get("/nodes/{node_id}/evidence", tags=["nodes"], responses=refuses(404))
async def node_evidence(
    node_id: IdPath, principal: SignedIn, hub: HubDep, *, after: Cursor = None, limit: Limit = 50
) -> EvidencePage:
    """List the outcomes behind a node's reputation, newest first."""
    return await evidence.page(hub, principal, node_id, after=after, limit=limit)


@router.get("/nodes/{node_id}/work", tags=["nodes"], responses=refuses(404))
async def node_work(node_id: IdPath, principal: SignedIn, hub: HubDep) -> NodeWork:
    """Show what one of your nodes runs now, since when, and what it earns."""
    return await evidence.work(hub, principal, node_id)


@router.get("/nodes/{node_id}/why", tags=["nodes"], responses=refuses(404))
async def explain_node(node_id: IdPath, principal: SignedIn, hub: HubDep) -> NodeWhyView:
    """Explain why a node has or lacks work."""
    return await nodes.why(hub, principal, node_id)


@router.get("/nodes/{node_id}/rules", tags=["nodes"], responses=refuses(404))
async def get_node_rules(node_id: IdPath, principal: MayRead, hub: HubDep) -> NodeRulesView:
    """Get the rules for other people's jobs on your node."""
    return await owner_rules.get(hub, principal, node_id)


@router.put("/nodes/{node_id}/rules", tags=["nodes"], responses=refuses(404))
async def set_node_rules(node_id: IdPath, body: NodeRules, principal: MayProvide, hub: HubDep) -> NodeRulesView:
    """Replace the rules for other people's jobs on your node."""
    return await owner_rules.set_(hub, principal, node_id, rules=body)


@router.post("/nodes/{node_id}/state", tags=["nodes"], responses=refuses(404, 409))
async def set_node_state(node_id: IdPath, body: NodeStateRequest, principal: MayProvide, hub: HubDep) -> NodeView:
    """Pause, resume or drain one of your nodes."""
    return await nodes.set_state(hub, principal, node_id, state=NodeState(body.state))


@router.post("/nodes/{node_id}/revoke", tags=["nodes"], responses=refuses(404))
async def revoke_node(node_id: IdPath, principal: MayProvide, hub: HubDep) -> NodeView:
    """Revoke a node's key; its jobs run elsewhere."""
    return await departures.revoke(hub, principal, node_id)


@router.post("/nodes/{node_id}/pardon", tags=["nodes"], responses=refuses(404))
async def pardon_node(node_id: IdPath, admin: Admin, hub: HubDep) -> NodeView:
    """Lift a node's ban and clear its violations."""
    await reputation.pardon(hub, admin, node_id)
    return await nodes.get(hub, admin, node_id)


@router.post("/nodes/{node_id}/review", tags=["nodes"], status_code=201, responses=refuses(404, 409))
async def review_node(node_id: IdPath, body: ReviewRequest, principal: MayProvide, hub: HubDep) -> ReviewReply:
    """Request a review of a node's ban or probation."""
    return await reputation.ask_review(hub, principal, node_id, note=body.note)
