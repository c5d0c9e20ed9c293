"""Offered environments in the fleet: judged once each, and known for the nodes that offer them now."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from computepool.core.environment import Environment
from computepool.core.fleet import software
from computepool.core.fleet.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.money.market import Market
from computepool.core.money.pricing import Economy, first_table
from computepool.core.placement.allocator import place
from computepool.core.placement.explain import explain
from computepool.core.placement.gates import could_run
from computepool.core.placement.outlook import outlook
from computepool.core.resources import Capacity, NodeProfile, Requirements, Shape

MARKET = Market(first_table(Economy.MARKET))
TORCH = Environment.of("3.12", {"numpy": "2.1.0", "torch": "2.11.0+cu130"})
PLAIN = Environment.of("3.11", {"numpy": "2.1.0"})


class Judge:
    """By name alone; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, frozenset[str]]] = []

    def __call__(self, environment: Environment, dependencies: frozenset[str]) -> bool:
        self.asked.append((environment.digest, dependencies))
        return all(environment.version(name) is not None for name in dependencies)


def node(node_id: str, *environments: Environment, **fields: object) -> NodeProfile:
    capacity = Capacity(cpu_milli=8_000, ram_mb=32_000, disk_mb=500_000)
    defaults = {"name": node_id, "owner": "owner", "level": Level.NAMESPACE, "capacity": capacity, "python": "3.11"}
    return NodeProfile(node_id=node_id, environments=environments, **{**defaults, **fields})  # type: ignore[arg-type]


def fleet_with(*nodes: NodeProfile) -> tuple[Fleet, Judge]:
    judge = Judge()
    fleet = Fleet(judge)
    for each in nodes:
        fleet.upsert(each)
    return fleet, judge


def needing(*packages: str, **fields: object) -> Shape:
    return Shape(Requirements(software=frozenset(packages), **fields), "ann")  # type: ignore[arg-type]


def able(fleet: Fleet, shape: Shape) -> list[str]:
    rows = np.flatnonzero(could_run(fleet, shape, slice(0, fleet.rows))).tolist()
    return [fleet.node_at(row).profile.node_id for row in rows]


def test_versions_are_found_by_whole_names() -> None:
    found = Environment.of("3.12", {"torch": "2", "torch-x": "3", "my-torch": "4"})
    assert [found.version(name) for name in ("torch", "torch-x", "my-torch", "orch", "t")] == [
        "2",
        "3",
        "4",
        None,
        None,
    ]
    assert Environment.of("3.12", {}).version("torch") is None


def test_a_node_offers_or_installs() -> None:
    fleet, _ = fleet_with(
        node("offers", TORCH, installs=False), node("installs", PLAIN), node("neither", PLAIN, installs=False)
    )
    assert able(fleet, needing("torch")) == ["offers", "installs"]
    assert able(fleet, needing("torch", offered_only=True)) == ["offers"]
    assert able(fleet, needing("numpy", offered_only=True)) == ["offers", "installs", "neither"]
    assert able(fleet, needing()) == ["offers", "installs", "neither"]


def test_the_environment_brings_its_own_python() -> None:
    fleet, _ = fleet_with(node("offers", TORCH), node("installs"))
    assert able(fleet, needing("torch", pythons=frozenset({"3.12"}))) == ["offers"]
    assert able(fleet, needing("torch", pythons=frozenset({"3.11"}))) == ["offers", "installs"]
    assert able(fleet, needing("torch", pythons=frozenset({"3.11"}), offered_only=True)) == []
    assert able(fleet, needing(pythons=frozenset({"3.12"}))) == [], "a job without dependencies gets the node's own"


def test_each_environment_is_judged_once_for_each_set_of_dependencies() -> None:
    fleet, judge = fleet_with(*(node(f"n{number}", TORCH) for number in range(50)), node("plain", PLAIN))
    for _ in range(3):
        able(fleet, needing("torch"))
    fleet.upsert(node("late", TORCH))
    able(fleet, needing("torch"))
    assert len(judge.asked) == 2
    able(fleet, needing())
    assert len(judge.asked) == 2, "a job without dependencies costs nothing"


def test_nodes_that_change_or_leave_no_longer_offer_it() -> None:
    fleet, _ = fleet_with(node("a", TORCH), node("b", TORCH, PLAIN))
    only = needing("torch", offered_only=True)
    fleet.upsert(node("a", PLAIN))
    assert able(fleet, only) == ["b"]
    fleet.remove("b")
    assert able(fleet, only) == []
    fleet.upsert(node("c", TORCH))
    assert able(fleet, only) == ["c"]


