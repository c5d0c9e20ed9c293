"""Uptime: the share of the last day, week and month in which a node was online."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from computepool.core.money.pricing import HOUR_MS, PPM

#: A day, a week, a month.
SPANS_HOURS = (24, 7 * 24, 30 * 24)

Span = tuple[int, int]  #: start and end in milliseconds


@dataclass(frozen=True, slots=True)
class UptimeShare:
    hours: int
    online_ms: int
    known_ms: int  #: less than the span for a new node, which is judged by the time since it joined

    @property
    def ppm(self) -> int:
        return self.online_ms * PPM // self.known_ms if self.known_ms else 0


def shares(spans: Iterable[Span], *, known_since_ms: int, now_ms: int) -> list[UptimeShare]:
    found = list(spans)
    result = []
    for hours in SPANS_HOURS:
        begin = max(known_since_ms, now_ms - hours * HOUR_MS)
        result.append(UptimeShare(hours=hours, online_ms=within(found, begin, now_ms), known_ms=max(0, now_ms - begin)))
    return result


def within(spans: Iterable[Span], begin: int, end: int) -> int:
    """How much of the interval the spans cover. Overlaps count once."""
    covered, reached = 0, begin
    for since, until in sorted(spans):
        since, until = max(since, reached), min(until, end)
        if until > since:
            covered += until - since
            reached = until
    return covered
