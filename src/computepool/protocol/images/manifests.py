"""Manifests and configurations of images (OCI, and Docker's older form): read from JSON of any origin, with limits."""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

MANIFEST_BYTES_MAX: Final = 4 * 1024 * 1024
LAYERS_MAX: Final = 127  #: as many as Docker makes
_INDEXED_MAX = 256
_VALUES_MAX = 1_000
#: Go's names of the machines that nodes run on, by Python's.
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
ACCEPTED: Final = (
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json"
)

ImageDigest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
_Text = Annotated[str, StringConstraints(max_length=128 * 1024)]
_Texts = Annotated[list[_Text], Field(max_length=_VALUES_MAX)]


class BadImage(Exception):
    """The image is not usable, on any node; the message says why."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Platform(_Part):
    architecture: _Text = ""
    os: _Text = ""


class Descriptor(_Part):
    media_type: _Text = Field(default="", alias="mediaType")
    digest: ImageDigest
    size: int = Field(ge=0, lt=2**53)
    platform: Platform | None = None


class ImageManifest(_Part):
    """A manifest of one image, or an index of several."""

    config: Descriptor | None = None
    layers: list[Descriptor] = Field(default=[], max_length=LAYERS_MAX)
    manifests: list[Descriptor] = Field(default=[], max_length=_INDEXED_MAX)


class RunConfig(_Part):
    """What an image says about how to run it."""

    env: _Texts | None = Field(default=None, alias="Env")
    entrypoint: _Texts | None = Field(default=None, alias="Entrypoint")
    cmd: _Texts | None = Field(default=None, alias="Cmd")
    workdir: _Text | None = Field(default=None, alias="WorkingDir")

    @property
    def command(self) -> list[str]:
        return [*(self.entrypoint or ()), *(self.cmd or ())]

    @property
    def variables(self) -> dict[str, str]:
        pairs = (text.partition("=") for text in self.env or ())
        return {name: value for name, _, value in pairs if name and "\0" not in name + value}


class ImageConfig(_Part):
    architecture: _Text = ""
    os: _Text = ""
    config: RunConfig | None = None

    @property
    def run(self) -> RunConfig:
        return self.config or RunConfig()


def read_manifest(data: bytes) -> ImageManifest:
    try:
        return ImageManifest.model_validate_json(data)
    except ValidationError:
        raise BadImage("its manifest is not one that nodes can read") from None


def read_config(data: bytes) -> ImageConfig:
    try:
        return ImageConfig.model_validate_json(data)
    except ValidationError:
        raise BadImage("its configuration is not one that nodes can read") from None


def pick(index: ImageManifest, architecture: str) -> Descriptor:
    """The image for this architecture. Raises BadImage if the index has none."""
    offered = [found for found in index.manifests if found.platform is None or found.platform.os in ("", "linux")]
    for found in offered:
        if found.platform is not None and found.platform.architecture == architecture:
            return found
    if len(offered) == 1 and offered[0].platform is None:
        return offered[0]
    names = sorted({found.platform.architecture for found in offered if found.platform is not None})
    raise BadImage(other_architecture(names, architecture))


def check_architecture(config: ImageConfig, architecture: str) -> None:
    if config.os not in ("", "linux"):
        raise BadImage(f"it is made for {config.os[:40]!a}, and nodes run Linux")
    if config.architecture not in ("", architecture):
        raise BadImage(other_architecture([config.architecture], architecture))


def other_architecture(names: list[str], architecture: str) -> str:
    known = [name for name in names if name.isalnum() and len(name) < 20 and name != "unknown"]
    return f"it is made for {' and '.join(known[:8]) or 'another architecture'}, and this node is {architecture}"


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
