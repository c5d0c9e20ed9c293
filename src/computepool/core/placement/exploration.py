"""Exploration: a few cheap jobs go to nodes with little evidence, to learn more about them.

Thompson sampling: one draw from each node's Beta(a0 + S, b0 + F) decides. A node that may well be better than the best is
tried often, one known to be worse hardly ever. The random source is an argument, so that runs are repeatable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.fleet import Fleet
from computepool.core.money.money import CREDIT
from computepool.core.resources import Shape
from computepool.core.trust.discounting import PRIOR_FAILURE, PRIOR_SUCCESS

#: One job in fifty.
EXPLORE_SHARE: Final = 0.02
#: The most that a job used for exploration may be worth. A job that fails is retried elsewhere, so it only costs time.
VALUE_MAX: Final = 20 * CREDIT
#: Nodes compared for one job. In a large fleet this is a sample, so that the cost stays the same.
SAMPLE: Final = 64


class RandomSource(Protocol):
    """The methods of `random.Random` used here. The core itself imports no randomness."""

    def random(self) -> float: ...
    def betavariate(self, alpha: float, beta: float, /) -> float: ...
    def sample(self, population: Sequence[int], k: int, /) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Explorer:
    random: RandomSource
    share: float = EXPLORE_SHARE

    def takes(self, shape: Shape) -> bool:
        """Whether this job is used for exploration."""
        return shape.value <= VALUE_MAX and self.random.random() < self.share

    def choose(self, fleet: Fleet, rows: NDArray[np.intp]) -> int | None:
        """One of these rows; None if there are none."""
        if rows.size > SAMPLE:
            rows = rows[self.random.sample(range(rows.size), SAMPLE)]
        found: list[int] = rows.tolist()
        return max(found, key=lambda row: self._draw(fleet, row), default=None)

    def _draw(self, fleet: Fleet, row: int) -> float:
        success, failure = fleet.node_at(row).evidence
        return self.random.betavariate(PRIOR_SUCCESS + success, PRIOR_FAILURE + failure)
