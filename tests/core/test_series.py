"""A series keeps its first moment, the time of its last and every peak, however often it was thinned out."""

from __future__ import annotations

import json

from hypothesis import given, strategies as st

from computepool.core.series import COLUMNS, POINTS_MIN, Series

_VALUE = st.none() | st.integers(0, 2**40)
_ROW = st.tuples(*[_VALUE] * len(COLUMNS))
SAMPLES = st.lists(st.tuples(st.integers(-5, 60_000), _ROW), min_size=1, max_size=300)


def recorded(samples: list[tuple[int, tuple[int | None, ...]]], points_max: int) -> Series:
    series, at_ms = Series(points_max), 1_000_000
    for gap, row in samples:
        at_ms += gap
        series.add(at_ms, row)
    return series


def latest(samples: list[tuple[int, tuple[int | None, ...]]]) -> int:
    at_ms = newest = 1_000_000 + samples[0][0]
    for gap, _ in samples[1:]:
        at_ms += gap
        newest = max(newest, at_ms)
    return newest


@given(SAMPLES, st.integers(0, 40))
def test_what_thinning_out_keeps(samples: list[tuple[int, tuple[int | None, ...]]], points_max: int) -> None:
    series = recorded(samples, points_max)
    times = list(series.times)
    assert len(times) <= max(POINTS_MIN, points_max)
    assert times == sorted(set(times))
    assert times[0] == 1_000_000 + samples[0][0]
    assert times[-1] == latest(samples)
    for number, name in enumerate(COLUMNS):
        said = [row[number] for _, row in samples if row[number] is not None]
        column = series.column(name)
        if not said:
            assert column is None
        else:
            assert column is not None
            assert len(column) == len(times)
            assert max(column) == min(2**31 - 1, max(said))


@given(SAMPLES, st.integers(4, 40))
def test_packed_and_unpacked_is_the_same(samples: list[tuple[int, tuple[int | None, ...]]], points_max: int) -> None:
    series = recorded(samples, points_max)
    again = Series.unpack(json.loads(json.dumps(series.pack())), points_max)
    assert again.pack() == series.pack()
    smaller = Series.unpack(series.pack(), 4)
    assert len(smaller) <= 4
    assert (smaller.times[0], smaller.times[-1]) == (series.times[0], series.times[-1])


def test_points_are_spread_evenly_over_a_long_run() -> None:
    series = Series(240)
    for second in range(0, 7 * 24 * 3600, 10):
        series.add(second * 1000, (100, 50, 2, None, None))
    gaps = [later - earlier for earlier, later in zip(series.times, series.times[1:], strict=False)]
    assert 120 <= len(series) <= 240
    assert max(gaps[:-1]) <= 2 * series.step_ms
    assert min(gaps[:-1]) * 4 >= max(gaps)


def test_a_run_goes_on_from_what_was_saved() -> None:
    before, after = Series(10), Series(10)
    before.add(1000, (10, 1, 1, None, None))
    before.add(2000, (90, 2, 1, None, None))
    after.add(5000, (20, 3, 1, None, None))
    whole = after.after(before)
    assert list(whole.times) == [1000, 2000, 5000]
    assert whole.column("cpu_percent") == [10, 90, 20]
    assert whole.column("gpu_percent") is None
