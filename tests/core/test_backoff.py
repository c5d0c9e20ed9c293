"""Exponential backoff grows and stays within its bounds."""

from __future__ import annotations

from hypothesis import given, strategies as st

from computepool.core.backoff import double


@given(st.integers(-10, 10_000))
def test_delays_never_shrink_and_never_exceed_the_cap(times: int) -> None:
    assert 5_000 <= double(5_000, times, most=900_000) <= double(5_000, times + 1, most=900_000) <= 900_000
    assert double(0.5, 2, most=60.0) == 2.0
