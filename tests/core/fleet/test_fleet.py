"""The fleet never loses or doubles capacity, whatever happens to its nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from computepool.core.fleet import features as features_module
from computepool.core.fleet.features import Features
from computepool.core.fleet.fleet import JOURNAL_MAX, Fleet
from computepool.core.fleet.node_record import GPUS_MAX, Reservation
from computepool.core.isolation import Level
from computepool.core.placement.allocator import eligible, place
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape
from tests.core.fleet_oracle import (
    PlainNode,
    check_not_overcommitted,
    check_reservation,
    light_requirements,
    profiles,
    requirements,
)

CARD = Gpu(name="card", tier="rtx-4090", vram_mb=24_000)
CAPACITY = Capacity(cpu_milli=4_000, ram_mb=8_000, disk_mb=9_000, gpus=(CARD,))


def node(node_id: str = "n", **fields: object) -> NodeProfile:
    defaults = {"name": node_id, "owner": "owner", "capacity": CAPACITY, "level": Level.NAMESPACE}
    return NodeProfile(node_id=node_id, **{**defaults, **fields})  # type: ignore[arg-type]


class FleetMachine(RuleBasedStateMachine):
    """Random histories against a plain model."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.nodes: dict[str, PlainNode] = {}
        self.strained: set[str] = set()  # nodes that were told to hold more than they have

    @rule(profile=profiles())
    def upsert(self, profile: NodeProfile) -> None:
        fits = self.fleet.upsert(profile)
        plain = self.nodes.setdefault(profile.node_id, PlainNode(profile))
        plain.profile = profile
        assert fits == self.keeps_its_word(plain), "over-committing is said, never silent"
        (self.strained.discard if fits else self.strained.add)(profile.node_id)

    @rule(profile=profiles())
    def remove(self, profile: NodeProfile) -> None:
        assert self.fleet.remove(profile.node_id) == (profile.node_id in self.nodes)
        self.nodes.pop(profile.node_id, None)
        self.strained.discard(profile.node_id)

    @rule(profile=profiles(), available=st.booleans())
    def set_available(self, profile: NodeProfile, available: bool) -> None:
        self.fleet.set_available(profile.node_id, available)
        if profile.node_id in self.nodes:
            self.nodes[profile.node_id].available = available

    @rule(target=held, profile=profiles(), wanted=light_requirements | requirements)
    def reserve(self, profile: NodeProfile, wanted: Requirements) -> object:
        plain = self.nodes.get(profile.node_id)
        reservation = self.fleet.reserve(profile.node_id, wanted)
        if reservation is None:
            return multiple()
        assert plain is not None
        check_reservation(plain, wanted, reservation)
        plain.held.append(reservation)
        return profile.node_id, reservation

    @rule(target=held, profile=profiles(), wanted=light_requirements)
    def adopt(self, profile: NodeProfile, wanted: Requirements) -> object:
        reservation = self.fleet.adopt(profile.node_id, wanted)
        assert (reservation is None) == (profile.node_id not in self.nodes)
        if reservation is None:
            return multiple()
        plain = self.nodes[profile.node_id]
        plain.held.append(reservation)
        if not self.keeps_its_word(plain):
            self.strained.add(profile.node_id)
        return profile.node_id, reservation

    @rule(pair=consumes(held), again=st.booleans())
    def release(self, pair: tuple[str, Reservation], again: bool) -> None:
        node_id, reservation = pair
        plain = self.nodes.get(node_id)
        known = plain is not None and reservation in plain.held
        assert self.fleet.release(node_id, reservation) == known
        if plain is not None and known:
            plain.held.remove(reservation)
        assert not self.fleet.release(node_id, reservation), "what was given back is not given back again"

    @invariant()
    def free_is_what_the_model_says(self) -> None:
        assert len(self.fleet) == len(self.nodes)
        for node_id, plain in self.nodes.items():
            free, total = self.fleet[node_id].free(), plain.profile.capacity
            assert free.cpu_milli == max(0, total.cpu_milli - plain.used("cpu_milli"))
            assert free.ram_mb == max(0, total.ram_mb - plain.used("ram_mb"))
            assert free.disk_mb == max(0, total.disk_mb - plain.used("disk_mb"))
            assert free.vram_mb == tuple(max(0, plain.card_free_mb(i)) for i in range(len(total.gpus)))
            assert free.jobs == len(plain.held)
            assert free.overcommitted == (not self.keeps_its_word(plain))
            assert self.fleet.is_available(node_id) == plain.available

    @invariant()
    def nothing_is_overcommitted_that_was_not_announced(self) -> None:
        for node_id in self.nodes.keys() - self.strained:
            check_not_overcommitted(self.nodes[node_id])

    @invariant()
    def columns_say_what_the_records_say(self) -> None:
        table = self.fleet.table
        assert sorted(table.live.nonzero()[0]) == sorted(self.fleet[n].row for n in self.nodes)
        for node_id in self.nodes:
            row, free = self.fleet[node_id].row, self.fleet[node_id].free()
            assert row is not None
            assert max(0, table.cpu_free[row]) == free.cpu_milli
            ranked = [int(column[row]) for column in table.vram_free]
            assert [mb for mb in ranked if mb] == sorted((mb for mb in free.vram_mb if mb), reverse=True)
            assert table.cards_idle[row] == free.cards_idle

    @staticmethod
    def keeps_its_word(plain: PlainNode) -> bool:
        if any(i >= len(plain.profile.capacity.gpus) for held in plain.held for i in held.cards):
            return False
        try:
            check_not_overcommitted(plain)
        except AssertionError:
            return False
        return True


