"""What measurements and run times make of a claim: never more than was claimed, never more for a slower machine."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, strategies as st

from computepool.core.money.pricing import PriceTable, zone_of
from computepool.core.resources import Capacity, Gpu, Requirements
from computepool.core.trust.hardware import (
    BOUNDS,
    CPU_CLASSES,
    Scores,
    Standing,
    Truth,
    allowed_score,
    clip,
    cpu_class,
    decide,
    gpu_tier,
    truthful,
)
from computepool.core.trust.relative_speed import Peers, RelativeSpeed
from computepool.core.trust.tiers import TIER_GFLOPS, TIER_SPEED, family_of, speed_of

CARDS = st.sampled_from(sorted(TIER_GFLOPS))
TIERS = st.sampled_from([*sorted(TIER_GFLOPS), "gpu", "mi300x", "rx-7900xtx"])
CLASSES = [name for name, _ in CPU_CLASSES]
GFLOPS = st.integers(0, 4_000_000)
NOW = 1_000_000


def noisy(value: int, seed: int, rounds: int = 60) -> list[int]:
    """Measurements of one machine, each off by up to 20 % either way."""
    chance = random.Random(seed)
    return [round(value * chance.uniform(0.8, 1.2)) for _ in range(rounds)]


@given(TIERS, st.none() | GFLOPS, st.none() | TIERS)
def test_a_card_is_never_paid_more_than_it_claims(claim: str, gflops: int | None, before: str | None) -> None:
    assert speed_of(gpu_tier(claim, gflops, before)) <= speed_of(claim)


@given(TIERS, GFLOPS, GFLOPS, st.none() | TIERS)
def test_a_slower_card_never_gets_a_higher_tier(claim: str, one: int, other: int, before: str | None) -> None:
    slow, fast = sorted((one, other))
    assert speed_of(gpu_tier(claim, slow, before)) <= speed_of(gpu_tier(claim, fast, before))


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.sampled_from(CLASSES))
def test_a_slower_core_never_gets_a_higher_class(one: int, other: int, before: str) -> None:
    slow, fast = sorted((one, other))
    assert speed_of(cpu_class(slow, before)) <= speed_of(cpu_class(fast, before))


@given(CARDS)
def test_a_card_that_does_what_its_tier_is_known_for_keeps_it(claim: str) -> None:
    assert gpu_tier(claim, TIER_GFLOPS[claim]) == claim
    assert gpu_tier(claim, TIER_GFLOPS[claim] * 41 // 100) == claim


def check_settles(claim: str, gflops: int, seed: int) -> None:
    """Every tier is left at most once: what was lost to noise is out of noise's reach."""
    tier, left = claim, set()
    for measured in noisy(gflops, seed):
        after = gpu_tier(claim, measured, tier)
        assert after not in left
        if after != tier:
            left.add(tier)
        tier = after


@given(CARDS, GFLOPS, st.integers(0, 2**32))
def test_noise_settles_on_one_tier(claim: str, gflops: int, seed: int) -> None:
    check_settles(claim, gflops, seed)


@given(st.integers(0, 5_000), st.integers(0, 2**32))
def test_noise_settles_on_one_class(score: int, seed: int) -> None:
    tier, left = "cpu", set()
    for measured in noisy(score, seed):
        after = cpu_class(measured, tier)
        assert after not in left
        if after != tier:
            left.add(tier)
        tier = after


def test_what_is_not_measured_is_only_claimed() -> None:
    truth = decide(Truth(scores=Scores(cpu=900)), ["rtx-4090"], now_ms=NOW)
    assert (truth.gpu_tiers, truth.standing) == (("rtx-4090",), Standing.CLAIMED)
    truth = decide(Truth(scores=Scores(cpu=900)), [], now_ms=NOW)
    assert (truth.cpu_tier, truth.standing) == ("cpu", Standing.CONFIRMED)


