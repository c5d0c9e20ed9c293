"""Settling: what the end of an attempt means for the attempt, its job and its node.

The hub loads the facts, applies what is decided here in the same transaction (hub/settlement/settle.py), and brings its memory
in step after the commit. Which of several results counts is decided in core/trust/verification.py, what is paid in
core/money/ledger.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from computepool.core.backoff import double
from computepool.core.jobs.lifecycle import (
    CONTESTED,
    LIVE_ATTEMPT,
    NODE_FAULTS,
    TERMINAL,
    AttemptState,
    JobState,
    Outcome,
    Reason,
    Verdict,
)
from computepool.core.trust.reputation import FAULT_ACTION, REFUTED_ACTION

#: How long a job given back waits before it is offered again, doubling with every attempt.
_GIVEN_BACK_MS: Final = 10
_GIVEN_BACK_MAX_MS: Final = 5_000


# a report


@dataclass(slots=True, kw_only=True)
class AttemptFacts:
    """What is stored about an attempt and its job when a report arrives. Not frozen, which would double the time to make one."""

    state: AttemptState
    report_digest: str | None  #: of an earlier report
    job_state: JobState
    job_accepted: bool  #: an attempt of the job was already accepted
    attempts: int = 1  #: of the job, so far
    is_own: bool = False  #: the job and the node belong to one account
    before_start: bool = False  #: the hub has started since the attempt was leased
    resumed: bool = False  #: earlier attempts used a part of its time or money
    in_gang: bool = False  #: the others have begun again without it
    can_move: bool = False  #: it saved a checkpoint, and named the host to continue on


class NextStep(StrEnum):
    """What the hub does with the job."""

    NOTHING = "nothing"
    TAKE_RESULT = "take_result"  #: accept it, or compare it with others
    MOVE = "move"  #: the job continues on the host that it named
    REQUEUE = "requeue"  #: it runs again, and nobody is at fault
    RETRY = "retry"  #: `after_failure` says whether it runs again


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What follows from a report."""

    verdict: Verdict
    attempt: AttemptState | None = None  #: the attempt's final state; None if the report changes nothing
    next_step: NextStep = NextStep.NOTHING
    why: Reason = Reason.SUPERSEDED  #: of the next step
    delay_ms: int = 0  #: before a job that is queued again is offered
    drops_checkpoint: bool = False  #: the next attempt starts from the beginning, with the whole time limit
    good: bool = False  #: it clears the node's count of faults
    bad: bool = False  #: it counts towards the node's next rest
    fault: str | None = None  #: the event that enters the node's record

    @property
    def is_late(self) -> bool:
        return self.verdict is Verdict.ACCEPTED_LATE


_SUCCESS: Final = Settlement(
    verdict=Verdict.ACCEPTED,
    attempt=AttemptState.SUCCEEDED,
    next_step=NextStep.TAKE_RESULT,
    why=Reason.COMPLETED,
    good=True,
)
_LATE_SUCCESS: Final = replace(_SUCCESS, verdict=Verdict.ACCEPTED_LATE, why=Reason.ACCEPTED_LATE)


def settle(facts: AttemptFacts | None, *, report_digest: str, outcome: Outcome, reason: Reason) -> Settlement:
    """`facts` is None if the node has no such attempt."""
    verdict = judge_report(facts, report_digest=report_digest, outcome=outcome)
    if facts is None or verdict in (Verdict.REPLAY, Verdict.CONFLICT):
        return Settlement(verdict=verdict)
    if verdict in (Verdict.SUPERSEDED, Verdict.CANCELLED):
        return Settlement(verdict=verdict, attempt=AttemptState(verdict))
    if outcome is Outcome.SUCCEEDED:
        return _SUCCESS if verdict is Verdict.ACCEPTED else _LATE_SUCCESS
    if outcome is Outcome.FAILED:
        return _settle_failure(facts, verdict, reason)
    if outcome is Outcome.MOVED and facts.can_move:
        return Settlement(verdict=verdict, attempt=AttemptState.MOVED, next_step=NextStep.MOVE, why=reason)
    if outcome is Outcome.MOVED:  # without a checkpoint: the node did not send the files
        why = Reason.STAGING_FAILED
        return Settlement(verdict=verdict, attempt=AttemptState.MOVED, next_step=NextStep.RETRY, why=why)
    # Given back, or stopped although the job was not cancelled.
    state = AttemptState.CANCELLED if outcome is Outcome.CANCELLED else AttemptState.RETURNED
    return _requeue(facts, verdict, reason, attempt=state)


