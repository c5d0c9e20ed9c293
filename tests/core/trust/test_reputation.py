"""The discounted Beta rule: the worked values it was chosen by, its properties, and that nothing about it is approximate."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from computepool.core.money.money import CREDIT
from computepool.core.trust.discounting import DAY_MS, MEMORY, ONE
from computepool.core.trust.reputation import (
    NEWCOMER,
    NEWCOMER_SCORE,
    WEIGHTS,
    Evidence,
    Reputation,
    ReputationEvent,
    cool_off_ms,
    exposure_cap,
    inherit,
    is_newcomer,
    node_of,
    number_of,
    read,
    update,
    without_repeats,
)
from tests.core.trust.histories import recompute

GOOD, BAD = Evidence.VERIFIED, Evidence.NODE_FAULT
INTEGRITY = (Evidence.REFUTED, Evidence.PADDED, Evidence.PROBE_RIGHT, Evidence.PROBE_WRONG, Evidence.PARDONED)
NOTHING = [evidence for evidence, weight in WEIGHTS.items() if not weight.quarters and evidence not in INTEGRITY]


def after(history: str, *, begin: Reputation = NEWCOMER, at_ms: int = 0) -> Reputation:
    """`+`: verified success, `.`: unverified success, `-`: fault."""
    kinds = {"+": GOOD, ".": Evidence.UNVERIFIED, "-": BAD}
    return recompute([ReputationEvent("n", kinds[word], at_ms) for word in history], begin)


WORKED = [
    ("", 0, 0.711),
    ("+", 0, 0.765),
    ("+" * 5, 0, 0.859),
    ("+" * 20, 0, 0.927),
    ("+" * 50, 0, 0.945),
    ("+" * 50 + "-", 0, 0.892),
    ("+" * 50 + "---", 0, 0.801),
    ("+" * 50 + "---" + "+" * 20, 0, 0.896),
    ("---", 0, 0.378),
    ("+" * 50, 30, 0.908),
    ("+" * 50, 120, 0.772),
    ("-" * 8, 0, 0.231),
    ("-" * 8, 120, 0.467),
    ("-" * 8, 365, 0.689),
]


@pytest.mark.parametrize(("history", "idle_days", "expected"), WORKED)
def test_worked_values(history: str, idle_days: int, expected: float) -> None:
    assert round(after(history).score(idle_days * DAY_MS), 3) == expected


def test_the_stored_numbers_are_these_on_every_machine() -> None:
    """Golden: a different integer here means that stored reputations no longer follow from their events."""
    found = after("+.-", begin=replace(after("..."), changed_at_ms=0), at_ms=17 * DAY_MS + 12_345)
    assert (found.success, found.failure) == GOLDEN


GOLDEN = (1_796_655_034_032, 1_099_511_627_776)

outcomes = st.lists(
    st.builds(
        ReputationEvent, st.just("n"), st.sampled_from(list(Evidence)), st.integers(0, 400 * DAY_MS), st.booleans()
    ),
    max_size=60,
)
reputations = st.builds(recompute, outcomes)


@given(reputations, st.integers(0, 3_000 * DAY_MS))
def test_a_score_is_a_share(reputation: Reputation, now_ms: int) -> None:
    assert 0 <= reputation.score(now_ms) <= 1
    assert 0 <= reputation.success <= MEMORY * ONE
    assert 0 <= reputation.failure <= MEMORY * ONE


@given(reputations, st.sampled_from(list(Evidence)))
def test_a_success_never_lowers_a_score_and_a_fault_never_lifts_it(reputation: Reputation, evidence: Evidence) -> None:
    now_ms = reputation.changed_at_ms + 1
    before = reputation.score(now_ms)
    later = update(reputation, ReputationEvent("n", evidence, now_ms)).score(now_ms)
    if not WEIGHTS[evidence].quarters:
        assert later == before
    elif WEIGHTS[evidence].success:
        assert later >= before
    else:
        assert later <= before


@given(reputations)
def test_three_faults_in_a_row_are_felt(reputation: Reputation) -> None:
    """By 0.06, to two digits: at worst 0.0597, for a node that has failed half of its last twenty jobs."""
    now_ms = reputation.changed_at_ms
    before = reputation.score(now_ms)
    if before >= 0.5:
        assert round(before - after("---", begin=reputation, at_ms=now_ms).score(now_ms), 2) >= 0.06


@given(reputations, st.integers(0, 3_000 * DAY_MS))
def test_silence_lifts_nobody_above_what_they_were_or_a_newcomer(reputation: Reputation, quiet_ms: int) -> None:
    now = reputation.score(reputation.changed_at_ms)
    later = reputation.score(reputation.changed_at_ms + quiet_ms)
    assert later <= max(now, NEWCOMER_SCORE) + 1e-9


@given(reputations, outcomes, st.integers(1, 9))
def test_told_often_at_once_is_told_one_by_one(before: Reputation, history: list[ReputationEvent], times: int) -> None:
    for outcome in history:
        assert update(before, outcome, times=times) == recompute([outcome] * times, before)


@given(reputations, st.sampled_from(NOTHING), st.integers(0, 900 * DAY_MS))
def test_what_has_no_weight_changes_nothing(reputation: Reputation, evidence: Evidence, at_ms: int) -> None:
    assert update(reputation, ReputationEvent("n", evidence, at_ms)) == reputation


@given(reputations, st.integers(0, 900 * DAY_MS))
def test_padded_time_ends_a_streak_and_nothing_else(reputation: Reputation, at_ms: int) -> None:
    told = update(reputation, ReputationEvent("n", Evidence.PADDED, at_ms))
    assert told == dataclasses.replace(reputation, streak=0)


@given(reputations, st.integers(1, 400 * DAY_MS))
def test_a_clock_that_goes_back_fades_nothing(reputation: Reputation, back_ms: int) -> None:
    early = reputation.changed_at_ms - back_ms
    assert reputation.fade(early) == (reputation.success, reputation.failure)
    assert update(reputation, ReputationEvent("n", GOOD, early)).changed_at_ms == reputation.changed_at_ms


@given(st.integers(0, MEMORY * ONE), st.integers(0, 700 * DAY_MS))
def test_fading_is_what_the_formula_says(amount: int, quiet_ms: int) -> None:
    success, failure = Reputation(success=amount, failure=amount).fade(quiet_ms)
    days = quiet_ms / DAY_MS
    assert math.isclose(success / ONE, amount / ONE * 2 ** (-days / 30), rel_tol=1e-8, abs_tol=1e-9)
    assert math.isclose(failure / ONE, amount / ONE * 2 ** (-days / 60), rel_tol=1e-8, abs_tol=1e-9)


@given(st.text("+-", max_size=80))
def test_whole_numbers_follow_the_formula_in_floats(history: str) -> None:
    success = failure = 0.0
    for word in history:
        success = 0.95 * success + (word == "+")
        failure = 0.95 * failure + (word == "-")
    found = after(history)
    assert math.isclose(found.success / ONE, success, rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(found.failure / ONE, failure, rel_tol=1e-9, abs_tol=1e-9)


@given(reputations)
def test_four_unverified_successes_are_one_verified(reputation: Reputation) -> None:
    now_ms = reputation.changed_at_ms
    quarters, whole = (after("....", begin=reputation, at_ms=now_ms), after("+", begin=reputation, at_ms=now_ms))
    assert abs(quarters.success - whole.success) <= 4
    assert abs(quarters.failure - whole.failure) <= 4


def test_what_was_lost_at_one_moment_is_lost_once() -> None:
    lost = [ReputationEvent("n", Evidence.LEASE_LOST, 5)] * 64
    assert recompute(lost) == recompute(lost[:1])
    assert recompute([*lost, ReputationEvent("n", Evidence.LEASE_LOST, 6)]).failures == 2


def test_dues_are_paid_with_jobs_of_others() -> None:
    own = [ReputationEvent("n", Evidence.UNVERIFIED, 1, own=True)] * 9
    assert is_newcomer(recompute(own), 5)
    assert recompute(own).score(1) > NEWCOMER_SCORE
    others = [ReputationEvent("n", Evidence.VERIFIED, 1)] * 5
    assert is_newcomer(recompute(others[:4]), 5)
    assert not is_newcomer(recompute(others), 5)
    unchecked = [ReputationEvent("n", Evidence.UNVERIFIED, 1)] * 4
    assert is_newcomer(recompute(others[:4] + unchecked[:3]), 5)
    assert not is_newcomer(recompute(others[:4] + unchecked), 5)
    assert not is_newcomer(NEWCOMER, 0)


def test_tenure_counts_days_with_a_success() -> None:
    days = [1, 1, 2, 9, 3]  # the clock of another hub may be behind
    found = recompute([ReputationEvent("n", Evidence.UNVERIFIED, day * DAY_MS + 7) for day in days])
    assert (found.tenure_days, found.verified_days) == (3, 0)
    assert exposure_cap(NEWCOMER) == 50 * CREDIT
    assert exposure_cap(found) == 50 * CREDIT + 3 * 50 * CREDIT // 4
    checked = recompute([ReputationEvent("n", GOOD, day * DAY_MS + 7) for day in days])
    assert exposure_cap(checked) == 200 * CREDIT
    assert exposure_cap(replace(checked, tenure_days=10**6)) == 5_000 * CREDIT


@given(reputations, st.integers(1, 40 * DAY_MS))
def test_a_confirmation_completes_what_was_counted_at_acceptance(reputation: Reputation, later_ms: int) -> None:
    """Nothing twice: a success and its later confirmation are one verified success, whatever lies between."""
    at_ms = reputation.changed_at_ms
    once = after("+", begin=reputation, at_ms=at_ms)
    accepted = after(".", begin=reputation, at_ms=at_ms)
    both = update(accepted, ReputationEvent("n", Evidence.CONFIRMED, at_ms))
    assert abs(both.success - once.success) <= 4
    assert abs(both.failure - once.failure) <= 4
    # But for the streak of a node that was penalised: what was right before says nothing about what comes after.
    expected = replace(once, streak=reputation.streak) if reputation.penalised_at_ms else once
    assert replace(both, success=once.success, failure=once.failure) == expected
    later = update(accepted, ReputationEvent("n", Evidence.CONFIRMED, at_ms + later_ms))
    assert (later.successes, later.successes_for_others, later.streak) == (
        once.successes,
        once.successes_for_others,
        expected.streak,
    )


def test_only_verified_work_for_others_makes_a_streak_and_a_wrong_result_ends_it() -> None:
    found = after("++.-+")
    assert (found.streak, found.verified, found.violation_count) == (3, 3, 0)
    assert update(found, ReputationEvent("n", GOOD, 1, own=True)).streak == 3
    penalised = update(found, ReputationEvent("n", Evidence.REFUTED, 1))
    assert (penalised.streak, penalised.violation_count, penalised.verified) == (0, 1, 3)
    assert penalised.score(9) == found.score(9)


@pytest.mark.parametrize(("faults", "minutes"), [(0, 0), (2, 0), (3, 5), (4, 10), (5, 20), (12, 1440), (99, 1440)])
def test_the_breaker_rests_twice_as_long_each_time(faults: int, minutes: int) -> None:
    rest = cool_off_ms(faults, limit=3, base_ms=300_000, max_ms=DAY_MS)
    assert rest == minutes * 60_000


def event(action: str, **columns: Any) -> dict[str, Any]:
    said = {"actor": "hub", "node_id": "n", "reason": "", "account_id": "acc_s", "at_ms": 7, "data": None}
    return {"action": action, **said, **columns}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (event("job.succeeded", actor="late", node_id="other"), ("late", Evidence.UNVERIFIED, False)),
        (event("job.succeeded", actor="n", account_id="acc_o"), ("n", Evidence.UNVERIFIED, True)),
        (event("job.succeeded", actor="hub"), ("n", Evidence.UNVERIFIED, False)),
        (event("attempt.expired", reason="lease_lost"), ("n", Evidence.LEASE_LOST, False)),
        (event("attempt.expired", reason="node_restarted"), ("n", Evidence.LEASE_LOST, False)),
        (event("attempt.failed", reason="node_error"), ("n", Evidence.NODE_FAULT, False)),
        (event("attempt.failed", reason="exit_nonzero"), ("n", Evidence.JOB_FAULT, False)),
        (event("attempt.verified", reason="verified"), ("n", Evidence.VERIFIED, False)),
        (event("attempt.verified", reason="rechecked"), ("n", Evidence.CONFIRMED, False)),
        (event("attempt.refuted"), ("n", Evidence.REFUTED, False)),
        (event("node.pardoned"), ("n", Evidence.PARDONED, False)),
        (event("job.failed", reason="node_error"), None),
        (event("job.cancelled"), None),
        (event("node.online"), None),
    ],
)
def test_what_events_say(said: dict[str, Any], expected: tuple[str, Evidence, bool] | None) -> None:
    found = read(said, owner="acc_o")
    if expected is None:
        assert found is None
        assert node_of(said) is None
    else:
        node_id, evidence, own = expected
        by = number_of(said["account_id"]) if evidence is Evidence.REFUTED else 0
        assert found == ReputationEvent(node_id, evidence, 7, own, by)
        assert node_of(said) == node_id


def test_a_success_that_was_verified_is_said_once() -> None:
    said = [
        event("attempt.verified", reason="verified", job_id="j", attempt_id="j-1"),
        event("attempt.verified", reason="verified", job_id="j", attempt_id="j-2"),
        event("job.succeeded", job_id="j", attempt_id="j-1"),  # counted by the first
        event("job.succeeded", job_id="k", attempt_id="k-1"),  # nobody checked it
        event("attempt.verified", reason="rechecked", job_id="k", attempt_id="k-1"),
        event("attempt.verified", reason="verified", job_id="l", attempt_id="l-1"),
        event("job.succeeded", job_id="l", attempt_id="l-2"),  # another attempt was accepted
    ]
    assert [event["attempt_id"] for event in without_repeats(said)] == ["j-1", "j-2", "k-1", "k-1", "l-1", "l-2"]


@given(reputations, st.integers(0, 400 * DAY_MS))
def test_an_heir_is_never_better_off_than_a_newcomer_or_the_one_before(before: Reputation, later_ms: int) -> None:
    now_ms = before.changed_at_ms + later_ms
    heir = inherit(before, now_ms)
    assert heir.score(now_ms) == min(NEWCOMER_SCORE, before.score(now_ms))
    assert (heir.streak, heir.successes_for_others, heir.tenure_days, heir.verified) == (0, 0, 0, 0)
    assert heir.is_banned(now_ms) == before.is_banned(now_ms)
    assert heir.recent_violations(now_ms) == before.recent_violations(now_ms)
