"""Container images that you upload: `pool.images`. A job names one with `image=`."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from computepool.core.errors import BadRequest
from computepool.core.resources import UPLOADED
from computepool.protocol.images.names import parse_image
from computepool.sdk.client.config import readable_file
from computepool.sdk.files.artifacts import ArtifactApi, Progress
from computepool.sdk.jobs.options import PathLike

#: How the file of an image is called among the artifacts.
_PREFIX = "image:"
#: One of these is in every archive of an image.
_MANIFESTS = ("manifest.json", "index.json")
_FILES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class StoredImage:
    image: str  #: what `image=` takes
    name: str  #: of the uploaded file
    size: int
    created_at_ms: int


StoredImages: TypeAlias = list[StoredImage]


class ImageApi:
    """`pool.images`: push, list, rm."""

    def __init__(self, artifacts: ArtifactApi) -> None:
        self._artifacts = artifacts

    def push(self, path: PathLike, *, progress: Progress | None = None) -> str:
        """Upload an image that `docker save`, `podman save` or an OCI tool wrote. Returns what `image=` takes."""
        file = readable_file(path, what="image")
        _check_archive(file)
        sent = self._artifacts.put(file, name=f"{_PREFIX}{file.name}"[:255], progress=progress)
        return f"{UPLOADED}:{sent.digest}"

    def list(self) -> StoredImages:
        """Your uploaded images, newest first."""
        found: dict[str, StoredImage] = {}
        for artifact in self._artifacts.list(limit=1000):
            name = artifact.name or ""
            if name.startswith(_PREFIX) and artifact.digest not in found:
                image = f"{UPLOADED}:{artifact.digest}"
                found[artifact.digest] = StoredImage(
                    image, name.removeprefix(_PREFIX), artifact.size, artifact.created_at_ms
                )
        return list(found.values())

    def rm(self, image: str) -> None:
        """Delete an uploaded image. Unfinished jobs that use it keep it."""
        try:
            name = parse_image(image)
        except ValueError as error:
            raise BadRequest(f"{error}.") from None
        if name.source != UPLOADED:
            raise BadRequest(f"{image!r} is in a registry; the pool stores only images that were uploaded.")
        self._artifacts.rm(name.hex_digest)


def _check_archive(file: Path) -> None:
    """Find out before the upload whether the file is an archive of an image."""
    try:
        with tarfile.open(file, "r:") as tar:
            for count, entry in enumerate(tar):
                if entry.name.removeprefix("./") in _MANIFESTS:
                    return
                if count > _FILES_MAX:
                    break
    except (tarfile.TarError, OSError, EOFError):
        pass
    raise BadRequest(
        f"{file} is not an uncompressed archive of an image. Make one: docker save --output image.tar NAME, or "
        "skopeo copy docker://NAME oci-archive:image.tar"
    )