def test_a_node_that_changes_its_environments_all_the_time_takes_no_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(software, "_SEEN_MAX", 8)
    fleet, _ = fleet_with(node("stays", TORCH))
    for number in range(100):
        fleet.upsert(node("flaps", Environment.of("3.12", {"x": str(number)})))
        assert able(fleet, needing("torch", offered_only=True)) == ["stays"]
    assert len(fleet.software._seen) < 20
    assert len(fleet.software._known) == 2


def test_rows_beyond_the_first_table_are_found() -> None:
    fleet, _ = fleet_with(*(node(f"n{number}", PLAIN) for number in range(100)), node("last", TORCH))
    assert able(fleet, needing("torch", offered_only=True)) == ["last"]


# ------------------------------------------------------------ warm first

KEY = "packages:0123"


def test_a_warm_node_comes_first() -> None:
    fleet, _ = fleet_with(*(node(f"n{number}", installs=True) for number in range(10)))
    shape = needing("torch", warm=frozenset({KEY}))
    fleet.set_warm("n7", {KEY: 90_000})
    [placed] = place(fleet, shape)
    assert (placed.node_id, placed.terms["warm"]) == ("n7", 40.0)
    fleet.set_warm("n7", {})
    fleet.upsert(node("n3", TORCH))
    [placed] = place(fleet, shape)
    assert placed.node_id == "n3", "an environment counts like installed packages"
    assert "warm" not in place(fleet, needing())[0].terms


def test_what_is_warm_leaves_with_its_node() -> None:
    fleet, _ = fleet_with(node("a"), node("b"))
    fleet.set_warm("a", {KEY: 1, "artifact:1": 2})
    fleet.set_warm("unknown", {KEY: 1})
    fleet.remove("a")
    fleet.upsert(node("c"))
    assert not fleet.warm.has(KEY, slice(0, fleet.rows)).any()


def test_several_things_count_in_part() -> None:
    fleet, _ = fleet_with(node("half"), node("all"), node("none"))
    fleet.set_warm("half", {KEY: 1})
    fleet.set_warm("all", {KEY: 1, "artifact:1": 1})
    placed = place(fleet, needing("torch", warm=frozenset({KEY, "artifact:1"}), cpu_milli=8_000), 3)
    assert [(each.node_id, each.terms["warm"]) for each in placed] == [("all", 40.0), ("half", 20.0), ("none", 0.0)]


def test_a_quote_counts_warm_nodes_and_knows_how_long_others_take() -> None:
    fleet, _ = fleet_with(node("offers", TORCH), node("has"), node("had"), node("cold"))
    fleet.set_warm("has", {KEY: 80_000})
    fleet.set_warm("had", {KEY: 90_000})
    fleet.set_prices(MARKET)
    seen = outlook(fleet, MARKET, needing("torch", warm=frozenset({KEY})))
    assert (seen.able, seen.warm, seen.warm_now, seen.cold_ms) == (4, 3, 3, 80_000)
    assert outlook(fleet, MARKET, needing()).warm is None
    never = outlook(fleet, MARKET, needing("torch", warm=frozenset({"packages:other"})))
    assert (never.warm, never.cold_ms) == (1, None)


# ------------------------------------------------------------ words


def test_an_explanation_counts_the_nodes_that_have_it() -> None:
    fleet, _ = fleet_with(*(node(f"n{number}") for number in range(37)), *(node(f"t{n}", TORCH) for n in range(3)))
    assert explain(fleet, needing("torch")).sentence == (
        "Can start now on 40 of 40 nodes. 3 of 40 nodes have torch; others must install it."
    )
    for number in range(3):
        fleet.set_available(f"t{number}", False)
    why = explain(fleet, needing("torch", offered_only=True))
    assert "37 of 40 nodes do not have torch" in why.sentence
    assert "without --offered-only it could start now on 37 nodes" in why.sentence
    assert why.sentence.endswith(" 3 of 40 nodes have torch.")


def test_a_node_that_cannot_install_is_named_for_it() -> None:
    fleet, _ = fleet_with(node("a", PLAIN, installs=False))
    why = explain(fleet, needing("torch>=2.4"))
    assert why.unsatisfiable
    assert "does not have torch>=2.4 and cannot install it" in why.sentence


def test_claimed_software_is_a_selector() -> None:
    """An accomplice could offer a package that nobody else has, and be the only one who can run the job."""
    needs = replace(needing("private").requirements, offered_only=True)
    assert not needs.without_selectors().software
    assert not needs.without_selectors().offered_only
