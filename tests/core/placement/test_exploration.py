"""Some cheap jobs go to nodes of which little is known; nothing else does, and a seed repeats it all."""

from __future__ import annotations

from collections import Counter
from random import Random

from computepool.core.fleet.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.money.money import CREDIT
from computepool.core.placement.allocator import Search
from computepool.core.placement.backlog import Backlog
from computepool.core.placement.exploration import EXPLORE_SHARE, SAMPLE, VALUE_MAX, Explorer
from computepool.core.resources import Capacity, NodeProfile, Requirements, Shape
from computepool.core.trust.reputation import NEWCOMER_SCORE

BEST, NEW, BAD = "best", "new", "bad"


def fleet_of(**known: tuple[float, tuple[float, float]]) -> Fleet:
    fleet = Fleet()
    for node_id, (score, evidence) in known.items():
        capacity = Capacity(cpu_milli=10**8, ram_mb=2 * 10**9, disk_mb=2 * 10**9)
        fleet.upsert(NodeProfile(node_id=node_id, name=node_id, owner="o", capacity=capacity, level=Level.NAMESPACE))
        fleet.set_reliability(node_id, score, evidence)
    return fleet


def pool() -> Fleet:
    return fleet_of(best=(0.94, (19.0, 0.2)), new=(NEWCOMER_SCORE, (0.0, 0.0)), bad=(0.23, (0.5, 18.0)))


def shares(share: float, *, seed: int = 1, value: int = 0, count: int = 4_000) -> Counter[str]:
    fleet = pool()
    search = Search(
        fleet, Shape(Requirements(minutes=60), "sam", ceiling=value), count, explorer=Explorer(Random(seed), share)
    )
    return Counter(placement.node_id for _ in range(count) if (placement := search.place()) is not None)


def test_one_job_in_fifty_may_go_to_who_is_not_the_best() -> None:
    found = shares(EXPLORE_SHARE)
    assert 0.9 * 0.98 * 4_000 <= found[BEST] < 4_000
    assert 0 < found[NEW] <= 0.02 * 4_000
    assert found[BAD] <= 2
    assert found == shares(EXPLORE_SHARE)
    assert shares(0.0) == {BEST: 4_000}


def test_who_may_well_be_better_is_tried_more_than_who_is_known_to_be_worse() -> None:
    found = shares(1.0)
    assert found[NEW] > 400 > 4 >= found[BAD]


def test_what_is_worth_much_is_not_used_to_learn() -> None:
    assert shares(1.0, value=VALUE_MAX + CREDIT) == {BEST: 4_000}
    assert shares(1.0, value=VALUE_MAX)[NEW] > 0


def test_hard_gates_hold_for_chance_too() -> None:
    fleet = pool()
    fleet.set_available(NEW, False)
    fleet.set_integrity(BAD, streak=0, banned=True)
    backlog = Backlog()
    for number in range(200):
        backlog.add(f"j{number}", Shape(Requirements(), "sam"), age_key=f"{number:04d}")
    taken = backlog.take(fleet, 200, Explorer(Random(3), 1.0))
    assert {placement.node_id for _, placement in taken} == {BEST}


def test_chance_takes_no_job_away_from_the_submitters_own_node() -> None:
    fleet = pool()
    capacity = Capacity(cpu_milli=2_000, ram_mb=10**6, disk_mb=10**6)
    fleet.upsert(NodeProfile(node_id="own", name="own", owner="sam", capacity=capacity))
    search = Search(fleet, Shape(Requirements(), "sam"), 3, explorer=Explorer(Random(5), 1.0))
    placed = [placement.node_id for _ in range(3) if (placement := search.place()) is not None]
    assert placed[:2] == ["own", "own"]
    assert placed[2] != "own"


def test_a_large_fleet_is_sampled_and_an_empty_one_gives_nobody() -> None:
    fleet = fleet_of(**{f"n{number}": (0.7, (0.0, 0.0)) for number in range(3 * SAMPLE)})
    wanted = Shape(Requirements(), "sam")
    search = Search(fleet, wanted, 50, explorer=Explorer(Random(5), 1.0))
    assert len({placement.node_id for _ in range(50) if (placement := search.place())}) > 20
    assert Search(Fleet(), wanted, 1, explorer=Explorer(Random(5), 1.0)).place() is None
