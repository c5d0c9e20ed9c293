"""Identifiers sort by time, and those of one batch in the order of the batch."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.core.ids import make_id, time_of
from computepool.hub.clock import new_id, new_ids
from computepool.testing.clock import FakeClock

MOMENTS = st.integers(min_value=0, max_value=2**48 - 1)
ENTROPY = st.binary(min_size=10, max_size=10)


@given(MOMENTS, MOMENTS, ENTROPY, ENTROPY)
def test_ids_sort_by_time(first_ms: int, second_ms: int, first: bytes, second: bytes) -> None:
    ids = make_id("job", first_ms, first), make_id("job", second_ms, second)
    assert (ids[0] < ids[1]) == ((first_ms, first) < (second_ms, second))


@given(MOMENTS, ENTROPY)
def test_ids_have_one_length_and_a_plain_alphabet(now_ms: int, entropy: bytes) -> None:
    id_ = make_id("node", now_ms, entropy)
    prefix, _, body = id_.partition("_")
    assert (prefix, len(body)) == ("node", 26)
    assert body.isascii()
    assert body.isalnum()
    assert body == body.lower()
    assert not set(body) & set("ilou")


@given(MOMENTS, ENTROPY)
def test_ids_say_when_they_were_made(now_ms: int, entropy: bytes) -> None:
    assert time_of(make_id("job", now_ms, entropy)) == now_ms


@pytest.mark.parametrize("size", [0, 9, 11])
def test_too_little_or_too_much_entropy_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="entropy"):
        make_id("job", 0, bytes(size))


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=300))
def test_a_batch_sorts_in_its_own_order(seed: int, count: int) -> None:
    ids = new_ids(FakeClock(seed=seed), "job", count)
    assert ids == sorted(set(ids))
    assert len(ids) == count


def test_a_batch_at_the_edge_of_the_entropy_does_not_overflow() -> None:
    class Extreme(FakeClock):
        def entropy(self, size: int) -> bytes:
            return b"\xff" * size

    ids = new_ids(Extreme(), "job", 1000)
    assert ids == sorted(set(ids))


def test_ids_of_one_moment_differ() -> None:
    clock = FakeClock()
    assert len({new_id(clock, "job") for _ in range(1000)}) == 1000
