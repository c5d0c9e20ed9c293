"""What people are told: sentences, counter-factuals and previews on fleets small enough to count by hand."""

from __future__ import annotations

import pytest

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.isolation import Level
from computepool.core.placement import gate_messages
from computepool.core.placement.allocator import place
from computepool.core.placement.explain import explain, explain_node, preview
from computepool.core.placement.rules import Rules
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape
from tests.core.fleets import fleet_of


def node(node_id: str, *, cores: int = 8, vram_gb: tuple[int, ...] = (), **fields: object) -> NodeProfile:
    gpus = tuple(Gpu(name="card", tier="rtx-4090", vram_mb=gb * 1_000) for gb in vram_gb)
    capacity = Capacity(cpu_milli=cores * 1_000, ram_mb=32_000, disk_mb=500_000, gpus=gpus)
    defaults = {"name": node_id, "owner": "owner", "level": Level.NAMESPACE, "capacity": capacity}
    return NodeProfile(node_id=node_id, **{**defaults, **fields})  # type: ignore[arg-type]


def shape(**wanted: object) -> Shape:
    return Shape(Requirements(**wanted), "ann")  # type: ignore[arg-type]


def test_memory_that_nobody_named_is_explained_by_cores() -> None:
    fleet = fleet_of(node("one", cores=8))
    assert place(fleet, shape(ram_mb=30_000))
    waiting = explain(fleet, shape(ram_mb=512, ram_by_cores=True))
    assert waiting.sentence == (
        "Waiting: the only node has no share of RAM free for 1 core; with 2 GB of RAM it could start now on 1 node."
    )


def test_the_example_everybody_knows() -> None:
    """31 of 40 nodes are too small; nine 24 GB cards are half used."""
    fleet = fleet_of(
        *(node(f"small{number}", vram_gb=(12,)) for number in range(31)),
        *(node(f"large{number}", vram_gb=(24,)) for number in range(9)),
    )
    assert len(place(fleet, shape(vram_mb=8_000, cpu_milli=500, tiers=frozenset({"rtx-4090"})), 40)) == 40
    for number in range(31):
        fleet.set_available(f"small{number}", False)
    why = explain(fleet, shape(vram_mb=24_000))
    assert why.sentence == (
        "Waiting: all 40 nodes have less than 24 GB of free VRAM; with 16 GB of VRAM it could start now on 9 nodes."
    )
    assert (why.nodes, why.eligible_now, why.able, why.unsatisfiable) == (40, 0, 9, False)
    (report,) = [report for report in why.gates if report.gate == "gpu"]
    assert (report.failing, report.failing_even_if_idle, report.passing_without) == (40, 31, 9)
    assert [(change.change, change.nodes) for change in why.changes] == [("vram 24 GB → 16 GB", 9), ("no GPU", 9)]


def test_it_can_start() -> None:
    why = explain(fleet_of(node("a"), node("b", cores=1)), shape(cpu_milli=4_000))
    assert why.sentence == "Can start now on 1 of 2 nodes."
    assert why.changes == ()


def test_nobody_is_there() -> None:
    why = explain(Fleet(), shape())
    assert why.sentence == "Waiting: no node is connected."
    assert not why.unsatisfiable, "the first node may be able"


def test_all_are_busy() -> None:
    fleet = fleet_of(node("a", cores=1))
    place(fleet, shape())
    why = explain(fleet, shape())
    assert why.sentence == "Waiting: the only node has less than 1 free core; it could run this once free."


def test_all_are_away() -> None:
    fleet = fleet_of(node("a"), node("b"))
    fleet.set_available("a", False)
    fleet.set_available("b", False, NodeStatus.OFFLINE)
    assert explain(fleet, shape()).sentence == ("Waiting: both nodes are offline; 2 nodes could run it once online.")
    fleet.set_available("a", False, NodeStatus.PAUSED)
    assert "both nodes are offline or paused" in explain(fleet, shape()).sentence
    fleet.set_available("b", True)
    assert "a is paused; " in explain(fleet, shape(exclude_nodes=frozenset({"b"}))).sentence


