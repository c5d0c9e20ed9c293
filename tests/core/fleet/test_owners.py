"""Bounds that all nodes of an owner share."""

from __future__ import annotations

from computepool.core.fleet.fleet import Fleet
from computepool.core.resources import Capacity, NodeProfile

NODES = 1_000


class Bound(int):
    """Counts how often bounds are compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Bound.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Bound.compared += 1
        return int(self) > int(other)


def test_an_owner_with_many_nodes_costs_no_more_for_each_of_them() -> None:
    fleet, capacity = Fleet(), Capacity(cpu_milli=1_000, ram_mb=1_000, disk_mb=1_000)
    for number in range(NODES):
        fleet.upsert(NodeProfile(node_id=f"n{number}", name="n", owner="ann", capacity=capacity))
        fleet.set_cap(f"n{number}", Bound(number))
    Bound.compared = 0
    for number in range(NODES - 1):
        fleet.set_cap(f"n{number}", Bound(number + 1))
        fleet.set_newcomer(f"n{number}", True)
    assert Bound.compared < 10 * NODES
