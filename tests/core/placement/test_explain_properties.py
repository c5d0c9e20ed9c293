"""Explanations agree with the oracle on every fleet, and what they suggest really starts."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from computepool.core.placement.allocator import place
from computepool.core.placement.explain import explain, explain_node, preview
from computepool.core.resources import Shape
from tests.core.fleet_oracle import Dice, Pair, could_ever_run, gates, loaded_fleets, may_start, shapes

#: Random values cost more than what is tested; the bulk test makes up for the number.
FEWER = settings(max_examples=40)

#: Gates whose single failure can always be mended by changing the job.
MENDABLE = {
    "region",
    "tags",
    "excluded_tags",
    "properties",
    "excluded_nodes",
    "node",
    "mesh_version",
    "python",
    "isolation",
    "compute_capability",
    "cuda",
    "driver",
}


def passes(pair: Pair, shape: Shape, *, idle: bool) -> dict[str, dict[str, bool]]:
    """Node → gate → whether it passes, the avoided node included."""
    verdicts = {node_id: gates(node, shape, idle=idle) for node_id, node in pair.nodes.items()}
    if shape.avoid_node in verdicts:
        only = could_ever_run(pair.nodes.values(), shape) == {shape.avoid_node}
        for node_id, verdict in verdicts.items():
            verdict["avoid"] = idle or only or node_id != shape.avoid_node
    return verdicts


@pytest.mark.soak
@FEWER
@given(loaded_fleets(), shapes)
def test_numbers_agree_with_brute_force(pair: Pair, shape: Shape) -> None:
    check_numbers(pair, shape)


@pytest.mark.parametrize("seed", range(10))
def test_explanations_agree_with_brute_force_in_bulk(seed: int) -> None:
    for number in range(10):
        dice = Dice(1_000 * seed + number)
        pair = dice.fleet()
        for _ in range(10):
            shape = dice.shape()
            check_numbers(pair, shape)
            check_changes(pair, shape)


def check_numbers(pair: Pair, shape: Shape) -> None:
    why = explain(pair.fleet, shape)
    now, idle = passes(pair, shape, idle=False), passes(pair, shape, idle=True)
    assert why.nodes == len(pair.nodes)
    assert why.eligible_now == len(may_start(pair.nodes.values(), shape))
    assert why.able == len(could_ever_run(pair.nodes.values(), shape))
    assert why.unsatisfiable == (bool(pair.nodes) and not why.able)
    reported = {report.gate: report for report in why.gates}
    for verdict in now.values():
        assert all(verdict[gate] for gate in verdict.keys() - reported.keys()), "no failing gate is left out"
    for gate, report in reported.items():
        assert report.failing == sum(not verdict[gate] for verdict in now.values() if gate in verdict)
        assert report.failing_even_if_idle == sum(not v[gate] for v in idle.values() if gate in v)
        without = [all(ok for name, ok in verdict.items() if name != gate) for verdict in now.values()]
        assert report.passing_without == sum(without)


@pytest.mark.soak
@FEWER
@given(loaded_fleets(), shapes)
def test_what_is_suggested_really_starts(pair: Pair, shape: Shape) -> None:
    check_changes(pair, shape)


def check_changes(pair: Pair, shape: Shape) -> None:
    why = explain(pair.fleet, shape)
    if why.eligible_now:
        assert why.changes == ()
    for change in why.changes:
        changed = replace(shape, requirements=change.requirements, ceiling=change.ceiling)
        assert change.nodes == len(may_start(pair.nodes.values(), changed)) > 0
        assert place(copy.deepcopy(pair.fleet), changed)
        assert len(change.gates) == len(why.changes[0].gates) <= 2
    assert [change.cost for change in why.changes] == sorted(change.cost for change in why.changes)
    assert why.sentence.endswith(".")


@pytest.mark.soak
@FEWER
@given(loaded_fleets(), shapes)
def test_a_single_change_is_found_where_there_is_one(pair: Pair, shape: Shape) -> None:
    near = [[gate for gate, ok in verdict.items() if not ok] for verdict in passes(pair, shape, idle=False).values()]
    if any(len(failed) == 1 and failed[0] in MENDABLE for failed in near) and [] not in near:
        changes = explain(pair.fleet, shape).changes
        assert changes
        assert len(changes[0].gates) == 1


@pytest.mark.soak
@FEWER
@given(loaded_fleets(), shapes, st.integers(1, 10))
def test_preview_says_what_the_allocator_does(pair: Pair, shape: Shape, limit: int) -> None:
    verdicts = preview(pair.fleet, shape, limit)
    allowed = may_start(pair.nodes.values(), shape)
    now = passes(pair, shape, idle=False)
    assert len(verdicts) == min(limit, len(pair.nodes))
    assert {verdict.profile.node_id for verdict in verdicts if verdict.ok} <= allowed
    assert sum(verdict.ok for verdict in verdicts) == min(limit, len(allowed))
    for verdict in verdicts:
        failed = {gate for gate, ok in now[verdict.profile.node_id].items() if not ok}
        assert {gate.gate for gate in verdict.failed} == failed
    if allowed:
        assert place(pair.fleet, shape)[0].node_id == verdicts[0].profile.node_id


@pytest.mark.soak
@FEWER
@given(loaded_fleets(), st.lists(shapes, min_size=1, max_size=4, unique=True))
def test_a_node_is_told_the_truth(pair: Pair, waiting: list[Shape]) -> None:
    for node_id in pair.nodes:
        verdicts = explain_node(pair.fleet, node_id, {shape: 9 - n for n, shape in enumerate(waiting)})
        for verdict, shape in zip(verdicts, waiting, strict=True):
            now = passes(pair, shape, idle=False)[node_id]
            assert verdict.ok == all(now.values())
            assert {gate.gate for gate in verdict.failed} == {gate for gate, ok in now.items() if not ok}
