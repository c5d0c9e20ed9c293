"""The agent's clocks and random numbers: the only place that reads either, so that tests can replace both."""

from __future__ import annotations

import secrets
import time

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class AgentClock:
    def now_ms(self) -> int:
        """Milliseconds since the epoch. Only for tokens, files and people; never for leases."""
        return time.time_ns() // 1_000_000

    def steady(self) -> float:
        """Seconds that never jump and exclude time asleep: the clock of running jobs and of back-offs.

        A laptop that is closed for a while costs its jobs neither their time limit nor their submitters money.
        """
        return time.monotonic()

    def boot_time(self) -> float:
        """Like `steady`, but with time asleep where the system counts it: the clock of leases. The hub does not sleep."""
        return time.clock_gettime(_BOOT_CLOCK)

    def fraction(self) -> float:
        """Uniform in [0, 1): the jitter of retries."""
        return secrets.randbelow(1 << 53) / (1 << 53)

    def entropy(self, size: int) -> bytes:
        return secrets.token_bytes(size)
