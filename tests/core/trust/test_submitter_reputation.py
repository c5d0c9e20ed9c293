"""How submitters treat the nodes of others: what counts, how much, and that it is the same rule as for nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import NEWCOMER_SCORE, Evidence, ReputationEvent
from computepool.core.trust.submitter_reputation import (
    UNKNOWN,
    SubmitterEvent,
    SubmitterOutcome,
    SubmitterReputation,
    read,
    update,
)
from tests.core.trust.histories import recompute, recompute_submitter

runs = st.lists(
    st.builds(
        SubmitterEvent,
        st.just("a"),
        st.just("n"),
        st.sampled_from(list(SubmitterOutcome)),
        st.integers(0, 400 * DAY_MS),
    ),
    max_size=40,
)


def after(*deeds: SubmitterOutcome, at_ms: int = 0) -> SubmitterReputation:
    return recompute_submitter([SubmitterEvent("a", "n", deed, at_ms) for deed in deeds])


@given(runs, st.integers(0, 3_000 * DAY_MS))
def test_a_score_is_a_share(history: list[SubmitterEvent], now_ms: int) -> None:
    assert 0 <= recompute_submitter(history).score(now_ms) <= 1


@given(runs, st.sampled_from(list(SubmitterOutcome)))
def test_only_completed_jobs_lift_and_limits_hurt_most(history: list[SubmitterEvent], deed: SubmitterOutcome) -> None:
    known = recompute_submitter(history)
    now_ms = known.changed_at_ms
    later = {kind: update(known, SubmitterEvent("a", "n", kind, now_ms)).score(now_ms) for kind in SubmitterOutcome}
    assert later[SubmitterOutcome.COMPLETED] >= known.score(now_ms) >= later[deed] or deed is SubmitterOutcome.COMPLETED
    assert later[SubmitterOutcome.HARMFUL] <= later[SubmitterOutcome.STOPPED] <= later[SubmitterOutcome.FAILED]


@given(runs, st.sampled_from(list(SubmitterOutcome)), st.integers(0, 400 * DAY_MS), st.integers(1, 9))
def test_told_often_at_once_is_told_one_by_one(
    history: list[SubmitterEvent], deed: SubmitterOutcome, at_ms: int, times: int
) -> None:
    known, run = recompute_submitter(history), SubmitterEvent("a", "n", deed, at_ms)
    assert update(known, run, times=times) == recompute_submitter([run] * times, known)


def test_it_is_the_rule_of_the_nodes() -> None:
    assert UNKNOWN.score(0) == NEWCOMER_SCORE
    theirs = recompute([ReputationEvent("n", kind, 5) for kind in (Evidence.VERIFIED, Evidence.NODE_FAULT)])
    ours = after(SubmitterOutcome.COMPLETED, SubmitterOutcome.HARMFUL, at_ms=5)
    assert (ours.success, ours.failure) == (theirs.success, theirs.failure)


def test_who_runs_into_limits_all_the_time_is_soon_below_a_newcomer() -> None:
    honest = [SubmitterOutcome.COMPLETED] * 9 + [SubmitterOutcome.FAILED]
    careless = [SubmitterOutcome.COMPLETED, SubmitterOutcome.HARMFUL] * 5
    assert after(*honest).score(0) > 0.85
    assert after(*careless).score(0) < 0.6 < NEWCOMER_SCORE
    found = after(*careless, SubmitterOutcome.STOPPED, SubmitterOutcome.CANCELLED, SubmitterOutcome.FAILED)
    assert (found.completed, found.harmful, found.cancelled, found.failed) == (5, 5, 2, 1)


def event(action: str, **columns: Any) -> dict[str, Any]:
    said = {"actor": "node_1", "node_id": "node_2", "reason": "", "account_id": "acc", "before": "", "at_ms": 7}
    return {"action": action, **said, **columns}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (event("job.succeeded"), ("node_1", SubmitterOutcome.COMPLETED)),
        (event("job.succeeded", actor="hub"), ("node_2", SubmitterOutcome.COMPLETED)),
        (event("job.queued", reason="timeout"), ("node_1", SubmitterOutcome.HARMFUL)),
        (event("job.failed", reason="out_of_memory"), ("node_1", SubmitterOutcome.HARMFUL)),
        (event("job.failed", reason="budget_spent"), ("node_1", SubmitterOutcome.HARMFUL)),
        (event("job.failed", reason="failed_everywhere"), ("node_1", SubmitterOutcome.HARMFUL)),
        (event("job.failed", reason="exit_nonzero"), ("node_1", SubmitterOutcome.FAILED)),
        (event("job.failed", reason="nodes_kept_failing"), None),
        (event("job.queued", reason="submitted"), None),
        (event("job.queued", reason="lease_lost"), None),
        (event("job.cancelled", before="running", actor="acc"), ("node_2", SubmitterOutcome.STOPPED)),
        (event("job.cancelled", before="leased", actor="acc"), ("node_2", SubmitterOutcome.CANCELLED)),
        (event("job.cancelled", before="queued", actor="acc"), None),
        (event("job.succeeded", account_id=None), None),
        (event("node.online"), None),
    ],
)
def test_what_events_say(said: dict[str, Any], expected: tuple[str, SubmitterOutcome] | None) -> None:
    found = read(said)
    assert found == (None if expected is None else SubmitterEvent("acc", expected[0], expected[1], 7))
