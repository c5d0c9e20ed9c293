"""A clock that moves only when a test moves it, and repeatable randomness."""

from __future__ import annotations

import random

EPOCH_MS = 1_800_000_000_000


class FakeClock:
    """Time and entropy for tests and the simulator: the same seed gives the same run."""

    def __init__(self, now_ms: int = EPOCH_MS, *, seed: int = 0) -> None:
        self._now_ms = now_ms
        self._random = random.Random(seed)

    def now_ms(self) -> int:
        return self._now_ms

    def entropy(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def advance(self, ms: int) -> None:
        """Move the clock, perhaps backwards, as a machine's clock may be set back."""
        self._now_ms += ms