def test_a_full_node_is_named_beside_the_one_that_is_excluded_by_its_id() -> None:
    fleet = fleet_of(node("node_1", name="laptop"), node("node_2", name="linux-a", cores=2))
    wanted = shape(cpu_milli=2_000, exclude_nodes=frozenset({"node_1"}))
    assert place(fleet, wanted)
    assert explain(fleet, wanted).sentence == (
        "Waiting: linux-a is busy; 1 of 2 nodes is excluded by name; with node laptop allowed it could start now on 1 node."
    )
    fleet.set_available("node_2", False, NodeStatus.COOLING_OFF)
    assert "linux-a is cooling off; " in explain(fleet, wanted).sentence
    assert [gate.need for gate in explain(fleet, wanted).gates if gate.gate == "excluded_nodes"] == [
        "any node except laptop"
    ]
    pinned = shape(cpu_milli=2_000, node="node_2")
    assert explain(fleet, pinned).sentence == (
        "Waiting: linux-a is cooling off and has fewer than 2 free cores; it could run this once available."
    )
    assert explain(fleet, shape(node="node_3")).sentence == (
        "No node can run this: node_3 is not connected; on any node it could start now on 1 node."
    )


CHANGES = [
    ({"cpu_milli": 32_000}, "32 cores → 8 cores"),
    ({"cpu_milli": 500, "ram_mb": 64_000}, "ram 64 GB → 32 GB"),
    ({"disk_mb": 900_000}, "disk 900 GB → 500 GB"),
    ({"vram_mb": 80_000}, "vram 80 GB → 24 GB"),
    ({"gpus": 3, "vram_mb": 10_000}, "gpus 3 → 2"),
    ({"gpus": 3}, "gpus 3 → 2"),
    ({"tiers": frozenset({"h100"})}, "tier h100 → h100 or rtx-4090"),
    ({"regions": frozenset({"us"})}, "region us → in or us"),
    ({"tags": frozenset({"linux", "fast"})}, "drop tag fast"),
    ({"tags": frozenset({"new", "fast"})}, "drop tag fast and new"),
    ({"exclude_tags": frozenset({"linux"})}, "allow tag linux"),
    ({"properties": frozenset({("os", "macos")})}, "drop property os=macos"),
    ({"exclude_nodes": frozenset({"n", "other"})}, "allow node n"),
    ({"node": "gone"}, "node gone → any"),
    ({"mesh_version": "9"}, "mesh version 9 → 1"),
    ({"pythons": frozenset({"3.13"})}, "python 3.13 → 3.11"),
    ({"isolation": Level.GVISOR}, "isolation gvisor → namespace"),
    ({"cpu_milli": 32_000, "vram_mb": 80_000}, "32 cores → 8 cores and vram 80 GB → 24 GB"),
    ({"pythons": frozenset({"3.13"}), "node": "gone"}, "node gone → any and python 3.13 → 3.11"),
    ({"pythons": frozenset({"3.13"}), "node": "gone", "regions": frozenset({"us"})}, None),
]


@pytest.mark.parametrize(("wanted", "change"), CHANGES)
def test_the_smallest_change(wanted: dict[str, object], change: str | None) -> None:
    fleet = fleet_of(
        node(
            "n",
            vram_gb=(24, 24),
            region="in",
            tags=frozenset({"linux"}),
            properties=(("os", "debian"),),
            mesh_version="1",
            python="3.11.7",
        )
    )
    why = explain(fleet, shape(**wanted))
    assert why.unsatisfiable
    if change is None:
        assert why.changes == ()
        return
    assert why.changes[0].change == change
    assert place(fleet, Shape(why.changes[0].requirements, "ann"))


def test_another_python_is_the_one_that_most_nodes_have_or_fetch() -> None:
    fleet = fleet_of(
        node("a", python="3.11", fetches_python=frozenset({"3.12", "3.13"})),
        node("b", python="3.12"),
        node("c", python="3.11"),
    )
    assert [placement.node_id for placement in place(fleet, shape(pythons=frozenset({"3.13"})))] == ["a"]
    why = explain(fleet, shape(pythons=frozenset({"3.10"})))
    assert [change.change for change in why.changes] == ["python 3.10 → 3.12"], "the newest of two"


def test_every_node_is_accounted_for() -> None:
    """A change helps with one node; the sentence also says why the other one does not take the job."""
    fleet = fleet_of(node("a", name="studio"), node("b", name="laptop", cores=2))
    wanted = shape(cpu_milli=4_000, exclude_nodes=frozenset({"studio"}))
    assert explain(fleet, wanted).sentence == (
        "No node can run this: 1 of 2 nodes has fewer than 4 cores and 1 of 2 nodes is excluded by name; "
        "with 2 cores it could start now on 1 node."
    )


