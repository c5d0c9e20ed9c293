"""What owners may hold of others' jobs at once: bounds that all their nodes share, and pools in which everybody is new."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import Reservation
from computepool.core.fleet.owners import UNBOUND
from computepool.core.isolation import Level
from computepool.core.money.money import CREDIT
from computepool.core.placement.allocator import eligible
from computepool.core.placement.explain import explain
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape
from tests.core.fleets import chosen

HOUR = 60


def node(node_id: str, owner: str, *gpus: Gpu) -> NodeProfile:
    capacity = Capacity(cpu_milli=64_000, ram_mb=64_000, disk_mb=500_000, gpus=gpus)
    return NodeProfile(node_id=node_id, name=node_id, owner=owner, capacity=capacity, level=Level.NAMESPACE)


def fleet_of(*profiles: NodeProfile, **caps: int) -> Fleet:
    fleet = Fleet()
    for profile in profiles:
        fleet.upsert(profile)
        fleet.set_cap(profile.node_id, caps[profile.owner] * CREDIT)
    return fleet


def worth(credits: int, account: str = "sam", **wanted: int) -> Shape:
    return Shape(Requirements(minutes=HOUR, **wanted), account, ceiling=credits * CREDIT)


def test_a_job_is_worth_what_one_run_may_cost() -> None:
    assert worth(16).value == 16 * CREDIT
    assert Shape(Requirements(minutes=90), "sam", ceiling=16 * CREDIT).value == 24 * CREDIT
    assert Shape(Requirements(minutes=90), "sam").value == 0


def test_all_nodes_of_an_owner_share_one_bound_and_the_best_of_them_sets_it() -> None:
    fleet = fleet_of(node("a1", "ann"), node("a2", "ann"), ann=50)
    assert len(chosen(fleet, worth(16), 9)) == 3
    assert sorted(chosen(fleet, worth(16, "ann"), 2)) == ["a1", "a2"]  # her own jobs are her own affair
    fleet.set_cap("a2", 100 * CREDIT)
    assert len(chosen(fleet, worth(16), 9)) == 3
    fleet.remove("a2")
    assert not eligible(fleet, worth(16)).any()


def test_a_valuable_job_goes_only_to_those_who_may_hold_it() -> None:
    fleet = fleet_of(node("new", "ann"), node("old", "bob"), ann=50, bob=200)
    assert chosen(fleet, worth(120), 3) == ["old"]
    assert chosen(fleet, worth(120)) == []  # it waits for bob rather than going to ann
    words = explain(fleet, worth(120)).sentence
    assert "may not hold jobs worth 120" in words


def test_where_nobody_may_hold_it_one_who_holds_nothing_else_does() -> None:
    fleet = fleet_of(node("a", "ann"), node("b", "bob"), ann=50, bob=50)
    assert sorted(chosen(fleet, worth(60), 5)) == ["a", "b"]
    assert chosen(fleet, worth(1)) == []


def test_a_bound_that_only_others_could_meet_keeps_nobody_waiting() -> None:
    """An old node without a card does not make new ones with cards wait."""
    card = Gpu(name="rtx-4090", tier="rtx-4090", vram_mb=24_000)
    fleet = fleet_of(node("new", "ann", card), node("old", "bob"), ann=50, bob=5_000)
    assert chosen(fleet, worth(60, gpus=1), 2) == ["new"]


def test_a_node_of_ones_own_keeps_nobody_waiting_for_it() -> None:
    fleet = fleet_of(node("mine", "sam"), node("new", "ann"), sam=5_000, ann=50)
    fleet.set_available("mine", False)
    assert chosen(fleet, worth(60), 2) == ["new"]


def test_newcomers_of_one_owner_have_one_job_of_others_together() -> None:
    fleet = fleet_of(node("a1", "ann"), node("a2", "ann"), node("b1", "bob"), ann=50, bob=50)
    for node_id in ("a1", "a2"):
        fleet.set_newcomer(node_id, True)
    assert sorted(chosen(fleet, worth(1), 4)).count("b1") == 3
    fleet.set_newcomer("a1", False)  # it has paid: the other may have one of its own
    assert "a1" in chosen(fleet, worth(1), 6)


def test_without_bounds_nothing_is_counted_as_too_much() -> None:
    fleet = Fleet()
    fleet.upsert(node("a", "ann"))
    assert len(chosen(fleet, worth(4_000), 64)) == 64


class Books(RuleBasedStateMachine):
    """Whatever comes and goes, an owner's columns are the sums over the nodes that are here."""

    held = Bundle("held")

    @initialize()
    def begin(self) -> None:
        self.fleet, self.kept = Fleet(), dict[str, list[Reservation]]()

    @rule(number=st.integers(0, 3), owner=st.sampled_from(["ann", "bob"]))
    def come(self, number: int, owner: str) -> None:
        self.fleet.upsert(node(f"n{number}", owner))
        self.kept.setdefault(f"n{number}", [])

    @rule(number=st.integers(0, 3))
    def go(self, number: int) -> None:
        self.fleet.remove(f"n{number}")
        self.kept.pop(f"n{number}", None)

    @rule(number=st.integers(0, 3), cap=st.sampled_from([None, 10, 50]), owes=st.booleans())
    def stand(self, number: int, cap: int | None, owes: bool) -> None:
        self.fleet.set_cap(f"n{number}", cap)
        self.fleet.set_newcomer(f"n{number}", owes)

    @rule(
        target=held,
        number=st.integers(0, 3),
        account=st.sampled_from(["ann", "sam"]),
        value=st.integers(0, 30),
        adopt=st.booleans(),
    )
    def take(self, number: int, account: str, value: int, adopt: bool) -> object:
        take = self.fleet.adopt if adopt else self.fleet.reserve
        found = take(f"n{number}", Requirements(), account, value=value)
        if found is None:
            return multiple()
        self.kept[f"n{number}"].append(found)
        return f"n{number}", found

    @rule(pair=consumes(held))
    def give_back(self, pair: tuple[str, Reservation]) -> None:
        if self.fleet.release(*pair):
            self.kept[pair[0]].remove(pair[1])

    @invariant()
    def sums_hold(self) -> None:
        for owner in ("ann", "bob"):
            number = self.fleet.accounts.find(owner)
            if number < 0:
                continue
            mine = [n for n in self.kept if self.fleet[n].profile.owner == owner]
            records = [self.fleet[n] for n in mine]
            assert self.fleet.owners.value[number] == sum(r.value for n in mine for r in self.kept[n])
            assert self.fleet.owners.newcomer_jobs[number] == sum(
                r.external for n, record in zip(mine, records, strict=True) if record.is_newcomer for r in self.kept[n]
            )
            caps = [record.cap for record in records if record.cap is not None]
            assert self.fleet.owners.caps[number] == max(caps, default=UNBOUND)
        assert self.fleet.owners.capped == sum(self.fleet[n].cap is not None for n in self.kept)


TestBooks = Books.TestCase
