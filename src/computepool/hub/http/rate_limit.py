"""Token buckets: storms are spread out, and no account takes the hub from the others."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from ipaddress import ip_address, ip_network

from fastapi import Request
from starlette.datastructures import State
from starlette.types import Scope

from computepool.core.errors import RateLimited, Unavailable
from computepool.hub.clock import Clock
from computepool.hub.identity.authenticator import WrongCredential
from computepool.hub.identity.sign_in import WrongCode
from computepool.hub.settings import Settings

#: Accounts whose buckets are remembered; one that was forgotten starts with a full one.
_ACCOUNTS_MAX = 10_000
_NAME_LENGTH = {True: len("cp_") + 16, False: 8}


class TokenBucket:
    def __init__(self, clock: Clock, *, per_s: float, burst: float | None = None) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = max(1.0, burst or per_s)  # or a slow bucket would never hold a whole token
        self._tokens = self._burst
        self._at_ms = clock.now_ms()

    def lacks_s(self, amount: float = 1) -> float:
        """Take a token, or several; 0.0, or how long to wait for them."""
        now_ms = self._clock.now_ms()
        self._tokens = min(self._burst, self._tokens + max(0, now_ms - self._at_ms) / 1000 * self._per_s)
        self._at_ms = now_ms
        if self._tokens < amount:
            return (amount - self._tokens) / self._per_s
        self._tokens -= amount
        return 0.0

    def waits_s(self) -> float:
        """The same without taking one."""
        filled = self._tokens + max(0, self._clock.now_ms() - self._at_ms) / 1000 * self._per_s
        return max(0.0, (1 - filled) / self._per_s)

    def take(self) -> None:
        """Raises Unavailable with a time to come back when the bucket is empty."""
        if self.lacks_s():
            raise Unavailable(
                "Many nodes are registering at once; try again shortly.", retry_after_s=1 + 1 / self._per_s
            )


class AccountLimits:
    """A bucket for each account. `what` it may do is said with its number, `{per_s}`."""

    def __init__(self, clock: Clock, *, per_s: float, what: str, burst: float | None = None) -> None:
        self._clock, self._per_s, self._burst, self._what = clock, per_s, burst, what
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, account_id: str, amount: float = 1) -> None:
        bucket = self._buckets.get(account_id)
        if bucket is None:
            bucket = self._buckets[account_id] = TokenBucket(
                self._clock, per_s=self._per_s, burst=self._burst
            )
            if len(self._buckets) > _ACCOUNTS_MAX:
                self._buckets.popitem(last=False)
        if lacks_s := bucket.lacks_s(amount):
            raise RateLimited(
                f"Your account may {self._what.format(per_s=self._per_s)}.", retry_after_s=max(1.0, lacks_s)
            )


class Guesses:
    """Failed sign-ins, by address and by what was guessed at. Who has been let in before is never kept waiting.

    Whoever guesses from an address slows down newcomers from the same address, for seconds at a time; and whoever
    guesses at one key from many addresses slows down nobody but himself: an address that never failed may try.
    """

    def __init__(self, clock: Clock, *, per_min: float, burst: int) -> None:
        self._clock, self._per_s, self._burst = clock, per_min / 60, burst
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._good: OrderedDict[bytes, None] = OrderedDict()  #: hashes of credentials that were right

    def check(self, address: str, credential: str) -> None:
        """Before looking: raises RateLimited with a time to come back."""
        by_address = self._buckets.get(address)
        if by_address is None or _hash(credential) in self._good:
            return
        by_name = self._buckets.get(_name(credential))
        wait_s = max(by_address.waits_s(), 0.0 if by_name is None else by_name.waits_s())
        if wait_s:
            raise RateLimited(
                "Too many sign-ins from here have failed; try again in a moment.",
                retry_after_s=max(1.0, wait_s),
            )

    def failed(self, address: str, credential: str) -> None:
        for name in (address, _name(credential)):
            bucket = self._buckets.pop(name, None) or TokenBucket(
                self._clock, per_s=self._per_s, burst=self._burst
            )
            bucket.lacks_s()
            self._buckets[name] = bucket  # the newest last: the oldest is forgotten first
        while len(self._buckets) > _ACCOUNTS_MAX:
            self._buckets.popitem(last=False)

    def succeeded(self, credential: str) -> None:
        hashed = _hash(credential)
        if hashed not in self._good:
            self._good[hashed] = None
            if len(self._good) > _ACCOUNTS_MAX:
                self._good.popitem(last=False)


def _name(credential: str) -> str:
    """What a guess is aimed at: a key's id, or the beginning of a code. Never mistaken for an address."""
    return f"guess:{credential[: _NAME_LENGTH[credential.startswith('cp_')]]}"


def _hash(credential: str) -> bytes:
    return hashlib.blake2b(credential.encode(errors="replace"), digest_size=16).digest()


def caller_address(request: Request) -> str:
    """Of IPv6, the network: one customer has a whole one."""
    host = request.client.host if request.client is not None else "local"
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return host if found.version == 4 else str(ip_network((found, 64), strict=False))


@lru_cache(maxsize=_ACCOUNTS_MAX)
def _normalise(host: str) -> str | None:
    try:
        return str(ip_address(host.partition("%")[0]))
    except ValueError:
        return None


def seen_from(scope: Scope) -> str | None:
    """A caller's own address; behind a proxy, the one that a trusted proxy names. None where there is none."""
    client = scope.get("client")
    return None if client is None else _normalise(client[0])


class RequestLimits:
    """All of one hub; routes find them through their application's state."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        account = partial(AccountLimits, clock)
        self.registrations = TokenBucket(clock, per_s=settings.registrations_per_s)
        self.guesses = Guesses(
            clock, per_min=settings.failed_signins_per_min, burst=settings.failed_signins_burst
        )
        self.requests = account(per_s=settings.requests_per_s, what="ask {per_s:g} times a second")
        self.submissions = account(per_s=settings.submits_per_s, what="submit {per_s:g} times a second")
        self.messages = account(
            per_s=settings.messages_per_s, what="send {per_s:g} messages a second from one job"
        )
        self.arrivals = account(
            per_s=settings.arrivals_per_s,
            burst=settings.arrivals_burst,
            what="restart a node, or change its key, {per_s:g} times a second",
        )


def limits_of(state: State) -> RequestLimits:
    found: RequestLimits = state.limits
    return found


@contextmanager
def guessing(request: Request, credential: str) -> Iterator[None]:
    """Around the look-up of a credential: only a wrong one counts, not one that has ended."""
    limits, address = limits_of(request.app.state).guesses, caller_address(request)
    limits.check(address, credential)
    try:
        yield
    except (WrongCredential, WrongCode):
        limits.failed(address, credential)
        raise
    limits.succeeded(credential)
