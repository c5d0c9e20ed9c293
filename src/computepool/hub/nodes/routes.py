"""Routes of nodes. The poll and the report are hot: hub/fast_path.py answers them, with the same functions as here."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query, Request

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
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi import examples
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.http.rate_limit import guessing, registrations, seen_from
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs.running import checkpoints, logs
from computepool.hub.nodes import node_list, nodes, own_node
from computepool.hub.nodes.joining import enrolment, progress
from computepool.hub.nodes.owner import owner_rules
from computepool.hub.scheduling import departures, node_poll
from computepool.hub.settlement import settle as settlement
from computepool.hub.trust import evidence, hardware, reputation, reviews
from computepool.protocol.jobs.checkpoints import CheckpointReply, CheckpointReport
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

router = guarded()
_ONE_NODE = EnrolCodeRequest()
_ANY_STATE: list[NodeState] = []
_ANY_STATUS: list[NodeStatus] = []


async def poll(hub: Hub, node: NodePrincipal, body: NextRequest, *, address: str | None) -> NextReply:
    reply = await node_poll.next_(hub, node, body)
    return reply if address is None else reply.model_copy(update={"seen_from": address})


@router.post("/next", tags=["agent"], summary="The long poll: heartbeat, lease renewal and claim in one")
async def next_(
    request: Request,
    body: Annotated[NextRequest, Body(openapi_examples=examples.NEXT)],
    node: Node,
    hub: HubDep,
) -> NextReply:
    return await poll(hub, node, body, address=seen_from(request.scope))


@router.post(
    "/complete",
    tags=["agent"],
    summary="Report how attempts ended; every report gets a definite answer",
    responses=refuses(403),
)
async def complete(
    body: Annotated[CompleteRequest, Body(openapi_examples=examples.COMPLETE)], node: Node, hub: HubDep
) -> CompleteReply:
    return await settlement.complete(hub, node, body)


@router.post(
    "/heartbeat", tags=["agent"], summary="Renew leases and tell what runs, without waiting or claiming"
)
async def heartbeat(
    body: Annotated[NextRequest, Body(openapi_examples=examples.HEARTBEAT)], node: Node, hub: HubDep
) -> NextReply:
    return await node_poll.next_(hub, node, body, poll=False)


@router.post("/logs", status_code=204, tags=["agent"], summary="What running attempts printed")
async def receive_logs(
    body: Annotated[LogsRequest, Body(openapi_examples=examples.LOGS)], node: Node, hub: HubDep
) -> None:
    await logs.receive(hub, node, body)


@router.post(
    "/checkpoint",
    tags=["agent"],
    summary="A running attempt saved where it is; the next one goes on from there",
    responses=refuses(403, 404),
)
async def receive_checkpoint(
    body: Annotated[CheckpointReport, Body(openapi_examples=examples.CHECKPOINT)], node: Node, hub: HubDep
) -> CheckpointReply:
    return await checkpoints.receive(hub, node, body)


@router.post(
    "/hardware",
    tags=["agent"],
    summary="What the node measured on itself when it was asked to; says what it counts as",
    responses=refuses(403, 409),
)
async def receive_hardware(
    body: Annotated[HardwareReport, Body(openapi_examples=examples.HARDWARE)], node: Node, hub: HubDep
) -> HardwareView:
    return await hardware.receive(hub, node, body)


@router.post(
    "/nodes/register",
    status_code=201,
    tags=["agent"],
    summary="Enrol a node with a one-time code",
    responses=refuses(401, 403, 409),
)
async def register(
    request: Request,
    body: Annotated[RegisterRequest, Body(openapi_examples=examples.REGISTER)],
    hub: HubDep,
    _caller: Anyone,
) -> RegisterReply:
    registrations(request).take()
    with guessing(request, body.code):
        return await enrolment.register(hub, body)


@router.post(
    "/nodes/rekey",
    tags=["agent"],
    summary="Replace the node's own key; the old one signs the new one",
    responses=refuses(403, 409),
)
async def rekey(
    body: Annotated[RekeyRequest, Body(openapi_examples=examples.REKEY)], node: Node, hub: HubDep
) -> RekeyReply:
    return await enrolment.rekey(hub, node, body)


@router.post(
    "/nodes/codes", status_code=201, tags=["nodes"], summary="A code to enrol a node of yours, or several"
)
async def enrol_code(
    principal: Provider,
    hub: HubDep,
    body: Annotated[EnrolCodeRequest, Body(openapi_examples=examples.ENROL_CODE)] = _ONE_NODE,
) -> EnrolCodeReply:
    return await enrolment.enrol_code(hub, principal, body)


@router.get("/nodes/codes", tags=["nodes"], summary="Your codes that several hosts may still join with")
async def join_codes(principal: Provider, hub: HubDep) -> JoinCodePage:
    return await enrolment.join_codes(hub, principal)


@router.get(
    "/nodes/codes/{code_id}",
    tags=["nodes"],
    summary="What became of a code of yours: which machines joined, and how far each has come",
    responses=refuses(404),
)
async def join_status(code_id: IdPath, principal: Provider, hub: HubDep) -> JoinStatus:
    return await progress.status(hub, principal, code_id)


@router.delete(
    "/nodes/codes/{code_id}",
    status_code=204,
    tags=["nodes"],
    summary="Let nobody join with a code any more; those who did stay",
    responses=refuses(404),
)
async def end_join_code(code_id: IdPath, principal: Provider, hub: HubDep) -> None:
    await enrolment.end_join_code(hub, principal, code_id)


@router.get("/nodes", tags=["nodes"], summary="List nodes")
async def list_nodes(
    principal: SignedIn,
    hub: HubDep,
    *,
    mine: Annotated[bool, Query(description="Only nodes of your account")] = False,
    state: Annotated[
        list[NodeState],
        Query(max_length=4, description="What their owners want; several: any of them; none: all"),
    ] = _ANY_STATE,
    status: Annotated[
        list[NodeStatus], Query(max_length=16, description="What they do; several: any of them; none: all")
    ] = _ANY_STATUS,
    online: Annotated[bool | None, Query(description="Only those that are, or are not, heard of now")] = None,
    q: Annotated[
        str, Query(max_length=200, description="A part of its name or of its owner's name, or its id")
    ] = "",
    tier: Annotated[str, Query(max_length=64, description="The one that counts, whatever it claims")] = "",
    region: Annotated[str, Query(max_length=64, description="Of prices")] = "",
    after: Cursor = None,
    limit: Limit = 100,
) -> NodePage:
    wanted = node_list.NodeFilter(
        mine=mine,
        states=[one.value for one in state],
        statuses=status,
        text=q,
        online=online,
        tier=tier,
        region=region,
    )
    return await node_list.page(hub, principal, wanted, after=after, limit=limit)


@router.get(
    "/nodes/self",
    tags=["agent"],
    summary="Whose node it is that asks, and what it earns",
    responses=refuses(404),
)
async def get_own_node(node: Node, hub: HubDep) -> OwnNodeView:
    return await own_node.view(hub, node)


@router.post(
    "/nodes/leave",
    tags=["agent"],
    summary="The node leaves the pool: its key is refused from now on, and what it held runs elsewhere",
    responses=refuses(404),
)
async def leave(node: Node, hub: HubDep) -> OwnNodeView:
    return await departures.leave(hub, node)


@router.get("/nodes/{node_id}", tags=["nodes"], summary="One node", responses=refuses(404))
async def get_node(node_id: IdPath, principal: SignedIn, hub: HubDep) -> NodeView:
    return await nodes.get(hub, principal, node_id)


@router.get(
    "/nodes/{node_id}/evidence",
    tags=["nodes"],
    summary="The outcomes behind a node's reputation, newest first",
    responses=refuses(404),
)
async def node_evidence(
    node_id: IdPath, principal: SignedIn, hub: HubDep, *, after: Cursor = None, limit: Limit = 50
) -> EvidencePage:
    return await evidence.page(hub, principal, node_id, after=after, limit=limit)


@router.get(
    "/nodes/{node_id}/work",
    tags=["nodes"],
    summary="What a node of yours holds now, since when, and what it pays",
    responses=refuses(404),
)
async def node_work(node_id: IdPath, principal: SignedIn, hub: HubDep) -> NodeWork:
    return await evidence.work(hub, principal, node_id)


@router.get(
    "/nodes/{node_id}/why", tags=["nodes"], summary="Why the node has (no) work", responses=refuses(404)
)
async def explain_node(node_id: IdPath, principal: SignedIn, hub: HubDep) -> NodeWhyView:
    return await nodes.why(hub, principal, node_id)


@router.get(
    "/nodes/{node_id}/rules",
    tags=["nodes"],
    summary="What others may do on a node of yours",
    responses=refuses(404),
)
async def get_node_rules(node_id: IdPath, principal: MayRead, hub: HubDep) -> NodeRulesView:
    return await owner_rules.get(hub, principal, node_id)


@router.put(
    "/nodes/{node_id}/rules",
    tags=["nodes"],
    summary="Say what others may do on a node of yours; replaces the rules before",
    responses=refuses(404),
)
async def set_node_rules(
    node_id: IdPath,
    body: Annotated[NodeRules, Body(openapi_examples=examples.NODE_RULES)],
    principal: MayProvide,
    hub: HubDep,
) -> NodeRulesView:
    return await owner_rules.set_(hub, principal, node_id, rules=body)


@router.post(
    "/nodes/{node_id}/state",
    tags=["nodes"],
    summary="Pause, resume or drain a node of yours",
    responses=refuses(404, 409),
)
async def set_node_state(
    node_id: IdPath,
    body: Annotated[NodeStateRequest, Body(openapi_examples=examples.NODE_STATE)],
    principal: MayProvide,
    hub: HubDep,
) -> NodeView:
    return await nodes.set_state(hub, principal, node_id, state=NodeState(body.state))


@router.post(
    "/nodes/{node_id}/revoke",
    tags=["nodes"],
    summary="Refuse the node's key from now on; its jobs run elsewhere",
    responses=refuses(404),
)
async def revoke_node(node_id: IdPath, principal: MayProvide, hub: HubDep) -> NodeView:
    return await departures.revoke(hub, principal, node_id)


@router.post(
    "/nodes/{node_id}/pardon",
    tags=["nodes"],
    summary="Take back a node's ban and strikes for wrong results",
    responses=refuses(404),
)
async def pardon_node(node_id: IdPath, admin: Admin, hub: HubDep) -> NodeView:
    await reputation.pardon(hub, admin, node_id)
    return await nodes.get(hub, admin, node_id)


@router.post(
    "/nodes/{node_id}/review",
    tags=["nodes"],
    status_code=201,
    summary="Ask an administrator to look at a node's ban or probation",
    responses=refuses(404, 409),
)
async def review_node(
    node_id: IdPath,
    body: Annotated[ReviewRequest, Body(openapi_examples=examples.REVIEW)],
    principal: MayProvide,
    hub: HubDep,
) -> ReviewReply:
    return await reviews.ask(hub, principal, node_id, note=body.note)
