"""The life of a job: states, reasons, transitions, retries, and the answers to reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from computepool.core.backoff import double


class JobKind(StrEnum):
    SCRIPT = "script"  #: a file with an interpreter line, or Python
    COMMAND = "command"  #: a command line
    FUNCTION = "function"  #: a Python callable
    CLASS = "class"  #: a job class with its state; nodes see a function that is called with the state


#: Kinds that a worker calls. The others are programs that are started.
CALLED: frozenset[JobKind] = frozenset({JobKind.FUNCTION, JobKind.CLASS})


class JobState(StrEnum):
    QUEUED = "queued"  #: waits (the reason says for what)
    LEASED = "leased"  #: given to a node, not yet started
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"  #: no node could run it within its time to live


class AttemptState(StrEnum):
    LEASED = "leased"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"  #: its lease ran out; a late result may still be accepted
    CANCELLED = "cancelled"
    RETURNED = "returned"  #: given back by the node before it started
    SUPERSEDED = "superseded"  #: another attempt of the job was accepted first
    REFUTED = "refuted"  #: its result was wrong, as shown by other results or by its own report
    MOVED = "moved"  #: the job asked to continue on another host


class Outcome(StrEnum):
    """How an attempt ended, as reported by its node."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  #: the reason decides whose fault it is
    CANCELLED = "cancelled"  #: stopped at the hub's request
    RETURNED = "returned"  #: never started here, or stopped for the node's own reasons
    MOVED = "moved"  #: the job saved its state and wants to continue on another host


class Reason(StrEnum):
    """The reason for a state. The words are stable; people see a sentence made from them."""

    SUBMITTED = "submitted"
    WAITING_FOR_JOBS = "waiting_for_jobs"  #: the jobs in `after` are not finished
    WAITING_FOR_NODE = "waiting_for_node"
    BACKING_OFF = "backing_off"
    PLACED = "placed"
    STARTED = "started"
    COMPLETED = "completed"
    ACCEPTED_LATE = "accepted_late"
    VERIFYING = "verifying"  #: there is a result; another owner's node must reproduce it
    # the job's fault
    EXIT_NONZERO = "exit_nonzero"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    BUDGET_SPENT = "budget_spent"  #: the money set aside for it is used up
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_LIMIT = "output_limit"
    BAD_JOB = "bad_job"  #: cannot be started anywhere: missing interpreter, unresolvable dependencies
    FAILED_EVERYWHERE = "failed_everywhere"  #: failed on several owners' nodes
    UNRUNNABLE = "unrunnable"  #: nodes of different owners could not run it
    MOVED_TOO_OFTEN = "moved_too_often"
    HOST_NOT_REACHED = "host_not_reached"  #: the host it wanted to continue on is unknown, or did not take it
    RESULTS_DIFFER = "results_differ"  #: a different result each time
    # the node's fault
    LEASE_LOST = "lease_lost"
    NODE_ERROR = "node_error"  #: sandbox or agent failure
    STAGING_FAILED = "staging_failed"
    OUTPUT_MISMATCH = "output_mismatch"  #: the output it sent is not the output it reported
    NODE_RESTARTED = "node_restarted"
    FALSE_REPORT = "false_report"  #: the hub found the node's report to be false
    NODES_KEPT_FAILING = "nodes_kept_failing"
    # nobody's fault
    GIVEN_BACK = "given_back"
    NODE_DRAINING = "node_draining"
    MOVED = "moved"  #: to another host, at the job's own request
    CANCELLED_BY_USER = "cancelled_by_user"
    DEPENDENCY_FAILED = "dependency_failed"
    PARENT_ENDED = "parent_ended"  #: the job that submitted it did not succeed
    QUEUED_TOO_LONG = "queued_too_long"
    NOT_CONFIRMED = "not_confirmed"  #: there is a result, but nobody confirmed it in time
    SUPERSEDED = "superseded"
    REPORTED = "reported"  #: from outside, for a key of a group without a job


TERMINAL: frozenset[JobState] = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED})
LIVE_ATTEMPT: frozenset[AttemptState] = frozenset({AttemptState.LEASED, AttemptState.RUNNING})

_JOB_TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset(
        # SUCCEEDED: a late result of an expired attempt may be accepted while the job is queued again
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
#: The node reports that it could not run the job. Only other nodes' tries show whose fault that is: it counts against the
#: node once another node has done the job (core/trust/reputation.py), and against the job once a second owner's node
#: cannot run it either.
CONTESTED: frozenset[Reason] = frozenset({Reason.NODE_ERROR, Reason.STAGING_FAILED})
#: Never retried, because the job would fail again elsewhere.
HOPELESS: frozenset[Reason] = frozenset({Reason.BAD_JOB, Reason.BUDGET_SPENT})


#: The reasons that a node may give for each outcome.
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


class Verdict(StrEnum):
    """The hub's answer to a report. Every report gets one, so that the agent stops retrying."""

    ACCEPTED = "accepted"
    ACCEPTED_LATE = "accepted_late"
    REPLAY = "replay"  #: the same report again, which gets the same answer
    CONFLICT = "conflict"  #: a different report for an attempt that was already reported
    SUPERSEDED = "superseded"  #: another attempt was accepted; nothing is paid
    CANCELLED = "cancelled"
    FOREIGN = "foreign"  #: the node has no such attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """The stored state of an attempt when its report arrives."""

    state: AttemptState
    report_digest: str | None
    job_state: JobState
    job_accepted: bool  #: an attempt of the job was already accepted


def judge_report(facts: AttemptFacts | None, *, report_digest: str, outcome: Outcome) -> Verdict:
    """Handle late and repeated reports. `facts` is None if the node has no such attempt."""
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
    # The lease ran out and nothing else was accepted. A late success counts; a late failure already counted as a lost lease.
    return Verdict.ACCEPTED_LATE if outcome is Outcome.SUCCEEDED else Verdict.SUPERSEDED
