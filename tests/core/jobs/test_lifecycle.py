"""The life of a job: the late/duplicate matrix, the transitions, and what follows a failure."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.core.jobs.lifecycle import (
    CONTESTED,
    HOPELESS,
    LIVE_ATTEMPT,
    NODE_FAULTS,
    TERMINAL,
    AfterFailure,
    AttemptFacts,
    AttemptState,
    FailureHistory,
    JobState,
    Outcome,
    Reason,
    RetryLimits,
    Verdict,
    after_failure,
    judge_report,
    may_become,
)

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


# transitions


def test_what_is_finished_stays_finished() -> None:
    for before in TERMINAL:
        assert not any(may_become(before, after) for after in JobState)


def test_every_state_can_be_reached_and_left() -> None:
    reachable = {JobState.QUEUED}
    while grown := {after for before in reachable for after in JobState if may_become(before, after)} - reachable:
        reachable |= grown
    assert reachable == set(JobState)
    assert all(may_become(state, JobState.CANCELLED) for state in set(JobState) - TERMINAL)


def test_a_job_starts_only_where_it_was_leased() -> None:
    assert [state for state in JobState if may_become(state, JobState.RUNNING)] == [JobState.LEASED]
    assert [state for state in JobState if may_become(state, JobState.LEASED)] == [JobState.QUEUED]


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
