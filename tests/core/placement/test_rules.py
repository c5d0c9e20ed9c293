"""Owners' rules: what they admit, and the book that keeps each once. The gates are held to them in the allocator's tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.rulebook import RuleBook
from computepool.core.placement import explain, gates
from computepool.core.placement.rules import ASPECTS, NONE, Demand, Rules
from computepool.core.resources import Capacity, NodeProfile, Requirements, Shape
from tests.core.fleet_oracle import ACCOUNTS, Pair, loaded_fleets, shapes
from tests.core.rule_oracle import LABELS, MINUTES, RULES, rule_gates

demands = st.builds(
    Demand,
    account=st.sampled_from(ACCOUNTS),
    labels=st.frozensets(st.sampled_from(LABELS)),
    network=st.booleans(),
    gpus=st.integers(0, 2),
    minutes=st.sampled_from(MINUTES),
    ram_mb=st.sampled_from([0, 256, 257]),
    disk_mb=st.sampled_from([0, 256, 257]),
)
STRANGE = "nobody-has-this-name"


@given(loaded_fleets(), shapes)
def test_the_columns_say_what_the_rules_say(pair: Pair, shape: Shape) -> None:
    """Gate by gate and node by node, also for rows that were used before."""
    rows = np.flatnonzero(pair.fleet.table.live[: pair.fleet.rows])
    verdicts = gates.judge(pair.fleet, shape, rows)
    for position, row in enumerate(rows.tolist()):
        node = pair.nodes[pair.fleet.node_at(row).profile.node_id]
        plain = rule_gates(node.profile, node.rules, shape, scores=node.scores, idle=False)
        for gate, passes in plain.items():
            said = verdicts.now.get(gate)
            assert passes if said is None else bool(said[position]) == passes, gate


@given(st.sampled_from(RULES), demands)
def test_a_refusal_is_said_for_each_rule_that_is_broken(rules: Rules, demand: Demand) -> None:
    broken = [aspect for aspect in ASPECTS if not rules.admits(aspect, demand)]
    said = rules.refusals(demand)
    assert len(said) == len(broken)
    assert all(sentence.startswith("its owner takes") for sentence in said)
    assert NONE.refusals(demand) == []


@given(st.sampled_from(RULES), demands)
def test_a_smaller_job_is_never_refused_for_what_it_dropped(rules: Rules, demand: Demand) -> None:
    bare = Demand(account=demand.account, labels=demand.labels)
    assert set(rules.refusals(bare)) <= set(rules.refusals(demand))


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(RULES)), max_size=60))
def test_the_book_keeps_each_set_of_rules_once_and_no_longer_than_needed(changes: list[tuple[int, Rules]]) -> None:
    book, numbers, plain = RuleBook(), [0] * 6, [NONE] * 6
    for node, rules in changes:
        numbers[node], plain[node] = book.change(numbers[node], rules), rules
        assert [book[number] for number in numbers] == plain
        assert book.empty == all(rules == NONE for rules in plain)
        assert book.scored == any(rules.score_min for rules in plain)
        # None, those of six nodes, and one more while a node changes its own.
        assert len(book.verdicts("label", Demand(account="ann"))) <= 8
    for first, second in ((a, b) for a in range(6) for b in range(6)):
        assert (numbers[first] == numbers[second]) == (plain[first] == plain[second])


def test_a_pool_without_rules_is_not_asked() -> None:
    fleet = _fleet(3)
    shape = Shape(Requirements(labels=frozenset({"ml"}), minutes=10), "ann")
    asked = {
        name for name in gates.judge(fleet, shape).now if name.startswith("rule_") or name == "submitter_reputation"
    }
    assert asked == set()


@pytest.mark.parametrize(
    ("rules", "wanted", "sentence", "change"),
    [
        (Rules(network=False), {"network": True}, "no node takes jobs with network", "drop --net"),
        (
            Rules(deny_labels=frozenset({"mining"})),
            {"labels": frozenset({"mining"})},
            "the owners' rules of all 3 nodes refuse jobs labelled mining",
            "drop label mining",
        ),
        (Rules(minutes_max=30), {"minutes": 90}, "refuse jobs of 90 minutes", "timeout 90m → 30m"),
        (Rules(ram_mb_max=1_000), {"ram_mb": 2_000}, "refuse jobs of 2 GB RAM", "ram 2 GB → 1 GB"),
        (Rules(disk_mb_max=1_000), {"disk_mb": 2_000}, "refuse jobs of 2 GB disk", "disk 2 GB → 1 GB"),
    ],
)  # fmt: skip
def test_why_says_what_to_drop(rules: Rules, wanted: dict[str, object], sentence: str, change: str) -> None:
    fleet = _fleet(3)
    for number in range(3):
        fleet.set_rules(f"n{number}", rules)
    shape = Shape(Requirements(**wanted), STRANGE)  # type: ignore[arg-type]
    why = explain.explain(fleet, shape)
    assert sentence in why.sentence
    assert [found.change for found in why.changes] == [change]
    assert why.changes[0].nodes == 3
    assert explain.explain(fleet, Shape(shape.requirements, "ann")).eligible_now == 3, "owners may"
    (verdict,) = explain.explain_node(fleet, "n0", {shape: 1})
    assert "its owner takes" in verdict.reason


def test_nobody_can_change_whose_job_it_is() -> None:
    fleet = _fleet(2)
    fleet.set_rules("n0", Rules(deny_submitters=frozenset({STRANGE})))
    fleet.set_rules("n1", Rules(score_min=0.99))
    why = explain.explain(fleet, Shape(Requirements(), STRANGE))
    assert (why.eligible_now, why.changes) == (0, ())
    fleet.set_submitter(STRANGE, 1.0)
    assert explain.explain(fleet, Shape(Requirements(), STRANGE)).eligible_now == 1


def _fleet(nodes: int) -> Fleet:
    fleet = Fleet()
    capacity = Capacity(cpu_milli=8_000, ram_mb=16_000, disk_mb=16_000)
    for number in range(nodes):
        fleet.upsert(
            NodeProfile(
                node_id=f"n{number}",
                name=f"n{number}",
                owner="ann",
                capacity=capacity,
                level=2,  # type: ignore[arg-type]
                network=True,
            )
        )
    return fleet
