"""The rules that are compared, all members of one two-parameter family, over many pools at once.

    EMA            v ← v + α(x − v), starting at m0
    plain Beta     Beta(a0 + S, b0 + F), which never forgets (λ = 1)
    discounted     the same with S ← λS + x, F ← λF + (1 − x): λ → 1 is the plain Beta, n0 → 0 is the EMA

A simulation does not need exact arithmetic, so these are floats. A test compares the hub's rule with
core/trust/reputation.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A rule with its parameters, and how it assigns jobs."""

    name: str
    family: str  #: ema, plain or discounted
    start: float = 0.8  #: m0
    prior: float = 4.0  #: n0
    keep: float = 0.95  #: λ; 1 − α for an EMA
    caution: float = 0.0  #: standard deviations below the mean
    explore: float = 0.0  #: share of exploring jobs: assigned at random (EMA), or by a draw from the posterior
    fades: bool = False  #: S halves in 30 days without outcomes, F in 60
    success_weight: float = 1.0  #: the weight of a success relative to a failure
    band: float = 0.0  #: scores this close are equal, and the least recently used node goes first


class State:
    """The knowledge of every arm about every node: [arm, pool, node]."""

    def __init__(self, arms: Sequence[Arm], pools: int, nodes: int) -> None:
        shape = (len(arms), pools, nodes)
        self.start = _column([arm.start for arm in arms])
        self.prior = _column([arm.prior for arm in arms])
        self.caution = _column([arm.caution for arm in arms])
        self._ema = _column([arm.family == "ema" for arm in arms]).astype(bool)
        self._keep_good = _column([arm.keep**arm.success_weight for arm in arms])
        self._keep_bad = _column([arm.keep for arm in arms])
        weights = [
            arm.success_weight if arm.keep == 1 else (1 - arm.keep**arm.success_weight) / (1 - arm.keep) for arm in arms
        ]
        self._weight = _column(weights)
        self._fades = _column([arm.fades for arm in arms]).astype(bool)
        self.success = np.zeros(shape)
        self.failure = np.zeros(shape)
        self.value = np.broadcast_to(self.start, shape).copy()

    def mean(self) -> Floats:
        beta = (self.start * self.prior + self.success) / (self.prior + self.success + self.failure)
        mean: Floats = np.where(self._ema, self.value, beta)
        return mean

    def deviation(self, mean: Floats) -> Floats:
        """The standard deviation of the posterior; 0 for an EMA, which has none."""
        n = self.prior + self.success + self.failure
        deviation: Floats = np.where(self._ema, 0.0, np.sqrt(mean * (1 - mean) / (n + 1)))
        return deviation

    def newcomer(self) -> Floats:
        deviation = np.where(self._ema, 0.0, np.sqrt(self.start * (1 - self.start) / (self.prior + 1)))
        score: Floats = self.start - self.caution * deviation
        return score

    def learn(self, at: tuple[NDArray[np.intp], ...], good: Mask) -> None:
        """Outcomes of the chosen nodes; `at` indexes [arm, pool, node]."""
        arm = at[0]
        keep = np.where(good, self._keep_good[arm, 0, 0], self._keep_bad[arm, 0, 0])
        self.success[at] = keep * self.success[at] + np.where(good, self._weight[arm, 0, 0], 0.0)
        self.failure[at] = keep * self.failure[at] + ~good
        self.value[at] = keep * self.value[at] + (1 - keep) * good

    def fade(self, days: float) -> None:
        self.success *= np.where(self._fades, 2 ** (-days / 30), 1.0)
        self.failure *= np.where(self._fades, 2 ** (-days / 60), 1.0)

    def forget(self, who: Mask) -> None:
        """Reset these nodes to newcomers."""
        shape = self.value.shape
        who = np.broadcast_to(who, shape)
        self.success[who] = self.failure[who] = 0.0
        self.value[who] = np.broadcast_to(self.start, shape)[who]


def _column(values: Sequence[float]) -> Floats:
    return np.array(values, np.float64)[:, None, None]
