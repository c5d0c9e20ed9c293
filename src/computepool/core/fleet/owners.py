"""Jobs of others that all nodes of an owner hold: a bound for one node alone would be met by bringing more of them.

Columns by the owner's number, as the nodes' rows name it. Soft state like the fleet's, of the nodes that are here.
"""

from __future__ import annotations

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
        self._caps: dict[int, dict[str, int]] = {}

    def join(self, owner: int, node: NodeRecord) -> None:
        """A node with all that it holds."""
        self._grow(owner)
        self.add(owner, jobs=node.strangers if node.is_newcomer else 0, value=node.value)
        self._set_cap(owner, node.profile.node_id, node.cap)

    def leave(self, owner: int, node: NodeRecord) -> None:
        self.add(owner, jobs=-node.strangers if node.is_newcomer else 0, value=-node.value)
        self._set_cap(owner, node.profile.node_id, None)

    def add(self, owner: int, *, jobs: int, value: int) -> None:
        self.busy[owner] += jobs
        self.held[owner] += value

    def has_room(self, owner: int, value: int) -> bool:
        """One job may be worth more than the bound, if it is the only one: where it goes is decided before (gates.py)."""
        return not value or not self.held[owner] or self.held[owner] + value <= self.caps[owner]

    def _set_cap(self, owner: int, node_id: str, cap: int | None) -> None:
        """An owner is trusted as far as the best of its nodes."""
        known = self._caps.setdefault(owner, {})
        self.capped += (cap is not None) - (known.pop(node_id, None) is not None)
        if cap is not None:
            known[node_id] = cap
        self.caps[owner] = max(known.values(), default=UNBOUND)
        if not known:
            del self._caps[owner]

    def _grow(self, owner: int) -> None:
        while owner >= self.busy.size:
            self.busy, self.held = (_double(column, 0) for column in (self.busy, self.held))
            self.caps = _double(self.caps, UNBOUND)


def _double(column: NDArray[np.int64], rest: int) -> NDArray[np.int64]:
    return np.append(column, np.full(column.size, rest, np.int64))
