"""Waiting for conditions that no event announces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout_s: float, what: str = "") -> T:
    """Wait until the condition is true, and return its value. Raises TimeoutError after the deadline."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what or getattr(condition, '__name__', condition)}")
        time.sleep(0.02)
    return value


async def eventually(condition: Callable[[], object], *, timeout_s: float = 60) -> None:
    """The same in a coroutine."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(0.003)
