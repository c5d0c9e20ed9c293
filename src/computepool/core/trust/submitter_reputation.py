"""Submitter reputation: the same discounted Beta distribution as for nodes, over the outcomes of an account's jobs.

Failed jobs pay nothing, so every failure wastes an owner's resources, most of all jobs that run into their limits. Jobs
on the submitter's own nodes do not count. Like a node's reputation, it is a cache of the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from computepool.core.jobs.lifecycle import JOB_FAULTS, JobState, Reason
from computepool.core.trust.discounting import Outcomes, Weight, weigh


class SubmitterOutcome(StrEnum):
    """The end of one run on another account's node."""

    COMPLETED = "completed"  #: and paid for
    FAILED = "failed"  #: through the job's own fault
    HARMFUL = "harmful"  #: stopped by a limit: time, memory, output, money
    CANCELLED = "cancelled"  #: while a node had it, but before it was known to run
    STOPPED = "stopped"  #: cancelled while it ran


WEIGHTS: Final[Mapping[SubmitterOutcome, Weight]] = {
    SubmitterOutcome.COMPLETED: Weight(4, success=True),
    SubmitterOutcome.FAILED: Weight(1, success=False),
    SubmitterOutcome.HARMFUL: Weight(4, success=False),
    SubmitterOutcome.CANCELLED: Weight(1, success=False),
    SubmitterOutcome.STOPPED: Weight(2, success=False),
}
HARMFUL: Final = frozenset(
    {Reason.TIMEOUT, Reason.OUT_OF_MEMORY, Reason.OUTPUT_LIMIT, Reason.BUDGET_SPENT, Reason.FAILED_EVERYWHERE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitterReputation(Outcomes):
    """The sum of a submitter's runs. The default is an unknown submitter."""

    completed: int = 0  #: runs on other accounts' nodes, unweighted
    failed: int = 0
    harmful: int = 0
    cancelled: int = 0


UNKNOWN: Final = SubmitterReputation()


@dataclass(frozen=True, slots=True)
class SubmitterEvent:
    account_id: str
    node_id: str  #: the run counts only if this is another account's node
    outcome: SubmitterOutcome
    at_ms: int


def update(before: SubmitterReputation, run: SubmitterEvent, *, times: int = 1) -> SubmitterReputation:
    """The reputation after `times` equal events."""
    success, failure = before.fade(run.at_ms)
    for _ in range(times):
        success, failure = weigh(success, failure, WEIGHTS[run.outcome])
    return replace(
        before,
        success=success,
        failure=failure,
        changed_at_ms=max(before.changed_at_ms, run.at_ms),
        completed=before.completed + times * (run.outcome is SubmitterOutcome.COMPLETED),
        failed=before.failed + times * (run.outcome is SubmitterOutcome.FAILED),
        harmful=before.harmful + times * (run.outcome is SubmitterOutcome.HARMFUL),
        cancelled=before.cancelled + times * (run.outcome in (SubmitterOutcome.CANCELLED, SubmitterOutcome.STOPPED)),
    )


# events

_HUB = "hub"
_SUCCEEDED = f"job.{JobState.SUCCEEDED}"
_CANCELLED = f"job.{JobState.CANCELLED}"
#: A run that failed through the job's fault shows in the job's next state: queued again, or failed.
_FAILED = frozenset({f"job.{JobState.QUEUED}", f"job.{JobState.FAILED}"})
ACTIONS: Final = frozenset({_SUCCEEDED, _CANCELLED, *_FAILED})
_FAULTS: Final = frozenset(reason.value for reason in JOB_FAULTS | {Reason.FAILED_EVERYWHERE, Reason.UNRUNNABLE})
_HARMFUL: Final = frozenset(reason.value for reason in HARMFUL)


def read(event: Mapping[str, object]) -> SubmitterEvent | None:
    """What an event says about its submitter; None if nothing."""
    action, account_id, at_ms = event["action"], event["account_id"], event["at_ms"]
    if action not in ACTIONS or account_id is None or not isinstance(at_ms, int):
        return None
    outcome = _outcome(str(action), before=str(event["before"]), reason=str(event["reason"]))
    # A report is made by its node; events caused by a person or the hub name the node.
    node_id = event["node_id"] if action == _CANCELLED or event["actor"] == _HUB else event["actor"]
    return None if outcome is None or node_id is None else SubmitterEvent(str(account_id), str(node_id), outcome, at_ms)


def _outcome(action: str, *, before: str, reason: str) -> SubmitterOutcome | None:
    if action == _SUCCEEDED:
        return SubmitterOutcome.COMPLETED
    if action == _CANCELLED:
        return {
            JobState.LEASED.value: SubmitterOutcome.CANCELLED,
            JobState.RUNNING.value: SubmitterOutcome.STOPPED,
        }.get(before)
    if reason not in _FAULTS:
        return None
    return SubmitterOutcome.HARMFUL if reason in _HARMFUL else SubmitterOutcome.FAILED