TestFleet = FleetMachine.TestCase
TestFleet.settings = settings(max_examples=50, stateful_step_count=30)


def test_a_thousand_nodes_and_their_rows_again() -> None:
    fleet = Fleet()
    for number in range(1_000):
        fleet.upsert(node(f"n{number}", tags=frozenset({f"tag-{number}"})))
    for number in range(0, 1_000, 2):
        fleet.remove(f"n{number}")
    assert len(fleet) == 500
    for number in range(500):
        fleet.upsert(node(f"m{number}"))
    assert fleet.rows == 1_000, "rows of nodes that left are used again"
    assert "n1" in fleet
    assert "n0" not in fleet
    assert {profile.node_id for profile in fleet} == {
        *(f"n{number}" for number in range(1, 1_000, 2)),
        *(f"m{number}" for number in range(500)),
    }
    tagged = Shape(Requirements(tags=frozenset({"tag-7"})), "ann")
    assert eligible(fleet, tagged).sum() == 1
    gone = Shape(Requirements(tags=frozenset({"tag-8"})), "ann")
    assert not eligible(fleet, gone).any()


def test_a_renewed_node_keeps_its_reservations() -> None:
    fleet = Fleet()
    fleet.upsert(node())
    held = fleet.reserve("n", Requirements(cpu_milli=3_000, vram_mb=20_000))
    assert held
    assert not fleet.upsert(node(capacity=replace(CAPACITY, cpu_milli=2_000)))
    assert fleet["n"].free().cpu_milli == 0
    assert fleet["n"].free().overcommitted
    assert fleet.reserve("n", Requirements(cpu_milli=0, ram_mb=0, disk_mb=0)) is None
    assert fleet.release("n", held)
    assert fleet["n"].free().cpu_milli == 2_000
    assert fleet["n"].free().vram_mb == (24_000,)


def test_a_card_taken_out_and_put_back() -> None:
    fleet = Fleet()
    fleet.upsert(node())
    held = fleet.reserve("n", Requirements(vram_mb=20_000))
    assert held
    assert not fleet.upsert(node(capacity=replace(CAPACITY, gpus=())))
    assert fleet.upsert(node())
    assert fleet["n"].free().vram_mb == (4_000,)
    assert fleet.release("n", held)
    assert fleet["n"].free().vram_mb == (24_000,)


def test_a_node_that_comes_back_does_not_inherit_old_reservations() -> None:
    fleet = Fleet()
    fleet.upsert(node())
    held = fleet.reserve("n", Requirements())
    assert held
    fleet.remove("n")
    fleet.upsert(node())
    assert not fleet.release("n", held)
    assert fleet["n"].free().cpu_milli == CAPACITY.cpu_milli


def test_the_same_profile_again_changes_nothing() -> None:
    fleet = Fleet()
    fleet.upsert(node())
    before = fleet.version, fleet.supply
    assert fleet.upsert(node())
    assert (fleet.version, fleet.supply) == before


