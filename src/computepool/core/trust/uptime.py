"""Uptime: the share of the last day, week and month in which a node was online."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HOUR_MS = 3_600_000
#: A day, a week, a month.
SPANS_HOURS = (24, 7 * 24, 30 * 24)
_PPM = 1_000_000

Span = tuple[int, int]  #: from, until, in milliseconds


@dataclass(frozen=True, slots=True)
class UptimeShare:
    hours: int
    online_ms: int
    known_ms: int  #: a node that is new is judged by the time since it is known

    @property
    def ppm(self) -> int:
        return self.online_ms * _PPM // self.known_ms if self.known_ms else 0


def shares(spans: Iterable[Span], *, known_since_ms: int, now_ms: int) -> list[UptimeShare]:
    found = list(spans)
    result = []
    for hours in SPANS_HOURS:
        begin = max(known_since_ms, now_ms - hours * HOUR_MS)
        result.append(
            UptimeShare(
                hours=hours,
                online_ms=within(found, begin, now_ms),
                known_ms=max(0, now_ms - begin),
            )
        )
    return result


def within(spans: Iterable[Span], begin: int, end: int) -> int:
    """How much of the time between the two is covered. What two spans cover counts once."""
    covered, reached = 0, begin
    for since, until in sorted(spans):
        since, until = max(since, reached), min(until, end)
        if until > since:
            covered += until - since
            reached = until
    return covered
