"""Routes of volumes, and of the nodes whose attempts mount them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from computepool.hub.http.dependencies import HubDep, IdPath, Limit, MaySubmit, Node, RememberedDep, SignedIn, Submitter
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.volumes import publication, volumes
from computepool.protocol.volumes.volumes import (
    HeadRequest,
    OpenedVolumes,
    PublishReply,
    VersionPage,
    VersionRequest,
    VolumeList,
    VolumeRequest,
    VolumeVersion,
    VolumeView,
)

router = guarded_router()

NamePath = Annotated[str, Path(max_length=63, pattern="^[a-z0-9][a-z0-9-]*$")]
NumberPath = Annotated[int, Path(ge=1, le=2**53)]
Before = Annotated[int | None, Query(ge=0, le=2**53, description="`next` of the page before")]


@router.get("/volumes", tags=["volumes"])
async def list_volumes(principal: SignedIn, hub: HubDep) -> VolumeList:
    """List your volumes."""
    return await volumes.list_own(hub, principal)


@router.post("/volumes", status_code=201, tags=["volumes"], responses=refuses(409, 413))
async def create_volume(
    body: VolumeRequest, principal: Submitter, hub: HubDep, remembered: RememberedDep
) -> VolumeView:
    """Create an empty volume."""
    return await volumes.create(hub, principal, body, remembered=remembered)


@router.get("/volumes/{volume_name}", tags=["volumes"], responses=refuses(404))
async def get_volume(volume_name: NamePath, principal: SignedIn, hub: HubDep) -> VolumeView:
    """Show one of your volumes."""
    return await volumes.show(hub, principal, volume_name)


@router.delete("/volumes/{volume_name}", status_code=204, tags=["volumes"], responses=refuses(404, 409))
async def remove_volume(volume_name: NamePath, principal: MaySubmit, hub: HubDep) -> None:
    """Remove a volume with all its versions; refused while unfinished jobs mount it."""
    await volumes.remove(hub, principal, volume_name)


@router.get("/volumes/{volume_name}/versions", tags=["volumes"], responses=refuses(404))
async def list_versions(
    volume_name: NamePath, principal: SignedIn, hub: HubDep, *, after: Before = None, limit: Limit = 100
) -> VersionPage:
    """List the versions of a volume, newest first."""
    return await volumes.versions(hub, principal, volume_name, after=after, limit=limit)


@router.get("/volumes/{volume_name}/versions/{number}", tags=["volumes"], responses=refuses(404))
async def get_version(volume_name: NamePath, number: NumberPath, principal: SignedIn, *, hub: HubDep) -> VolumeVersion:
    """Show a version of a volume."""
    return await volumes.version(hub, principal, volume_name, number=number)


@router.post("/volumes/{volume_name}/versions", status_code=201, tags=["volumes"], responses=refuses(404, 409, 413))
async def publish_version(
    volume_name: NamePath, body: VersionRequest, principal: MaySubmit, *, hub: HubDep, remembered: RememberedDep
) -> PublishReply:
    """Publish a version; if the head has moved since its parent, it is kept as a conflict."""
    return await publication.publish(hub, principal, volume_name, request=body, remembered=remembered)


@router.post("/volumes/{volume_name}/head", tags=["volumes"], responses=refuses(404, 409))
async def set_head(volume_name: NamePath, body: HeadRequest, principal: MaySubmit, *, hub: HubDep) -> VolumeView:
    """Make a version the head: go back to an earlier one, or take a conflict."""
    return await volumes.set_head(hub, principal, volume_name, request=body)


@router.post("/attempts/{attempt_id}/volumes", tags=["agent"], responses=refuses(404, 409))
async def open_volumes(attempt_id: IdPath, node: Node, hub: HubDep) -> OpenedVolumes:
    """Open the volumes that an attempt mounts."""
    return await publication.open_for(hub, node, attempt_id)
