"""Jobs that come after others: when they run, and what the end of one job means for those that wait for it."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason


class When(StrEnum):
    """The condition on the jobs that a job comes after."""

    SUCCESS = "success"  #: once all have succeeded; cancelled as soon as one has not
    FAILURE = "failure"  #: as soon as one has not succeeded; skipped if all have
    ALWAYS = "always"  #: once all have ended


class Ending(StrEnum):
    """How a job ended, for those that come after it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  #: or was cancelled, or expired
    SKIPPED = "skipped"  #: its own condition was not met, which is no failure


class Step(StrEnum):
    """What the end of a job means for one that comes after it."""

    COUNT = "count"  #: it waits for one job less
    START = "start"  #: it waits for nothing any more
    CANCEL = "cancel"
    SKIP = "skip"


#: Why a job that never started ended, as it follows from the last step.
REASONS: dict[Step, Reason] = {Step.CANCEL: Reason.DEPENDENCY_FAILED, Step.SKIP: Reason.SKIPPED}
ENDINGS: dict[Step, Ending] = {Step.CANCEL: Ending.FAILED, Step.SKIP: Ending.SKIPPED}


def ending(state: JobState, reason: Reason) -> Ending | None:
    """None: it has not ended."""
    if state not in TERMINAL:
        return None
    if state is JobState.SUCCEEDED:
        return Ending.SUCCEEDED
    return Ending.SKIPPED if reason is Reason.SKIPPED else Ending.FAILED


def step(when: When, ended: Ending) -> Step:
    if when is When.SUCCESS and ended is not Ending.SUCCEEDED:
        return Step.CANCEL if ended is Ending.FAILED else Step.SKIP
    return Step.START if when is When.FAILURE and ended is Ending.FAILED else Step.COUNT


def last_step(when: When) -> Step:
    """What follows when every job was counted."""
    return Step.SKIP if when is When.FAILURE else Step.START


def first_step(when: When, before: Collection[Ending | None]) -> Step:
    """For a new job that comes after these, some of which have ended. COUNT: it waits for the others."""
    steps = {step(when, ended) for ended in before if ended is not None}
    for decided in (Step.CANCEL, Step.SKIP, Step.START):
        if decided in steps:
            return decided
    return Step.COUNT if None in before else last_step(when)