def test_a_measured_card_is_confirmed_or_lowered() -> None:
    honest = decide(Truth(scores=Scores(gflops=(140_000,))), ["rtx-4090"], now_ms=NOW)
    assert (honest.gpu_tiers, honest.standing) == (("rtx-4090",), Standing.CONFIRMED)
    liar = decide(Truth(scores=Scores(gflops=(12_000,))), ["rtx-4090"], now_ms=NOW)
    assert liar.standing is Standing.LOWERED
    assert speed_of(liar.gpu_tiers[0]) <= speed_of("gtx-1080ti") + 20


UNLISTED = st.sampled_from(["rtx-6090", "rtx-pro-4500", "b400", "gtx-970", "arc-a770", "apple-m9", "gpu"])


@given(UNLISTED, st.none() | GFLOPS, st.none() | TIERS)
def test_an_unknown_card_counts_as_no_more_than_the_best_of_its_family(
    claim: str, gflops: int | None, before: str | None
) -> None:
    tier = gpu_tier(claim, gflops, before)
    assert tier == claim or family_of(tier) == family_of(claim)


@given(UNLISTED, GFLOPS, GFLOPS, st.none() | TIERS)
def test_a_slower_unknown_card_never_gets_a_higher_tier(claim: str, one: int, other: int, before: str | None) -> None:
    slow, fast = sorted((one, other))
    assert speed_of(gpu_tier(claim, slow, before)) <= speed_of(gpu_tier(claim, fast, before))


@pytest.mark.soak
@given(UNLISTED, GFLOPS, st.integers(0, 2**32))
def test_noise_leaves_an_unknown_card_at_one_tier(claim: str, gflops: int, seed: int) -> None:
    check_settles(claim, gflops, seed)


@pytest.mark.parametrize(
    ("claim", "gflops", "tier"),
    [
        ("rtx-6090", 250_000, "rtx-5090"),
        ("rtx-6090", 700_000, "rtx-5090"),  # no H100, however fast
        ("rtx-6060", 40_000, "rtx-5070"),
        ("rtx-6090", None, "rtx-6090"),
        ("rtx-6090", 500, "rtx-6090"),  # as slow as an unknown card counts anyway
        ("rtx-pro-4500", 150_000, "rtx-a6000"),
        ("b400", 2_000_000, "b300"),
        ("gpu", 700_000, "gpu"),  # nobody knows which family it is of
    ],
)
def test_a_card_that_no_table_knows_counts_by_its_speed(claim: str, gflops: int | None, tier: str) -> None:
    truth = decide(Truth(scores=Scores(gflops=(gflops,))), [claim], now_ms=NOW)
    assert truth.gpu_tiers == (tier,)
    assert truth.standing is (
        Standing.MEASURED if tier != claim else Standing.CONFIRMED if gflops else Standing.CLAIMED
    )


def test_lower_tiers_are_paid_less() -> None:
    table = PriceTable()
    capacity = Capacity(cpu_milli=4000, ram_mb=1, disk_mb=1, gpus=(Gpu(name="x", tier="rtx-4090", vram_mb=24_000),))
    slow = truthful(capacity, decide(Truth(scores=Scores(cpu=150, gflops=(12_000,))), ["rtx-4090"], now_ms=NOW))
    for wanted in (Requirements(), Requirements(gpus=1)):
        paid = table.reference(zone_of(wanted, slow, region="in"))
        assert paid < table.reference(zone_of(wanted, capacity, region="in"))


def test_a_table_without_the_classes_of_cores_prices_them_below_a_core() -> None:
    table = PriceTable(tiers={"cpu": 80, "gpu": 100})
    assert table.tier_rate("cpu-tiny") < table.tier_rate("cpu-slow") < table.tier_rate("cpu")


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_impossible_scores_are_capped_and_said(cpu: int, gflops: int) -> None:
    scores, notes = clip(Scores(cpu=cpu, gflops=(gflops,)), ["rtx-4090"])
    assert scores.cpu == min(cpu, BOUNDS["cpu"])
    impossible = gflops > 2 * TIER_GFLOPS["rtx-4090"]
    assert scores.gflops == ((None,) if impossible else (gflops,))
    assert len(notes) == (cpu > BOUNDS["cpu"]) + impossible


