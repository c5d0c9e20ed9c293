"""The hub's mesh version (see core/mesh_version.py): which nodes may join, and the default of jobs."""

from __future__ import annotations

from computepool.core import mesh_version
from computepool.core.errors import BadRequest, Conflict
from computepool.core.placement import hosts as host_names
from computepool.hub.context import Hub
from computepool.hub.nodes import hosts
from computepool.protocol.jobs.jobs import Needs, SubmitRequest
from computepool.protocol.nodes.nodes import MESH_FIELD, Profile


def check_node(hub: Hub, profile: Profile) -> None:
    """Check a node's name and version whenever it sends its profile: both may have changed while it was away."""
    if problem := host_names.name_problem(profile.name):
        raise BadRequest(f"A node cannot be named {profile.name!r}: {problem}.", field="profile.name")
    if (reason := mesh_version.refusal(hub=hub.settings.mesh_version, node=profile.mesh_version)) is not None:
        raise Conflict(reason, field=MESH_FIELD)


def add_version(hub: Hub, needs: Needs) -> Needs:
    """The needs with the hub's mesh version if they name none."""
    version = mesh_version.version_of_job(needs.mesh_version, hub=hub.settings.mesh_version)
    return needs if version == needs.mesh_version else needs.model_copy(update={"mesh_version": version})


async def resolve_request(hub: Hub, account_id: str, request: SubmitRequest) -> SubmitRequest:
    """The request as it is queued: with a mesh version, and with hosts by id."""
    needs = await hosts.resolve(hub, account_id, add_version(hub, request.spec.needs), at="spec.needs")
    if needs is request.spec.needs:
        return request
    return request.model_copy(update={"spec": request.spec.model_copy(update={"needs": needs})})
