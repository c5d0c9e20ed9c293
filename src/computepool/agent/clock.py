"""The only place where the agent reads clocks and draws randomness, so that tests can replace both."""

from __future__ import annotations

import random
import secrets
import time
from typing import Protocol

#: Counts through suspend where the system offers it: a laptop that slept past its lease must notice.
_STEADY_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch. Only for tokens, files and people; never for leases."""

    def steady(self) -> float:
        """Seconds that never jump; the clock of leases, time-outs and back-offs."""

    def fraction(self) -> float:
        """Uniform in [0, 1): the jitter of retries."""

    def entropy(self, size: int) -> bytes: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> float:
        return time.clock_gettime(_STEADY_CLOCK)

    def fraction(self) -> float:
        return random.random()

    def entropy(self, size: int) -> bytes:
        return secrets.token_bytes(size)
