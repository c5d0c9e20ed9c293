"""Wire models of volumes: named folders that outlive jobs, with versions."""

from __future__ import annotations

import posixpath
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from computepool.core.plaintext import is_plain
from computepool.protocol.base import Count, Digest, Page, Reply, Request

#: Volumes that one job may mount.
MOUNTS_MAX: Final = 8
PATH_CHARS_MAX: Final = 200
#: Packs of one version.
PACKS_MAX: Final = 4_096
#: Folders of the sandbox's own: a volume cannot be mounted on, in or around them.
_TAKEN: Final = (
    "/bin", "/boot", "/dev", "/etc", "/job", "/lib", "/lib32", "/lib64", "/libx32", "/opt",
    "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var",
)  # fmt: skip

#: Without capitals and underscores, so that the names of the jobs' variables differ, too.
VolumeName = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9][a-z0-9-]*$"), Field(examples=["data"])
]
VersionNumber = Annotated[int, Field(ge=0, le=2**53)]  #: 0: the empty volume


def check_mount_path(path: str) -> str:
    """An absolute path at which a job may see a volume. Raises ValueError."""
    if not is_plain(path) or not path.isascii() or " " in path:
        raise ValueError(f"{path!a} is not a plain path")
    if not path.startswith("/") or posixpath.normpath(path) != path or path in ("/", "//"):
        raise ValueError(f"{path} is not an absolute path such as /data")
    if any(_overlap(path, taken) for taken in _TAKEN):
        raise ValueError(f"{path} overlaps a folder of the sandbox; choose one such as /data")
    return path


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


class VolumeMount(Request):
    volume: VolumeName
    #: where the job sees it
    path: Annotated[
        str, StringConstraints(max_length=PATH_CHARS_MAX), AfterValidator(check_mount_path), Field(examples=["/data"])
    ]
    read_only: bool = False  #: otherwise a success of the job makes a new version of what it changed


def check_mounts(mounts: list[VolumeMount]) -> list[VolumeMount]:
    names = [mount.volume for mount in mounts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is mounted twice")
    for number, one in enumerate(mounts):
        for other in mounts[:number]:
            if _overlap(one.path, other.path):
                raise ValueError(f"{one.path} and {other.path} overlap")
    return mounts


def variable_of(volume: str) -> str:
    """The environment variable that tells a job where a volume is."""
    return f"COMPUTEPOOL_VOLUME_{volume.upper().replace('-', '_')}"


class VolumeContent(Request):
    """The content of a version. The manifest and the packs are artifacts, which are uploaded first."""

    manifest: Digest
    content: Digest  #: of the files alone, however they are packed
    packs: list[Digest] = Field(default=[], max_length=PACKS_MAX)
    size: Count  #: of all files
    files: Count

    @model_validator(mode="after")
    def _distinct(self) -> VolumeContent:
        if len(set(self.packs)) != len(self.packs):
            raise ValueError("packs: one is named twice")
        return self


class VolumeChange(VolumeContent):
    """What a job left in a volume, in the report of its success."""

    volume: VolumeName

    def signed_part(self) -> str:
        return f"volume:{self.volume}={self.manifest}"


class VolumeRequest(Request):
    name: VolumeName


class VersionRequest(VolumeContent):
    parent: VersionNumber  #: the version from which the change started


class HeadRequest(Request):
    """Make a version the head, if the head is still the expected one."""

    version: Annotated[int, Field(ge=1, le=2**53)]
    expected: VersionNumber


class VolumeVersion(Reply):
    number: int
    parent: int  #: the version it started from
    conflict: str | None = None  #: a sentence, if the head had moved when it was published
    is_head: bool = False
    manifest: str
    content: str
    size: int
    files: int
    created_at_ms: int
    job_id: str | None = None  #: the job that made it; null: a person


class VolumeView(Reply):
    id: str
    name: str
    head: int  #: the version that jobs get; 0: empty
    created_at_ms: int
    size: int = 0  #: of the head
    files: int = 0
    versions: int = 0
    jobs: int = 0  #: unfinished jobs that mount it


class VolumeList(Reply):
    volumes: list[VolumeView]


class VersionPage(Page):
    versions: list[VolumeVersion]


class PublishReply(Reply):
    version: VolumeVersion
    outcome: str  #: unchanged, head or conflict


class OpenedVolume(Reply):
    """A volume for one attempt."""

    volume: str
    version: int  #: 0: empty
    manifest: str | None = None
    size: int = 0
    files: int = 0


class OpenedVolumes(Reply):
    volumes: list[OpenedVolume]
    files_max: int  #: of a version
    size_max: int  #: bytes of a version
