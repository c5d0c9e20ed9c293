"""Whether the pool chose who runs a job: by numbers of owners, and over random fleets and wishes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from computepool.core.choice import CHOICE_MIN, chosen_by_pool, is_open
from computepool.core.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.reputation import Evidence, Outcome, Reputation, update
from computepool.core.resources import Capacity, NodeProfile, Requirements, Shape
from tests.core.test_reputation import reputations


def node(number: int, owner: str, *, ram_mb: int = 8_000, tags: tuple[str, ...] = ()) -> NodeProfile:
    capacity = Capacity(cpu_milli=8_000, ram_mb=ram_mb, disk_mb=50_000)
    name = f"n{number}"
    return NodeProfile(
        node_id=name, name=name, owner=owner, capacity=capacity, level=Level.NAMESPACE, tags=frozenset(tags)
    )


def fleet_of(*profiles: NodeProfile) -> Fleet:
    fleet = Fleet()
    for profile in profiles:
        fleet.upsert(profile)
    return fleet


numbers = st.integers(0, 20)


@given(numbers, numbers, numbers)
def test_few_is_no_choice_unless_there_are_no_more(able: int, more: int, others: int) -> None:
    similar, everybody = able + more, able + more + others
    open_ = is_open(able=able, similar=similar, everybody=everybody)
    if open_:
        assert able >= min(CHOICE_MIN, everybody)
        assert is_open(able=able + 1, similar=similar + 1, everybody=everybody + 1), "one more never hurts"
    if not more and (able >= CHOICE_MIN or not others):
        assert open_, "a job without wishes is open"


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.booleans()), max_size=16),
    st.booleans(),
    st.booleans(),
    st.sets(st.sampled_from("abcdefgh")),
)
def test_it_is_what_counting_owners_by_hand_says(
    made: list[tuple[str, bool, bool]], by_tag: bool, by_ram: bool, avoided: set[str]
) -> None:
    """`made`: owner, has the tag, has the memory."""
    profiles = [
        node(number, owner, ram_mb=64_000 if large else 8_000, tags=("club",) if tagged else ())
        for number, (owner, tagged, large) in enumerate(made)
    ]
    wanted = Requirements(
        ram_mb=32_000 if by_ram else 256, tags=frozenset({"club"}) if by_tag else frozenset()
    )
    others = [row for row in made if row[0] not in avoided | {"a"}]  # a is the submitter
    similar = {owner for owner, _, large in others if large or not by_ram}
    able = {owner for owner, tagged, large in others if (large or not by_ram) and (tagged or not by_tag)}
    expected = is_open(able=len(able), similar=len(similar), everybody=len({owner for owner, _, _ in others}))
    assert (
        chosen_by_pool(fleet_of(*profiles), Shape(wanted, "a", avoid_owners=frozenset(avoided))) == expected
    )


def test_memory_that_only_friends_claim_to_have_is_no_choice_either() -> None:
    fleet = fleet_of(
        node(1, "ann", ram_mb=900_000), node(2, "bob", ram_mb=900_000), *(node(n, f"o{n}") for n in (3, 4, 5))
    )
    wanted = Shape(Requirements(ram_mb=500_000), "eve", avoid_owners=frozenset({"ann"}))
    assert not chosen_by_pool(fleet, wanted)
    assert chosen_by_pool(fleet, replace(wanted, requirements=Requirements()))


@given(reputations)
def test_what_the_submitter_chose_makes_no_record(before: Reputation) -> None:
    after = update(before, Outcome("n", Evidence.NARROW, before.changed_at_ms + 1))
    kept = ("dues", "tenure_days", "verified", "verified_days", "streak", "strikes", "banned_at_ms")
    assert {name: getattr(after, name) for name in kept} == {name: getattr(before, name) for name in kept}
    assert after.successes == before.successes + 1
