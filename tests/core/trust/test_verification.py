"""The rules of believing results, as properties."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import BadRequest
from computepool.core.money.pricing import PPM
from computepool.core.trust.verification import (
    CHEATS,
    CHECK_FLOOR_PPM,
    QUORUM_MAX,
    STREAK_FREE,
    Conclusion,
    Decision,
    Delivery,
    Mode,
    Result,
    Ruling,
    VerificationPolicy,
    VerificationVerdict,
    check_chance,
    conclude,
    confidence,
    credibility,
    judge,
    parse,
    with_confidence,
)

QUORUMS = st.integers(2, QUORUM_MAX).map(lambda k: VerificationPolicy(Mode.QUORUM, quorum=k))
CONFIDENCES = st.floats(0.5, 0.999_999).map(with_confidence)
POLICIES = st.one_of(st.just(VerificationPolicy(Mode.ADAPTIVE)), QUORUMS, CONFIDENCES)
RESULTS = st.lists(st.builds(Result, kind=st.integers(0, 4), streak=st.integers(0, 200)), min_size=1, max_size=9)


@given(POLICIES)
def test_a_policy_reads_back_as_it_was_written(policy: VerificationPolicy) -> None:
    again = parse(str(policy))
    assert (again.mode, again.quorum) == (policy.mode, policy.quorum)
    assert again.confidence == pytest.approx(policy.confidence, rel=1e-5)


@pytest.mark.parametrize(
    "text", ["", "quorum", "quorum:1", "quorum:6", "quorum:22", "quorum:²", "confidence:", "confidence:1", "x"]
)
def test_nonsense_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(BadRequest, match=r"adaptive|between"):
        parse(text)


@given(st.integers(0, 10**6))
def test_more_confirmed_results_never_mean_more_checks_and_never_none(streak: int) -> None:
    chance = check_chance(streak)
    assert check_chance(streak + 1) <= chance <= PPM
    assert chance >= CHECK_FLOOR_PPM
    assert (chance == PPM) == (streak < STREAK_FREE)


def test_the_chance_is_that_of_the_notes() -> None:
    assert [check_chance(streak) for streak in (0, 9, 10, 15, 20, 21, 1_000)] == [
        PPM, PPM, 100_000, 66_666, 50_000, 50_000, 50_000
    ]  # fmt: skip
    assert check_chance(1_000, value=101, cap=100) == PPM
    assert check_chance(1_000, value=100, cap=100) == CHECK_FLOOR_PPM


@given(POLICIES, RESULTS)
def test_what_is_accepted_is_one_class_and_the_wrong_are_in_none_of_it(
    policy: VerificationPolicy, results: list[Result]
) -> None:
    decision = judge(policy, results)
    kinds = {results[place].kind for place in decision.agreeing}
    if decision.ruling is Ruling.ACCEPT:
        assert len(kinds) == 1
        assert not set(decision.agreeing) & set(decision.wrong)
        assert all(results[place].kind not in kinds for place in decision.wrong)
        assert list(decision.agreeing) == sorted(decision.agreeing)
    else:
        assert not decision.agreeing
        assert not decision.wrong


@given(POLICIES, RESULTS)
def test_nobody_is_wrong_without_two_who_agree_on_something_else(
    policy: VerificationPolicy, results: list[Result]
) -> None:
    decision = judge(policy, results)
    if decision.wrong:
        assert len(decision.agreeing) >= 2


# who is paid, and who is to blame


def concluded(agreeing: str, wrong: str, *delivered: Delivery, runs: int = 2) -> Conclusion:
    """Positions as digits."""
    decision = Decision(ruling=Ruling.ACCEPT, agreeing=tuple(map(int, agreeing)), wrong=tuple(map(int, wrong)))
    return conclude(decision, delivered, runs=runs)


GOOD, CUT, FALSE, SHARED = Delivery(), Delivery(whole=False), Delivery(false=True), Delivery(one_owner=False)


def test_those_who_agree_are_paid_and_the_rest_refuted() -> None:
    found = concluded("02", "1", GOOD, GOOD, GOOD)
    assert found.verdict is VerificationVerdict.CONFIRMED
    assert (found.paid, found.refuted, found.unblamed) == ((0, 2), (1,), ())


def test_a_whole_text_comes_before_one_that_was_cut() -> None:
    assert concluded("012", "", CUT, GOOD, CUT, runs=2).paid == (1, 0)
    assert concluded("0", "", CUT).paid == (0,), "a text that was cut does not make a result wrong"


def test_false_text_refutes_even_a_result_that_agrees() -> None:
    found = concluded("01", "", FALSE, GOOD)
    assert (found.verdict, found.paid, found.refuted) == (VerificationVerdict.ALONE, (1,), (0,))
    alone = concluded("0", "", FALSE, GOOD)
    assert (alone.agreeing, alone.paid, alone.refuted) == ((1,), (1,), (0,)), "the next one is believed instead"


def test_nobody_is_blamed_for_what_several_owners_made() -> None:
    found = concluded("02", "1", GOOD, SHARED, GOOD)
    assert (found.refuted, found.unblamed) == ((), (1,))


def test_results_that_all_differ_are_paid_as_many_as_were_agreed_on() -> None:
    found = conclude(Decision(ruling=Ruling.DIFFER), [GOOD] * 5, runs=2)
    assert (found.verdict, found.paid, found.refuted) == (VerificationVerdict.VARIES, (0, 1), ())


@given(POLICIES, RESULTS, st.lists(st.builds(Delivery, one_owner=st.booleans(), whole=st.booleans())), st.data())
def test_no_result_is_both_paid_and_wrong(
    policy: VerificationPolicy, results: list[Result], more: list[Delivery], data: st.DataObject
) -> None:
    decision = judge(policy, results)
    if decision.ruling is Ruling.MORE:
        return
    delivered = [*more, *[GOOD] * len(results)][: len(results)]
    liar = data.draw(st.integers(0, len(results) - 1))
    if len(results) > 1 and data.draw(st.booleans()):
        delivered[liar] = FALSE
    found = conclude(decision, delivered, runs=policy.runs)
    wrong = {*found.refuted, *found.unblamed}
    assert 1 <= len(found.paid) <= policy.runs
    assert not wrong & {*found.paid, *found.agreeing}
    assert wrong >= set(decision.wrong)
    assert not set(found.refuted) & set(found.unblamed)
    assert all(delivered[place].one_owner for place in found.refuted)
    assert {place for place, each in enumerate(delivered) if each.false} <= set(found.refuted)


@given(POLICIES)
def test_honest_nodes_are_asked_no_more_often_than_was_paid_for(policy: VerificationPolicy) -> None:
    results: list[Result] = []
    while True:
        results.append(Result(kind="right"))
        decision = judge(policy, results)
        if decision.ruling is not Ruling.MORE:
            break
    assert decision.ruling is Ruling.ACCEPT
    assert len(results) == policy.runs


@given(POLICIES)
def test_a_job_that_always_differs_ends(policy: VerificationPolicy) -> None:
    results = [Result(kind=number) for number in range(policy.results_max)]
    rulings = [judge(policy, results[: count + 1]).ruling for count in range(len(results))]
    if policy.mode is Mode.CONFIDENCE and policy.runs == 1:
        assert rulings[0] is Ruling.ACCEPT  # one word is as sure as they want to be
        return
    assert rulings[-1] is Ruling.DIFFER
    assert set(rulings[:-1]) <= {Ruling.MORE}


@given(QUORUMS, st.randoms(use_true_random=False))
def test_fewer_liars_than_the_quorum_never_decide(policy: VerificationPolicy, dice: random.Random) -> None:
    words = ["wrong"] * (policy.quorum - 1) + ["right"] * policy.quorum
    dice.shuffle(words)
    for count in range(1, len(words) + 1):
        decision = judge(policy, [Result(kind=word) for word in words[:count]])
        if decision.ruling is Ruling.ACCEPT:
            assert words[decision.agreeing[0]] == "right"
            return
    raise AssertionError("the honest were enough")


@given(st.integers(0, 10_000))
def test_who_passed_more_checks_is_believed_more(streak: int) -> None:
    assert 0.5 < credibility(streak) < credibility(streak + 1) < 1


def test_no_share_of_falsified_results_gets_past_the_credibility() -> None:
    """Of a cheat who falsifies a share s, passed k checks, a result is wrong with s(1 − s)^k f / (1 − f) at the most."""
    f = CHEATS
    for k in (1, 5, 20, 100):
        worst = max(s / 1_000 * (1 - s / 1_000) ** k for s in range(1_001)) * f / (1 - f)
        assert 1 - credibility(k) >= worst - 1e-12


@given(RESULTS)
def test_confidence_is_a_share_of_all_that_may_be_so(results: list[Result]) -> None:
    classes: dict[int | str, list[int]] = {}
    for place, result in enumerate(results):
        classes.setdefault(result.kind, []).append(place)
    shares = [confidence(results, classes, places) for places in classes.values()]
    assert all(0 <= share <= 1 for share in shares)
    assert sum(shares) <= 1 + 1e-9


@pytest.mark.parametrize(("wanted", "runs"), [(0.9, 1), (0.99, 2), (0.999, 3), (0.9999, 4)])
def test_how_many_strangers_it_takes(wanted: float, runs: int) -> None:
    assert with_confidence(wanted).runs == runs


@given(st.integers(0, 10_000), st.integers(0, 200), st.none() | st.integers(0, 200))
def test_newcomers_and_jobs_above_the_cap_are_always_checked(streak: int, value: int, cap: int | None) -> None:
    chance = check_chance(streak, value=value, cap=cap)
    if streak < STREAK_FREE or (cap is not None and value > cap):
        assert chance == PPM
    assert CHECK_FLOOR_PPM <= chance <= PPM
