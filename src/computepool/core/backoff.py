"""Exponential backoff. Callers add the jitter."""

from __future__ import annotations

from typing import TypeVar

Delay = TypeVar("Delay", int, float)


def double(base: Delay, times: int, *, most: Delay) -> Delay:
    """`base` doubled `times` times, capped at `most`."""
    return min(most, base * (1 << min(max(times, 0), 30)))
