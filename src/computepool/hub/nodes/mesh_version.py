"""The hub's mesh version (see core/mesh_version.py): which nodes it takes, and what jobs are of that do not say."""

from __future__ import annotations

from computepool.core import mesh_version
from computepool.core.errors import Conflict
from computepool.hub.context import Hub
from computepool.hub.nodes import hosts
from computepool.protocol.jobs.jobs import Needs, SubmitRequest
from computepool.protocol.nodes.nodes import MESH_FIELD, Profile


def check_node(hub: Hub, profile: Profile) -> None:
    """At every first word of a node: it may come back as another one than it left, and under another name."""
    hosts.check_name(profile)
    if (reason := mesh_version.refusal(hub=hub.settings.mesh_version, node=profile.mesh_version)) is not None:
        raise Conflict(reason, field=MESH_FIELD)


def needs_of(hub: Hub, needs: Needs) -> Needs:
    version = mesh_version.version_of_job(needs.mesh_version, hub=hub.settings.mesh_version)
    return needs if version == needs.mesh_version else needs.model_copy(update={"mesh_version": version})


async def of_this(hub: Hub, account_id: str, request: SubmitRequest) -> SubmitRequest:
    """As it is queued: with the hub's version where it names none, and hosts by their ids. What comes later changes neither."""
    needs = await hosts.resolve(hub, account_id, needs_of(hub, request.spec.needs), at="spec.needs")
    if needs is request.spec.needs:
        return request
    return request.model_copy(update={"spec": request.spec.model_copy(update={"needs": needs})})
