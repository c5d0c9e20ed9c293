"""Whether the pool chose who runs a job: by numbers of owners, and over random fleets and wishes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from computepool.core.isolation import Level
from computepool.core.placement.choice import CHOICE_MIN, is_chosen_by_pool, is_open
from computepool.core.resources import Capacity, NodeProfile, Requirements, Shape
from computepool.core.trust.reputation import Evidence, Reputation, ReputationEvent, update
from tests.core.fleets import fleet_of
from tests.core.trust.test_reputation import reputations


def node(number: int, owner: str, *, ram_mb: int = 8_000, tags: tuple[str, ...] = ()) -> NodeProfile:
    capacity = Capacity(cpu_milli=8_000, ram_mb=ram_mb, disk_mb=50_000)
    name = f"n{number}"
    return NodeProfile(
        node_id=name, name=name, owner=owner, capacity=capacity, level=Level.NAMESPACE, tags=frozenset(tags)
    )


numbers = st.integers(0, 20)


@given(numbers, numbers, numbers, st.data())
def test_few_is_no_choice_unless_there_are_no_more(able: int, more: int, others: int, data: st.DataObject) -> None:
    similar, everybody = able + more, able + more + others
    proven = data.draw(st.integers(0, able))
    open_ = is_open(able=able, proven=proven, similar=similar, everybody=everybody)
    if open_:
        assert able >= min(CHOICE_MIN, everybody)
        assert proven >= CHOICE_MIN or able * 2 >= everybody, "half of those that lend, unless some are known"
        one_more = is_open(able=able + 1, proven=proven + 1, similar=similar + 1, everybody=everybody + 1)
        assert one_more, "one more never hurts"
    if not more and (proven >= CHOICE_MIN or not others):
        assert open_, "a job without wishes is open"


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.booleans(), st.booleans()), max_size=16),
    st.booleans(),
    st.booleans(),
    st.sets(st.sampled_from("abcdefgh")),
)
def test_it_is_what_counting_owners_by_hand_says(
    made: list[tuple[str, bool, bool, bool]], by_tag: bool, by_ram: bool, avoided: set[str]
) -> None:
    """`made`: owner, has the tag, has the memory, has a record."""
    profiles = [
        node(number, owner, ram_mb=64_000 if large else 8_000, tags=("club",) if tagged else ())
        for number, (owner, tagged, large, _) in enumerate(made)
    ]
    wanted = Requirements(ram_mb=32_000 if by_ram else 256, tags=frozenset({"club"}) if by_tag else frozenset())
    fleet = fleet_of(*profiles)
    for number, (*_, known) in enumerate(made):
        fleet.set_newcomer(f"n{number}", not known)
    others = [row for row in made if row[0] not in avoided | {"a"}]  # a is the submitter
    having = [row for row in others if row[2] or not by_ram]
    able = [row for row in having if row[1] or not by_tag]
    expected = is_open(
        able=len({row[0] for row in able}),
        proven=len({row[0] for row in able if row[3]}),
        similar=len({row[0] for row in having}),
        everybody=len({row[0] for row in others}),
    )
    assert is_chosen_by_pool(fleet, Shape(wanted, "a", avoid_owners=frozenset(avoided))) == expected


def test_memory_that_only_friends_claim_to_have_is_no_choice_either() -> None:
    fleet = fleet_of(
        node(1, "ann", ram_mb=900_000), node(2, "bob", ram_mb=900_000), *(node(n, f"o{n}") for n in (3, 4, 5))
    )
    wanted = Shape(Requirements(ram_mb=500_000), "eve", avoid_owners=frozenset({"ann"}))
    assert not is_chosen_by_pool(fleet, wanted)
    assert is_chosen_by_pool(fleet, replace(wanted, requirements=Requirements()))


def test_what_only_newcomers_claim_to_have_is_no_choice_however_many_they_are() -> None:
    """Until three owners of those who say so have made a record with what everybody can run."""
    claims = [node(number, f"sybil{number}", ram_mb=3_000_000) for number in range(4)]
    fleet = fleet_of(*claims, *(node(number, f"o{number}") for number in range(10, 30)))
    for each in list(fleet):
        fleet.set_newcomer(each.node_id, True)
    rare = Shape(Requirements(ram_mb=2_900_000), "eve")
    seen = [is_chosen_by_pool(fleet, rare)]
    for claim in claims[:3]:
        fleet.set_newcomer(claim.node_id, False)
        seen.append(is_chosen_by_pool(fleet, rare))
    assert seen == [False, False, False, True]
    assert is_chosen_by_pool(fleet, replace(rare, requirements=Requirements()))


@given(reputations)
def test_what_the_submitter_chose_makes_no_record(before: Reputation) -> None:
    after = update(before, ReputationEvent("n", Evidence.NARROW, before.changed_at_ms + 1))
    kept = (
        "successes_for_others",
        "tenure_days",
        "verified",
        "verified_days",
        "streak",
        "violation_count",
        "banned_at_ms",
    )
    assert {name: getattr(after, name) for name in kept} == {name: getattr(before, name) for name in kept}
    assert after.successes == before.successes + 1
