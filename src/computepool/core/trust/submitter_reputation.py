"""Submitter reputation: the same discounted Beta as for nodes, over what becomes of the jobs. Pure.

A job that fails pays nothing, so every failure costs an owner work; one that runs into its limits costs most of all. What
somebody does on machines of their own is nobody else's affair. Like a node's reputation it is a cache of the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from computepool.core.jobs.lifecycle import JOB_FAULTS, JobState, Reason
from computepool.core.trust.discounting import Weight, faded, score_of, weigh


class Deed(StrEnum):
    """What became of one run on a node of somebody else."""

    COMPLETED = "completed"  #: and was paid
    FAILED = "failed"  #: by its own fault, as programs do
    HARMFUL = "harmful"  #: it ran until a limit stopped it: time, memory, output, money
    CANCELLED = "cancelled"  #: while a node had it, but before it was known to run
    STOPPED = "stopped"  #: while it ran


WEIGHTS: Final[Mapping[Deed, Weight]] = {
    Deed.COMPLETED: Weight(4, success=True),
    Deed.FAILED: Weight(1, success=False),
    Deed.HARMFUL: Weight(4, success=False),
    Deed.CANCELLED: Weight(1, success=False),
    Deed.STOPPED: Weight(2, success=False),
}
HARMFUL: Final = frozenset(
    {
        Reason.TIMEOUT,
        Reason.OUT_OF_MEMORY,
        Reason.OUTPUT_LIMIT,
        Reason.BUDGET_SPENT,
        Reason.FAILED_EVERYWHERE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitterReputation:
    """What a submitter's runs came to. The default is somebody of whom nothing is known."""

    success: int = 0  #: S, in parts of an outcome, at `changed_at_ms`
    failure: int = 0  #: F
    changed_at_ms: int = 0
    completed: int = 0  #: runs on nodes of others, unweighted
    failed: int = 0
    harmful: int = 0
    cancelled: int = 0

    def score(self, now_ms: int) -> float:
        """From 0 to 1: the cautious mean at this moment."""
        return score_of(*faded(self.success, self.failure, quiet_ms=now_ms - self.changed_at_ms))


UNKNOWN: Final = SubmitterReputation()


@dataclass(frozen=True, slots=True)
class SubmitterEvent:
    """One event's word about one submitter."""

    account_id: str
    node_id: str  #: where it was; counts only if that is somebody else's
    deed: Deed
    at_ms: int


def update(before: SubmitterReputation, run: SubmitterEvent, *, times: int = 1) -> SubmitterReputation:
    """`times`: as if it were told so often, one after the other."""
    at_ms = run.at_ms
    success, failure = faded(before.success, before.failure, quiet_ms=at_ms - before.changed_at_ms)
    for _ in range(times):
        success, failure = weigh(success, failure, WEIGHTS[run.deed])
    return replace(
        before,
        success=success,
        failure=failure,
        changed_at_ms=max(before.changed_at_ms, at_ms),
        completed=before.completed + times * (run.deed is Deed.COMPLETED),
        failed=before.failed + times * (run.deed is Deed.FAILED),
        harmful=before.harmful + times * (run.deed is Deed.HARMFUL),
        cancelled=before.cancelled + times * (run.deed in (Deed.CANCELLED, Deed.STOPPED)),
    )


def recompute(runs: Iterable[SubmitterEvent], begin: SubmitterReputation = UNKNOWN) -> SubmitterReputation:
    for run in runs:
        begin = update(begin, run)
    return begin


# events

_HUB = "hub"
_SUCCEEDED = f"job.{JobState.SUCCEEDED}"
_CANCELLED = f"job.{JobState.CANCELLED}"
#: A run that failed by the job's fault is told by what became of the job: it waits again, or it has failed.
_FAILED = frozenset({f"job.{JobState.QUEUED}", f"job.{JobState.FAILED}"})
ACTIONS: Final = frozenset({_SUCCEEDED, _CANCELLED, *_FAILED})
_FAULTS: Final = frozenset(
    reason.value for reason in JOB_FAULTS | {Reason.FAILED_EVERYWHERE, Reason.UNRUNNABLE}
)
_HARMFUL: Final = frozenset(reason.value for reason in HARMFUL)


def read(event: Mapping[str, object]) -> SubmitterEvent | None:
    """What an event says about the submitter it names; None: nothing."""
    action, account_id, at_ms = event["action"], event["account_id"], event["at_ms"]
    if action not in ACTIONS or account_id is None or not isinstance(at_ms, int):
        return None
    deed = _deed(str(action), before=str(event["before"]), reason=str(event["reason"]))
    # A report is its node's word; what a person or the hub decides names the node.
    node_id = event["node_id"] if action == _CANCELLED or event["actor"] == _HUB else event["actor"]
    return (
        None
        if deed is None or node_id is None
        else SubmitterEvent(str(account_id), str(node_id), deed, at_ms)
    )


def _deed(action: str, *, before: str, reason: str) -> Deed | None:
    if action == _SUCCEEDED:
        return Deed.COMPLETED
    if action == _CANCELLED:
        return {JobState.LEASED.value: Deed.CANCELLED, JobState.RUNNING.value: Deed.STOPPED}.get(before)
    if reason not in _FAULTS:
        return None
    return Deed.HARMFUL if reason in _HARMFUL else Deed.FAILED
