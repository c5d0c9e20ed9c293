"""The manifest of a volume's version: its files, and where the chunks of their content are.

Chunks are pieces of files, cut by their content and named by their SHA-256; a pack is an artifact of many chunks. A manifest
comes from an untrusted machine: whoever reads one checks it here before anything is created.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, ValidationError

from computepool.core.errors import BadRequest
from computepool.protocol.base import Digest, Request
from computepool.protocol.files import check_name
from computepool.protocol.volumes.volumes import PACKS_MAX

FILES_MAX: Final = 100_000  #: files, folders and links of a volume
SIZE_MAX: Final = 64 * 1024**3
CHUNK_MAX: Final = 256 * 1024
PACK_MAX: Final = 64 * 1024**2
MANIFEST_MAX: Final = 256 * 1024**2
_CHUNKS_MAX: Final = 4_000_000
_LINK_CHARS_MAX: Final = 1_000

_Path = Annotated[str, Field(min_length=1, max_length=1024)]
_Mode = Annotated[int, Field(ge=0, le=0o777)]
_Number = Annotated[int, Field(ge=0)]
_Size = Annotated[int, Field(ge=1, le=PACK_MAX)]
_ChunkSize = Annotated[int, Field(ge=1, le=CHUNK_MAX)]


#: Digest, number of the pack, offset in it, size.
ChunkPlace: TypeAlias = tuple[Digest, _Number, _Number, _ChunkSize]


class VolumeManifest(Request):
    format: Literal[1] = 1
    packs: list[tuple[Digest, _Size]] = Field(default=[], max_length=PACKS_MAX)
    chunks: list[ChunkPlace] = Field(default=[], max_length=_CHUNKS_MAX)
    folders: list[tuple[_Path, _Mode]] = Field(default=[], max_length=FILES_MAX)
    #: path, mode, numbers of its chunks
    files: list[tuple[_Path, _Mode, list[_Number]]] = Field(default=[], max_length=FILES_MAX)
    links: list[tuple[_Path, _Path]] = Field(default=[], max_length=FILES_MAX)

    @property
    def size(self) -> int:
        return sum(self.size_of(numbers) for _, _, numbers in self.files)

    def size_of(self, numbers: Iterable[int]) -> int:
        return sum(self.chunks[number][3] for number in numbers)

    def content(self) -> str:
        """Identifies the files, whatever packs hold them."""
        hasher = hashlib.sha256(json.dumps([self.folders, self.links]).encode())
        for path, mode, numbers in self.files:
            hasher.update(json.dumps([path, mode, [self.chunks[number][0] for number in numbers]]).encode())
        return hasher.hexdigest()

    def body(self) -> bytes:
        return self.model_dump_json(exclude_defaults=True).encode()


EMPTY = VolumeManifest()


def read(body: bytes) -> VolumeManifest:
    """Raises BadRequest unless it is safe to create what it names in an empty folder."""
    try:
        manifest = VolumeManifest.model_validate_json(body)
        _check(manifest)
    except (ValidationError, ValueError) as error:
        reason = str(error).splitlines()[0] if not isinstance(error, ValidationError) else "it has wrong fields"
        raise BadRequest(f"This is no manifest of a volume: {reason}.", field="manifest") from None
    return manifest


def _check(manifest: VolumeManifest) -> None:
    for digest, pack, offset, size in manifest.chunks:
        if pack >= len(manifest.packs) or offset + size > manifest.packs[pack][1]:
            raise ValueError(f"the chunk {digest[:12]} is outside its pack")
    known = len(manifest.chunks)
    for path, _, numbers in manifest.files:
        if any(number >= known for number in numbers):
            raise ValueError(f"{path!a} has a chunk that is not listed")
    if manifest.size > SIZE_MAX:
        raise ValueError(f"its files have more than {SIZE_MAX} bytes")
    _check_paths(manifest)


def _check_paths(manifest: VolumeManifest) -> None:
    """Each path once, each below listed folders: so nothing is ever created through a link."""
    folders = {path for path, _ in manifest.folders}
    paths = [*(path for path, _ in manifest.folders), *(path for path, _, _ in manifest.files)]
    paths += [path for path, _ in manifest.links]
    if len(paths) > FILES_MAX:
        raise ValueError(f"it names more than {FILES_MAX} files")
    if len(set(paths)) != len(paths):
        raise ValueError("it names a path twice")
    for path in paths:
        check_name(path)
        parent = path.rpartition("/")[0]
        if parent and parent not in folders:
            raise ValueError(f"{path!a} is in a folder that is not listed")
    for path, target in manifest.links:
        if (problem := link_problem(path, target)) is not None:
            raise ValueError(f"{path!a} {problem}")


def link_problem(path: str, target: str) -> str | None:
    """Why a link is refused: its target must be in the volume.

    `..` is allowed only at the beginning, where it leaves real folders. Behind a link it would lead who knows where.
    """
    parts = target.split("/")
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    if target.startswith("/") or ups > path.count("/"):
        return "is a link that leads out of the volume"
    if len(target) > _LINK_CHARS_MAX or any(part in ("", "..") for part in parts[ups:]):
        return "is a link with an unusual target"
    try:
        check_name("/".join(part for part in parts[ups:] if part != ".") or "x")
    except ValueError:
        return "is a link with an unusual target"
    return None
