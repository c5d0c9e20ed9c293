"""Wire models of schedules: submissions that the hub repeats at the times of a cron expression."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from computepool.protocol.base import Page, Reply, Request
from computepool.protocol.jobs.jobs import JobSpec, SubmitRequest

#: What happens at a tick while jobs of the run before are unfinished: no run, a run after them, or a run instead of them.
Overlap = Literal["skip", "queue", "replace"]
#: What happens after ticks at which no hub ran: one run for all of them, or none.
Missed = Literal["run-once", "skip"]
#: Its jobs get the label `schedule:NAME`, and labels have 64 characters.
ScheduleName = Annotated[str, StringConstraints(max_length=50, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ScheduleRequest(Request):
    """A new schedule."""

    name: ScheduleName
    #: minute, hour, day of the month, month, day of the week
    cron: Annotated[str, StringConstraints(min_length=1, max_length=200), Field(examples=["0 3 * * *"])]
    tz: Annotated[str, StringConstraints(max_length=64), Field(examples=["Europe/Berlin"])] = "UTC"
    overlap: Overlap = "skip"
    missed: Missed = "run-once"
    request: SubmitRequest  #: what each run submits


class ScheduleRun(Reply):
    """One tick and what became of it."""

    tick_ms: int
    by_hand: bool = False  #: requested, and not a tick of the schedule
    #: waiting (for the run before), starting, submitted, skipped, missed or failed
    state: str
    reason: str = ""  #: why it was not submitted
    job_ids: list[str] = []
    outcome: str = ""  #: the states of its jobs: `2 succeeded, 1 running`


class ScheduleView(Reply):
    id: str
    name: str
    account_id: str
    cron: str
    tz: str
    overlap: str
    missed: str
    state: str  #: active or paused
    reason: str = ""  #: why it is paused, or why the last run could not be submitted
    failures: int = 0  #: runs in a row that could not be submitted
    created_at_ms: int
    next_ms: list[int] = []  #: the next ticks
    last: ScheduleRun | None = None  #: the newest run


class ScheduleDetail(ScheduleView):
    spec: JobSpec  #: of its jobs
    jobs: int  #: of each run
    runs: list[ScheduleRun] = []  #: the newest ones, newest first


class SchedulePage(Page):
    schedules: list[ScheduleView]


class ScheduleRunPage(Page):
    runs: list[ScheduleRun]
