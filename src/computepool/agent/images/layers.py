"""Unpacks layers and archives of images in the jobs' sandbox (unpack.py), and takes what it made."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from computepool.agent.config import AgentLimits
from computepool.agent.execution.attempt_result import StagingFailed, describe_exit
from computepool.agent.images import unpack
from computepool.agent.images.roots import FACTS, FILES, LayerFacts
from computepool.agent.packages.builder import Build, Builder, Built, TooMuch, take_tree
from computepool.agent.packages.cached_folders import finish_anyway
from computepool.agent.sandbox.base import MIB, Limits, Status
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.core.plaintext import printable
from computepool.protocol.images.manifests import LAYERS_MAX, MANIFEST_BYTES_MAX, BadImage

_SCRIPT, _SOURCE = "unpack.py", "/opt/layer"
_ERROR_CHARS = 500
#: Of the disk for a layer: the file system's own, and the lists of what a layer removes.
_SPARE_MB = 256
_REMOVED_BYTES_MAX = 64 * MIB
_MESSAGES = {unpack.BAD: BadImage, unpack.TOO_LARGE: BadImage, unpack.NO_TOOL: StagingFailed}


@dataclass(frozen=True, slots=True)
class Unpacked:
    size: int
    config: bytes  #: of an archive


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerUnpacker:
    builder: Builder
    runtime: Runtime
    limits: AgentLimits
    architecture: str  #: in Go's words, as images name it

    async def unpack(self, source: Path, target: Path, *, kind: str, bytes_max: int) -> Unpacked:
        """Unpack the layer (or the archive, by `kind`) in the file `source` into `target`/0, 1 …; `target` must not exist.

        The file lies in a folder of its own, which every user can read. Raises BadImage if no node could unpack it.
        """
        async with self.builder.run(self._build(source, kind=kind, bytes_max=bytes_max)) as built:
            if not built.exit.ok:
                raise _failure(built, bytes_max)
            try:
                return await finish_anyway(asyncio.to_thread(_take, built.folder, target, bytes_max))
            except TooMuch:
                raise BadImage(f"it takes more than {bytes_max // MIB} MB, the limit of this node") from None

    def _build(self, source: Path, *, kind: str, bytes_max: int) -> Build:
        limits = self.limits
        return Build(
            argv=(
                *(self.runtime.python, "-I", "-S", _SCRIPT, kind, source),
                *(str(bytes_max), str(limits.image_entries_max), self.architecture),
            ),
            limits=Limits(
                memory_mb=limits.image_memory_mb,
                cpus=limits.image_cpus,
                wall_s=limits.image_unpack_s,
                disk_mb=bytes_max // MIB + _SPARE_MB,
            ),
            mounts={source.parent: _SOURCE},
            files={_SCRIPT: Path(unpack.__file__).read_bytes()},
            label="an image",
        )


def _take(made: Path, target: Path, bytes_max: int) -> Unpacked:
    size = 0
    target.mkdir(mode=0o755, parents=True)
    for number in range(LAYERS_MAX):
        files = made / unpack.FILES.format(number)
        if not files.is_dir() or files.is_symlink():
            break
        removed = _read_small(made / unpack.REMOVED.format(number), _REMOVED_BYTES_MAX)
        layer = target / str(number)
        layer.mkdir(mode=0o755)
        taken = take_tree(files, layer / FILES, bytes_max=bytes_max - size, links=True)
        try:
            facts = LayerFacts.model_validate_json(removed).model_copy(update={"size": taken})
        except ValidationError:
            raise BadImage("its layers cannot be read") from None
        (layer / FACTS).write_text(facts.model_dump_json())
        size += taken
    config = made / unpack.CONFIG
    return Unpacked(size, _read_small(config, MANIFEST_BYTES_MAX) if config.exists() else b"")


def _read_small(path: Path, most: int) -> bytes:
    """A file that untrusted code wrote."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        data = file.read(most + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    if not data or len(data) > most:
        raise BadImage("its layers cannot be read")
    return data


def _failure(built: Built, bytes_max: int) -> Exception:
    ended = built.exit
    text = printable(built.output.strip().rpartition("\n")[2])[:_ERROR_CHARS]
    if ended.status is Status.EXIT and ended.code in _MESSAGES and text:
        return _MESSAGES[ended.code](text)
    full = os.path.ismount(built.folder) and f"[Errno {errno.ENOSPC}]" in built.output
    if full or ended.status is Status.DISK_LIMIT:
        return BadImage(f"it takes more than {bytes_max // MIB} MB, the limit of this node")
    if ended.status is Status.OOM:
        return BadImage("unpacking it takes too much memory")
    if ended.status is Status.TIMEOUT:
        return StagingFailed("unpacking it took too long here")
    return StagingFailed(f"unpacking it failed: {describe_exit(ended, text)} {text}".strip())
