"""Wire models of artifacts: files at the hub, references to them, and storage limits."""

from __future__ import annotations

from pydantic import Field

from computepool.protocol.base import Page, Reply, Request


class ArtifactView(Reply):
    digest: str
    size: int
    name: str | None = None
    role: str | None = None  #: upload, kept, input, output, result …
    job_id: str | None = None
    created_at_ms: int


class ArtifactPage(Page):
    artifacts: list[ArtifactView]


class UploadState(Reply):
    """The progress of an upload; continue from `offset`."""

    digest: str
    offset: int
    complete: bool


class StorageView(Reply):
    """What an account stores at the hub, and its limits. Each artifact counts once, however many jobs refer to it."""

    bytes: int
    artifacts: int
    bytes_max: int
    keep_s: float  #: how long artifacts are kept after their job has ended or, for uploads, after they were sent
    uploading_bytes: int = 0  #: of incomplete artifacts


class ArtifactRef(Reply):
    """One reason for keeping an artifact."""

    role: str
    name: str | None = None
    account_id: str
    job_id: str | None = None
    job_state: str | None = None
    created_at_ms: int
    kept_until_ms: int | None = None  #: null: while the job is unfinished, or until it is released


class ArtifactInfo(Reply):
    digest: str
    size: int
    created_at_ms: int
    whole: bool  #: all of its bytes are present
    kept_until_ms: int | None = None  #: by the longest of its references; null: not known yet
    refs: list[ArtifactRef]
    more_refs: bool = False


class KeepRequest(Request):
    #: null: until it is released
    duration_s: float | None = Field(default=None, gt=0, le=100 * 365 * 24 * 3600)
