"""The measured speed of the connection to the hub, in megabits per second: averages of real transfers.

A short transfer is mostly waiting, so it says nothing. What is advertised changes only when the average has changed much,
because the hub stores every change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

DOWN, UP = "down", "up"
#: Shorter transfers are ignored.
SAMPLE_BYTES_MIN: Final = 128 * 1024
_WEIGHT = 0.3  #: of the newest transfer
_CHANGE = 0.25  #: by which an average must change to be advertised again
_GAP_S = 600.0  #: between two such changes
_MBPS_MAX = 1_000_000


class SpeedMeter:
    def __init__(self, steady: Callable[[], float]) -> None:
        """`steady`: the time in seconds."""
        self._steady = steady
        self._average = {DOWN: 0.0, UP: 0.0}
        self._offered = {DOWN: 0, UP: 0}
        self._offered_at: float | None = None

    def observe(self, way: str, size: int, *, since: float) -> None:
        """A transfer of `size` bytes began at `since` and has just ended."""
        took_s = self._steady() - since
        if size < SAMPLE_BYTES_MIN or took_s <= 0:
            return
        mbps, before = size * 8 / 1e6 / took_s, self._average[way]
        self._average[way] = mbps if not before else before + _WEIGHT * (mbps - before)

    def advertise(self) -> tuple[int, int]:
        """What to advertise: down and up; 0 is unknown."""
        now = self._steady()
        if self._offered_at is None or now - self._offered_at >= _GAP_S:
            changed = {way for way, average in self._average.items() if self._has_changed(way, average)}
            if changed:
                self._offered_at = now
                self._offered |= {way: _round_down(self._average[way]) for way in changed}
        return self._offered[DOWN], self._offered[UP]

    def _has_changed(self, way: str, average: float) -> bool:
        offered = self._offered[way]
        return average > 0 and (not offered or abs(average - offered) > _CHANGE * offered)


def _round_down(mbps: float) -> int:
    """Downwards to two digits; at least 1."""
    whole = max(1, min(_MBPS_MAX, int(mbps)))
    step = int("1" + "0" * (len(str(whole)) - 2)) if whole > 99 else 1
    return whole // step * step
