"""Volumes on the node: created for a job from cached packs, and read again when it has succeeded.

A volume is a folder in the job's work folder, so the job's disk limit holds for it, too. The hub publishes what changed
together with the result.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

from computepool.agent.config import MIB
from computepool.agent.context import Node
from computepool.agent.execution.attempt_result import AttemptResult, FolderFull, StagingFailed, is_folder_full
from computepool.agent.execution.attempts import Attempt, StagedVolume
from computepool.agent.execution.job_logs import JobLogs
from computepool.agent.execution.logs import STDERR
from computepool.agent.hub_link.hub_client import TRANSIENT_OR_FULL, retry
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.storage.artifacts import ArtifactCache, Uploader
from computepool.core.errors import BadRequest, ComputePoolError, QuotaExceeded, TooLarge
from computepool.core.jobs.lifecycle import Outcome
from computepool.core.words import byte_size
from computepool.protocol.volumes import manifest
from computepool.protocol.volumes.folders import FolderContent, FolderReader, FolderWriter
from computepool.protocol.volumes.manifest import EMPTY, MANIFEST_MAX, VolumeManifest
from computepool.protocol.volumes.packing import NewPack
from computepool.protocol.volumes.volumes import OpenedVolume, VolumeChange

#: In the work folder: the volumes, by attempt and name.
FOLDER = ".volumes"
_UPLOAD_NAME = "volume"
#: A line in the job's log after so many packs.
_NOTE_EVERY = 16


@dataclass(eq=False)
class VolumeKeeper:
    node: Node
    _: KW_ONLY
    cache: ArtifactCache
    uploader: Uploader
    logs: JobLogs
    spool: Path  #: where new packs are kept until they are sent; emptied when the agent starts

    # ------------------------------------------------------------ before the job
    async def stage(self, attempt: Attempt, workdir: Path) -> tuple[StagedVolume, ...]:
        """Create the volumes that the job mounts. If this fails, the hub gives the job to another node."""
        mounts = attempt.spec.spec.volumes
        try:
            opened = await retry(
                partial(self.node.client.open_volumes, attempt.id), self.node.client.backoff(), on=TRANSIENT_OR_FULL
            )
        except ComputePoolError as error:
            raise StagingFailed(f"cannot open the job's volumes: {error.detail}") from error
        found = {volume.volume: volume for volume in opened.volumes}
        self._check_room(opened.volumes, disk_mb=attempt.spec.limits.disk_mb)
        # Of this attempt alone: after a cancellation a thread may still write there, and the work folder may be used again.
        parent = workdir / FOLDER / attempt.id
        parent.mkdir(mode=0o755, parents=True)
        staged = []
        for mount in mounts:
            if mount.volume not in found:
                raise StagingFailed(f"the hub did not say what is in the volume {mount.volume}")
            folder = parent / mount.volume
            try:
                base = await self._create(attempt, found[mount.volume], folder)
            except ComputePoolError as error:
                raise StagingFailed(f"cannot fetch the volume {mount.volume}: {error.detail}") from error
            except OSError as error:
                if is_folder_full(error, workdir):
                    raise FolderFull(_too_small(attempt.spec.limits.disk_mb)) from error
                raise StagingFailed(f"cannot create the volume {mount.volume}: {error.strerror}") from error
            staged.append(StagedVolume(mount=mount, folder=folder, base=base, limits=opened))
        attempt.volumes = tuple(staged)
        return attempt.volumes

    @staticmethod
    def _check_room(opened: Sequence[OpenedVolume], *, disk_mb: int) -> None:
        size = sum(volume.size for volume in opened)
        if size > disk_mb * MIB:
            raise FolderFull(f"its volumes have {byte_size(size)}, and {_too_small(disk_mb)}")

    async def _create(self, attempt: Attempt, volume: OpenedVolume, folder: Path) -> VolumeManifest:
        base = EMPTY if volume.manifest is None else await self._read_manifest(volume.manifest)
        folder.mkdir(mode=0o755)
        writer = FolderWriter(base, folder)
        await asyncio.to_thread(writer.begin)
        missing = sum(not self.cache.has(digest) for digest, _ in base.packs)
        if missing:
            size = sum(size for digest, size in base.packs if not self.cache.has(digest))
            self.logs.note(attempt, f"volume {volume.volume}: fetching {byte_size(size)} of version {volume.version}")
        for number, (digest, _) in enumerate(base.packs):
            fd = await self.cache.open(digest)
            filling = asyncio.get_running_loop().run_in_executor(None, writer.fill, number, fd)
            filling.add_done_callback(partial(_close, fd))
            await asyncio.shield(filling)
            if missing and (number + 1) % _NOTE_EVERY == 0:
                self.logs.note(attempt, f"volume {volume.volume}: {number + 1} of {len(base.packs)} packs")
        await asyncio.to_thread(writer.finish)
        return base

    async def _read_manifest(self, digest: str) -> VolumeManifest:
        with os.fdopen(await self.cache.open(digest), "rb") as file:
            body = await asyncio.to_thread(file.read, MANIFEST_MAX + 1)
        if len(body) > MANIFEST_MAX:
            raise BadRequest("Its manifest is too large.")
        return await asyncio.to_thread(manifest.read, body)

    # ------------------------------------------------------------ after the job
    async def save(self, attempt: Attempt, result: AttemptResult) -> None:
        """Upload what a success changed and name it in the result. Its processes must have ended."""
        staged, attempt.volumes = attempt.volumes, ()
        writable = [volume for volume in staged if not volume.mount.read_only]
        if result.outcome is not Outcome.SUCCEEDED or not writable:
            return
        changes = []
        for volume in writable:
            name = volume.mount.volume
            try:
                change = await self._save_one(attempt, volume)
            except (TooLarge, BadRequest) as error:
                result.exceed_output_limit(f"the volume {name} cannot be kept: {error.detail}")
                return
            except QuotaExceeded as error:
                result.exceed_output_limit(f"the volume {name} cannot be stored: {error.detail}")
                return
            except OSError as error:
                result.exceed_output_limit(f"the volume {name} cannot be read: {error.strerror}")
                return
            if change is not None:
                changes.append(change)
        result.volumes = changes or None

    async def _save_one(self, attempt: Attempt, volume: StagedVolume) -> VolumeChange | None:
        spool = Path(tempfile.mkdtemp(prefix="volume-", dir=self.spool))
        try:
            size_max = min(volume.limits.size_max, attempt.spec.limits.disk_mb * MIB)
            taken = await asyncio.to_thread(_read, volume, spool, size_max=size_max)
            for left_out in taken.left_out:
                line = f"[volume {volume.mount.volume}: not kept: {left_out.path}: {left_out.reason}]\n"
                self.logs.write(attempt, STDERR, line.encode())
            content = taken.manifest.content()
            if content == volume.base.content():
                return None
            body = taken.manifest.body()
            if len(body) > MANIFEST_MAX:
                raise TooLarge("its list of files is too long")
            listed = await asyncio.to_thread(_write_manifest, spool, body)
            for pack in (*taken.packs, listed):
                await self._send(pack)
        finally:
            await asyncio.to_thread(remove_tree, spool)
        return VolumeChange(
            volume=volume.mount.volume,
            manifest=listed.digest,
            content=content,
            packs=[digest for digest, _ in taken.manifest.packs],
            size=taken.manifest.size,
            files=len(taken.manifest.files),
        )

    async def _send(self, pack: NewPack) -> None:
        """Also keeps it in the cache: the next job here will want it."""
        fd = os.open(pack.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            await self.uploader.send(fd, pack.digest, size=pack.size, name=_UPLOAD_NAME)
        finally:
            os.close(fd)
        await self.cache.adopt(pack.path, pack.digest)


def _read(volume: StagedVolume, spool: Path, *, size_max: int) -> FolderContent:
    """A sparse file is longer than the space it takes, so the disk limit is checked here, too."""
    reader = FolderReader(
        folder=volume.folder, spool=spool, base=volume.base, files_max=volume.limits.files_max, size_max=size_max
    )
    return reader.read()


def _write_manifest(spool: Path, body: bytes) -> NewPack:
    path = spool / "manifest"
    path.write_bytes(body)
    return NewPack.of(path, size=len(body))


def _close(fd: int, filled: asyncio.Future[None]) -> None:
    os.close(fd)
    filled.exception()  # Retrieved, so that asyncio does not warn about it.


def _too_small(disk_mb: int) -> str:
    return f'its disk has {disk_mb} MB. Ask for more: --disk {2 * disk_mb}MB, or disk="{2 * disk_mb}MB" in Python.'
