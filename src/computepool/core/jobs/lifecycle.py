"""The life of a job: its states, the reasons for them, and the transitions between them."""

from __future__ import annotations

from enum import StrEnum


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
    SKIPPED = "skipped"  #: it runs only after a failure, and there was none
    PARENT_ENDED = "parent_ended"  #: the job that submitted it did not succeed
    QUEUED_TOO_LONG = "queued_too_long"
    NOT_CONFIRMED = "not_confirmed"  #: there is a result, but nobody confirmed it in time
    SUPERSEDED = "superseded"
    REPORTED = "reported"  #: from outside, for a key of a group without a job


class When(StrEnum):
    """The condition on the jobs that a job comes after."""

    SUCCESS = "success"  #: once all have succeeded; cancelled as soon as one has not
    FAILURE = "failure"  #: as soon as one has not succeeded; skipped if all have
    ALWAYS = "always"  #: once all have ended


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


class Verdict(StrEnum):
    """The hub's answer to a report. Every report gets one, so that the agent stops retrying."""

    ACCEPTED = "accepted"
    ACCEPTED_LATE = "accepted_late"
    REPLAY = "replay"  #: the same report again, which gets the same answer
    CONFLICT = "conflict"  #: a different report for an attempt that was already reported
    SUPERSEDED = "superseded"  #: another attempt was accepted; nothing is paid
    CANCELLED = "cancelled"
    FOREIGN = "foreign"  #: the node has no such attempt
