"""In-memory state of observability: the live view, open streams, and the health of the hub's loops."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from computepool.core.errors import RateLimited
from computepool.hub.clock import Clock
from computepool.hub.observability.live.memory import MeshMemory
from computepool.protocol.health import CheckView

_ERROR_MAX = 300
_FULL_S = 60  #: until a stream that was refused may be tried again
_NEVER = CheckView(state="never", sentence="The rules have not been checked since this hub started.")


@dataclass(slots=True)
class LoopState:
    name: str
    interval_ms: int
    since_ms: int  #: when the loop started
    ran_at_ms: int | None = None
    failed_at_ms: int | None = None
    failures: int = 0  #: in a row
    error: str = ""

    def silent_ms(self, now_ms: int) -> int:
        """The time since the last success."""
        return now_ms - (self.ran_at_ms or self.since_ms)


class LoopHealth:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, LoopState] = {}

    def begin(self, name: str, interval_s: float) -> None:
        if name not in self._known:
            self._known[name] = LoopState(name, round(interval_s * 1000), self._clock.now_ms())

    def ran(self, name: str) -> None:
        loop = self._known[name]
        loop.ran_at_ms, loop.failures, loop.error = self._clock.now_ms(), 0, ""

    def record_failure(self, name: str, error: Exception) -> None:
        loop = self._known[name]
        loop.failed_at_ms, loop.failures = self._clock.now_ms(), loop.failures + 1
        loop.error = f"{type(error).__name__}: {error}"[:_ERROR_MAX]

    def all(self) -> list[LoopState]:
        return [self._known[name] for name in sorted(self._known)]


@dataclass(slots=True)
class ObservabilityState:
    loop_health: LoopHealth
    mesh: MeshMemory = field(default_factory=MeshMemory)
    listening: Counter[str] = field(default_factory=Counter)  #: open streams, by account
    check: CheckView = _NEVER  #: the running or the last check of the database's rules
    check_task: asyncio.Task[None] | None = None

    @contextmanager
    def open_stream(self, account_id: str, *, most: int) -> Iterator[None]:
        if self.listening[account_id] >= most:
            raise RateLimited(
                f"An account may have {most} streams open at once; close some pages first.", retry_after_s=_FULL_S
            )
        self.listening[account_id] += 1
        try:
            yield
        finally:
            self.listening[account_id] -= 1
            if not self.listening[account_id]:
                del self.listening[account_id]
