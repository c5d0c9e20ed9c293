"""Routes of running jobs, called by their nodes. A node may call them only for attempts that it holds."""

from __future__ import annotations

from fastapi import Request, Response

from computepool.hub.groups import groups, messages
from computepool.hub.http.bodies import read_within
from computepool.hub.http.dependencies import HubDep, IdPath, Limit, Node, Seq, WaitMs
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.http.rate_limit import limits_of
from computepool.hub.jobs import jobs
from computepool.hub.jobs.running import arguments, children, gang_network
from computepool.hub.secrets import job_secrets
from computepool.hub.settlement import cancel
from computepool.hub.submission import submit
from computepool.protocol.gangs import BATCH_MAX, BarrierReply, BarrierRequest
from computepool.protocol.jobs.children import ChildGroupRequest, ChildrenRequest, MessageReply, MessageRequest
from computepool.protocol.jobs.groups import GroupRequest, GroupView, ResultPage
from computepool.protocol.jobs.jobs import SubmitReply
from computepool.protocol.jobs.views import JobResult, JobView
from computepool.protocol.nodes.arguments import ArgumentPage
from computepool.protocol.secrets import AttemptSecretsReply, AttemptSecretsRequest

router = guarded_router(tags=["agent"])
_BYTES = "application/octet-stream"
PACKETS = {_BYTES: {"schema": {"type": "string", "format": "binary"}}}


@router.post("/attempts/{attempt_id}/jobs", status_code=201, responses=refuses(402, 403, 404, 409, 429, 507))
async def submit_children(
    request: Request, attempt_id: IdPath, body: ChildrenRequest, node: Node, hub: HubDep
) -> SubmitReply:
    """Submit jobs from a running job, within its limits."""
    parent = await children.parent_of(hub, node, attempt_id)
    limits_of(request.app.state).submissions.take(parent.principal.account_id)
    remembered = parent.remembered_call("jobs", body.seq, await request.body())
    return await submit.submit_children(hub, parent, body, remembered=remembered)


@router.post("/attempts/{attempt_id}/groups", status_code=201, responses=refuses(403, 404, 409))
async def create_child_group(
    request: Request, attempt_id: IdPath, body: ChildGroupRequest, node: Node, hub: HubDep
) -> GroupView:
    """Create a group from a running job."""
    parent = await children.parent_of(hub, node, attempt_id)
    return await groups.create(
        hub,
        parent.principal,
        GroupRequest(name=body.name),
        remembered=parent.remembered_call("groups", body.seq, await request.body()),
        parent=parent,
    )


@router.get("/attempts/{attempt_id}/jobs/{job_id}/result", responses=refuses(403, 404, 409))
async def child_result(attempt_id: IdPath, job_id: IdPath, node: Node, hub: HubDep, wait_ms: WaitMs) -> JobResult:
    """Get the outcome of a job that a running job submitted."""
    parent = await children.parent_of(hub, node, attempt_id)
    await children.check_jobs(hub, parent, [job_id])
    return await jobs.result(hub, parent.principal, job_id, wait_ms=wait_ms)


@router.post("/attempts/{attempt_id}/jobs/{job_id}/cancel", responses=refuses(403, 404, 409))
async def cancel_child(attempt_id: IdPath, job_id: IdPath, node: Node, hub: HubDep) -> JobView:
    """Cancel a job that a running job submitted."""
    parent = await children.parent_of(hub, node, attempt_id)
    await children.check_jobs(hub, parent, [job_id])
    return await cancel.cancel(hub, parent.principal, job_id)


@router.get("/attempts/{attempt_id}/groups/{group_id}/results", responses=refuses(403, 404, 409))
async def child_group_results(
    attempt_id: IdPath,
    group_id: IdPath,
    node: Node,
    hub: HubDep,
    *,
    after: Seq = 0,
    wait_ms: WaitMs,
    limit: Limit = 100,
) -> ResultPage:
    """Get results of a group that a running job created."""
    parent = await children.parent_of(hub, node, attempt_id)
    await children.check_group(hub, parent, group_id)
    return await groups.results(hub, parent.principal, group_id, after=after, limit=limit, wait_ms=wait_ms)


@router.post("/attempts/{attempt_id}/gang", responses=refuses(404))
async def gang_barrier(
    attempt_id: IdPath, body: BarrierRequest, node: Node, hub: HubDep, wait_ms: WaitMs
) -> BarrierReply:
    """Wait for the other members of a job on several nodes."""
    return await gang_network.wait(hub, node, attempt_id, request=body, wait_ms=wait_ms)


@router.post(
    "/attempts/{attempt_id}/gang/packets",
    response_class=Response,
    openapi_extra={"requestBody": {"required": True, "content": PACKETS}},
    responses={200: {"description": "Packets from the other members", "content": PACKETS}, **refuses(404, 409, 413)},
)
async def gang_packets(request: Request, attempt_id: IdPath, node: Node, hub: HubDep, wait_ms: WaitMs) -> Response:
    """Send packets to the other members of a job on several nodes, or receive them.
    Each is an IPv4 packet with its length in two bytes in front. Without a body, waits for packets and returns them.
    """
    data = await read_within(request.stream(), BATCH_MAX)
    if data:
        gang_network.send(hub, node, attempt_id, data=data)
        return Response(b"", media_type=_BYTES)
    received = await gang_network.receive(hub, node, attempt_id, wait_ms=wait_ms)
    return Response(received, media_type=_BYTES)


@router.get("/attempts/{attempt_id}/arguments", responses=refuses(404, 409))
async def get_arguments(attempt_id: IdPath, node: Node, hub: HubDep, *, after: Seq = 0) -> ArgumentPage:
    """Get the results of other jobs that are arguments of a running one."""
    return await arguments.page(hub, node, attempt_id, start=after)


@router.post("/attempts/{attempt_id}/messages", status_code=201, responses=refuses(404, 409, 413, 429, 507))
async def receive_message(
    request: Request, attempt_id: IdPath, body: MessageRequest, node: Node, hub: HubDep
) -> MessageReply:
    """Send a message from a running job to its group's collector."""
    # By node, so that no other node can use up the limit.
    limits_of(request.app.state).messages.take(f"{node.node_id} {attempt_id}")
    return await messages.receive(hub, node, attempt_id, request=body)


@router.post("/attempts/{attempt_id}/secrets", responses=refuses(403, 404, 409))
async def attempt_secrets(
    attempt_id: IdPath, body: AttemptSecretsRequest, node: Node, hub: HubDep
) -> AttemptSecretsReply:
    """Get the secrets of an attempt that this node starts, sealed to a key that it made for the request."""
    return await job_secrets.of_attempt(hub, node, attempt_id, request=body)