def test_run_times_lower_a_tier_until_the_cap_ends() -> None:
    cap = allowed_score("rtx-4090", 4.0)
    truth = Truth(scores=Scores(gflops=(150_000,)), gpu_cap=cap, capped_until_ms=NOW + 1)
    lowered = decide(truth, ["rtx-4090"], now_ms=NOW)
    assert lowered.standing is Standing.LOWERED
    assert TIER_GFLOPS[lowered.gpu_tiers[0]] <= TIER_GFLOPS["rtx-4090"] / 4
    assert decide(lowered, ["rtx-4090"], now_ms=NOW + 1).gpu_tiers == ("rtx-4090",)


def test_run_times_lower_cards_that_cannot_be_measured() -> None:
    truth = Truth(gpu_cap=allowed_score("mi300x", 4.0), capped_until_ms=NOW + 1)
    assert decide(truth, ["mi300x"], now_ms=NOW).gpu_tiers == ("gpu",)


@given(st.floats(1.6, 8), CARDS.filter(lambda tier: TIER_SPEED.get(tier, 0) > 100))
def test_slower_than_half_again_is_lowered_and_less_is_not(slowdown: float, tier: str) -> None:
    truth = Truth(gpu_cap=allowed_score(tier, slowdown), capped_until_ms=NOW + 1, gpu_tiers=(tier,))
    assert decide(truth, [tier], now_ms=NOW).gpu_tiers != (tier,)
    kept = dataclasses.replace(truth, gpu_cap=allowed_score(tier, 1.4))
    assert decide(kept, [tier], now_ms=NOW).gpu_tiers == (tier,)


# ---------------------------------------------------------------- run times
def race(factor: float, *, jobs: int, spread: float, seed: int) -> RelativeSpeed:
    """One node that takes `factor` times as long as four others, jobs differing by up to `spread`."""
    chance, peers, speed = random.Random(seed), Peers(), RelativeSpeed()
    for _ in range(jobs):
        for node in range(5):
            ran_ms = round(1_000 * (factor if node == 0 else 1.0) * chance.uniform(1 / spread, spread))
            slower = peers.compare("spec", "l4", node_id=f"n{node}", owner=f"o{node}", ran_ms=ran_ms, peers_min=3)
            if node == 0 and slower is not None:
                speed = speed.add(slower, "acc")
    return speed


@given(st.integers(0, 10_000))
def test_a_slow_node_is_seen(seed: int) -> None:
    assert race(4.0, jobs=25, spread=1.2, seed=seed).sure_slowdown > 3


@given(st.integers(0, 10_000))
def test_an_honest_noisy_node_is_not(seed: int) -> None:
    assert race(1.0, jobs=40, spread=1.5, seed=seed).sure_slowdown < 1.5


def test_too_few_peers_say_nothing() -> None:
    peers = Peers()
    said = [
        peers.compare("s", "l4", node_id=f"n{n}", owner="one" if n < 5 else f"o{n}", ran_ms=10, peers_min=3)
        for n in range(8)
    ]
    # The nodes of one owner do not vouch for each other.
    assert said[:5] == [None] * 5
    assert said[7] is not None


def test_one_hanging_job_does_not_decide() -> None:
    speed = RelativeSpeed()
    for _ in range(20):
        speed = speed.add(0.0, "acc")
    assert speed.add(30.0, "acc").sure_slowdown < 1.5


def test_runs_on_lent_cpus_make_nobody_else_look_slow() -> None:
    """They are still held against the others: whoever claims to be one of these gains nothing by it."""
    peers = Peers()

    def run(node: str, ran_ms: int, *, alone: bool = False) -> float | None:
        return peers.compare("s", "cpu", node_id=node, owner=node, ran_ms=ran_ms, peers_min=3, alone=alone)

    for node in ("a", "b", "c"):
        assert run(node, 125, alone=True) is None
    for node in ("d", "e", "f", "g"):
        run(node, 1000)
    assert run("d", 1000) == 0.0  # not three octaves slower than a, b and c
    assert run("liar", 4000, alone=True) == 2.0
