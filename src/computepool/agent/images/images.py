"""Images of jobs: fetched or taken from an artifact, unpacked once per layer, and kept as read-only roots.

The cache has two folders: `layers`, by the digest of the layer, and `roots`, by the digest of the image, which consist of
hard links to the files of their layers. Roots are evicted, the least recently used first; a layer goes with the last root
that needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import platform
import shutil
import uuid
from collections.abc import AsyncIterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ValidationError

from computepool.agent.config import MIB, AgentLimits
from computepool.agent.execution.attempt_result import BadJob, StagingFailed
from computepool.agent.images import roots
from computepool.agent.images.image import ROOT, Image
from computepool.agent.images.layers import LayerUnpacker
from computepool.agent.images.pulls import Fetch, Puller
from computepool.agent.network.egress import Egress
from computepool.agent.packages.builder import Builder
from computepool.agent.packages.cached_folders import CachedFolders, finish_anyway
from computepool.agent.packages.environments import Note
from computepool.agent.sandbox.base import SandboxError
from computepool.agent.sandbox.interior import IMAGE_FOLDERS
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.storage.artifacts import ArtifactCache
from computepool.agent.storage.cache_usage import least_recent
from computepool.core.errors import ComputePoolError, NotFound
from computepool.core.resources import UPLOADED
from computepool.protocol.images.manifests import ARCHITECTURES, BadImage, Descriptor, check_architecture, read_config
from computepool.protocol.images.names import ImageName
from computepool.protocol.images.registry import Login

_LAYERS, _ROOTS, _INCOMING = "layers", "roots", "incoming"
_FACTS = "image.json"
_NO_LIMIT = 2**62


class _Facts(BaseModel):
    """What is known of an unpacked image."""

    name: str
    layers: dict[str, int]  #: names of their folders, the lowest first -> bytes
    config: str


@dataclass(frozen=True, slots=True)
class CachedImage:
    """An entry of the list of images, for the owner."""

    digest: str
    name: str
    size: int  #: bytes of its layers, which it may share with others
    in_use: bool


@dataclass(eq=False)
class Images:
    folder: Path
    builder: Builder
    artifacts: ArtifactCache
    _: KW_ONLY
    egress: Egress
    runtime: Runtime
    limits: AgentLimits
    registries: tuple[str, ...] = ()  #: those that the owner allows

    def __post_init__(self) -> None:
        self._architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
        self._unpacker = LayerUnpacker(
            builder=self.builder, runtime=self.runtime, limits=self.limits, architecture=self._architecture
        )
        self._pulling = asyncio.Semaphore(self.limits.image_pulls_max)
        remove_tree(self.folder / _INCOMING)
        (self.folder / _INCOMING).mkdir(mode=0o711, parents=True)
        # What goes is decided below: neither the number nor the size of the folders alone says it.
        self._layers, self._roots = (
            CachedFolders(self.folder / name, count_max=_NO_LIMIT, bytes_max=_NO_LIMIT) for name in (_LAYERS, _ROOTS)
        )
        self._known: dict[str, Image] = {}
        self._resolved: dict[
            tuple[str, Login | None], str
        ] = {}  #: digests of tags that the hub did not resolve, while this agent runs

    # ------------------------------------------------------------ for jobs
    async def acquire(self, name: ImageName, *, note: Note, login: Login | None = None) -> Image:
        """The image, kept until it is released. `note` receives progress messages.

        What was fetched with a `login` is kept apart, for jobs with the same login.
        """
        try:
            if name.source == UPLOADED:
                folder = await self._roots.acquire(name.hex_digest, partial(self._from_artifact, name, note))
            else:
                found = name.at(name.digest or await self._resolve(name, note, login))
                key = found.hex_digest if login is None else _digest_of(found.hex_digest, *login)
                folder = await self._roots.acquire(key, partial(self._from_registry, found, note, login=login))
        except BadImage as error:
            raise BadJob(f"the image {name.short} cannot be used: {error}") from error
        except (OSError, SandboxError) as error:
            raise StagingFailed(f"the image {name.short} could not be prepared here: {error}") from error
        image = self._known.get(folder.name)
        if image is None:
            try:
                config = read_config(_read_facts(folder).config.encode())
                image = self._known[folder.name] = Image(f"sha256:{folder.name}", folder, config)
                await self._evict(self.limits.images_bytes_max)
            except BaseException:
                self._roots.release(folder)
                raise
        return image

    def release(self, image: Image) -> None:
        self._roots.release(image.folder)

    # ------------------------------------------------------------ for the owner
    def cached_images(self) -> list[CachedImage]:
        """The least recently used first."""
        return [
            CachedImage(f"sha256:{key}", facts.name, sum(facts.layers.values()), self._roots.is_used(key))
            for key, facts in _facts_by_key(self.folder / _ROOTS).items()
        ]

    async def evict(self, digest: str) -> bool:
        """Remove one image; False if a job uses it, or there is none."""
        return bool(await self._remove([digest.removeprefix("sha256:")]))

    async def clear(self) -> None:
        """Remove all images that no job uses."""
        await self._evict(0)

    async def _evict(self, bytes_max: int) -> None:
        """Remove the least recently used images until the layers of the others fit."""
        kept = await asyncio.to_thread(_facts_by_key, self.folder / _ROOTS)
        surplus = []
        for key in list(kept):
            if (
                sum({name: size for facts in kept.values() for name, size in facts.layers.items()}.values())
                <= bytes_max
            ):
                break
            if not self._roots.is_used(key):
                surplus.append(key)
                del kept[key]
        await self._remove(surplus)

    async def _remove(self, keys: list[str]) -> list[str]:
        removed = await self._roots.remove(keys)
        for key in removed:
            self._known.pop(key, None)
        kept = await asyncio.to_thread(_facts_by_key, self.folder / _ROOTS)
        needed = {name for facts in kept.values() for name in facts.layers}
        listed = await asyncio.to_thread(least_recent, self._layers.folder, folders=True)
        await self._layers.remove([name for name, _ in listed if name not in needed and not name.startswith(".")])
        return removed

    # ------------------------------------------------------------ from a registry
    def _puller(self, name: ImageName) -> Puller:
        return Puller(
            name, self.egress, limits=self.limits, architecture=self._architecture, registries=self.registries
        )

    async def _resolve(self, name: ImageName, note: Note, login: Login | None) -> str:
        """The digest of a tag that the hub did not resolve. It stays the same while this agent runs."""
        key = (str(name), login)
        known = self._resolved.get(key)
        if known is None:
            async with self._puller(name).open(login) as registry:
                known = self._resolved[key] = await registry.resolve()
        note(f"Image {name.short} is {known}")
        return known

    async def _from_registry(self, name: ImageName, note: Note, target: Path, *, login: Login | None) -> int:
        puller = self._puller(name)
        async with self._pulling, puller.open(login) as registry, self._hold_layers() as held:
            fetch = await puller.look_up(registry, note=note)
            for layer in fetch.manifest.layers:
                left = self._bytes_left(held)
                key = _digest_of(layer.digest, *(login or ()))
                held.append(await self._layers.acquire(key, partial(self._fetch_layer, fetch, layer, bytes_max=left)))
                fetch.end(layer)
            return await self._assemble(name, held, target, config=fetch.config)

    async def _fetch_layer(self, fetch: Fetch, layer: Descriptor, target: Path, *, bytes_max: int) -> int:
        async with self._make_incoming() as folder:
            await fetch.layer(layer, folder / "blob" / "layer")
            unpacked = await self._unpacker.unpack(
                folder / "blob" / "layer", folder / "out", kind="layer", bytes_max=bytes_max
            )
            (folder / "out" / "0").rename(target)
            return unpacked.size

    # ------------------------------------------------------------ from an artifact
    async def _from_artifact(self, name: ImageName, note: Note, target: Path) -> int:
        note(f"Unpacking image {name.short}")
        async with self._pulling, self._make_incoming() as folder, self._hold_layers() as held:
            await self._place_artifact(name, folder / "blob" / "archive")
            unpacked = await self._unpacker.unpack(
                folder / "blob" / "archive", folder / "out", kind="archive", bytes_max=self._bytes_left([])
            )
            check_architecture(read_config(unpacked.config), self._architecture)
            for number, layer in enumerate(sorted((folder / "out").iterdir(), key=lambda path: int(path.name))):
                # Not by the layer's own digest, which the archive only claims: another image must not get it.
                key = _digest_of(name.digest, str(number))
                held.append(await self._layers.acquire(key, partial(_adopt, layer)))
            return await self._assemble(name, held, target, config=unpacked.config)

    async def _place_artifact(self, name: ImageName, target: Path) -> None:
        try:
            source = await self.artifacts.open(name.hex_digest)
        except NotFound as error:
            raise BadJob(f"the image {name.short} is gone") from error
        except ComputePoolError as error:
            raise StagingFailed(f"the image {name.short} could not be fetched: {error.detail}") from error
        try:
            if os.fstat(source).st_size > self.limits.image_bytes_max:
                raise BadImage(f"it has more than {self.limits.image_bytes_max // MIB} MB, the limit of this node")
            # A link to the cached file needs no space; the descriptor may be of a file that was evicted meanwhile.
            await finish_anyway(asyncio.to_thread(_copy, source, target))
        finally:
            os.close(source)

    # ------------------------------------------------------------ both
    @contextlib.asynccontextmanager
    async def _hold_layers(self) -> AsyncIterator[list[Path]]:
        """Layers that are released at the end of the block."""
        held: list[Path] = []
        try:
            yield held
        finally:
            for layer in held:
                self._layers.release(layer)

    @contextlib.asynccontextmanager
    async def _make_incoming(self) -> AsyncIterator[Path]:
        folder = self.folder / _INCOMING / uuid.uuid4().hex
        (folder / "blob").mkdir(mode=0o755, parents=True)
        folder.chmod(0o755)
        try:
            yield folder
        finally:
            await finish_anyway(asyncio.to_thread(remove_tree, folder))

    def _bytes_left(self, held: list[Path]) -> int:
        """What the next layer may take: of the image's limit, and of this machine's disk."""
        left = self.limits.image_bytes_max - sum(roots.facts_of(layer).size for layer in held)
        return max(0, min(left, shutil.disk_usage(self.folder).free // 2))

    async def _assemble(self, name: ImageName, held: list[Path], target: Path, *, config: bytes) -> int:
        facts = _Facts(
            name=str(name), layers={layer.name: roots.facts_of(layer).size for layer in held}, config=config.decode()
        )
        return await finish_anyway(asyncio.to_thread(_make_root, held, target, facts))


def _make_root(held: list[Path], target: Path, facts: _Facts) -> int:
    target.mkdir(mode=0o755)
    root = target / ROOT
    count = roots.merge(held, root)
    for path in IMAGE_FOLDERS:
        roots.make_folder(root, path)
    roots.add_folder(root, read_config(facts.config.encode()).run.workdir or "")  # Engines make it, too.
    (target / _FACTS).write_text(facts.model_dump_json())
    return count * 4096


async def _adopt(layer: Path, target: Path) -> int:
    size = roots.facts_of(layer).size
    layer.rename(target)
    return size


def _copy(source: int, target: Path) -> None:
    with target.open("xb") as file:
        offset, size = 0, os.fstat(source).st_size
        while offset < size and (sent := os.sendfile(file.fileno(), source, offset, size - offset)):
            offset += sent
    target.chmod(0o644)


def _facts_by_key(folder: Path) -> dict[str, _Facts]:
    """By key, the least recently used first."""
    found = {}
    for key, _ in least_recent(folder, folders=True) if folder.is_dir() else []:
        with contextlib.suppress(OSError, ValidationError):
            if not key.startswith("."):
                found[key] = _read_facts(folder / key)
    return found


def _read_facts(folder: Path) -> _Facts:
    return _Facts.model_validate_json((folder / _FACTS).read_bytes())


def _digest_of(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
