"""Images of submitted jobs: whether the operator allows them, and which digest a tag means now.

Tags move. With the digest in its spec, every run of a job uses the same files, so that results can be compared.
"""

from __future__ import annotations

import asyncio
import logging

from computepool.core.errors import BadRequest
from computepool.core.network import Address
from computepool.hub import addresses
from computepool.hub.addresses import AddressRefused
from computepool.hub.context import Hub
from computepool.protocol.images.manifests import BadImage
from computepool.protocol.images.names import ImageName, is_allowed, parse_image
from computepool.protocol.images.registry import RegistryClient, RegistryUnavailable, UnknownImage
from computepool.protocol.jobs.jobs import JobSpec

_log = logging.getLogger(__name__)


async def resolve(hub: Hub, spec: JobSpec) -> JobSpec:
    """The spec with the digest of its image, if it has one. The tag stays if its registry cannot be reached from here."""
    if spec.image is None:
        return spec
    name = parse_image(spec.image)
    if not is_allowed(name.source, hub.settings.allowed_registries()):
        raise BadRequest(f"This pool does not allow images from {name.source}.", field="spec.image")
    # A private image is looked up by the node, which gets the login.
    if name.digest or spec.registry_secret is not None or not hub.settings.image_resolve_s:
        return spec
    digest = await _digest(hub, name)
    return spec.model_copy(update={"image": str(name.at(digest))}) if digest else spec


def is_resolved(spec: JobSpec) -> bool:
    """Whether every run of the job uses the same image."""
    return spec.image is None or bool(parse_image(spec.image).digest)


async def _digest(hub: Hub, name: ImageName) -> str:
    """Empty if the registry cannot be reached."""
    known, key, now_ms = hub.jobs.image_digests, str(name), hub.now_ms()
    digest, until_ms = known.get(key, ("", 0))
    if now_ms < until_ms:
        return digest
    digest = await _ask(hub, name)
    known[key] = digest, now_ms + round(hub.settings.image_resolved_s * 1000)
    known.move_to_end(key)
    while len(known) > hub.settings.image_resolved_max:
        known.popitem(last=False)
    return digest


async def _ask(hub: Hub, name: ImageName) -> str:
    settings = hub.settings
    admitted = settings.image_networks()

    async def find_address(host: str, port: int) -> Address:
        try:
            return (await addresses.find(host, port, admitted=admitted))[0]
        except AddressRefused as refused:
            raise OSError(f"{refused}") from None

    try:
        async with (
            asyncio.timeout(settings.image_resolve_s),
            hub.jobs.image_lookups,
            RegistryClient(name, find_address=find_address, timeout_s=settings.image_resolve_s) as registry,
        ):
            return await registry.resolve()
    except (UnknownImage, BadImage) as error:
        raise BadRequest(f"The image cannot be used: {error}.", field="spec.image") from error
    except (RegistryUnavailable, TimeoutError) as error:
        _log.info("images: the digest of %s is left to nodes: %s", name, error)
        return ""
