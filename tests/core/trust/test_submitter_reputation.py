"""How submitters treat the nodes of others: what counts, how much, and that it is the same rule as for nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import NEWCOMER_SCORE, Evidence, ReputationEvent
from computepool.core.trust.reputation import recompute as of_node
from computepool.core.trust.submitter_reputation import (
    UNKNOWN,
    Deed,
    SubmitterEvent,
    SubmitterReputation,
    read,
    recompute,
    update,
)

runs = st.lists(
    st.builds(
        SubmitterEvent, st.just("a"), st.just("n"), st.sampled_from(list(Deed)), st.integers(0, 400 * DAY_MS)
    ),
    max_size=40,
)


def after(*deeds: Deed, at_ms: int = 0) -> SubmitterReputation:
    return recompute([SubmitterEvent("a", "n", deed, at_ms) for deed in deeds])


@given(runs, st.integers(0, 3_000 * DAY_MS))
def test_a_score_is_a_share(history: list[SubmitterEvent], now_ms: int) -> None:
    assert 0 <= recompute(history).score(now_ms) <= 1


@given(runs, st.sampled_from(list(Deed)))
def test_only_completed_jobs_lift_and_limits_hurt_most(history: list[SubmitterEvent], deed: Deed) -> None:
    known = recompute(history)
    now_ms = known.changed_at_ms
    later = {kind: update(known, SubmitterEvent("a", "n", kind, now_ms)).score(now_ms) for kind in Deed}
    assert later[Deed.COMPLETED] >= known.score(now_ms) >= later[deed] or deed is Deed.COMPLETED
    assert later[Deed.HARMFUL] <= later[Deed.STOPPED] <= later[Deed.FAILED]


@given(runs, st.integers(0, 40))
def test_little_by_little_is_all_at_once(history: list[SubmitterEvent], cut: int) -> None:
    assert recompute(history[cut:], recompute(history[:cut])) == recompute(history)


@given(runs, st.sampled_from(list(Deed)), st.integers(0, 400 * DAY_MS), st.integers(1, 9))
def test_told_often_at_once_is_told_one_by_one(
    history: list[SubmitterEvent], deed: Deed, at_ms: int, times: int
) -> None:
    known, run = recompute(history), SubmitterEvent("a", "n", deed, at_ms)
    assert update(known, run, times=times) == recompute([run] * times, known)


def test_it_is_the_rule_of_the_nodes() -> None:
    assert UNKNOWN.score(0) == NEWCOMER_SCORE
    theirs = of_node([ReputationEvent("n", kind, 5) for kind in (Evidence.VERIFIED, Evidence.NODE_FAULT)])
    ours = after(Deed.COMPLETED, Deed.HARMFUL, at_ms=5)
    assert (ours.success, ours.failure) == (theirs.success, theirs.failure)


def test_who_runs_into_limits_all_the_time_is_soon_below_a_newcomer() -> None:
    honest = [Deed.COMPLETED] * 9 + [Deed.FAILED]
    careless = [Deed.COMPLETED, Deed.HARMFUL] * 5
    assert after(*honest).score(0) > 0.85
    assert after(*careless).score(0) < 0.6 < NEWCOMER_SCORE
    found = after(*careless, Deed.STOPPED, Deed.CANCELLED, Deed.FAILED)
    assert (found.completed, found.harmful, found.cancelled, found.failed) == (5, 5, 2, 1)


def event(action: str, **columns: Any) -> dict[str, Any]:
    said = {
        "actor": "node_1",
        "node_id": "node_2",
        "reason": "",
        "account_id": "acc",
        "before": "",
        "at_ms": 7,
    }
    return {"action": action, **said, **columns}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (event("job.succeeded"), ("node_1", Deed.COMPLETED)),
        (event("job.succeeded", actor="hub"), ("node_2", Deed.COMPLETED)),
        (event("job.queued", reason="timeout"), ("node_1", Deed.HARMFUL)),
        (event("job.failed", reason="out_of_memory"), ("node_1", Deed.HARMFUL)),
        (event("job.failed", reason="budget_spent"), ("node_1", Deed.HARMFUL)),
        (event("job.failed", reason="failed_everywhere"), ("node_1", Deed.HARMFUL)),
        (event("job.failed", reason="exit_nonzero"), ("node_1", Deed.FAILED)),
        (event("job.failed", reason="nodes_kept_failing"), None),
        (event("job.queued", reason="submitted"), None),
        (event("job.queued", reason="lease_lost"), None),
        (event("job.cancelled", before="running", actor="acc"), ("node_2", Deed.STOPPED)),
        (event("job.cancelled", before="leased", actor="acc"), ("node_2", Deed.CANCELLED)),
        (event("job.cancelled", before="queued", actor="acc"), None),
        (event("job.succeeded", account_id=None), None),
        (event("node.online"), None),
    ],
)
def test_what_events_say(said: dict[str, Any], expected: tuple[str, Deed] | None) -> None:
    found = read(said)
    assert found == (None if expected is None else SubmitterEvent("acc", expected[0], expected[1], 7))
