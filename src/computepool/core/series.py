"""A bounded time series of resource usage: when it is full, neighbouring points are merged.

Every point but the first represents the time since the previous point by its maximum. So peaks are never lost, nor are the
first point and the time of the last one.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise

COLUMNS = ("cpu_percent", "rss_mb", "processes", "gpu_percent", "vram_mb")
ABSENT = -1  #: not measured
_VALUE_MAX = 2**31 - 1
#: The minimum capacity: fewer points could not keep a first, a last and something in between.
POINTS_MIN = 4


class Series:
    """Uses arrays, because thousands of series are in memory at once."""

    __slots__ = ("_columns", "_points_max", "step_ms", "times")

    def __init__(self, points_max: int) -> None:
        self._points_max = max(POINTS_MIN, points_max)
        self.step_ms = 0  #: minimum distance of points; 0 if none were merged yet
        self.times = array("q")
        self._columns = tuple(array("i") for _ in COLUMNS)

    def __len__(self) -> int:
        return len(self.times)

    def add(self, at_ms: int, values: Sequence[int | None]) -> None:
        """Record a measurement. If it is not later than the last point, it is merged into that one."""
        last = len(self.times) - 1
        row = [ABSENT if value is None else min(max(value, 0), _VALUE_MAX) for value in values]
        if last >= 0 and at_ms <= self.times[last]:
            self._raise(last, row)
        elif last >= 1 and at_ms - self.times[last - 1] <= self.step_ms:
            self.times[last] = at_ms
            self._raise(last, row)
        else:
            self._append(at_ms, row)
            if len(self.times) > self._points_max:
                self._halve()

    def column(self, name: str) -> list[int] | None:
        """None if nothing was ever measured."""
        found = self._columns[COLUMNS.index(name)]
        if not found or max(found) == ABSENT:
            return None
        return [max(0, value) for value in found]

    def _append(self, at_ms: int, row: Sequence[int]) -> None:
        self.times.append(at_ms)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def _raise(self, index: int, row: Sequence[int]) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column[index] = max(column[index], value)

    def _halve(self) -> None:
        """Keep the first point, and merge each pair of the others into one point at the time of the later one."""
        count = len(self.times)
        kept = [0, *range(2, count, 2)]
        if kept[-1] != count - 1:
            kept.append(count - 1)
        times = array("q", (self.times[index] for index in kept))
        columns = []
        for column in self._columns:
            highest = [max(column[before + 1 : here + 1]) for before, here in pairwise(kept)]
            columns.append(array("i", [column[0], *highest]))
        self.times, self._columns = times, tuple(columns)
        self.step_ms = max(2 * self.step_ms, -(-(times[-1] - times[0]) // (len(times) - 1)))

    # stored form

    def pack(self) -> dict[str, object]:
        """Times as differences, and only those columns that were measured."""
        times = self.times
        gaps = [times[0], *(later - earlier for earlier, later in pairwise(times))]
        columns = {
            name: list(column) for name, column in zip(COLUMNS, self._columns, strict=True) if max(column) != ABSENT
        }
        return {"step_ms": self.step_ms, "gaps": gaps, **columns}

    @classmethod
    def unpack(cls, packed: Mapping[str, object], points_max: int) -> Series:
        gaps, step_ms = packed["gaps"], packed["step_ms"]
        assert isinstance(gaps, list)
        assert isinstance(step_ms, int)
        series, at_ms = cls(points_max), 0
        for gap in gaps:
            at_ms += gap
            series.times.append(at_ms)
        for name, column in zip(COLUMNS, series._columns, strict=True):
            values = packed.get(name)
            column.extend(values if isinstance(values, list) else [ABSENT] * len(gaps))
        series.step_ms = step_ms
        while len(series) > series._points_max:
            series._halve()
        return series

    def after(self, earlier: Series) -> Series:
        """Append this series to an earlier one, as if both had been recorded together."""
        for index, at_ms in enumerate(self.times):
            values = [column[index] for column in self._columns]
            earlier.add(at_ms, [None if value == ABSENT else value for value in values])
        return earlier