def test_supply_grows_only_when_more_can_start() -> None:
    fleet = Fleet()
    fleet.upsert(node())
    seen = fleet.supply
    held = fleet.reserve("n", Requirements())
    fleet.set_available("n", False)
    assert held
    assert fleet.supply == seen
    fleet.set_available("n", True)
    assert fleet.supply > seen
    seen = fleet.supply
    fleet.release("n", held)
    assert fleet.supply > seen


def test_a_newcomer_has_one_job_of_others_at_a_time() -> None:
    fleet = Fleet()
    fleet.upsert(node(owner="pia"))
    small = Requirements(cpu_milli=100, ram_mb=0, disk_mb=0)
    fleet.set_newcomer("n", True)
    first = fleet.reserve("n", small, "sam")
    assert first is not None
    assert fleet.reserve("n", small, "ann") is None
    assert fleet.reserve("n", small, "pia") is not None, "its owner's jobs are not counted"
    assert [p.node_id for p in place(fleet, Shape(small, "pia"), 2)] == ["n", "n"]
    assert place(fleet, Shape(small, "ann"), 2) == []
    assert fleet.release("n", first)
    assert len(place(fleet, Shape(small, "ann"), 2)) == 1
    fleet.set_newcomer("n", False)
    assert len(place(fleet, Shape(small, "ann"), 2)) == 2
    assert fleet.newcomers == 0


def test_small_steps_of_reliability_disturb_nobody() -> None:
    fleet = Fleet()
    fleet.upsert(node())
    fleet.set_reliability("n", 0.8)
    version = fleet.version
    fleet.set_reliability("n", 0.801)
    assert fleet.version == version
    fleet.set_reliability("n", 0.9)
    assert fleet.version > version


def test_unknown_nodes_are_ignored() -> None:
    fleet = Fleet()
    fleet.set_available("ghost", True)
    fleet.set_reliability("ghost", 0.5)
    assert not fleet.remove("ghost")
    assert fleet.reserve("ghost", Requirements()) is None
    assert fleet.adopt("ghost", Requirements()) is None
    assert not fleet.is_available("ghost")
    with pytest.raises(KeyError):
        fleet["ghost"].free()


def test_cards_beyond_the_limit_are_not_lent() -> None:
    fleet = Fleet()
    fleet.upsert(node(capacity=replace(CAPACITY, gpus=(CARD,) * 40)))
    assert len(fleet["n"].free().vram_mb) == GPUS_MAX


def test_the_journal_is_bounded_and_says_when_it_forgot() -> None:
    fleet = Fleet()
    fleet.upsert(node())
    start = fleet.version
    for step in range(3 * JOURNAL_MAX):
        fleet.set_reliability("n", step % 2)
    assert fleet.rows_changed_since(start) is None
    assert fleet.rows_changed_since(fleet.version) == []
    assert fleet.rows_changed_since(fleet.version - 10) == [fleet["n"].row]


def test_features_beyond_the_bits_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features_module, "BITS_MAX", 2)
    features = Features(4)
    features.add(0, ["a", "b", "c", ("k", "v")])
    features.add(3, ["c"])
    rows = slice(0, 4)
    for feature in ("a", "b", ("k", "v")):
        assert features.has(feature, rows).tolist() == [True, False, False, False]
    assert features.has("c", rows).tolist() == [True, False, False, True]
    features.discard(0, ["a", "c", ("k", "v")])
    assert features.has("c", rows).tolist() == [False, False, False, True]
    assert not features.has("a", rows).any()
    features.add(1, ["d"])  # takes the bit that `a` gave back
    assert features.has("d", rows).tolist() == [False, True, False, False]
    assert features.has("b", rows).tolist() == [True, False, False, False]
    both = features.has_all(["b", "c"], rows)
    none = features.has_none(["b", "c"], rows)
    assert both is not None
    assert none is not None
    assert both.tolist() == [False] * 4
    assert none.tolist() == [False, True, True, False]


def test_more_than_one_word_of_tags() -> None:
    fleet = Fleet()
    for number in range(200):
        fleet.upsert(node(f"n{number}", tags=frozenset({f"t{number}", f"t{number // 2}"})))
    both = Shape(Requirements(tags=frozenset({"t150", "t75"})), "ann")
    rows = eligible(fleet, both).nonzero()[0]
    assert [fleet.node_at(row).profile.node_id for row in rows] == ["n150"]
