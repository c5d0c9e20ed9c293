"""The only place where the agent reads clocks and random numbers, so that tests can replace both."""

from __future__ import annotations

import secrets
import time
from typing import Protocol

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class AgentClock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch. Only for tokens, files and people; never for leases."""

    def steady(self) -> float:
        """Seconds that never jump, without those that the machine slept: the clock of what runs, and of back-offs.

        A laptop that is closed for a while costs its jobs neither their time limit nor their submitters money.
        """

    def boot_time(self) -> float:
        """The same with the time asleep, where the system counts it: the clock of leases. The hub does not sleep."""

    def fraction(self) -> float:
        """Uniform in [0, 1): the jitter of retries."""

    def entropy(self, size: int) -> bytes: ...


class SystemAgentClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> float:
        return time.monotonic()

    def boot_time(self) -> float:
        return time.clock_gettime(_BOOT_CLOCK)

    def fraction(self) -> float:
        return secrets.randbelow(1 << 53) / (1 << 53)

    def entropy(self, size: int) -> bytes:
        return secrets.token_bytes(size)
