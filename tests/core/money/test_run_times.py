"""What a run may be billed, beside others that came to the same."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.core.money.pricing import charge_of
from computepool.core.money.run_times import RunTimes, Timed, TimeTolerance, allowed_ms
from computepool.core.trust.tiers import TIER_SPEED

WITHIN = TimeTolerance(percent=200, grace_ms=2_000)
FAR = TimeTolerance(percent=400, grace_ms=2_000)
TIERS = st.sampled_from(["", "cpu", "cpu-slow", "rtx-4090", "no such tier"])
RUNS = st.lists(st.builds(Timed, ms=st.integers(0, 10**10), tier=TIERS, items=st.just(3)), min_size=1, max_size=5)


@given(RUNS)
def test_nobody_is_billed_more_than_he_reported_nor_made_to_pay_alone(runs: list[Timed]) -> None:
    billed = [allowed_ms(runs, place, WITHIN) for place in range(len(runs))]
    assert all(0 <= ms <= run.ms for ms, run in zip(billed, runs, strict=True))
    assert sum(ms == run.ms for ms, run in zip(billed, runs, strict=True)) >= (len(runs) + 1) // 2
    price = 10_000_000
    assert all(charge_of(price, ms) <= charge_of(price, run.ms) for ms, run in zip(billed, runs, strict=True))


@given(st.integers(0, 10**9), st.lists(st.tuples(st.floats(1, 1.9), TIERS), min_size=2, max_size=5))
def test_an_honest_slow_node_is_not_cut(work: int, nodes: list[tuple[float, str]]) -> None:
    """Whatever its tier, as long as it keeps up with it."""
    fastest = max(TIER_SPEED.get(tier, 100) for _, tier in nodes)
    runs = [Timed(ms=int(work * factor * fastest / TIER_SPEED.get(tier, 100)), tier=tier) for factor, tier in nodes]
    assert [allowed_ms(runs, place, WITHIN) for place in range(len(runs))] == [run.ms for run in runs]


def test_who_holds_a_job_is_billed_as_the_others() -> None:
    assert allowed_ms([Timed(ms=50_000), Timed(ms=0)], 0, WITHIN) == 2_000
    assert allowed_ms([Timed(ms=50_000), Timed(ms=40_000)], 0, WITHIN) == 50_000
    three = [Timed(ms=3_600_000), Timed(ms=10_000), Timed(ms=12_000)]
    assert [allowed_ms(three, place, WITHIN) for place in range(3)] == [26_000, 10_000, 12_000]
    assert allowed_ms([Timed(ms=10_000), Timed(ms=0), Timed(ms=9_000)], 0, WITHIN) == 10_000, (
        "one that says nothing took any time cuts nobody beside two"
    )
    alone = [Timed(ms=50_000)]
    assert allowed_ms(alone, 0, WITHIN) == 50_000


def test_a_program_is_long_beside_what_it_usually_takes() -> None:
    times = RunTimes()
    for number in range(5):
        assert not times.is_long("spec", Timed(ms=10**9), FAR), "too little is known"
        times = times.with_run("spec", Timed(ms=1_000 + number, items=1))
    assert not times.is_long("spec", Timed(ms=6_000), FAR)
    assert times.is_long("spec", Timed(ms=6_100), FAR)
    assert not times.is_long("spec", Timed(ms=6_100, items=2), FAR)
    assert not times.is_long("spec", Timed(ms=8_000, tier="cpu-slow"), FAR)
    assert not times.is_long("other", Timed(ms=10**9), FAR)


@pytest.mark.soak
@given(st.lists(st.integers(0, 3_000), max_size=100), st.integers(0, 10**6))
def test_what_is_remembered_is_bounded(programs: list[int], ms: int) -> None:
    times = RunTimes()
    for program in range(2_500):
        times = times.with_run(str(program), Timed(ms=1))
    for program in programs:
        times = times.with_run(str(program), Timed(ms=ms))
    assert len(times._programs) <= 2_000
