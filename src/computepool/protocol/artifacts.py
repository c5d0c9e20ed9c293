"""Artifacts as they cross the wire: files at the hub, who refers to them, how long and how much is kept."""

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
    """How much of an upload the hub has; continue from `offset`."""

    digest: str
    offset: int
    complete: bool


class StorageView(Reply):
    """What an account keeps at the hub, and may keep. Each artifact counts once, however many jobs refer to it."""

    bytes: int
    artifacts: int
    bytes_max: int
    keep_s: float  #: after the job it belongs to has ended; an upload, after it was sent
    uploading_bytes: int = 0  #: of artifacts that are not whole yet


class ArtifactRef(Reply):
    """One reason why an artifact is kept."""

    role: str
    name: str | None = None
    account_id: str
    job_id: str | None = None
    job_state: str | None = None
    created_at_ms: int
    kept_until_ms: int | None = None  #: null: as long as the job is unfinished, or until it is released


class ArtifactInfo(Reply):
    digest: str
    size: int
    created_at_ms: int
    whole: bool  #: the bytes are there, as many as there should be
    kept_until_ms: int | None = None  #: by the longest of its references; null: nobody can say yet
    refs: list[ArtifactRef]
    more_refs: bool = False


class KeepRequest(Request):
    #: null: until it is released
    duration_s: float | None = Field(default=None, gt=0, le=100 * 365 * 24 * 3600)
