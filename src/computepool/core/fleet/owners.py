"""External jobs (jobs of other accounts) per owner: a limit per node would be evaded by adding nodes.

Columns indexed by the owner's number, as the rows of the fleet name it. Only nodes in the fleet count.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.node_record import NodeRecord

#: No cap. Small enough that sums with it cannot overflow.
UNBOUND = 2**60
_ROWS_MIN = 64


class OwnerExposure:
    def __init__(self) -> None:
        self.newcomer_jobs = np.zeros(_ROWS_MIN, np.int64)  #: external jobs on the owner's newcomer nodes
        self.value = np.zeros(_ROWS_MIN, np.int64)  #: microcredits that the external jobs may cost
        self.caps = np.full(_ROWS_MIN, UNBOUND, np.int64)  #: the most that `value` may be
        self.capped = 0  #: nodes with a cap
        self._caps: dict[int, Counter[int]] = {}  #: for each owner, the number of nodes with each cap

    def add_node(self, owner: int, node: NodeRecord) -> None:
        self._grow(owner)
        self.add(owner, jobs=node.external_jobs if node.is_newcomer else 0, value=node.value)
        self.change_cap(owner, None, node.cap)

    def remove_node(self, owner: int, node: NodeRecord) -> None:
        self.add(owner, jobs=-node.external_jobs if node.is_newcomer else 0, value=-node.value)
        self.change_cap(owner, node.cap, None)

    def add(self, owner: int, *, jobs: int, value: int) -> None:
        self.newcomer_jobs[owner] += jobs
        self.value[owner] += value

    def has_room(self, owner: int, value: int) -> bool:
        """A single job may exceed the cap if the owner holds nothing else; `gates.within_exposure` decides when it may."""
        return not value or not self.value[owner] or self.value[owner] + value <= self.caps[owner]

    def change_cap(self, owner: int, before: int | None, after: int | None) -> None:
        """Replace one node's cap. The highest cap of an owner's nodes counts, so only its loss needs a look at all."""
        self._grow(owner)
        self.capped += (after is not None) - (before is not None)
        known = self._caps.setdefault(owner, Counter())
        if after is not None:
            first = not known
            known[after] += 1
            if first or after > self.caps[owner]:
                self.caps[owner] = after
        if before is not None:
            known[before] -= 1
            if not known[before]:
                del known[before]
                if before == self.caps[owner]:
                    self.caps[owner] = max(known, default=UNBOUND)
        if not known:
            del self._caps[owner]

    def _grow(self, owner: int) -> None:
        while owner >= self.value.size:
            self.newcomer_jobs, self.value = (_double(column, 0) for column in (self.newcomer_jobs, self.value))
            self.caps = _double(self.caps, UNBOUND)


def _double(column: NDArray[np.int64], fill: int) -> NDArray[np.int64]:
    return np.append(column, np.full(column.size, fill, np.int64))
