"""Token buckets: storms are spread out, and no account takes the hub from the others."""

from __future__ import annotations

from collections import OrderedDict

from fastapi import Request

from computepool.core.errors import RateLimited, Unavailable
from computepool.hub.clock import Clock

#: Accounts whose buckets are remembered; one that was forgotten starts with a full one.
_ACCOUNTS_MAX = 10_000


class TokenBucket:
    def __init__(self, clock: Clock, *, per_s: float, burst: float | None = None) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = max(1.0, burst or per_s)  # or a slow bucket would never hold a whole token
        self._tokens = self._burst
        self._at_ms = clock.now_ms()

    def lacks_s(self) -> float:
        """Take a token; 0.0, or how long to wait for one."""
        now_ms = self._clock.now_ms()
        self._tokens = min(self._burst, self._tokens + max(0, now_ms - self._at_ms) / 1000 * self._per_s)
        self._at_ms = now_ms
        if self._tokens < 1:
            return (1 - self._tokens) / self._per_s
        self._tokens -= 1
        return 0.0

    def take(self) -> None:
        """Raises Unavailable with a time to come back when the bucket is empty."""
        if self.lacks_s():
            raise Unavailable(
                "Many nodes are registering at once; try again shortly.", retry_after_s=1 + 1 / self._per_s
            )


class AccountLimits:
    """A bucket for each account."""

    def __init__(self, clock: Clock, *, per_s: float, what: str) -> None:
        self._clock, self._per_s, self._what = clock, per_s, what
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, account_id: str) -> None:
        bucket = self._buckets.get(account_id)
        if bucket is None:
            bucket = self._buckets[account_id] = TokenBucket(self._clock, per_s=self._per_s)
            if len(self._buckets) > _ACCOUNTS_MAX:
                self._buckets.popitem(last=False)
        if lacks_s := bucket.lacks_s():
            raise RateLimited(
                f"Your account may {self._what} {self._per_s:g} times a second.",
                retry_after_s=max(1.0, lacks_s),
            )


def registrations(request: Request) -> TokenBucket:
    bucket: TokenBucket = request.app.state.registrations
    return bucket


def take_request(request: Request, account_id: str) -> None:
    limits: AccountLimits = request.app.state.requests
    limits.take(account_id)


def take_submission(request: Request, account_id: str) -> None:
    limits: AccountLimits = request.app.state.submissions
    limits.take(account_id)
