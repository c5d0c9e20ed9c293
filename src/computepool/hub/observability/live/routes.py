"""Routes of the live view: key figures, the map, recent activity, and resource use of a job's attempts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Response

from computepool.hub.http.dependencies import HubDep, IdPath, Limit, Seq, SignedIn, WaitMs
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.jobs.running import usage
from computepool.hub.observability.live import activity, mesh
from computepool.protocol.nodes.mesh import ActivityPage, JobUsage, MeshNodes, MeshView

router = guarded_router()
_UNCHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The list is still the one that `If-None-Match` names"}
}


@router.get("/mesh", tags=["mesh"])
async def get_mesh(_principal: SignedIn, hub: HubDep) -> MeshView:
    """Get key figures of the pool; cheap enough to poll every few seconds."""
    return await mesh.show(hub)


@router.get("/mesh/nodes", tags=["mesh"], response_model=MeshNodes, responses=_UNCHANGED)
async def get_mesh_nodes(
    principal: SignedIn,
    hub: HubDep,
    if_none_match: Annotated[str, Header(max_length=2000, description="`ETag` of the answer you have")] = "",
) -> Response:
    """List online nodes in a compact form, with their place on the map."""
    known = [word.strip() for word in if_none_match.split(",")]
    tag, body = await mesh.nodes_json(hub, principal, known=known)
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Authorization, Cookie"}
    if body is None:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


@router.get("/mesh/activity", tags=["mesh"])
async def get_activity(
    _principal: SignedIn, hub: HubDep, *, after: Seq = 0, wait_ms: WaitMs, limit: Limit = 50
) -> ActivityPage:
    """Get recent anonymised activity, live by long poll."""
    return await activity.page(hub, after=after, limit=limit, wait_ms=wait_ms)


@router.get("/jobs/{job_id}/usage", tags=["jobs"], responses=refuses(404))
async def get_job_usage(job_id: IdPath, principal: SignedIn, hub: HubDep) -> JobUsage:
    """Get resource use of a job's attempts over time: CPU, memory, processes, GPUs."""
    return await usage.of_job(hub, principal, job_id)
