"""The rules of versions."""

from __future__ import annotations

from hypothesis import given, strategies as st

from computepool.core.jobs.volumes import Published, VersionFacts, conflict_sentence, judge, surplus


def test_a_change_becomes_the_head_only_if_it_started_from_it() -> None:
    assert judge(content="new", parent_content="old", parent=5, head=5) is Published.HEAD
    assert judge(content="new", parent_content="old", parent=5, head=6) is Published.CONFLICT
    assert judge(content="new", parent_content=None, parent=0, head=0) is Published.HEAD
    assert judge(content="old", parent_content="old", parent=5, head=6) is Published.UNCHANGED


def test_a_conflict_names_the_three_versions() -> None:
    assert conflict_sentence(number=7, parent=5, head=6) == "version 7 started from 5, but the head is 6"


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 5), st.data())
def test_what_is_needed_or_new_is_never_surplus(conflicts: list[bool], kept: int, data: st.DataObject) -> None:
    versions = [VersionFacts(number, conflict) for number, conflict in enumerate(conflicts, start=1)]
    needed = set(data.draw(st.lists(st.integers(0, len(versions)), max_size=5)))
    gone = set(surplus(versions, kept=kept, needed=needed))
    assert not gone & needed
    for kind in (False, True):
        numbers = [one.number for one in versions if one.is_conflict is kind]
        assert not gone & set(numbers[-kept:])
        left = set(numbers) - gone - needed
        assert len(left) <= kept
