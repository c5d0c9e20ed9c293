"""Health of the hub's loops: when each last ended well, and how it failed since. Soft state."""

from __future__ import annotations

from dataclasses import dataclass

from computepool.hub.clock import Clock

_ERROR_MAX = 300


@dataclass(slots=True)
class LoopState:
    name: str
    interval_ms: int
    since_ms: int  #: when the loop began
    ran_at_ms: int | None = None
    failed_at_ms: int | None = None
    failures: int = 0  #: in a row
    error: str = ""

    def silent_ms(self, now_ms: int) -> int:
        """How long nothing has ended well."""
        return now_ms - (self.ran_at_ms or self.since_ms)


class LoopHealth:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, LoopState] = {}

    def begin(self, name: str, interval_s: float) -> None:
        if name not in self._known:
            self._known[name] = LoopState(name, round(interval_s * 1000), self._clock.now_ms())

    def ran(self, name: str) -> None:
        beat = self._known[name]
        beat.ran_at_ms, beat.failures, beat.error = self._clock.now_ms(), 0, ""

    def failed(self, name: str, error: Exception) -> None:
        beat = self._known[name]
        beat.failed_at_ms, beat.failures = self._clock.now_ms(), beat.failures + 1
        beat.error = f"{type(error).__name__}: {error}"[:_ERROR_MAX]

    def all(self) -> list[LoopState]:
        return [self._known[name] for name in sorted(self._known)]