def _settle_failure(facts: AttemptFacts, verdict: Verdict, reason: Reason) -> Settlement:
    if facts.resumed and reason in (Reason.TIMEOUT, Reason.BUDGET_SPENT):
        # Earlier attempts had claimed a part of its time or money, so it is not the job's fault that these ran out.
        return _requeue(facts, verdict, reason, attempt=AttemptState.FAILED, drops_checkpoint=True)
    # A lease that the node could not renew while the hub was away is not its fault.
    is_nodes = reason in NODE_FAULTS and not (reason is Reason.LEASE_LOST and facts.before_start)
    # Where the fault may be the job's, it counts when another node has done the job, or if the job is the owner's own.
    is_proven = is_nodes and reason not in CONTESTED
    # Output that differs from the report is a wrong result, proven by the node's own word.
    refuted = reason is Reason.OUTPUT_MISMATCH
    fault = REFUTED_ACTION if refuted else FAULT_ACTION
    return Settlement(
        verdict=verdict,
        attempt=AttemptState.REFUTED if refuted else AttemptState.FAILED,
        next_step=NextStep.RETRY,
        why=reason,
        drops_checkpoint=refuted,  # nobody resumes from what a liar saved
        bad=is_proven or (is_nodes and facts.is_own),
        fault=fault if is_proven else None,
    )


def _requeue(
    facts: AttemptFacts, verdict: Verdict, why: Reason, *, attempt: AttemptState, drops_checkpoint: bool = False
) -> Settlement:
    """Each time the job waits a little longer, so that a node that only gives jobs back does not keep the hub busy."""
    return Settlement(
        verdict=verdict,
        attempt=attempt,
        next_step=NextStep.REQUEUE,
        why=why,
        delay_ms=double(_GIVEN_BACK_MS, facts.attempts, most=_GIVEN_BACK_MAX_MS),
        drops_checkpoint=drops_checkpoint,
    )


def judge_report(facts: AttemptFacts | None, *, report_digest: str, outcome: Outcome) -> Verdict:
    """Handle late and repeated reports."""
    if facts is None:
        return Verdict.FOREIGN
    if facts.report_digest is not None:
        return Verdict.REPLAY if facts.report_digest == report_digest else Verdict.CONFLICT
    if facts.state is AttemptState.CANCELLED or facts.job_state is JobState.CANCELLED:
        return Verdict.CANCELLED
    # Checked before the state: the batch may contain a late report that was accepted instead of this live attempt.
    if facts.job_accepted or facts.job_state in TERMINAL:
        return Verdict.SUPERSEDED
    if facts.state in LIVE_ATTEMPT:
        return Verdict.ACCEPTED
    if facts.in_gang:
        return Verdict.SUPERSEDED
    # The lease ran out and nothing else was accepted. A late success counts; a late failure already counted as a lost lease.
    return Verdict.ACCEPTED_LATE if outcome is Outcome.SUCCEEDED else Verdict.SUPERSEDED


# a failure

#: Never retried, because the job would fail again elsewhere.
HOPELESS: frozenset[Reason] = frozenset({Reason.BAD_JOB, Reason.BUDGET_SPENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """How often a job is retried. `retries` is the submitter's choice, the others are settings of the hub."""

    retries: int  #: after failures that are the job's fault
    node_faults_max: int = 5  #: the job fails after this many node faults
    owners_max: int = 3  #: the job fails after failing on this many owners' nodes
    owners_unable_max: int = 2  #: the job is to blame once this many owners' nodes could not run it
    backoff_base_ms: int = 1_000
    backoff_max_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureHistory:
    """A job's failures, including the one being decided."""

    job_faults: int
    node_faults: int
    owners_failed: int  #: owners on whose nodes the job failed through its own fault
    owners_unable: int = 0  #: owners whose nodes could not run it; 0 if any node has a result


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterFailure:
    state: JobState  #: QUEUED or FAILED
    reason: Reason
    delay_ms: int = 0
    avoid_node: bool = False


def after_failure(reason: Reason, history: FailureHistory, limits: RetryLimits, *, jitter: float) -> AfterFailure:
    """Decide whether to retry. `jitter` in [0, 1) spreads retries."""
    if reason in CONTESTED and history.owners_unable >= limits.owners_unable_max:
        return AfterFailure(state=JobState.FAILED, reason=Reason.UNRUNNABLE)
    if reason in NODE_FAULTS:
        if history.node_faults >= limits.node_faults_max:
            return AfterFailure(state=JobState.FAILED, reason=Reason.NODES_KEPT_FAILING)
        # No delay after the first node fault, because the job did nothing wrong.
        delay = 0 if history.node_faults <= 1 else _backoff_ms(history.node_faults - 1, limits, jitter)
        return AfterFailure(state=JobState.QUEUED, reason=reason, delay_ms=delay, avoid_node=True)
    if reason in HOPELESS or history.job_faults > limits.retries:
        return AfterFailure(state=JobState.FAILED, reason=reason)
    if history.owners_failed >= limits.owners_max:
        return AfterFailure(state=JobState.FAILED, reason=Reason.FAILED_EVERYWHERE)
    delay = _backoff_ms(history.job_faults, limits, jitter)
    return AfterFailure(state=JobState.QUEUED, reason=reason, delay_ms=delay, avoid_node=True)


def _backoff_ms(failures: int, limits: RetryLimits, jitter: float) -> int:
    """Exponential, with jitter in the upper half, so that retries spread out but are never immediate."""
    ceiling = double(limits.backoff_base_ms, failures - 1, most=limits.backoff_max_ms)
    return ceiling // 2 + int(ceiling // 2 * jitter)
