"""Groups as clients make and see them: jobs that belong together, and their results as they come."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from computepool.protocol.base import Name, Page, Reply, Request
from computepool.protocol.jobs import JobResult


class ResultPage(Reply):
    results: list[JobResult]
    cursor: int  #: ask again with after=cursor
    open: int | None = None  #: unfinished jobs of the group; only told when there are no new results


class GroupRequest(Request):
    name: Name
    kind: Annotated[str, StringConstraints(pattern=r"^(map|slices|session|group)$")] = "group"


class GroupView(Reply):
    id: str
    name: str
    kind: str
    account_id: str
    created_at_ms: int
    counts: dict[str, int]  #: by job state
    total: int


class GroupPage(Page):
    groups: list[GroupView]
