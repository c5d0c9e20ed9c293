"""Time and randomness, read only here, so that tests and the simulator can replace them."""

from __future__ import annotations

import secrets
import time
from typing import Protocol

from computepool.core.ids import make_id


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def entropy(self, size: int) -> bytes: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def entropy(self, size: int) -> bytes:
        return secrets.token_bytes(size)


def new_id(clock: Clock, prefix: str) -> str:
    return make_id(prefix, clock.now_ms(), clock.entropy(10))


def new_ids(clock: Clock, prefix: str, count: int) -> list[str]:
    """Ids that sort in the order of the batch: consecutive numbers after a random start."""
    now_ms = clock.now_ms()
    # The top bits stay clear, so that counting up from here cannot overflow the ten bytes.
    start = int.from_bytes(clock.entropy(10), "big") >> 1
    return [make_id(prefix, now_ms, (start + index).to_bytes(10, "big")) for index in range(count)]
