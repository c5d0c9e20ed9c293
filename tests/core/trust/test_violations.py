"""Wrong results: what puts a node on probation, what its tests decide, and that no two accounts can ban an honest one."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import (
    NEWCOMER,
    Evidence,
    Reputation,
    ReputationEvent,
    inherit,
    read as read_event,
    refutation_data,
    update,
)
from computepool.core.trust.violations import PROBES_RIGHT, PROBES_WRONG, Violation, decode, encode, remember
from tests.core.trust.histories import recompute

RIGHT, WRONG = Evidence.PROBE_RIGHT, Evidence.PROBE_WRONG
people = st.integers(1, 6)
violations = st.builds(
    Violation,
    st.integers(1, 100 * DAY_MS),
    people,
    st.booleans(),
    st.sets(people, max_size=4).map(lambda found: tuple(sorted(found))),
)
wrongs = st.builds(
    lambda each: ReputationEvent(
        "n", Evidence.REFUTED, each.at_ms, by=each.submitter, old=each.old, refuters=each.refuters
    ),
    violations,
)
probes = st.builds(ReputationEvent, st.just("n"), st.sampled_from([RIGHT, WRONG]), st.integers(1, 100 * DAY_MS))
histories = st.lists(wrongs | probes, max_size=25).map(lambda found: sorted(found, key=lambda one: one.at_ms))


def wrong(*who: int, begin: Reputation = NEWCOMER, at_ms: int = DAY_MS, **said: object) -> Reputation:
    """One after the other, about jobs of these."""
    said_ = [ReputationEvent("n", Evidence.REFUTED, at_ms + place, by=by, **said) for place, by in enumerate(who)]  # type: ignore[arg-type]
    return recompute(said_, begin)


def probed(begin: Reputation, *how: Evidence, at_ms: int = 2 * DAY_MS) -> Reputation:
    return recompute([ReputationEvent("n", each, at_ms + place) for place, each in enumerate(how)], begin)


@given(st.lists(violations, max_size=8))
def test_they_are_kept_as_they_are(found: list[Violation]) -> None:
    assert decode(encode(found)) == found
    for each in found:
        assert each in decode(remember("", each))


@pytest.mark.soak
@given(st.lists(st.integers(1, 100), max_size=12), st.booleans())
def test_three_in_thirty_days_about_two_submitters_begin_a_probation_and_only_they(
    days: list[int], alone: bool
) -> None:
    days.sort()
    said = [
        ReputationEvent("n", Evidence.REFUTED, day * DAY_MS, by=1 if alone else 1 + place % 2)
        for place, day in enumerate(days)
    ]
    found = recompute(said)
    close = [third for first, third in zip(days, days[2:], strict=False) if third - first < 30]
    assert found.violation_count == len(days)
    assert found.probation_at_ms == (close[0] * DAY_MS if close and not alone else 0)
    assert not found.banned_at_ms


@given(histories)
def test_two_accounts_and_their_nodes_ban_nobody_who_answers_right(history: list[ReputationEvent]) -> None:
    """Whatever they say, and how often: an honest node fails no test."""
    mine = [each for each in history if each.evidence is not WRONG and each.by <= 2]
    assert not recompute(mine).banned_at_ms


@given(histories)
def test_a_ban_follows_from_wrong_answers_or_from_many_who_do_not_belong_together(
    history: list[ReputationEvent],
) -> None:
    found, failed, cleared = NEWCOMER, 0, False
    for each in history:
        before, found = found, update(found, each)
        failed = 0 if found.probation_at_ms and not before.probation_at_ms else failed + (each.evidence is WRONG)
        cleared = cleared or found.cleared_at_ms > before.cleared_at_ms
        if found.banned_at_ms and not before.banned_at_ms:
            old = [v for v in decode(found.violations) if v.old]
            many = len({v.submitter for v in old}) >= 3 and len({r for v in old for r in v.refuters}) >= 3
            assert (before.probation_at_ms and failed >= PROBES_WRONG) or (cleared and many)
        assert not (found.banned_at_ms and found.probation_at_ms)
        assert found.streak == 0


def test_what_the_tests_decide() -> None:
    suspect = wrong(1, 2, 1)
    assert suspect.probation_at_ms
    assert update(suspect, ReputationEvent("n", Evidence.VERIFIED, 2 * DAY_MS)).streak == 0, "no record meanwhile"
    cleared = probed(suspect, WRONG, *[RIGHT] * PROBES_RIGHT)
    assert (cleared.probation_at_ms, cleared.banned_at_ms, cleared.recent_violations(3 * DAY_MS)) == (0, 0, 0)
    assert probed(suspect, RIGHT, RIGHT, WRONG, WRONG).banned_at_ms
    assert probed(NEWCOMER, WRONG, WRONG) == NEWCOMER, "only who is on probation is tested"
    again = wrong(1, 2, 1, begin=cleared, at_ms=3 * DAY_MS)
    assert (bool(again.probation_at_ms), again.banned_at_ms) == (True, 0), "two accounts: tested once more"
    heir = inherit(suspect, 2 * DAY_MS)
    assert (heir.probation_at_ms, heir.violations) == (suspect.probation_at_ms, suspect.violations)


def test_after_it_was_cleared_many_who_do_not_belong_together_ban_it() -> None:
    cleared = probed(wrong(1, 2, 1, old=True, refuters=(8, 9)), *[RIGHT] * PROBES_RIGHT)
    friends = wrong(3, begin=cleared, at_ms=3 * DAY_MS, old=True, refuters=(8, 9))
    assert not friends.banned_at_ms, "the same two owners each time"
    young = wrong(3, begin=cleared, at_ms=3 * DAY_MS, old=False, refuters=(7, 9))
    assert not young.banned_at_ms
    many = wrong(3, begin=cleared, at_ms=3 * DAY_MS, old=True, refuters=(7, 9))
    assert many.banned_at_ms == 3 * DAY_MS
    pardoned = update(many, ReputationEvent("n", Evidence.PARDONED, 4 * DAY_MS))
    assert (pardoned.banned_at_ms, pardoned.violations, pardoned.cleared_at_ms) == (0, "", 0)


def test_an_event_says_about_whose_job_and_by_whom() -> None:
    data = refutation_data(["b", "a"], submitter="sam", old=True)
    event = {"action": "attempt.refuted", "actor": "hub", "node_id": "n", "reason": "", "at_ms": 7}
    found = read_event({**event, "account_id": "pool", "data": data}, owner="o")
    assert found is not None
    assert (found.old, len(found.refuters)) == (True, 2)
    same = read_event({**event, "account_id": "sam", "data": None}, owner="o")
    assert same is not None
    assert (same.by, same.old, same.refuters) == (found.by, False, ())
