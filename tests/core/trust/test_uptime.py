"""Uptime counts every moment once and never more than there was."""

from __future__ import annotations

from hypothesis import given, strategies as st

from computepool.core.money.pricing import HOUR_MS
from computepool.core.trust.uptime import shares, within

NOW = 1000
SPANS = st.lists(st.tuples(st.integers(0, NOW), st.integers(0, NOW)), max_size=12)


@given(SPANS, st.integers(0, NOW), st.integers(0, NOW))
def test_covered_time_is_what_counting_moments_gives(spans: list[tuple[int, int]], begin: int, end: int) -> None:
    moments = {at for since, until in spans for at in range(max(since, begin), min(until, end))}
    assert within(spans, begin, end) == len(moments)


@given(st.lists(st.tuples(st.integers(0, 900 * HOUR_MS), st.integers(0, 900 * HOUR_MS)), max_size=8),
       st.integers(0, 900 * HOUR_MS))  # fmt: skip
def test_shares_are_between_none_and_all(spans: list[tuple[int, int]], known: int) -> None:
    for share in shares(spans, known_since_ms=known, now_ms=900 * HOUR_MS):
        assert 0 <= share.online_ms <= share.known_ms <= share.hours * HOUR_MS
        assert 0 <= share.ppm <= 1_000_000


def test_a_new_node_is_judged_by_the_time_since_it_is_known() -> None:
    now = 1000 * HOUR_MS
    day, week, month = shares([(now - 2 * HOUR_MS, now)], known_since_ms=now - 4 * HOUR_MS, now_ms=now)
    assert [share.ppm for share in (day, week, month)] == [500_000] * 3
    assert day.known_ms == 4 * HOUR_MS


def test_a_week_away_shows_in_the_longer_spans() -> None:
    now = 1000 * HOUR_MS
    spans = [(0, now - 8 * 24 * HOUR_MS), (now - 24 * HOUR_MS, now)]
    day, week, month = shares(spans, known_since_ms=0, now_ms=now)
    assert (day.ppm, week.ppm) == (1_000_000, 142_857)
    assert month.ppm == (24 + 22 * 24) * 1_000_000 // (30 * 24)
