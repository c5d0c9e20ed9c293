"""Conditions on drivers, CUDA and cards: their meaning, their place in the gates, and what people read."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from computepool.core.fleet.versions import conditions_of, describe, meets, number_of, text_of
from computepool.core.isolation import Level
from computepool.core.placement.allocator import place
from computepool.core.placement.explain import explain, preview
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape
from tests.core.fleets import chosen, fleet_of

numbers = st.lists(st.integers(0, 99_999), min_size=1, max_size=3).filter(any)
releases = numbers.map(lambda parts: ".".join(map(str, parts)))
signs = st.sampled_from([">=", "<=", "==", "!=", ">", "<"])
conditions = st.lists(st.tuples(signs, releases).map("".join), min_size=1, max_size=4).map(",".join)


@given(releases, conditions)
def test_a_condition_means_what_it_means_to_pip(release: str, text: str) -> None:
    expected = SpecifierSet(text).contains(Version(release))
    assert bool(meets(number_of(release), conditions_of(text))) == expected
    assert conditions_of(describe(conditions_of(text))) == conditions_of(text)


@given(releases, releases)
def test_numbers_sort_as_versions_do(first: str, second: str) -> None:
    assert (number_of(first) < number_of(second)) == (Version(first) < Version(second))
    assert Version(text_of(number_of(first))) == Version(first)


@given(st.text(max_size=30) | st.text(alphabet="0123456789.<>=!, ", max_size=30))
def test_any_other_text_is_no_condition(text: str) -> None:
    with contextlib.suppress(ValueError):
        found = conditions_of(text)
        assert bool(found) == bool(text)
        assert all(number > 0 for _, number in found)
    assert number_of(text) >= 0


@pytest.mark.parametrize(
    "text", ["12.4", "=12", ">=", ">=12.4.0.0", ">=-1", ">=1e5", ">=99999999", ",", ">=1,,<2", ">=٣", "~=1.0"]
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a condition"):
        conditions_of(text)


@pytest.mark.parametrize("text", ["580.159.04", "12.4", "9", "0.0.1"])
def test_the_drivers_own_texts_are_versions(text: str) -> None:
    assert number_of(text) > 0


def gpu_node(name: str, *capabilities: str, **fields: Any) -> NodeProfile:
    cards = tuple(
        Gpu(name="card", tier="rtx-4090", vram_mb=24_000, compute_capability=number_of(capability))
        for capability in capabilities
    )
    capacity = Capacity(cpu_milli=8_000, ram_mb=32_000, disk_mb=500_000, gpus=cards)
    versions = {field: number_of(fields.pop(field, "")) for field in ("driver", "cuda")}
    return NodeProfile(
        node_id=name, name=name, owner="owner", level=Level.NAMESPACE, capacity=capacity, **versions, **fields
    )


def wants(**needs: Any) -> Shape:
    given = {field: conditions_of(needs.pop(field)) for field in ("cuda", "driver") if field in needs}
    if "compute_capability" in needs:
        given["compute_capability"] = number_of(needs.pop("compute_capability"))
    return Shape(Requirements(gpus=1, **given, **needs), "ann")


def test_only_nodes_that_meet_the_conditions_are_chosen() -> None:
    nodes = (
        gpu_node("old", "7.5", driver="470.10", cuda="11.4"),
        gpu_node("new", "9.0", driver="580.159.04", cuda="13.0"),
        gpu_node("silent", "9.0"),
        gpu_node("cpu"),
    )
    for needs in ({"cuda": ">=12.4"}, {"driver": ">=550,<600"}, {"compute_capability": "8.0", "driver": ">1"}):
        assert chosen(fleet_of(*nodes), wants(**needs), 5) == ["new"]
    assert chosen(fleet_of(*nodes), wants(cuda="<12"), 5) == ["old"]
    assert explain(fleet_of(*nodes), wants(cuda=">=99")).unsatisfiable


def test_a_job_gets_the_card_of_a_node_that_meets_its_compute_capability() -> None:
    fleet = fleet_of(gpu_node("both", "7.5", "9.0"))
    [placement] = place(fleet, wants(compute_capability="8.0"), 2)
    assert placement.reservation.cards == (1,)
    assert place(fleet, wants(compute_capability="8.0", vram_mb=8_000), 2) == []
    assert [one.reservation.cards for one in place(fleet, wants(), 2)] == [(0,)]


def test_people_read_how_many_nodes_meet_a_condition() -> None:
    nodes = [gpu_node(f"n{number}", "8.6", driver="535.1", cuda="12.2") for number in range(3)]
    fleet = fleet_of(*nodes, gpu_node("new", "9.0", driver="580.1", cuda="13.0"), gpu_node("cpu"))
    assert chosen(fleet, wants(cuda=">=12.4")) == ["new"]
    why = explain(fleet, wants(cuda=">=12.4"))
    assert why.sentence.endswith(" 1 of 4 GPU nodes has CUDA >=12.4.")
    assert why.sentence.startswith("Waiting: ")
    assert [change.change for change in why.changes] == ["cuda >=12.4 → >=12.2", "no GPU"]
    (best, *_) = preview(fleet, wants(cuda=">=13.1"), 9)
    assert [gate.text for gate in best.failed if gate.gate == "cuda"] == ["needs CUDA >=13.1 (CUDA 12.2)"]
    no = explain(fleet, wants(driver=">=600")).sentence
    assert no.startswith("No node can run this: no node has NVIDIA driver >=600; with driver >=535.1 ")


def test_less_compute_capability_is_suggested() -> None:
    why = explain(fleet_of(gpu_node("n", "8.6")), wants(compute_capability="9.0"))
    assert why.changes[0].change == "compute capability 9.0 → 8.6"
    assert why.sentence.startswith(
        "No node can run this: the only node has no GPU of compute capability 9.0 or higher; "
    )
    assert place(fleet_of(gpu_node("n", "8.6")), Shape(why.changes[0].requirements, "ann"))


def test_without_conditions_nothing_is_added() -> None:
    fleet = fleet_of(gpu_node("n", "8.6", driver="535.1", cuda="12.2"))
    assert explain(fleet, wants()).sentence == "Can start now on 1 of 1 node."
