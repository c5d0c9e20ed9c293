"""Evidence that fades: a discounted Beta distribution over good and bad outcomes, identical to the last bit everywhere.

The state is integers, because every machine must be able to reproduce it from the events: `pow` and `exp` differ in the
last digit between C libraries. Only the score is a float, computed with operations (+ - × ÷ √) that IEEE 754 defines
exactly.

    S ← λS + x,  F ← λF + (1 − x)      after each outcome (x is 1 for a success), λ = 0.95
    S ← S·2^(−days/30), F ← F·2^(−days/60)     while nothing happens: failures fade more slowly
    m = (a0 + S) / (a0 + b0 + S + F)    the mean of Beta(a0 + S, b0 + F)
    score = m − ½·√(m(1 − m) / (n + 1))  half a standard deviation below the mean: little evidence ranks lower
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DAY_MS: Final = 24 * 3600 * 1000

#: The prior: 4 outcomes, 80 % of them good.
PRIOR_SUCCESS: Final = 3.2
PRIOR_FAILURE: Final = 0.8
#: The distance of the score below the mean, in standard deviations.
CAUTION: Final = 0.5
#: 1 / (1 − λ): the limit of S and F, and so the number of outcomes that are remembered.
MEMORY: Final = 20
SUCCESS_HALF_LIFE_MS: Final = 30 * DAY_MS
FAILURE_HALF_LIFE_MS: Final = 60 * DAY_MS

#: S and F are stored in these fractions of an outcome. 20 · 2^40 easily fits a 64-bit column, and 10^-12 of an outcome
#: could never affect a score.
ONE: Final = 1 << 40
_FULL: Final = MEMORY * ONE
_FACTOR_BITS: Final = 62
_FACTOR: Final = 1 << _FACTOR_BITS
_FRACTION_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class Weight:
    quarters: int  #: of a full outcome, up to four
    success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The discounted sum of somebody's outcomes. The default is nobody's."""

    success: int = 0  #: S, in fractions of ONE, at `changed_at_ms`
    failure: int = 0  #: F
    changed_at_ms: int = 0  #: the time of the last outcome with a weight

    def score(self, now_ms: int) -> float:
        """The cautious mean at this moment, from 0 to 1."""
        success, failure = self.fade(now_ms)
        a, b = PRIOR_SUCCESS + success / ONE, PRIOR_FAILURE + failure / ONE
        n = a + b
        mean = a / n
        return mean - CAUTION * math.sqrt(mean * (1 - mean) / (n + 1))

    def fade(self, now_ms: int) -> tuple[int, int]:
        """S and F at this moment. A clock that was set back fades nothing."""
        quiet_ms = max(0, now_ms - self.changed_at_ms)
        return _fade(self.success, quiet_ms, SUCCESS_HALF_LIFE_MS), _fade(self.failure, quiet_ms, FAILURE_HALF_LIFE_MS)


def weigh(success: int, failure: int, weight: Weight) -> tuple[int, int]:
    """S and F after one more outcome."""
    keep = _KEEP[weight.quarters]
    if weight.success:
        return _grow(success, keep), _scale(failure, keep)
    return _scale(success, keep), _grow(failure, keep)


def _scale(amount: int, factor: int) -> int:
    return (amount * factor + (_FACTOR >> 1)) >> _FACTOR_BITS


def _grow(amount: int, keep: int) -> int:
    """λS + 1, as a step towards MEMORY, so that four quarters of an outcome are exactly one outcome."""
    return _FULL - _scale(_FULL - amount, keep)


def _fade(amount: int, quiet_ms: int, half_life_ms: int) -> int:
    """amount · 2^(−quiet / half-life)."""
    if not amount or not quiet_ms:
        return amount
    halvings, rest_ms = divmod(quiet_ms, half_life_ms)
    fraction = (rest_ms << _FRACTION_BITS) // half_life_ms
    factor = _FACTOR
    for bit in range(_FRACTION_BITS):
        if fraction >> (_FRACTION_BITS - 1 - bit) & 1:
            factor = _scale(factor, _ROOTS[bit])
    return _scale(amount, factor) >> min(halvings, 64)


def _root(factor: int) -> int:
    return math.isqrt(factor << _FACTOR_BITS)


def _roots() -> tuple[int, ...]:
    """2^(−1/2), 2^(−1/4), 2^(−1/8) …"""
    found = [_root(_FACTOR >> 1)]
    while len(found) < _FRACTION_BITS:
        found.append(_root(found[-1]))
    return tuple(found)


_ROOTS: Final = _roots()
_LAMBDA: Final = _FACTOR * (MEMORY - 1) // MEMORY
_HALF: Final = _root(_LAMBDA)
_QUARTER: Final = _root(_HALF)
#: λ for a full outcome, its fourth root for a quarter of one, and so on.
_KEEP: Final[Mapping[int, int]] = {1: _QUARTER, 2: _HALF, 3: _scale(_HALF, _QUARTER), 4: _LAMBDA}
