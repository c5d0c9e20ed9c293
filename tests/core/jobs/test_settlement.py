"""Settling: the matrix of late and repeated reports, what follows from each, and from failures."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.core.jobs.lifecycle import (
    CONTESTED,
    LIVE_ATTEMPT,
    NODE_FAULTS,
    REASONS_FOR,
    TERMINAL,
    AttemptState,
    JobState,
    Outcome,
    Reason,
    Verdict,
)
from computepool.core.jobs.settlement import (
    HOPELESS,
    AfterFailure,
    AttemptFacts,
    FailureHistory,
    NextStep,
    RetryLimits,
    Settlement,
    after_failure,
    judge_report,
    settle,
)
from computepool.core.trust.reputation import FAULT_ACTION, REFUTED_ACTION

JOB_FAULTS = (Reason.EXIT_NONZERO, Reason.EXCEPTION, Reason.SIGNAL, Reason.TIMEOUT, Reason.OUT_OF_MEMORY)

SAID, NEVER = "digest", None


def facts(
    state: AttemptState, job_state: JobState, digest: str | None = NEVER, *, accepted: bool | None = None
) -> AttemptFacts:
    return AttemptFacts(
        state=state,
        report_digest=digest,
        job_state=job_state,
        job_accepted=job_state is JobState.SUCCEEDED if accepted is None else accepted,
    )


# the matrix, row by row


@pytest.mark.parametrize(
    ("attempt", "job", "said_before", "outcome", "verdict"),
    [
        # leased, open: accepted, whatever the outcome
        ("leased", "leased", NEVER, "succeeded", "accepted"),
        ("running", "running", NEVER, "succeeded", "accepted"),
        ("running", "running", NEVER, "failed", "accepted"),
        ("leased", "leased", NEVER, "returned", "accepted"),
        ("running", "running", NEVER, "cancelled", "accepted"),
        # reported, same digest: the same answer, whatever became of the job
        ("succeeded", "succeeded", "digest", "succeeded", "replay"),
        ("failed", "queued", "digest", "failed", "replay"),
        ("succeeded", "cancelled", "digest", "succeeded", "replay"),
        ("superseded", "succeeded", "digest", "succeeded", "replay"),
        # reported, another digest: a conflict
        ("succeeded", "succeeded", "other", "succeeded", "conflict"),
        ("failed", "running", "other", "succeeded", "conflict"),
        ("cancelled", "cancelled", "other", "succeeded", "conflict"),
        # expired, nothing accepted: a late success counts, a late failure does not
        ("expired", "queued", NEVER, "succeeded", "accepted_late"),
        ("expired", "leased", NEVER, "succeeded", "accepted_late"),
        ("expired", "running", NEVER, "succeeded", "accepted_late"),
        ("expired", "running", NEVER, "failed", "superseded"),
        ("expired", "queued", NEVER, "returned", "superseded"),
        # expired or superseded, something else accepted: superseded
        ("expired", "succeeded", NEVER, "succeeded", "superseded"),
        ("superseded", "succeeded", NEVER, "succeeded", "superseded"),
        ("superseded", "succeeded", NEVER, "failed", "superseded"),
        # too late: the job ended otherwise
        ("expired", "failed", NEVER, "succeeded", "superseded"),
        ("expired", "expired", NEVER, "succeeded", "superseded"),
        # cancelled
        ("cancelled", "cancelled", NEVER, "succeeded", "cancelled"),
        ("expired", "cancelled", NEVER, "succeeded", "cancelled"),
        ("cancelled", "cancelled", NEVER, "cancelled", "cancelled"),
    ],
)
def test_the_matrix(attempt: str, job: str, said_before: str | None, outcome: str, verdict: str) -> None:
    known = facts(AttemptState(attempt), JobState(job), said_before)
    assert judge_report(known, report_digest=SAID, outcome=Outcome(outcome)) == verdict


def test_an_attempt_of_another_node_is_foreign() -> None:
    for outcome in Outcome:
        assert judge_report(None, report_digest=SAID, outcome=outcome) is Verdict.FOREIGN


@given(
    st.sampled_from(AttemptState),
    st.sampled_from(JobState),
    st.sampled_from(Outcome),
    st.booleans(),
    st.sampled_from([None, "digest", "other"]),
)
def test_every_report_gets_an_answer_and_none_is_accepted_twice(
    state: AttemptState, job_state: JobState, outcome: Outcome, accepted: bool, before: str | None
) -> None:
    known = facts(state, job_state, before, accepted=accepted)
    verdict = judge_report(known, report_digest=SAID, outcome=outcome)
    assert verdict is not Verdict.FOREIGN
    if verdict in (Verdict.ACCEPTED, Verdict.ACCEPTED_LATE):
        assert before is None
        assert not accepted
        assert job_state not in TERMINAL
    if verdict is Verdict.ACCEPTED_LATE:
        assert outcome is Outcome.SUCCEEDED
        assert state not in LIVE_ATTEMPT
    assert (verdict is Verdict.REPLAY) == (before == SAID)
    assert (verdict is Verdict.CONFLICT) == (before == "other")


# what follows from a report

#: Of a live attempt: outcome, reason, its final state, what the hub does with the job, and whether it counts for the node.
STEPS = [
    ("succeeded", "completed", "succeeded", "take_result", "good"),
    ("failed", "exit_nonzero", "failed", "retry", None),
    ("failed", "timeout", "failed", "retry", None),
    ("failed", "lease_lost", "failed", "retry", "bad"),
    ("failed", "node_restarted", "failed", "retry", "bad"),
    ("failed", "false_report", "failed", "retry", "bad"),
    ("failed", "output_mismatch", "refuted", "retry", "bad"),
    ("failed", "node_error", "failed", "retry", None),  # nobody knows yet whose fault it is
    ("failed", "staging_failed", "failed", "retry", None),
    ("cancelled", "cancelled_by_user", "cancelled", "requeue", None),
    ("returned", "given_back", "returned", "requeue", None),
    ("returned", "node_draining", "returned", "requeue", None),
    ("moved", "moved", "moved", "retry", None),  # without a checkpoint
]


def settle_live(outcome: str, reason: str, **known: bool | int) -> Settlement:
    live = AttemptFacts(
        state=AttemptState.RUNNING, report_digest=NEVER, job_state=JobState.RUNNING, job_accepted=False, **known
    )
    return settle(live, report_digest=SAID, outcome=Outcome(outcome), reason=Reason(reason))


@pytest.mark.parametrize(("outcome", "reason", "attempt", "step", "counts"), STEPS)
def test_what_follows_from_the_report_of_a_live_attempt(
    outcome: str, reason: str, attempt: str, step: str, counts: str | None
) -> None:
    found = settle_live(outcome, reason)
    assert (found.verdict, found.attempt, found.next_step) == (Verdict.ACCEPTED, attempt, step)
    assert (found.good, found.bad) == (counts == "good", counts == "bad")
    assert (found.fault is not None) == (counts == "bad")
    assert (found.fault == REFUTED_ACTION) == (attempt == "refuted")


def test_a_late_success_counts_with_its_own_reason() -> None:
    late = settle(
        facts(AttemptState.EXPIRED, JobState.QUEUED),
        report_digest=SAID,
        outcome=Outcome.SUCCEEDED,
        reason=Reason.COMPLETED,
    )
    assert (late.next_step, late.why, late.is_late) == (NextStep.TAKE_RESULT, Reason.ACCEPTED_LATE, True)


def test_what_a_node_could_not_run_counts_at_once_only_for_its_owners_job() -> None:
    for reason in CONTESTED:
        own = settle_live("failed", reason, is_own=True)
        assert (own.bad, own.fault) == (True, None), "its record waits until another node has done the job"


def test_a_lease_that_ended_while_the_hub_was_away_is_nobodys_fault() -> None:
    lost = settle_live("failed", "lease_lost", before_start=True)
    assert (lost.bad, lost.fault, lost.next_step) == (False, None, NextStep.RETRY)
    assert settle_live("failed", "node_error", before_start=True, is_own=True).bad, "only leases are excused"
    assert settle_live("failed", "false_report", before_start=True).fault == FAULT_ACTION


@pytest.mark.parametrize("reason", ["timeout", "budget_spent"])
def test_time_that_earlier_attempts_used_up_is_not_the_jobs_fault(reason: str) -> None:
    found = settle_live("failed", reason, resumed=True)
    assert (found.attempt, found.next_step) == (AttemptState.FAILED, NextStep.REQUEUE)
    assert found.drops_checkpoint, "the next attempt has the whole time"
    assert settle_live("failed", "exit_nonzero", resumed=True).next_step is NextStep.RETRY


def test_a_job_moves_only_with_a_checkpoint() -> None:
    assert settle_live("moved", "moved", can_move=True).next_step is NextStep.MOVE
    stranded = settle_live("moved", "moved")
    assert (stranded.next_step, stranded.why) == (NextStep.RETRY, Reason.STAGING_FAILED)


def test_nobody_resumes_from_what_a_liar_saved() -> None:
    assert settle_live("failed", "output_mismatch").drops_checkpoint
    assert not settle_live("failed", "signal").drops_checkpoint


def test_a_job_that_is_only_given_back_waits_longer_each_time() -> None:
    delays = [settle_live("returned", "given_back", attempts=tries).delay_ms for tries in (1, 2, 3, 20)]
    assert delays == [20, 40, 80, 5_000]


@given(
    st.sampled_from(AttemptState),
    st.sampled_from(JobState),
    st.sampled_from([(outcome, reason) for outcome, reasons in REASONS_FOR.items() for reason in sorted(reasons)]),
    st.sampled_from([None, "digest", "other"]),
    st.fixed_dictionaries(
        {name: st.booleans() for name in ("job_accepted", "is_own", "before_start", "resumed", "can_move")}
    ),
)
def test_what_is_not_accepted_changes_nothing_but_its_own_attempt(
    state: AttemptState, job_state: JobState, report: tuple[Outcome, Reason], before: str | None, flags: dict[str, bool]
) -> None:
    known = AttemptFacts(state=state, job_state=job_state, report_digest=before, **flags)
    outcome, reason = report
    found = settle(known, report_digest=SAID, outcome=outcome, reason=reason)
    assert found.verdict is judge_report(known, report_digest=SAID, outcome=outcome)
    accepted = found.verdict in (Verdict.ACCEPTED, Verdict.ACCEPTED_LATE)
    assert (found.next_step is NextStep.NOTHING) == (not accepted)
    assert (found.attempt is None) == (found.verdict in (Verdict.REPLAY, Verdict.CONFLICT))
    if not accepted:
        assert found == Settlement(verdict=found.verdict, attempt=found.attempt)
        assert found.attempt in (None, AttemptState.SUPERSEDED, AttemptState.CANCELLED)
    assert (found.next_step is NextStep.TAKE_RESULT) == (accepted and outcome is Outcome.SUCCEEDED)
    assert not (found.good and found.bad)


# failures


def decide(reason: Reason, *, retries: int = 0, jitter: float = 0.0, **history: int) -> AfterFailure:
    counts = {"job_faults": 0, "node_faults": 0, "owners_failed": 0} | history
    return after_failure(reason, FailureHistory(**counts), RetryLimits(retries=retries), jitter=jitter)


@pytest.mark.parametrize("reason", JOB_FAULTS)
def test_the_jobs_own_failures_are_retried_as_often_as_asked(reason: Reason) -> None:
    for retries in (0, 1, 5):
        states = [
            decide(reason, retries=retries, job_faults=faults, owners_failed=1).state
            for faults in range(1, retries + 2)
        ]
        assert states == [JobState.QUEUED] * retries + [JobState.FAILED]
        assert decide(reason, retries=retries, job_faults=retries + 1, owners_failed=1).reason is reason


@pytest.mark.parametrize("reason", sorted(NODE_FAULTS))
def test_lost_nodes_cost_no_retry_but_end_at_the_fifth(reason: Reason) -> None:
    decisions = [decide(reason, node_faults=faults, job_faults=0) for faults in range(1, 7)]
    assert [decision.state for decision in decisions] == [JobState.QUEUED] * 4 + [JobState.FAILED] * 2
    assert decisions[4].reason is Reason.NODES_KEPT_FAILING
    assert decisions[0].delay_ms == 0
    assert all(decision.delay_ms > 0 for decision in decisions[1:4])


def test_a_job_that_fails_on_three_owners_is_poison() -> None:
    assert decide(Reason.SIGNAL, retries=50, job_faults=9, owners_failed=2).state is JobState.QUEUED
    poison = decide(Reason.SIGNAL, retries=50, job_faults=3, owners_failed=3)
    assert (poison.state, poison.reason) == (JobState.FAILED, Reason.FAILED_EVERYWHERE)


def test_what_cannot_start_anywhere_is_not_retried() -> None:
    for reason in HOPELESS:
        decision = decide(reason, retries=50, job_faults=1, owners_failed=1)
        assert (decision.state, decision.reason) == (JobState.FAILED, reason)


@given(
    st.sampled_from([*JOB_FAULTS, *sorted(NODE_FAULTS)]),
    st.integers(min_value=0, max_value=100),
    st.builds(
        FailureHistory,
        job_faults=st.integers(min_value=1, max_value=200),
        node_faults=st.integers(min_value=1, max_value=200),
        owners_failed=st.integers(min_value=0, max_value=200),
    ),
    st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_a_retry_waits_between_nothing_and_the_limit_and_goes_elsewhere(
    reason: Reason, retries: int, history: FailureHistory, jitter: float
) -> None:
    limits = RetryLimits(retries=retries)
    decision = after_failure(reason, history, limits, jitter=jitter)
    assert decision.state in (JobState.QUEUED, JobState.FAILED)
    assert 0 <= decision.delay_ms <= limits.backoff_max_ms
    assert decision.avoid_node == (decision.state is JobState.QUEUED)
    if decision.state is JobState.FAILED:
        assert decision.delay_ms == 0
    elif reason not in NODE_FAULTS:
        assert decision.delay_ms >= limits.backoff_base_ms // 2


def test_waits_double_until_the_limit_and_jitter_moves_the_upper_half() -> None:
    low = [decide(Reason.SIGNAL, retries=20, job_faults=n).delay_ms for n in range(1, 10)]
    high = [decide(Reason.SIGNAL, retries=20, job_faults=n, jitter=0.999).delay_ms for n in range(1, 10)]
    assert low == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert all(2 * least * 0.99 <= most <= 2 * least for least, most in zip(low, high, strict=True))


@pytest.mark.parametrize("reason", sorted(CONTESTED))
def test_a_second_owner_that_cannot_run_it_blames_the_job(reason: Reason) -> None:
    assert decide(reason, node_faults=2, owners_unable=1).state is JobState.QUEUED
    assert decide(reason, node_faults=2, owners_unable=2).reason is Reason.UNRUNNABLE
    for lost in NODE_FAULTS - CONTESTED:
        assert decide(lost, node_faults=2, owners_unable=2).reason is lost, "that says nothing about the job"
