"""What the ranking prefers, and the gates that need a story to be understood."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from computepool.core.fleet.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.placement import allocator
from computepool.core.placement.allocator import Search, eligible, place, score
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape
from tests.core.fleets import chosen, fleet_of

TERMS = {"fit_vram", "fit_cores", "reliability", "tier_speed", "own_node", "preferred_tags"}


def gpu(vram_gb: int = 24, tier: str = "rtx-4090") -> Gpu:
    return Gpu(name=tier, tier=tier, vram_mb=vram_gb * 1_000)


def node(node_id: str, *gpus: Gpu, cores: int = 8, **fields: object) -> NodeProfile:
    capacity = Capacity(cpu_milli=cores * 1_000, ram_mb=64_000, disk_mb=500_000, gpus=gpus)
    defaults = {"name": node_id, "owner": "owner", "level": Level.NAMESPACE}
    return NodeProfile(node_id=node_id, capacity=capacity, **{**defaults, **fields})  # type: ignore[arg-type]


def shape(account: str = "ann", avoid_node: str = "", **wanted: object) -> Shape:
    return Shape(Requirements(**wanted), account, avoid_node)  # type: ignore[arg-type]


def test_nothing_fits_an_empty_fleet() -> None:
    assert place(Fleet(), shape()) == []
    assert not eligible(Fleet(), shape()).any()


def test_a_card_that_fits_goes_before_a_larger_one() -> None:
    fleet = fleet_of(node("large", gpu(80, "h100")), node("fitting", gpu(24)), node("none"))
    assert chosen(fleet, shape(vram_mb=24_000)) == ["fitting"]


def test_the_faster_card_wins_a_tie() -> None:
    fleet = fleet_of(node("slow", gpu(24, "rtx-3090")), node("fast", gpu(24, "rtx-4090")))
    assert chosen(fleet, shape(vram_mb=16_000)) == ["fast"]


def test_a_job_without_a_gpu_leaves_the_gpus_alone() -> None:
    fleet = fleet_of(node("gpu", gpu()), node("cpu"))
    assert chosen(fleet, shape()) == ["cpu"]


def test_a_small_job_leaves_the_large_node_alone() -> None:
    fleet = fleet_of(node("large", cores=64), node("small", cores=4))
    assert chosen(fleet, shape(cpu_milli=2_000)) == ["small"]


def test_the_reliable_node_wins() -> None:
    fleet = fleet_of(node("shaky"), node("solid"))
    fleet.set_reliability("shaky", 0.3)
    fleet.set_reliability("solid", 0.95)
    assert chosen(fleet, shape()) == ["solid"]


def test_a_preferred_tag_outranks_a_better_fit() -> None:
    fleet = fleet_of(node("fits", cores=1), node("preferred", gpu(), cores=64, tags=frozenset({"lab"})))
    assert chosen(fleet, shape(prefer_tags=frozenset({"lab"}))) == ["preferred"]


def test_a_preferred_tag_never_excludes() -> None:
    assert chosen(fleet_of(node("plain")), shape(prefer_tags=frozenset({"nobody-has-it"}))) == ["plain"]


BETTER = {
    "fits": node("fits", cores=1),
    "fast": node("fast", gpu(24, "b200"), cores=4),
    "proven": node("proven", gpu(24), cores=4),
}


@pytest.mark.parametrize("better", BETTER)
@pytest.mark.parametrize("vram_mb", [0, 8_000])
def test_the_submitters_own_node_goes_before_a_strangers(better: str, vram_mb: int) -> None:
    own = node("own", gpu(80, "gtx-1080"), cores=64, owner="ann")
    for order in ((own, BETTER[better]), (BETTER[better], own)):
        fleet = fleet_of(*order)
        fleet.set_reliability("own", 0.1)
        fleet.set_reliability("proven", 1.0)
        (placement,) = place(fleet, shape(vram_mb=vram_mb))
        assert placement.node_id == "own"
        assert placement.terms["own_node"] == allocator.OWN_NODE_WEIGHT


def test_jobs_go_to_others_once_the_own_node_is_full() -> None:
    fleet = fleet_of(node("stranger", cores=8), node("own", cores=2, owner="ann"))
    assert chosen(fleet, shape(), 3) == ["own", "own", "stranger"]


def test_several_own_nodes_are_ranked_as_any_others_are() -> None:
    fleet = fleet_of(node("large", cores=64, owner="ann"), node("small", cores=2, owner="ann"))
    assert chosen(fleet, shape(cpu_milli=2_000)) == ["small"]


@pytest.mark.parametrize("tags", [{"lab"}, {"lab", "nobody-has-it"}])
def test_a_preferred_tag_outranks_the_own_node(tags: set[str]) -> None:
    fleet = fleet_of(node("own", cores=1, owner="ann"), node("lab", gpu(), cores=64, tags=frozenset({"lab"})))
    assert chosen(fleet, shape(prefer_tags=frozenset(tags))) == ["lab"]


def test_a_check_still_goes_to_another_owner() -> None:
    fleet = fleet_of(node("own", owner="ann"), node("stranger"))
    assert chosen(fleet, replace(shape(), avoid_owners=frozenset({"ann"}))) == ["stranger"]


def test_no_score_outweighs_a_gate() -> None:
    """The rule that gave 5 points for cores and let a node win that had failed on VRAM."""
    fleet = fleet_of(node("many-cores", gpu(8), cores=64), node("enough-vram", gpu(24), cores=1))
    assert chosen(fleet, shape(vram_mb=24_000), 5) == ["enough-vram"]


def test_equally_good_nodes_take_turns() -> None:
    fleet = fleet_of(*(node(f"n{number}", cores=8) for number in range(4)))
    assert Counter(chosen(fleet, shape(), 8)) == {f"n{number}": 2 for number in range(4)}
    assert sorted(chosen(fleet, shape(), 4)) == ["n0", "n1", "n2", "n3"]


def test_single_placements_take_turns_too() -> None:
    fleet = fleet_of(*(node(f"n{number}", cores=8) for number in range(3)))
    assert [chosen(fleet, shape())[0] for _ in range(6)] == ["n0", "n1", "n2"] * 2


def test_several_jobs_share_a_node_and_a_card() -> None:
    fleet = fleet_of(node("one", gpu(24)))
    placements = place(fleet, shape(vram_mb=8_000), 5)
    assert len(placements) == 3
    assert {placement.reservation.cards for placement in placements} == {(0,)}


def test_jobs_that_say_nothing_of_memory_share_the_nodes_by_cores() -> None:
    """However they are mixed with others, no node promises more memory than it has."""
    fleet = fleet_of(node("one", cores=8))  # 64 GB
    unsaid = {"ram_mb": 512, "ram_by_cores": True}
    held = [placement.reservation.ram_mb for placement in place(fleet, shape(**unsaid), 9)]
    assert held == [8_000] * 8
    fleet = fleet_of(node("one", cores=8))
    [large] = place(fleet, shape(ram_mb=50_000))
    held = [placement.reservation.ram_mb for placement in place(fleet, shape(**unsaid, cpu_milli=500), 99)]
    assert held == [4_000] * 3
    assert chosen(fleet, shape(ram_mb=2_000)) == ["one"], "who says how little it needs need not wait"
    fleet.release("one", large.reservation)
    assert chosen(fleet, shape(**unsaid, cpu_milli=2_000)) == ["one"]
    small = replace(node("small", cores=8), capacity=Capacity(cpu_milli=8_000, ram_mb=2_000, disk_mb=9_000))
    assert len(chosen(fleet_of(small), shape(**unsaid), 9)) == 3, "512 MB each at least"


def test_a_search_passes_over_what_another_took() -> None:
    fleet = fleet_of(*(node(f"n{number}", cores=1) for number in range(3)))
    first, second = Search(fleet, shape(), 1), Search(fleet, shape(ram_mb=1), 1)
    places = [search.place() for search in (first, second, first, second)]
    assert [place and place.node_id for place in places] == ["n0", "n1", "n2", None]


def test_two_gpus_means_two_different_cards() -> None:
    two = shape(gpus=2, vram_mb=16_000)
    assert not chosen(fleet_of(node("one-large", gpu(80))), two)
    (placement,) = place(fleet_of(node("pair", gpu(24), gpu(8), gpu(24))), two)
    assert placement.reservation.cards == (0, 2)


def test_the_tightest_card_is_taken() -> None:
    fleet = fleet_of(node("mixed", gpu(80), gpu(16)))
    (placement,) = place(fleet, shape(vram_mb=12_000))
    assert placement.reservation.cards == (1,)


def test_a_gpu_without_an_amount_is_a_whole_card() -> None:
    fleet = fleet_of(node("one", gpu(24)))
    (placement,) = place(fleet, shape(gpus=1), 2)
    assert placement.reservation.cards
    assert not placement.reservation.vram_mb
    assert not chosen(fleet, shape(vram_mb=1))
    fleet.release("one", placement.reservation)
    assert chosen(fleet, shape(vram_mb=1))
    assert not chosen(fleet, shape(gpus=1)), "somebody is on the card"


def test_only_cards_of_the_wanted_tier_count() -> None:
    fleet = fleet_of(node("mixed", gpu(24, "rtx-3090"), gpu(12, "rtx-3060")))
    assert not chosen(fleet, shape(vram_mb=16_000, tiers=frozenset({"rtx-3060"})))
    (placement,) = place(fleet, shape(vram_mb=8_000, tiers=frozenset({"rtx-3060"})))
    assert placement.reservation.cards == (1,)
    assert chosen(fleet, shape(tiers=frozenset({"rtx-3060"}))), "a job without a card asks what the node is"


def test_regions_go_by_their_aliases() -> None:
    fleet = fleet_of(node("mumbai", region="in"), node("berlin", region="de"))
    assert chosen(fleet, shape(regions=frozenset({"India"}))) == ["mumbai"]
    assert chosen(fleet, shape(regions=frozenset({"eu"}))) == ["berlin"]


@pytest.mark.parametrize(
    ("account", "isolation", "level", "trusted", "runs"),
    [
        ("ann", None, Level.NAMESPACE, "", True),
        ("ann", None, Level.PROCESS, "", False),
        ("ann", None, Level.PROCESS, "ann", True),
        ("ann", None, Level.PROCESS, "*", True),
        ("owner", None, Level.PROCESS, "", True),
        ("ann", Level.GVISOR, Level.NAMESPACE, "ann", False),
        ("ann", Level.GVISOR, Level.GVISOR, "", True),
        ("owner", Level.NAMESPACE, Level.PROCESS, "", False),
        # A submitter cannot waive the owner's protection.
        ("ann", Level.PROCESS, Level.PROCESS, "", False),
        ("ann", Level.PROCESS, Level.PROCESS, "ann", True),
    ],
)
def test_isolation(account: str, isolation: Level | None, level: Level, trusted: str, runs: bool) -> None:
    fleet = fleet_of(node("n", level=level, trusted=frozenset({trusted} - {""})))
    assert bool(chosen(fleet, shape(account, isolation=isolation))) == runs


def test_the_node_that_failed_last_is_avoided() -> None:
    fleet = fleet_of(node("bad"), node("other"))
    assert set(chosen(fleet, shape(avoid_node="bad"), 100)) == {"other"}


def test_the_avoided_node_is_not_used_while_the_other_is_busy() -> None:
    fleet = fleet_of(node("bad"), node("other"))
    assert len(chosen(fleet, shape(node="other"), 100)) == 8
    assert not chosen(fleet, shape(avoid_node="bad"))


def test_the_avoided_node_runs_it_again_if_no_other_ever_could() -> None:
    fleet = fleet_of(node("bad", gpu()), node("cpu"))
    retry = shape(avoid_node="bad", vram_mb=8_000)
    assert eligible(fleet, retry).any()
    assert chosen(fleet, retry) == ["bad"]
    fleet.upsert(node("new", gpu()))
    assert set(chosen(fleet, retry, 9)) == {"new"}
    fleet.remove("new")
    assert chosen(fleet, retry) == ["bad"]


def test_the_longest_unused_go_first_in_a_large_fleet() -> None:
    """Large fleets are sampled first; the result is exact all the same."""
    count, random = 3 * allocator._SAMPLE, Random(1)
    fleet = fleet_of(*(node(f"n{number}", cores=2) for number in range(count)))
    used = list(range(count))
    random.shuffle(used)
    for number in used:
        assert fleet.reserve(f"n{number}", Requirements(cpu_milli=0))
    assert chosen(fleet, shape(), 40) == [f"n{number}" for number in used[:40]]
    assert chosen(fleet, shape()) == [f"n{used[40]}"]
    assert chosen(fleet, shape(), count) == [f"n{number}" for number in used[41:] + used[:41]]


def test_terms_are_named_and_add_up() -> None:
    fleet = fleet_of(node("n", gpu(80), tags=frozenset({"lab"}), owner="ann"))  # 40 GB idle: twice what is no waste
    (placement,) = place(fleet, shape(vram_mb=40_000, prefer_tags=frozenset({"lab", "fast"})))
    assert placement.terms.keys() == TERMS
    assert sum(placement.terms.values()) == pytest.approx(placement.score)
    assert placement.terms["fit_vram"] == pytest.approx(allocator.FIT_VRAM_WEIGHT / 2)
    assert placement.terms["preferred_tags"] == pytest.approx(allocator.PREFERRED_TAGS_WEIGHT / 2)
    assert placement.terms["tier_speed"] == pytest.approx(allocator.TIER_SPEED_WEIGHT * 3 / 2)


def test_a_placement_is_the_callers_own() -> None:
    fleet = fleet_of(node("n"))
    first, second = place(fleet, shape(), 2)
    first.terms.clear()
    assert second.terms
    assert place(fleet, shape())[0].terms


def test_absurd_amounts_overflow_nothing() -> None:
    huge = 10**12
    capacity = Capacity(cpu_milli=huge, ram_mb=huge, disk_mb=huge, gpus=(replace(gpu(), vram_mb=huge),))
    fleet = fleet_of(replace(node("braggart"), capacity=capacity))
    assert chosen(fleet, shape(vram_mb=1_000))
    assert not chosen(fleet, shape(cpu_milli=huge))
    assert not chosen(fleet, shape(ram_mb=huge, vram_mb=huge, gpus=40))
    assert score(fleet, shape(cpu_milli=huge, vram_mb=huge), slice(0, 1))


def test_remembered_shapes_are_bounded() -> None:
    fleet = fleet_of(node("n"))
    for number in range(2 * allocator.RANKINGS_MAX):
        (placement,) = place(fleet, shape(ram_mb=number))
        fleet.release("n", placement.reservation)
    assert len(fleet.rankings) == allocator.RANKINGS_MAX


def test_remembered_scores_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "SCORES_MAX", 3)
    fleet = fleet_of(*(node(f"n{number}") for number in range(8)))
    assert len(chosen(fleet, shape(), 8)) == 8
    for _ in range(8):
        assert chosen(fleet, shape())
        assert all(len(ranking.scores) <= 8 for ranking in fleet.rankings.values())


def test_owners_to_avoid_are_the_jobs_own_affair() -> None:
    """Jobs of one kind share what is remembered of the fleet, but not who has run them."""
    fleet = fleet_of(node("ann-1", owner="ann"), node("bob-1", owner="bob"))
    plain = shape(account="sam", cpu_milli=1_000)
    first = replace(plain, avoid_owners=frozenset({"ann"}))
    for _ in range(2):
        assert {*chosen(fleet, first), *chosen(fleet, first)} == {"bob-1"}
        assert {*chosen(fleet, plain), *chosen(fleet, plain)} == {"ann-1", "bob-1"}
    nobody = replace(plain, avoid_owners=frozenset({"ann", "bob"}))
    assert chosen(fleet, nobody) == []
    assert not eligible(fleet, nobody).any()
