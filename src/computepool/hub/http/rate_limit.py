"""Token buckets: they spread out storms and keep one account from using up the hub."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from fastapi import Request
from starlette.datastructures import State
from starlette.types import Scope

from computepool.core.errors import RateLimited, Unavailable
from computepool.hub.clock import Clock
from computepool.hub.identity.authenticator import WrongCredential
from computepool.hub.identity.sign_in import WrongCode
from computepool.hub.settings import Settings

#: Buckets kept; one that was dropped starts full again.
_BUCKETS_MAX = 10_000


class TokenBucket:
    def __init__(self, clock: Clock, *, per_s: float, burst: float | None = None) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = max(1.0, burst or per_s)  # else a slow bucket would never hold a whole token
        self._tokens = self._burst
        self._at_ms = clock.now_ms()

    def wait_s(self, amount: float = 1) -> float:
        """How long to wait until the bucket holds so many tokens; 0.0 if it does."""
        now_ms = self._clock.now_ms()
        self._tokens = min(self._burst, self._tokens + max(0, now_ms - self._at_ms) / 1000 * self._per_s)
        self._at_ms = now_ms
        return max(0.0, (amount - self._tokens) / self._per_s)

    def try_take(self, amount: float = 1) -> float:
        """Take tokens and return 0.0, or return how long to wait for them."""
        wait_s = self.wait_s(amount)
        if not wait_s:
            self._tokens -= amount
        return wait_s

    def take(self) -> None:
        """Take a token. Raises Unavailable if the bucket is empty."""
        if self.try_take():
            raise Unavailable(
                "Many nodes are registering at once; try again shortly.", retry_after_s=1 + 1 / self._per_s
            )


class AccountLimits:
    """A bucket for each account. `what` an account may do is part of the error, with its rate as `{per_s}`."""

    def __init__(self, clock: Clock, *, per_s: float, what: str, burst: float | None = None) -> None:
        self._clock, self._per_s, self._burst, self._what = clock, per_s, burst, what
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, account_id: str, amount: float = 1) -> None:
        bucket = self._buckets.get(account_id)
        if bucket is None:
            bucket = self._buckets[account_id] = TokenBucket(self._clock, per_s=self._per_s, burst=self._burst)
            if len(self._buckets) > _BUCKETS_MAX:
                self._buckets.popitem(last=False)
        if wait_s := bucket.try_take(amount):
            raise RateLimited(
                f"Your account may {self._what.format(per_s=self._per_s)}.", retry_after_s=max(1.0, wait_s)
            )


class SignInLimits:
    """Limits of failed sign-ins, by address and by credential. A credential that was accepted before never waits.

    Guessing from an address delays other newcomers from that address, for seconds at a time. Guessing one key from many
    addresses delays only these: an address that has not failed may always try.
    """

    def __init__(self, clock: Clock, *, per_min: float, burst: int) -> None:
        self._clock, self._per_s, self._burst = clock, per_min / 60, burst
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._accepted: OrderedDict[bytes, None] = OrderedDict()  #: hashes of credentials

    def check(self, address: str, credential: str) -> None:
        """Raises RateLimited if this address or this credential failed too often."""
        by_address = self._buckets.get(address)
        if by_address is None or _hash(credential) in self._accepted:
            return
        by_target = self._buckets.get(_target(credential))
        wait_s = max(by_address.wait_s(), 0.0 if by_target is None else by_target.wait_s())
        if wait_s:
            raise RateLimited(
                "Too many sign-ins from here have failed; try again in a moment.", retry_after_s=max(1.0, wait_s)
            )

    def record_failure(self, address: str, credential: str) -> None:
        for name in (address, _target(credential)):
            bucket = self._buckets.pop(name, None) or TokenBucket(self._clock, per_s=self._per_s, burst=self._burst)
            bucket.try_take()
            self._buckets[name] = bucket  # moved to the end: the oldest is dropped first
        while len(self._buckets) > _BUCKETS_MAX:
            self._buckets.popitem(last=False)

    def record_success(self, credential: str) -> None:
        self._accepted.setdefault(_hash(credential))
        if len(self._accepted) > _BUCKETS_MAX:
            self._accepted.popitem(last=False)


def _target(credential: str) -> str:
    """What a guess is aimed at: a key's id, or the beginning of a code. Never equal to an address."""
    length = len("cp_") + 16 if credential.startswith("cp_") else 8
    return f"guess:{credential[:length]}"


def _hash(credential: str) -> bytes:
    return hashlib.blake2b(credential.encode(errors="replace"), digest_size=16).digest()


@lru_cache(maxsize=_BUCKETS_MAX)
def _parse(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def client_ip(scope: Scope) -> str | None:
    """The client's IP address; behind a trusted proxy, the one that the proxy names."""
    client = scope.get("client")
    found = None if client is None else _parse(client[0])
    return None if found is None else str(found)


def client_network(scope: Scope) -> str:
    """A name for the client: its IPv4 address, or its IPv6 network, because each customer has a whole one."""
    host = client_ip(scope)
    if host is None:
        return scope["client"][0] if scope.get("client") else "local"
    return str(ip_network((host, 64), strict=False)) if ":" in host else host


class RequestLimits:
    """All rate limits of a hub, in its application's state."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        account = partial(AccountLimits, clock)
        self.registrations = TokenBucket(clock, per_s=settings.registrations_per_s)
        self.sign_ins = SignInLimits(
            clock, per_min=settings.failed_signins_per_min, burst=settings.failed_signins_burst
        )
        self.requests = account(per_s=settings.requests_per_s, what="ask {per_s:g} times a second")
        self.submissions = account(per_s=settings.submits_per_s, what="submit {per_s:g} times a second")
        self.messages = account(per_s=settings.messages_per_s, what="send {per_s:g} messages a second from one job")
        self.arrivals = account(
            per_s=settings.arrivals_per_s,
            burst=settings.arrivals_burst,
            what="restart a node, or change its key, {per_s:g} times a second",
        )


def limits_of(state: State) -> RequestLimits:
    found: RequestLimits = state.limits
    return found


@contextmanager
def limit_sign_in(request: Request, credential: str) -> Iterator[None]:
    """Limit look-ups of a credential. Only a wrong one counts, not one that has expired or was revoked."""
    limits, address = limits_of(request.app.state).sign_ins, client_network(request.scope)
    limits.check(address, credential)
    try:
        yield
    except (WrongCredential, WrongCode):
        limits.record_failure(address, credential)
        raise
    limits.record_success(credential)
