"""`pool.volumes`: named folders that outlive jobs, with versions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from computepool.core.errors import BadRequest, Conflict, TooLarge
from computepool.protocol.volumes import manifest, volumes as wire
from computepool.protocol.volumes.folders import FolderReader, FolderWriter, LeftOut
from computepool.protocol.volumes.manifest import EMPTY, MANIFEST_MAX, VolumeManifest
from computepool.protocol.volumes.packing import NewPack
from computepool.sdk.client.resource import Resource, validate
from computepool.sdk.client.transport import Transport
from computepool.sdk.files.artifacts import ArtifactApi
from computepool.sdk.jobs.options import PathLike

Volumes: TypeAlias = list[wire.VolumeView]
_UPLOAD_NAME = "volume"
#: Called with the packs transferred and their number.
Progress: TypeAlias = Callable[[int, int], None]


class VolumeApi(Resource):
    def __init__(self, transport: Transport, artifacts: ArtifactApi) -> None:
        super().__init__(transport)
        self._artifacts = artifacts

    def create(self, name: str) -> wire.VolumeView:
        return self._post("/volumes", wire.VolumeView, wire.VolumeRequest, name=name)

    def list(self) -> Volumes:
        return self._transport.get("/volumes", wire.VolumeList).volumes

    def show(self, name: str) -> wire.VolumeView:
        return self._transport.get(_path(name), wire.VolumeView)

    def versions(self, name: str, *, limit: int = 100) -> Iterator[wire.VolumeVersion]:
        """Newest first."""
        path = f"{_path(name)}/versions"
        return self._each(path, wire.VersionPage, lambda page: page.versions, limit=limit)

    def version(self, name: str, number: int) -> wire.VolumeVersion:
        return self._transport.get(f"{_path(name)}/versions/{number}", wire.VolumeVersion)

    def put(
        self,
        name: str,
        folder: PathLike,
        *,
        left_out: Callable[[LeftOut], None] | None = None,
        progress: Progress | None = None,
    ) -> wire.PublishReply:
        """Make the content of `folder` a new version. Sends only what the head does not have. `left_out`: called for what
        cannot be kept, such as sockets and links that lead out of the folder.

        If the head moves meanwhile, the version is kept as a conflict, which the reply says.
        """
        source = Path(folder).expanduser()
        if not source.is_dir():
            raise BadRequest(f"{source} is not a folder.", field="folder")
        head = self.show(name).head
        base = EMPTY if head == 0 else self._manifest(self.version(name, head))
        with tempfile.TemporaryDirectory(prefix="computepool-volume-") as spool:
            try:
                taken = FolderReader(folder=source, spool=Path(spool), base=base).read()
            except TooLarge as error:
                raise BadRequest(f"{source}: {error.detail}.", field="folder") from error
            except OSError as error:
                raise BadRequest(f"{source} cannot be read: {error.strerror}.", field="folder") from error
            for one in taken.left_out:
                if left_out is not None:
                    left_out(one)
            listed = Path(spool) / "manifest"
            listed.write_bytes(taken.manifest.body())
            packs = [*taken.packs, NewPack.of(listed, size=listed.stat().st_size)]
            for number, pack in enumerate(packs):
                self._artifacts.put_verified(pack.path, name=_UPLOAD_NAME, digest=pack.digest, size=pack.size)
                if progress is not None:
                    progress(number + 1, len(packs))
        return self._post(
            f"{_path(name)}/versions",
            wire.PublishReply,
            wire.VersionRequest,
            parent=head,
            manifest=packs[-1].digest,
            content=taken.manifest.content(),
            packs=[digest for digest, _ in taken.manifest.packs],
            size=taken.manifest.size,
            files=len(taken.manifest.files),
        )

    def get(
        self, name: str, folder: PathLike, *, version: int | None = None, progress: Progress | None = None
    ) -> wire.VolumeVersion:
        """Download a version, by default the head, into a new or empty folder, which appears when it is complete."""
        number = self.show(name).head if version is None else version
        if number == 0:
            raise Conflict(f"The volume {name} is empty.")
        found = self.version(name, number)
        listed = self._manifest(found)
        target = Path(folder).expanduser()
        if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
            raise BadRequest(f"{target} exists and is not an empty folder.", field="folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name[:100]}-", dir=target.parent) as work:
            files = Path(work) / "files"
            files.mkdir()
            writer = FolderWriter(listed, files)
            writer.begin()
            for place, (digest, _) in enumerate(listed.packs):
                pack = self._artifacts.get(digest, Path(work) / "pack", raw=True)
                with pack.open("rb") as source:
                    writer.fill(place, source.fileno())
                pack.unlink()
                if progress is not None:
                    progress(place + 1, len(listed.packs))
            writer.finish()
            os.replace(files, target)
        return found

    def rollback(self, name: str, version: int) -> wire.VolumeView:
        """Make an earlier version, or a conflict, the head."""
        head = self.show(name).head
        return self._post(f"{_path(name)}/head", wire.VolumeView, wire.HeadRequest, version=version, expected=head)

    def remove(self, name: str) -> None:
        """With all versions. Refused while unfinished jobs mount it."""
        self._transport.call("DELETE", _path(name))

    def _manifest(self, version: wire.VolumeVersion) -> VolumeManifest:
        return manifest.read(self._artifacts.get_bytes(version.manifest, max_bytes=MANIFEST_MAX))


def _path(name: str) -> str:
    return f"/volumes/{validate(wire.VolumeRequest, name=name).name}"