DENIED = [
    ({"pythons": frozenset({"3.9"})}, "no node has Python 3.9"),
    ({"pythons": frozenset(f"3.{minor}" for minor in range(14, 32))}, "no node has Python 3.14 or newer"),
    ({"gpus": 1}, "no node has a GPU"),
    ({"gpus": 2}, "all 3 nodes have fewer than 2 GPUs"),
    ({"mesh_version": "9"}, "no node runs mesh version 9"),
    ({"regions": frozenset({"us"})}, "no node is in region us"),
    ({"tiers": frozenset({"h100"})}, "no node is of tier h100"),
    ({"tags": frozenset({"fast"})}, "all 3 nodes lack tag fast"),
    ({"network": True}, "no node takes jobs with network"),
    ({"image_source": "docker.io"}, "no node runs images from docker.io"),
]


@pytest.mark.parametrize(("wanted", "said"), DENIED)
def test_what_no_node_has_is_said_of_none_rather_than_denied_of_all(wanted: dict[str, object], said: str) -> None:
    fleet = fleet_of(*(node(name, python="3.11", region="in") for name in "abc"))
    assert explain(fleet, shape(**wanted)).sentence.startswith(f"No node can run this: {said}")
    some = fleet_of(node("a", python="3.11", region="in"))
    assert explain(some, shape(**wanted)).sentence.startswith("No node can run this: the only node ")


def test_what_the_submitter_cannot_change_is_not_suggested() -> None:
    why = explain(fleet_of(node("n", level=Level.PROCESS)), shape())
    assert why.changes == ()
    assert why.sentence == "No node can run this: the only node has no sandbox for other accounts' jobs."


def test_a_change_that_would_not_help_is_not_suggested() -> None:
    """The node's largest card is of another tier, so less VRAM does not help: only the small one counts."""
    cards = (Gpu(name="small", tier="rtx-3060", vram_mb=8_000), Gpu(name="large", tier="h100", vram_mb=80_000))
    capacity = Capacity(cpu_milli=8_000, ram_mb=32_000, disk_mb=500_000, gpus=cards)
    why = explain(fleet_of(node("n", capacity=capacity)), shape(vram_mb=96_000, tiers=frozenset({"rtx-3060"})))
    assert [change.change for change in why.changes] == ["no GPU"]


def test_avoiding_a_node_is_explained_and_does_not_make_it_hopeless() -> None:
    fleet = fleet_of(node("bad"), node("other"))
    fleet.set_available("other", False)
    why = explain(fleet, Shape(Requirements(), "ann", avoid_node="bad"))
    assert not why.unsatisfiable
    assert {report.gate: report.failing for report in why.gates}["avoid"] == 1
    verdicts = {verdict.profile.node_id: verdict for verdict in preview(fleet, shape(), 9)}
    assert verdicts["bad"].ok


def test_preview_has_the_allocators_order_then_the_nearest_misses() -> None:
    fleet = fleet_of(
        node("far", cores=1, level=Level.PROCESS),
        node("near", cores=1),
        node("good", cores=16),
        node("better", cores=4),
    )
    verdicts = preview(fleet, shape(cpu_milli=4_000), 10)
    assert [verdict.profile.node_id for verdict in verdicts] == ["better", "good", "near", "far"]
    assert [verdict.ok for verdict in verdicts] == [True, True, False, False]
    assert verdicts[0].score > verdicts[1].score > 0
    assert sum(verdicts[0].terms.values()) == pytest.approx(verdicts[0].score)
    assert [gate.text for gate in verdicts[2].failed] == ["needs 4 cores (1 of 1 core free)"]
    assert len(verdicts[3].failed) == 2
    assert len(preview(fleet, shape(), 2)) == 2


def test_what_a_node_has_is_said_for_every_gate() -> None:
    fleet = fleet_of(
        node("n", vram_gb=(24, 12), region="in", tags=frozenset({"laptop"}), level=Level.PROCESS, lends_gpus=False)
    )
    place(fleet, Shape(Requirements(vram_mb=8_000), "owner"))
    fleet.set_available("n", False)
    wanted = shape(
        cpu_milli=64_000,
        ram_mb=64_500,
        disk_mb=900_000,
        gpus=2,
        vram_mb=16_000,
        tiers=frozenset({"h100", "h200"}),
        regions=frozenset({"us"}),
        tags=frozenset({"lab"}),
        exclude_tags=frozenset({"laptop"}),
        properties=frozenset({("os", "debian")}),
        exclude_nodes=frozenset({"n"}),
        node="m",
        mesh_version="2",
        pythons=frozenset({"3.12"}),
        isolation=Level.GVISOR,
    )
    (verdict,) = preview(fleet, wanted, 1)
    assert [gate.text for gate in verdict.failed] == [
        "needs an available node (offline)",
        "needs 64 cores (7 of 8 cores free)",
        "needs 64.5 GB of RAM (31.7 GB of 32 GB RAM free)",
        "needs 900 GB of disk (499.7 GB of 500 GB disk free)",
        "needs 2 GPUs with 16 GB of VRAM each (24 GB and 4 GB of VRAM free)",
        "needs tier h100 or h200 (tier rtx-4090)",
        "needs region us (region in)",
        "needs tags lab (no tag lab)",
        "needs no tag laptop (tag laptop)",
        "needs property os=debian (no property)",
        "needs any node except n (is n)",
        "needs node m (is n)",
        "needs mesh version 2 (mesh version unknown)",
        "needs Python 3.12 (Python unknown)",
        "needs isolation gvisor (isolation process)",
        "needs a sandbox, or an owner who trusts this account (no sandbox for other accounts' jobs)",
        "needs a GPU that its owner lends to other accounts (a GPU for its owner and trusted accounts only)",
    ]
    assert [gate.gate for gate in verdict.failed if gate.busy] == ["available"]
    for gate in explain(fleet, wanted).gates:
        assert gate.failing == 1
        assert gate.need


