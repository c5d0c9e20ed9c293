"""Minor versions of Python as bits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from computepool.core.pythons import any_version, bit_of, commonest, mask_of, minor_version, newest_last

minors = st.integers(0, 31).map(lambda number: f"3.{number}")


@given(st.sets(minors), minors)
def test_a_mask_holds_what_it_was_made_of_and_nothing_else(held: set[str], wanted: str) -> None:
    assert bool(mask_of(held) & bit_of(wanted)) == (wanted in held)


@given(minors, st.integers(0, 99))
def test_the_patch_does_not_count(minor: str, patch: int) -> None:
    assert bit_of(f"{minor}.{patch}") == bit_of(minor) != 0
    assert minor_version(f"{minor}.{patch}") == minor


@pytest.mark.parametrize("word", ["", "3", "3.", "2.7", "3.99", "3.x", "4.1", "3.-1", "3.²", "python"])
def test_what_no_node_has_has_no_bit(word: str) -> None:
    assert bit_of(word) == 0
    assert mask_of([word, "3.11"]) == bit_of("3.11")


@pytest.mark.parametrize(
    ("pythons", "words"),
    [
        (["3.12"], "3.12"),
        (["3.9", "3.11"], "3.9 or 3.11"),
        (["3.13", "3.11", "3.12"], "3.11 to 3.13"),
        ([f"3.{number}" for number in range(12, 32)], "3.12 or newer"),
        ([f"3.{number}" for number in range(12)], "3.11 or older"),
    ],
)
def test_versions_in_words(pythons: list[str], words: str) -> None:
    assert any_version(pythons) == words


@given(st.lists(st.sets(minors, max_size=4), min_size=1, max_size=20))
def test_the_commonest_is_held_by_most(nodes: list[set[str]]) -> None:
    found = commonest(Counter(mask_of(held) for held in nodes))
    counts = {minor: sum(minor in held for held in nodes) for held in nodes for minor in held}
    if not counts:
        assert found == ""
        return
    most = [minor for minor, count in counts.items() if count == max(counts.values())]
    assert found == newest_last(most)[-1]
