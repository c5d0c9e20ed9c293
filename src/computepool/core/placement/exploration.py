"""Now and then a cheap job goes to a node because little is known of it, not because it is the best: so that more gets known.

One draw from what is believed of each node, Beta(a0 + S, b0 + F), decides (Thompson): a node that may well be better than
the best is tried often, one that is known to be worse hardly ever. Chance is an argument, so that a run can be repeated.
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
#: What a job may be worth that is used for it. Every job is tried again elsewhere when a node fails it, so all it can cost
#: is time.
VALUE_MAX: Final = 20 * CREDIT
#: Nodes that are compared for one job: in a large fleet a sample, so that it costs no more there.
SAMPLE: Final = 64


class Dice(Protocol):
    """What `random.Random` offers of chance."""

    def random(self) -> float: ...
    def betavariate(self, alpha: float, beta: float, /) -> float: ...
    def sample(self, population: Sequence[int], k: int, /) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Explorer:
    dice: Dice
    share: float = EXPLORE_SHARE

    def wants(self, shape: Shape) -> bool:
        return shape.value <= VALUE_MAX and self.dice.random() < self.share

    def choose(self, fleet: Fleet, rows: NDArray[np.intp]) -> int | None:
        """One of these rows; None if there are none."""
        if rows.size > SAMPLE:
            rows = rows[self.dice.sample(range(rows.size), SAMPLE)]
        found: list[int] = rows.tolist()
        return max(found, key=lambda row: self._draw(fleet, row), default=None)

    def _draw(self, fleet: Fleet, row: int) -> float:
        success, failure = fleet.node_at(row).evidence
        return self.dice.betavariate(PRIOR_SUCCESS + success, PRIOR_FAILURE + failure)