def test_a_node_learns_why_it_gets_no_work() -> None:
    fleet = fleet_of(node("n", vram_gb=(12,)))
    waiting = {
        shape(vram_mb=24_000): 5,
        shape(vram_mb=24_000, pythons=frozenset({"3.12"})): 3,
        shape(pythons=frozenset({"3.12"})): 2,
        shape(): 9,
    }
    verdicts = explain_node(fleet, "n", waiting)
    assert [(verdict.queued, verdict.ok) for verdict in verdicts] == [(9, True), (5, False), (3, False), (2, False)]
    assert verdicts[1].shape == "1 core, 256 MB RAM, 24 GB of VRAM"
    assert verdicts[1].reason == "needs 24 GB of VRAM (12 GB of VRAM free)"
    with pytest.raises(KeyError):
        explain_node(fleet, "ghost", waiting)


def named_host(**rules: object) -> Fleet:
    fleet = fleet_of(node("node_1", name="oldlaptop"), node("node_2", name="studio"))
    fleet.set_rules("node_1", Rules(**rules))  # type: ignore[arg-type]
    return fleet


def test_of_a_named_host_its_own_reason_is_said() -> None:
    fleet = named_host(minutes_max=5)
    why = explain(fleet, shape(node="node_1", minutes=60))
    assert why.sentence == (
        "No node can run this: oldlaptop's owner takes jobs of at most 5 minutes; with --timeout 5m it would start now."
    )
    assert [change.change for change in why.changes] == ["timeout 60m → 5m", "node oldlaptop (node_1) → any"]


def test_two_reasons_of_a_named_host_are_both_said() -> None:
    fleet = named_host(minutes_max=5, deny_labels=frozenset({"ml"}))
    assert explain(fleet, shape(node="node_1", minutes=60, labels=frozenset({"ml"}), cpu_milli=64_000)).sentence == (
        "No node can run this: oldlaptop has fewer than 64 cores and its owner takes no jobs labelled ml."
    )


def test_that_others_are_free_is_not_said_of_a_named_host() -> None:
    fleet = named_host()
    fleet.set_available("node_1", False, NodeStatus.PAUSED)
    assert explain(fleet, shape(node="node_1")).sentence == (
        "Waiting: oldlaptop is paused; it could run this once resumed."
    )
    fleet.set_available("node_1", True)
    assert place(fleet, shape(node="node_1", cpu_milli=8_000))
    assert explain(fleet, shape(node="node_1")).sentence == (
        "Waiting: oldlaptop has less than 1 free core; it could run this once free."
    )
    assert explain(fleet, shape(node="node_1", cpu_milli=64_000)).sentence == (
        "No node can run this: oldlaptop has fewer than 64 cores."
    )


def test_the_only_node_is_paused() -> None:
    fleet = fleet_of(node("a"))
    fleet.set_available("a", False, NodeStatus.PAUSED)
    assert explain(fleet, shape()).sentence == ("Waiting: the only node is paused; it could run this once resumed.")


def test_every_gate_has_words_for_one_host() -> None:
    fleet = named_host(minutes_max=5)
    wanted = shape(node="node_1", minutes=60, tags=frozenset({"lab"}), vram_mb=1_000, isolation=Level.GVISOR)
    for gate in gate_messages.WORDS:
        if gate not in {"exposure", "node"}:
            said = gate_messages.of_host(fleet, wanted, row=0, busy={gate: False})
            assert "oldlaptop" in said
            assert "their" not in said
