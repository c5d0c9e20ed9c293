"""Wire models of groups: jobs that belong together, what their collector keeps, and where the results go.

A group's *keys* are the submitter's names for the things that it waits for. A key belongs to a job, or is reported from
outside. Counts are in items: a job with several items counts as several.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from computepool.protocol.base import LIST_MAX, TEXT_MAX, Count, Digest, Name, NewName, Page, Reply, Request
from computepool.protocol.jobs.children import MessageView
from computepool.protocol.jobs.views import JobResult, OutputFile

#: Metadata of a key is for display, not for data.
META_BYTES_MAX = 4_096
#: Limit for a result reported from outside. For anything larger, use an artifact and report its digest.
KEY_RESULT_MAX = 64 * 1024
#: Digests listed in one arrival; the digest of the manifest covers the rest.
DIGESTS_MAX = 10_000
PATH_MAX = 4_096

MetaValue = Annotated[str, StringConstraints(max_length=1_000)] | bool | int | float | None
ErrorText = Annotated[str, StringConstraints(max_length=TEXT_MAX)]


class ResultPage(Reply):
    results: list[JobResult]
    cursor: int  #: request again with after=cursor
    open: int | None = None  #: items that the group still waits for; null if there are new results


class GroupRequest(Request):
    name: NewName
    kind: Annotated[str, StringConstraints(pattern=r"^(map|slices|session|group)$")] = "group"
    home: Name | None = None  #: your node, by id or name, that the results go to
    return_home: bool = False  #: deliver them there when the group is complete


class ExpectedKey(Request):
    key: NewName
    meta: dict[NewName, MetaValue] | None = Field(default=None, max_length=32)

    @model_validator(mode="after")
    def _small(self) -> Self:
        if self.meta is not None and len(json.dumps(self.meta).encode()) > META_BYTES_MAX:
            raise ValueError(f"the metadata of a key may have at most {META_BYTES_MAX} bytes")
        return self


class RegisterKeysRequest(Request):
    """Keys that the group waits for from now on. Keys that are already registered get the new metadata."""

    keys: list[ExpectedKey] = Field(min_length=1, max_length=LIST_MAX)


class RegisterKeysReply(Reply):
    added: int
    updated: int
    expected: int  #: all registered keys of the group


class KeyReport(Request):
    """The outcome of a key without a job. Only the first report of a key counts."""

    key: NewName
    outcome: Literal["succeeded", "failed"]
    #: an encoded value (see values.py)
    result: Annotated[str, StringConstraints(max_length=KEY_RESULT_MAX)] | None = None
    error: ErrorText | None = None


class KeyReportsRequest(Request):
    reports: list[KeyReport] = Field(min_length=1, max_length=LIST_MAX)


class KeyVerdict(Reply):
    """accepted · duplicate: the key was reported before · has_job: the outcome of its job counts (both are counted as
    duplicates) · unknown: the key was never registered."""

    key: str
    verdict: Literal["accepted", "duplicate", "has_job", "unknown"]


class KeyReportsReply(Reply):
    verdicts: list[KeyVerdict]


class ReturnHomeRequest(Request):
    """Request delivery, retry it, change the home or, with enabled=false, cancel it."""

    home: Name | None = None  #: your node, by id or name; default: the current one
    enabled: bool = True


class HomeView(Reply):
    """The delivery of a group's results to its home node."""

    state: str = "off"  #: off, when_complete, waiting, arrived
    sentence: str = "not requested"
    node_id: str | None = None
    node_name: str | None = None
    reason: str | None = None  #: why it has not arrived yet, as reported by the home node
    at_ms: int | None = None  #: of the arrival, or of the node's last report
    items: int | None = None  #: delivered items
    files: int | None = None
    bytes: int | None = None
    folder: str | None = None  #: inside the agent's data folder
    path: str | None = None  #: of that folder on the home node, as reported by its agent


class GroupView(Reply):
    id: str
    name: str
    kind: str
    account_id: str
    created_at_ms: int
    counts: dict[str, int]  #: by state, in items; `expected`: keys without a job or a report
    total: int
    succeeded: int = 0
    failed: int = 0  #: failed, cancelled or expired
    pending: int = 0  #: all others
    expected: int = 0  #: registered keys
    duplicates: int = 0  #: reports after the first one
    complete: bool = False  #: there are items, and none is pending
    completed_at_ms: int | None = None  #: only for groups with registered keys or a home
    home: HomeView = HomeView()


class GroupPage(Page):
    groups: list[GroupView]


class GroupItem(Reply):
    """One entry of a group: a job, or a key without one."""

    key: str | None = None
    job_id: str | None = None
    state: str  #: a job's state, or expected, succeeded, failed
    sentence: str = ""  #: the reason for its state
    bundled: int = 1  #: items that count here; items that were submitted again count in their new jobs
    carried: int | None = None  #: answers in its result, one per item; null: as `bundled`
    items_failed: int = 0  #: failed items in a job that succeeded
    meta: dict[str, MetaValue] | None = None
    duplicates: int = 0
    finished_at_ms: int | None = None
    exit_code: int | None = None
    error: str | None = None
    result: str | None = None  #: an encoded value (see values.py)
    result_artifact: str | None = None
    dropped: bool = False  #: its result is no longer kept
    outputs: list[OutputFile] = []


class ItemPage(Page):
    items: list[GroupItem]


class ItemState(Reply):
    """The state of an item, for displays of thousands."""

    key: str | None = None
    job_id: str | None = None
    state: str  #: as in GroupItem
    bundled: int = 1
    items_failed: int = 0


class StatePage(Page):
    items: list[ItemState]


class LocationView(Reply):
    """The hub on which the collector runs."""

    hub_id: str
    address: str


class GroupSummary(GroupView):
    """The collector's state, with the first page of each list. Continue with its `next` at /groups/{id}/items."""

    location: LocationView
    results: ItemPage
    failures: ItemPage
    waiting: ItemPage
    message_count: int = 0
    messages: list[MessageView] = []  #: the latest, oldest first; all of them are at /groups/{id}/messages


class ResultDeliveryView(Reply):
    """What the home node must fetch."""

    summary: GroupSummary
    round: int  #: the number of this completion, which the arrival repeats
    items: int
    files: int  #: distinct artifacts
    bytes: int  #: of all artifacts


class DeliveryProblem(Request):
    round: Count
    reason: ErrorText


class ArrivalRequest(Request):
    """Everything has arrived, and the SHA-256 of every file was correct."""

    round: Count
    items: Count
    files: Count
    bytes: Count
    folder: Annotated[str, StringConstraints(max_length=300)]
    #: of the folder on this machine
    path: Annotated[str, StringConstraints(max_length=PATH_MAX)] | None = None
    manifest: Digest  #: SHA-256 of the list of all files written
    digests: list[Digest] = Field(default=[], max_length=DIGESTS_MAX)  #: of the artifacts, sorted


class ArrivalReply(Reply):
    recorded: bool  #: false: it was recorded before, or the group no longer waits for it
