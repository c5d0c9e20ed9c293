"""Groups as clients make and see them: jobs that belong together, what their collector keeps, and where it goes.

A group's *keys* are its submitter's names for the things it waits for. A key has a job (whose key it is), or is reported
from outside. Counts are in items: a job that carries many items counts as many.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from computepool.protocol.base import LIST_MAX, TEXT_MAX, Count, Digest, Name, NewName, Page, Reply, Request
from computepool.protocol.jobs.children import MessageView
from computepool.protocol.jobs.jobs import JobResult, OutputFile

#: A key's metadata is for people's lists, not for data.
META_BYTES_MAX = 4_096
#: Of a result that is told from outside; anything larger is an artifact, and its digest the result.
KEY_RESULT_MAX = 64 * 1024
#: As many digests as one arrival lists; the manifest's own digest covers the rest.
DIGESTS_MAX = 10_000
PATH_MAX = 4_096

MetaValue = Annotated[str, StringConstraints(max_length=1_000)] | bool | int | float | None
ErrorText = Annotated[str, StringConstraints(max_length=TEXT_MAX)]


class ResultPage(Reply):
    results: list[JobResult]
    cursor: int  #: ask again with after=cursor
    open: int | None = None  #: what the group still waits for; only told when there are no new results


class GroupRequest(Request):
    name: NewName
    kind: Annotated[str, StringConstraints(pattern=r"^(map|slices|session|group)$")] = "group"
    home: Name | None = None  #: a node of yours, by id or name: where the results shall go
    return_home: bool = False  #: bring them there when the group is complete


class ExpectedKey(Request):
    key: NewName
    meta: dict[NewName, MetaValue] | None = Field(default=None, max_length=32)

    @model_validator(mode="after")
    def _small(self) -> Self:
        if self.meta is not None and len(json.dumps(self.meta).encode()) > META_BYTES_MAX:
            raise ValueError(f"the metadata of a key may have {META_BYTES_MAX} bytes at most")
        return self


class RegisterKeysRequest(Request):
    """Keys the group waits for from now on. One that is registered already gets the new metadata."""

    keys: list[ExpectedKey] = Field(min_length=1, max_length=LIST_MAX)


class RegisterKeysReply(Reply):
    added: int
    updated: int
    expected: int  #: keys of the group that are registered, in all


class KeyReport(Request):
    """How a key without a job ended, told by whoever did it. The first report of a key stands."""

    key: NewName
    outcome: Literal["succeeded", "failed"]
    #: an encoded value (see values.py)
    result: Annotated[str, StringConstraints(max_length=KEY_RESULT_MAX)] | None = None
    error: ErrorText | None = None


class KeyReportsRequest(Request):
    reports: list[KeyReport] = Field(min_length=1, max_length=LIST_MAX)


class KeyVerdict(Reply):
    """accepted · duplicate: the key was reported before · has_job: its job's own outcome is what counts (both are
    counted as duplicates) · unknown: it was never registered."""

    key: str
    verdict: Literal["accepted", "duplicate", "has_job", "unknown"]


class KeyReportsReply(Reply):
    verdicts: list[KeyVerdict]


class ReturnHomeRequest(Request):
    """Ask for it, ask again, change the home, or (enabled=false) call it off."""

    home: Name | None = None  #: a node of yours, by id or name; default: the one it has
    enabled: bool = True


class HomeView(Reply):
    """Where a group's results go."""

    state: str = "off"  #: off, when_complete, waiting, arrived
    sentence: str = "not requested"
    node_id: str | None = None
    node_name: str | None = None
    reason: str | None = None  #: why it has not arrived yet, as the home node says
    at_ms: int | None = None  #: of the arrival, or of the node's last word about it
    items: int | None = None  #: that arrived
    files: int | None = None
    bytes: int | None = None
    folder: str | None = None  #: inside the agent's data folder
    path: str | None = None  #: of that folder on the home node, as its agent says


class GroupView(Reply):
    id: str
    name: str
    kind: str
    account_id: str
    created_at_ms: int
    counts: dict[str, int]  #: by state, in items; `expected`: keys that have no job and no report yet
    total: int
    succeeded: int = 0
    failed: int = 0  #: failed, cancelled or expired
    pending: int = 0  #: everything else
    expected: int = 0  #: keys that were registered
    duplicates: int = 0  #: reports that came after the first one
    complete: bool = False  #: nothing is pending, and there is something
    completed_at_ms: int | None = None  #: noted for groups with registered keys or a home
    home: HomeView = HomeView()


class GroupPage(Page):
    groups: list[GroupView]


class GroupItem(Reply):
    """One thing that a group is about: a job, or a key without one."""

    key: str | None = None
    job_id: str | None = None
    state: str  #: a job's state, or expected, succeeded, failed
    sentence: str = ""  #: why it is so
    bundled: int = 1  #: items that count here; those that were sent again count in their new jobs
    carried: int | None = None  #: answers in its result, of each item one; null: as `bundled`
    items_failed: int = 0  #: of these, in a job that succeeded
    meta: dict[str, MetaValue] | None = None
    duplicates: int = 0
    finished_at_ms: int | None = None
    exit_code: int | None = None
    error: str | None = None
    result: str | None = None  #: an encoded value (see values.py)
    result_artifact: str | None = None
    dropped: bool = False  #: it had a result, which is no longer kept
    outputs: list[OutputFile] = []


class ItemPage(Page):
    items: list[GroupItem]


class ItemState(Reply):
    """The least about an item: for pictures of thousands."""

    key: str | None = None
    job_id: str | None = None
    state: str  #: as in GroupItem
    bundled: int = 1
    items_failed: int = 0


class StatePage(Page):
    items: list[ItemState]


class LocationView(Reply):
    """Where the collector is."""

    hub_id: str
    address: str


class GroupSummary(GroupView):
    """What the collector knows, with the beginning of each list; `next` of one leads on, at /groups/{id}/items."""

    location: LocationView
    results: ItemPage
    failures: ItemPage
    waiting: ItemPage
    message_count: int = 0
    messages: list[MessageView] = []  #: the newest, oldest first; all of them at /groups/{id}/messages


class ResultDeliveryView(Reply):
    """Get what the home node has to fetch."""

    summary: GroupSummary
    round: int  #: of its completions; an arrival names it
    items: int  #: how many there are to bring
    files: int  #: how many different artifacts
    bytes: int  #: of all of them


class DeliveryProblem(Request):
    round: Count
    reason: ErrorText


class ArrivalRequest(Request):
    """Everything is here, and every file's SHA-256 was right."""

    round: Count
    items: Count
    files: Count
    bytes: Count
    folder: Annotated[str, StringConstraints(max_length=300)]
    #: where that is on this machine
    path: Annotated[str, StringConstraints(max_length=PATH_MAX)] | None = None
    manifest: Digest  #: SHA-256 of the list of all that was written
    digests: list[Digest] = Field(default=[], max_length=DIGESTS_MAX)  #: of the artifacts, sorted


class ArrivalReply(Reply):
    recorded: bool  #: false: it was already, or the group is not waiting for it any more
