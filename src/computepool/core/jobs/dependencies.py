"""Jobs that come after others: when they run, and what the end of one job means for those that wait for it."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason, When


class Ending(StrEnum):
    """How a job ended, for those that come after it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  #: or was cancelled, or expired
    SKIPPED = "skipped"  #: its own condition was not met, which is no failure


class Consequence(StrEnum):
    """What the end of a job means for one that comes after it."""

    COUNT = "count"  #: it waits for one job less
    START = "start"  #: it waits for nothing any more
    CANCEL = "cancel"
    SKIP = "skip"


#: Why a job that never started ended, as it follows from the last one.
REASONS: dict[Consequence, Reason] = {Consequence.CANCEL: Reason.DEPENDENCY_FAILED, Consequence.SKIP: Reason.SKIPPED}
ENDINGS: dict[Consequence, Ending] = {Consequence.CANCEL: Ending.FAILED, Consequence.SKIP: Ending.SKIPPED}


def ending_of(state: JobState, reason: Reason) -> Ending | None:
    """None: it has not ended."""
    if state not in TERMINAL:
        return None
    if state is JobState.SUCCEEDED:
        return Ending.SUCCEEDED
    return Ending.SKIPPED if reason is Reason.SKIPPED else Ending.FAILED


def consequence(when: When, ended: Ending) -> Consequence:
    if when is When.SUCCESS and ended is not Ending.SUCCEEDED:
        return Consequence.CANCEL if ended is Ending.FAILED else Consequence.SKIP
    return Consequence.START if when is When.FAILURE and ended is Ending.FAILED else Consequence.COUNT


def last_consequence(when: When) -> Consequence:
    """What follows when every job was counted."""
    return Consequence.SKIP if when is When.FAILURE else Consequence.START


def first_consequence(when: When, before: Collection[Ending | None]) -> Consequence:
    """For a new job that comes after these, some of which have ended. COUNT: it waits for the others."""
    found = {consequence(when, ended) for ended in before if ended is not None}
    for decided in (Consequence.CANCEL, Consequence.SKIP, Consequence.START):
        if decided in found:
            return decided
    return Consequence.COUNT if None in before else last_consequence(when)
