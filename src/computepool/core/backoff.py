"""Waiting times after failures in a row; whoever waits adds the jitter."""

from __future__ import annotations

from typing import TypeVar

Wait = TypeVar("Wait", int, float)


def doubled(base: Wait, times: int, *, most: Wait) -> Wait:
    """`base` doubled so many times, and never more than `most`."""
    return min(most, base * (1 << min(max(times, 0), 30)))
