"""Jobs of others that all nodes of an owner hold: a bound for one node alone would be met by bringing more of them.

Columns by the owner's number, as the nodes' rows name it. Soft state like the fleet's, of the nodes that are here.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.node_record import NodeRecord

#: No bound. Far below what would overflow when something is taken from it.
UNBOUND = 2**60
_ROWS_MIN = 64


class Owners:
    def __init__(self) -> None:
        self.busy = np.zeros(_ROWS_MIN, np.int64)  #: jobs of others that newcomers hold
        self.held = np.zeros(_ROWS_MIN, np.int64)  #: microcredits: what the jobs of others may cost
        self.caps = np.full(_ROWS_MIN, UNBOUND, np.int64)  #: how much that may be
        self.capped = 0  #: nodes with a bound
        self._caps: dict[int, Counter[int]] = {}  #: how many nodes of an owner have each bound

    def join(self, owner: int, node: NodeRecord) -> None:
        """A node with all that it holds."""
        self._grow(owner)
        self.add(owner, jobs=node.strangers if node.is_newcomer else 0, value=node.value)
        self.change_cap(owner, None, node.cap)

    def leave(self, owner: int, node: NodeRecord) -> None:
        self.add(owner, jobs=-node.strangers if node.is_newcomer else 0, value=-node.value)
        self.change_cap(owner, node.cap, None)

    def add(self, owner: int, *, jobs: int, value: int) -> None:
        self.busy[owner] += jobs
        self.held[owner] += value

    def has_room(self, owner: int, value: int) -> bool:
        """One job may be worth more than the bound, if it is the only one: where it goes is decided before (gates.py)."""
        return not value or not self.held[owner] or self.held[owner] + value <= self.caps[owner]

    def change_cap(self, owner: int, before: int | None, after: int | None) -> None:
        """A node's bound. An owner is trusted as far as the best of its nodes; all are compared only where that one falls."""
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
        while owner >= self.busy.size:
            self.busy, self.held = (_double(column, 0) for column in (self.busy, self.held))
            self.caps = _double(self.caps, UNBOUND)


def _double(column: NDArray[np.int64], rest: int) -> NDArray[np.int64]:
    return np.append(column, np.full(column.size, rest, np.int64))
