"""The life of a job: states, reasons, the transition tables, retries, and what to answer a report.

Pure rules. A service loads rows, asks here, and writes what it was told in one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from computepool.core.backoff import doubled


class JobKind(StrEnum):
    SCRIPT = "script"  #: a file with an interpreter line, or Python
    COMMAND = "command"  #: an argv
    FUNCTION = "function"  #: a Python callable
    CLASS = "class"  #: a job class with its state; to a node, a function that is called with the state


#: What a worker calls, where the others are programs that are started.
CALLED: frozenset[JobKind] = frozenset({JobKind.FUNCTION, JobKind.CLASS})


class JobState(StrEnum):
    QUEUED = "queued"  #: waits for a node (the reason says for what)
    LEASED = "leased"  #: given to a node, not yet started
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"  #: nobody could run it before its time to live ended


class AttemptState(StrEnum):
    LEASED = "leased"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"  #: its lease ran out; a late result may still be accepted
    CANCELLED = "cancelled"
    RETURNED = "returned"  #: given back by the node before it started
    SUPERSEDED = "superseded"  #: another attempt of the job was accepted first
    REFUTED = "refuted"  #: its result was wrong, by comparison with others or by its own report
    MOVED = "moved"  #: the job asked to go on at another host


class Outcome(StrEnum):
    """What a node says of an attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  #: with a reason that decides whose fault it is
    CANCELLED = "cancelled"  #: stopped because the hub said so
    RETURNED = "returned"  #: never started here, or stopped for the node's own sake
    MOVED = "moved"  #: the job saved where it is, and wants to go on at another host


class Reason(StrEnum):
    """Why something is as it is. Stable words; people get a sentence made from them."""

    SUBMITTED = "submitted"
    WAITING_FOR_JOBS = "waiting_for_jobs"  #: `after` jobs are not finished
    WAITING_FOR_NODE = "waiting_for_node"
    BACKING_OFF = "backing_off"
    PLACED = "placed"
    STARTED = "started"
    COMPLETED = "completed"
    ACCEPTED_LATE = "accepted_late"
    VERIFYING = "verifying"  #: a result is there; another owner's node has to come to the same
    # the job's fault
    EXIT_NONZERO = "exit_nonzero"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    BUDGET_SPENT = "budget_spent"  #: the money set aside for it lasts no longer
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_LIMIT = "output_limit"
    BAD_JOB = "bad_job"  #: cannot be started anywhere: missing interpreter, unresolvable dependencies
    FAILED_EVERYWHERE = "failed_everywhere"  #: failed on several owners' nodes
    UNRUNNABLE = "unrunnable"  #: nodes of different owners could not run it
    MOVED_TOO_OFTEN = "moved_too_often"
    HOST_NOT_REACHED = "host_not_reached"  #: the one it wanted to go on at is not known, or did not take it
    RESULTS_DIFFER = "results_differ"  #: another result each time
    # the node's fault
    LEASE_LOST = "lease_lost"
    NODE_ERROR = "node_error"  #: sandbox or agent failure
    STAGING_FAILED = "staging_failed"
    OUTPUT_MISMATCH = "output_mismatch"  #: the output that it sent is not the one that it reported
    NODE_RESTARTED = "node_restarted"
    FALSE_REPORT = "false_report"  #: the hub found that what the node reported is not so
    NODES_KEPT_FAILING = "nodes_kept_failing"
    # nobody's fault
    GIVEN_BACK = "given_back"
    NODE_DRAINING = "node_draining"
    MOVED = "moved"  #: to another host, because the job said so
    CANCELLED_BY_USER = "cancelled_by_user"
    DEPENDENCY_FAILED = "dependency_failed"
    PARENT_ENDED = "parent_ended"  #: the job that submitted it did not succeed
    QUEUED_TOO_LONG = "queued_too_long"
    NOT_CONFIRMED = "not_confirmed"  #: a result, and nobody to confirm it in time
    SUPERSEDED = "superseded"
    REPORTED = "reported"  #: from outside, for a key of a group that has no job


TERMINAL: frozenset[JobState] = frozenset(
    {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED}
)
LIVE_ATTEMPT: frozenset[AttemptState] = frozenset({AttemptState.LEASED, AttemptState.RUNNING})

_JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset(
        # SUCCEEDED: a late result of an expired attempt is accepted while the job waits again
        {JobState.LEASED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED}
    ),
    JobState.LEASED: frozenset(
        {JobState.RUNNING, JobState.QUEUED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.RUNNING: frozenset({JobState.QUEUED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}),
}

JOB_FAULTS: frozenset[Reason] = frozenset(
    {
        Reason.EXIT_NONZERO,
        Reason.EXCEPTION,
        Reason.SIGNAL,
        Reason.TIMEOUT,
        Reason.BUDGET_SPENT,
        Reason.OUT_OF_MEMORY,
        Reason.OUTPUT_LIMIT,
        Reason.BAD_JOB,
    }
)
NODE_FAULTS: frozenset[Reason] = frozenset(
    {
        Reason.LEASE_LOST,
        Reason.NODE_ERROR,
        Reason.STAGING_FAILED,
        Reason.NODE_RESTARTED,
        Reason.OUTPUT_MISMATCH,
        Reason.FALSE_REPORT,
    }
)
#: A node's word that it could not run a job. Whose fault that is shows when others try: it counts against the node once
#: another has done the job (core/trust/reputation.py), and against the job once a second owner's node cannot run it either.
CONTESTED: frozenset[Reason] = frozenset({Reason.NODE_ERROR, Reason.STAGING_FAILED})
#: Failing again elsewhere would change nothing, so these are never retried.
HOPELESS: frozenset[Reason] = frozenset({Reason.BAD_JOB, Reason.BUDGET_SPENT})


#: What a node may give as the reason of each outcome.
REASONS_FOR: dict[Outcome, frozenset[Reason]] = {
    Outcome.SUCCEEDED: frozenset({Reason.COMPLETED}),
    Outcome.FAILED: (JOB_FAULTS | NODE_FAULTS) - {Reason.OUTPUT_MISMATCH, Reason.FALSE_REPORT},
    Outcome.CANCELLED: frozenset({Reason.CANCELLED_BY_USER}),
    Outcome.RETURNED: frozenset({Reason.GIVEN_BACK, Reason.NODE_DRAINING}),
    Outcome.MOVED: frozenset({Reason.MOVED}),
}


def may_become(before: JobState, after: JobState) -> bool:
    return after in _JOB_TRANSITIONS.get(before, frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """How often a job is tried again. The first is the submitter's choice, the others are the hub's settings."""

    retries: int  #: after failures that are the job's fault
    node_faults_max: int = 5  #: nodes that may be lost under it
    owners_max: int = 3  #: different owners' nodes that may fail it before it is called poison
    #: different owners whose nodes say that they could not run it, before it is to blame
    owners_unable_max: int = 2
    backoff_base_ms: int = 1_000
    backoff_max_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureHistory:
    """Failures of a job including the one being decided."""

    job_faults: int
    node_faults: int
    owners_failed: int  #: different owners on whose nodes the job failed by its own fault
    #: different owners whose nodes could not run it; none where one of them has a result
    owners_unable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterFailure:
    """What becomes of a job when an attempt did not succeed."""

    state: JobState  #: QUEUED or FAILED
    reason: Reason
    delay_ms: int = 0
    avoid_node: bool = False


def after_failure(
    reason: Reason, history: FailureHistory, limits: RetryLimits, *, jitter: float
) -> AfterFailure:
    """Retry or give up. `jitter` in [0, 1) spreads retries; it is an argument so that the rule stays pure."""
    if reason in CONTESTED and history.owners_unable >= limits.owners_unable_max:
        return AfterFailure(state=JobState.FAILED, reason=Reason.UNRUNNABLE)
    if reason in NODE_FAULTS:
        if history.node_faults >= limits.node_faults_max:
            return AfterFailure(state=JobState.FAILED, reason=Reason.NODES_KEPT_FAILING)
        # The first lost node costs no waiting: the job did nothing wrong.
        delay = 0 if history.node_faults <= 1 else _backoff_ms(history.node_faults - 1, limits, jitter)
        return AfterFailure(state=JobState.QUEUED, reason=reason, delay_ms=delay, avoid_node=True)
    if reason in HOPELESS or history.job_faults > limits.retries:
        return AfterFailure(state=JobState.FAILED, reason=reason)
    if history.owners_failed >= limits.owners_max:
        return AfterFailure(state=JobState.FAILED, reason=Reason.FAILED_EVERYWHERE)
    delay = _backoff_ms(history.job_faults, limits, jitter)
    return AfterFailure(state=JobState.QUEUED, reason=reason, delay_ms=delay, avoid_node=True)


def _backoff_ms(failures: int, limits: RetryLimits, jitter: float) -> int:
    """Exponential, with the upper half jittered: retries spread out, yet never come at once."""
    ceiling = doubled(limits.backoff_base_ms, failures - 1, most=limits.backoff_max_ms)
    return ceiling // 2 + int(ceiling // 2 * jitter)


class Verdict(StrEnum):
    """The hub's answer to one report. Every report gets one, and the agent stops retrying."""

    ACCEPTED = "accepted"
    ACCEPTED_LATE = "accepted_late"
    REPLAY = "replay"  #: the same report again: same answer
    CONFLICT = "conflict"  #: another result for an attempt that was already reported
    SUPERSEDED = "superseded"  #: another attempt was accepted; nothing is paid
    CANCELLED = "cancelled"
    FOREIGN = "foreign"  #: no such attempt on this node


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """What the store knows when a report arrives."""

    state: AttemptState
    report_digest: str | None
    job_state: JobState
    job_accepted: bool  #: some attempt of the job was already accepted


def judge_report(facts: AttemptFacts | None, *, report_digest: str, outcome: Outcome) -> Verdict:
    """The late/duplicate matrix. `facts` is None when this node holds no such attempt."""
    if facts is None:
        return Verdict.FOREIGN
    if facts.report_digest is not None:
        return Verdict.REPLAY if facts.report_digest == report_digest else Verdict.CONFLICT
    if facts.state is AttemptState.CANCELLED or facts.job_state is JobState.CANCELLED:
        return Verdict.CANCELLED
    # Before the state: a live attempt may share a batch with the late report that was accepted in its place.
    if facts.job_accepted or facts.job_state in TERMINAL:
        return Verdict.SUPERSEDED
    if facts.state in LIVE_ATTEMPT:
        return Verdict.ACCEPTED
    # The lease ran out, yet nothing else was accepted: a late success counts; a late failure already counted
    # as a lost lease.
    return Verdict.ACCEPTED_LATE if outcome is Outcome.SUCCEEDED else Verdict.SUPERSEDED
