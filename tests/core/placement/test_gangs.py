"""Gangs are placed whole, on nodes of one owner or mesh, or not at all, and are not passed for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from computepool.core.fleet.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.placement.allocator import Placement, place
from computepool.core.placement.backlog import Backlog
from computepool.core.placement.explain import explain, preview
from computepool.core.placement.gangs import GangHold, GangSearch, WaitingGang
from computepool.core.resources import Capacity, NodeProfile, Requirements, Shape

SMALL = Shape(Requirements(cpu_milli=1_000, ram_mb=0, disk_mb=0), "sam")


def gang(nodes: int, **needs: object) -> Shape:
    return Shape(replace(SMALL.requirements, nodes=nodes, **needs), "sam")  # type: ignore[arg-type]


def profile(name: str, owner: str, *, cores: int = 1, **more: object) -> NodeProfile:
    capacity = Capacity(cpu_milli=cores * 1_000, ram_mb=100_000, disk_mb=100_000)
    fields = {"level": Level.NAMESPACE, "gangs": True, **more}
    return NodeProfile(node_id=name, name=name, owner=owner, capacity=capacity, **fields)  # type: ignore[arg-type]


def fleet_of(sizes: dict[str, int], **more: object) -> Fleet:
    """By owner, a number of nodes with a core each."""
    fleet = Fleet()
    for owner, count in sizes.items():
        for number in range(count):
            fleet.upsert(profile(f"{owner}{number}", owner, **more))
    return fleet


def all_of(placement: Placement) -> list[Placement]:
    return [placement, *placement.others]


def held(fleet: Fleet) -> int:
    return sum(len(fleet[node.node_id].reservations) for node in fleet)


@given(
    sizes=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5), max_size=4),
    shapes=st.lists(st.integers(1, 5), max_size=8),
    meshes=st.booleans(),
)
def test_every_gang_is_whole_on_distinct_nodes_of_one_owner_and_nothing_else_is_reserved(
    sizes: dict[str, int], shapes: list[int], meshes: bool
) -> None:
    mesh = "lab" if meshes else ""
    fleet = fleet_of(sizes, mesh_version=mesh)
    free = dict(sizes)
    for nodes in shapes:
        shape = gang(nodes, mesh_version=mesh)
        found = GangSearch(fleet, shape).place() if nodes > 1 else next(iter(place(fleet, shape)), None)
        fits = sum(free.values()) >= nodes if meshes else max(free.values(), default=0) >= nodes
        assert (found is not None) == fits
        if found is None:
            continue
        placed = all_of(found)
        assert len({each.node_id for each in placed}) == len(placed) == nodes
        owners = [fleet[each.node_id].profile.owner for each in placed]
        assert meshes or len(set(owners)) == 1
        for owner in owners:
            free[owner] -= 1
    assert held(fleet) == sum(sizes.values()) - sum(free.values())


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=12), st.integers(0, 6))
def test_the_backlog_gives_whole_gangs_and_ends(jobs: list[tuple[int, int]], count: int) -> None:
    fleet, backlog = fleet_of({"a": count, "b": 2}), Backlog()
    for number, (nodes, age) in enumerate(jobs):
        backlog.add(f"j{number}", gang(nodes), age_key=f"{age}")
    rounds = 0
    placed = 0
    while backlog.can_take_more(fleet) and rounds < 100:
        rounds += 1
        placed += sum(len(all_of(each)) for _, each in backlog.take(fleet, 3))
    assert rounds < 100, "a gang that does not fit must not keep the dispatcher busy"
    assert held(fleet) == placed


def test_an_owner_whose_nodes_may_hold_no_more_value_gets_no_part_of_a_gang() -> None:
    fleet = fleet_of({"a": 3})
    for number in range(3):
        fleet.set_cap(f"a{number}", 150)
    shape = replace(gang(3, minutes=60), ceiling=60)
    supply = fleet.supply
    assert GangSearch(fleet, shape).place() is None
    assert (held(fleet), fleet.supply) == (0, supply), "nothing was freed, so nobody need try again"
    assert GangSearch(fleet, replace(gang(2, minutes=60), ceiling=60)).place() is not None


def test_the_node_that_failed_it_is_avoided_while_others_suffice() -> None:
    fleet = fleet_of({"a": 3})
    shape = replace(gang(2), avoid_node="a0")
    first = GangSearch(fleet, shape).place()
    assert first is not None
    assert "a0" not in {each.node_id for each in all_of(first)}
    assert GangSearch(fleet_of({"a": 2}), shape).place() is not None, "there are no others"


def test_one_s_own_nodes_come_first() -> None:
    fleet = fleet_of({"a": 3, "sam": 2})
    found = GangSearch(fleet, gang(2)).place()
    assert found is not None
    assert {fleet[each.node_id].profile.owner for each in all_of(found)} == {"sam"}


@pytest.mark.parametrize(
    ("nodes", "busy", "sentence"),
    [
        (4, 0, "Waiting: it needs 4 nodes of one owner at once; the best owner has 3 free."),
        (3, 0, "Can start now on 3 of 7 nodes."),
        (5, 0, "No node can run this: it needs 5 nodes of one owner at once; the best owner has 4 that could run it."),
    ],
)
def test_why_it_waits(nodes: int, busy: int, sentence: str) -> None:
    fleet = fleet_of({"a": 4, "b": 3})
    assert fleet.reserve("a0", SMALL.requirements) is not None
    why = explain(fleet, gang(nodes))
    assert why.sentence == sentence
    assert why.unsatisfiable == (nodes == 5)


def test_nodes_without_the_network_take_no_members() -> None:
    fleet = fleet_of({"a": 2}, gangs=False)
    assert GangSearch(fleet, gang(2)).place() is None
    assert explain(fleet, gang(2)).sentence == (
        "No node can run this: both nodes cannot join a network between nodes, which takes isolation namespace and "
        "/dev/net/tun."
    )


# ageing


def hold() -> GangHold:
    return GangHold(after_ms=60, lasts_ms=1_000)


def test_a_gang_that_has_waited_gets_nodes_kept_and_others_go_elsewhere() -> None:
    fleet, keeper, shape = fleet_of({"a": 2, "b": 1}), hold(), gang(2)
    assert fleet.reserve("a0", SMALL.requirements) is not None
    keeper.update(fleet, [WaitingGang("g", shape, 0)], 59)
    assert fleet.withheld is None
    keeper.update(fleet, [WaitingGang("g", shape, 0)], 60)
    assert fleet.withheld is not None
    assert {fleet.node_at(int(row)).profile.owner for row in fleet.withheld[1]} == {"a"}
    assert [placement.node_id for placement in place(fleet, SMALL, 5)] == ["b0"]
    [refused] = [verdict for verdict in preview(fleet, SMALL, 9) if verdict.profile.node_id == "a1"]
    assert [failed.gate for failed in refused.failed] == ["withheld"]


def test_only_the_oldest_gang_holds_and_not_for_ever() -> None:
    fleet, keeper = fleet_of({"a": 2}), hold()
    assert fleet.reserve("a0", SMALL.requirements) is not None
    old, young = WaitingGang("old", gang(2), 0), WaitingGang("young", gang(2, cpu_milli=500), 1)
    keeper.update(fleet, [young, old], 100)
    assert fleet.withheld is not None
    assert fleet.withheld[0] == old.shape
    keeper.update(fleet, [young, old], 100 + 1_000)
    assert fleet.withheld is None, "others have their turn"
    assert len(place(fleet, SMALL, 1)) == 1
    keeper.update(fleet, [young, old], 100 + 2_000)
    assert fleet.withheld is not None
    keeper.update(fleet, [], 100 + 2_001)
    assert fleet.withheld is None


def test_a_hold_does_not_keep_the_dispatcher_busy() -> None:
    fleet, keeper, backlog = fleet_of({"a": 2}), hold(), Backlog()
    assert fleet.reserve("a0", SMALL.requirements) is not None
    backlog.add("g", gang(2), age_key="0")
    backlog.add("small", SMALL, age_key="1")
    for _ in range(9):
        keeper.update(fleet, [WaitingGang("g", gang(2), 0)], 100)
        assert backlog.take(fleet, 9) == []
    assert not backlog.can_take_more(fleet)
