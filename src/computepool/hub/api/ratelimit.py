"""A token bucket: a storm of registrations after a restart is spread out instead of drowning the heartbeats."""

from __future__ import annotations

from fastapi import Request

from computepool.core.errors import Unavailable
from computepool.hub.clock import Clock


class TokenBucket:
    def __init__(self, clock: Clock, *, per_s: float, burst: float | None = None) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = max(1.0, burst or per_s)  # or a slow bucket would never hold a whole token
        self._tokens = self._burst
        self._at_ms = clock.now_ms()

    def take(self) -> None:
        """Raises Unavailable with a time to come back when the bucket is empty."""
        now_ms = self._clock.now_ms()
        self._tokens = min(self._burst, self._tokens + max(0, now_ms - self._at_ms) / 1000 * self._per_s)
        self._at_ms = now_ms
        if self._tokens < 1:
            raise Unavailable(
                "Many nodes are registering at once; try again shortly.", retry_after_s=1 + 1 / self._per_s
            )
        self._tokens -= 1


def registrations(request: Request) -> TokenBucket:
    bucket: TokenBucket = request.app.state.registrations
    return bucket
