"""Fetches images from registries: the manifest, the configuration, and the layers that this node does not have.

The agent itself receives the bytes, bounded and verified by their digests, and reads only JSON. What needs a parser, the
layers, is unpacked in the jobs' sandbox (layers.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from computepool.agent.config import MIB, AgentLimits
from computepool.agent.execution.attempt_result import BadJob, StagingFailed
from computepool.agent.network.egress import Egress
from computepool.agent.network.egress_requests import RequestRefused
from computepool.agent.packages.environments import Note
from computepool.core.network import Address
from computepool.core.words import pluralize
from computepool.protocol.images.manifests import (
    BadImage,
    Descriptor,
    ImageManifest,
    check_architecture,
    pick,
    read_config,
    read_manifest,
)
from computepool.protocol.images.names import ImageName
from computepool.protocol.images.registry import Login, RegistryClient, RegistryUnavailable, UnknownImage


class Puller:
    """Fetches one image. `architecture`: in Go's words, as registries name it."""

    def __init__(
        self, name: ImageName, egress: Egress, *, limits: AgentLimits, architecture: str, registries: tuple[str, ...]
    ) -> None:
        self._name = name
        self._egress = egress
        self._limits = limits
        self._architecture = architecture
        #: The owner named this registry, so it may be on a private network. All others must be public.
        self._trusted = name.source.rpartition(":")[0] or name.source if name.source in registries else None

    @contextlib.asynccontextmanager
    async def open(self, login: Login | None = None) -> AsyncIterator[RegistryClient]:
        """Translates every failure inside the block: BadJob if there is no such image, else StagingFailed."""
        registry = RegistryClient(
            self._name, find_address=self._find_address, timeout_s=self._limits.image_idle_s, login=login
        )
        try:
            async with asyncio.timeout(self._limits.image_pull_s), registry:
                yield registry
        except UnknownImage as error:
            raise BadJob(f"{error}") from error
        except BadImage as error:
            raise BadJob(f"the image {self._name.short} cannot be used: {error}") from error
        except RegistryUnavailable as error:
            raise StagingFailed(f"the image {self._name.short} could not be fetched: {error}") from error
        except TimeoutError:
            most = self._limits.image_pull_s
            raise StagingFailed(f"the image {self._name.short} could not be fetched in {most:g} s") from None

    async def look_up(self, registry: RegistryClient, *, note: Note) -> Fetch:
        """What there is to fetch. Raises BadImage if this node cannot use it."""
        manifest = read_manifest(await registry.manifest(self._name.digest))
        if manifest.manifests:
            manifest = read_manifest(await registry.manifest(pick(manifest, self._architecture).digest))
        if manifest.config is None:
            raise BadImage("its manifest names no configuration")
        config = await registry.small_blob(manifest.config.digest)
        check_architecture(read_config(config), self._architecture)
        total, most = sum(layer.size for layer in manifest.layers), self._limits.image_download_bytes_max
        if total > most:
            raise BadImage(f"it has {_mb(total)} to fetch, and the limit of this node is {_mb(most)}")
        return Fetch(
            self._name, registry, manifest=manifest, config=config, note=note, note_s=self._limits.image_note_s
        )

    async def _find_address(self, host: str, port: int) -> Address:
        try:
            found = await self._egress.addresses(host, port, trusted=host == self._trusted)
        except RequestRefused as error:
            raise OSError(error.sentence) from error
        return found[0]


class Fetch:
    """An image that is being fetched, with notes of its progress in the job's log."""

    def __init__(
        self,
        name: ImageName,
        registry: RegistryClient,
        *,
        manifest: ImageManifest,
        config: bytes,
        note: Note,
        note_s: float,
    ) -> None:
        self.manifest, self.config = manifest, config
        self._name, self._registry, self._note, self._note_s = name, registry, note, note_s
        self._total = sum(layer.size for layer in manifest.layers)
        self._ended = self._bytes = 0
        self._shown_at = time.monotonic()
        note(f"Fetching image {name.short}: {pluralize(len(manifest.layers), 'layer')}, {_mb(self._total)}")

    async def layer(self, layer: Descriptor, target: Path) -> None:
        """Write the blob of a layer to `target`, verified."""
        hasher, size = hashlib.sha256(), 0
        with target.open("xb") as file:
            async with self._registry.blob(layer.digest) as parts:
                async for part in parts:
                    size += len(part)
                    if size > layer.size:
                        break
                    await asyncio.to_thread(_write, file.fileno(), part, hasher)
                    self._show(size)
        if size != layer.size or f"sha256:{hasher.hexdigest()}" != layer.digest:
            raise RegistryUnavailable(f"the registry sent something else than {layer.digest[:19]}…")
        target.chmod(0o644)

    def end(self, layer: Descriptor) -> None:
        """The layer is unpacked, or was here already."""
        self._ended += 1
        self._bytes += layer.size

    def _show(self, size: int) -> None:
        if time.monotonic() - self._shown_at >= self._note_s:
            self._shown_at = time.monotonic()
            part = f"layer {self._ended + 1} of {len(self.manifest.layers)}"
            self._note(
                f"Fetching image {self._name.short}: {part}, {(self._bytes + size) // MIB} of {_mb(self._total)}"
            )


def _write(fd: int, data: bytes, hasher: hashlib._Hash) -> None:
    hasher.update(data)
    done = 0
    while done < len(data):
        done += os.write(fd, data[done:])


def _mb(size: int) -> str:
    return f"{-(-size // MIB)} MB"
