"""Relative speed of a node, beside others that run the very same jobs. Ratios only, no clock and no store.

Run times of one spec are held against the median of the other nodes' in the same tier. What is kept of a node is a
discounted mean of the logarithms, with what is needed to say how sure it is: jobs of one group may differ in size.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

#: Of one job; about the last 50 count.
KEPT = 0.98
#: One job counts as at most 8 times slower or faster: one that hung must not decide alone.
_LOG_MAX = 3.0
#: Standard errors that the mean must be away from the peers'.
_SURE = 2.0
#: Weight of some twenty jobs, and how much slower than the others counts as equally fast.
_ENOUGH, _AS_FAST = 15.0, 1.5
#: So many different submitters are remembered; more would change nothing.
ACCOUNTS_KEPT = 2
_SPECS_MAX = 2_000
_NODES_MAX = 64
_NEWEST_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class RelativeSpeed:
    """A node's jobs against its peers': logarithms to base 2, so 1.0 is twice as slow."""

    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    jobs: int = 0  #: counted since it was last judged
    accounts: tuple[str, ...] = ()  #: whose jobs they were

    def add(self, slower: float, account: str) -> RelativeSpeed:
        slower = max(-_LOG_MAX, min(_LOG_MAX, slower))
        known = self.accounts
        if account not in known and len(known) < ACCOUNTS_KEPT:
            known = (*known, account)
        return RelativeSpeed(
            self.weight * KEPT + 1,
            self.total * KEPT + slower,
            self.squares * KEPT + slower * slower,
            self.jobs + 1,
            known,
        )

    def again(self) -> RelativeSpeed:
        """Counting begins anew, as after a judgement."""
        return replace(self, weight=0.0, total=0.0, squares=0.0, jobs=0)

    @property
    def slowdown(self) -> float:
        """How many times longer its jobs take, on average."""
        return 1.0 if not self.weight else math.exp2(self.total / self.weight)

    @property
    def sure_slowdown(self) -> float:
        """The same with the benefit of the doubt; 1 when it may well be as fast as the others."""
        if self.weight < 2:
            return 1.0
        mean = self.total / self.weight
        variance = max(0.0, self.squares / self.weight - mean * mean)
        return math.exp2(max(0.0, mean - _SURE * math.sqrt(variance / (self.weight - 1))))

    @property
    def keeps_up(self) -> bool:
        """Enough jobs of others' were there to compare, and it was not slower."""
        return self.weight >= _ENOUGH and self.slowdown <= _AS_FAST


NO_SLOWDOWN = RelativeSpeed()


class TimedRun(NamedTuple):
    """One job that ended well, to be compared with others of its spec."""

    node_id: str
    spec: str
    account: str
    cards: bool  #: it had a graphics card
    ran_ms: int
    stretched: bool = False  #: it used more CPU time than its cores have: idle ones were lent to it


@dataclass(slots=True)
class _Seen:
    owner: str
    mean: float  #: of the logarithm of the run time


@dataclass(slots=True)
class Peers:
    """Run times by spec and tier. Soft state: what it led to is stored, this is not."""

    _specs: OrderedDict[tuple[str, str], OrderedDict[str, _Seen]] = field(default_factory=OrderedDict)

    def compare(
        self,
        spec: str,
        tier: str,
        *,
        node_id: str,
        owner: str,
        ran_ms: int,
        peers_min: int,
        alone: bool = False,
    ) -> float | None:
        """How much slower this run was than those of other owners' nodes; None while too few of them ran such jobs.

        `alone`: others are not held against it. Whoever lies about that gains nothing: it is held against others all
        the same.
        """
        key = (spec, tier)
        nodes = self._specs.setdefault(key, OrderedDict())
        self._specs.move_to_end(key)
        if len(self._specs) > _SPECS_MAX:
            self._specs.popitem(last=False)
        took = math.log2(max(1, ran_ms))
        if not alone:
            self._remember(nodes, node_id, owner, took=took)
        others = [other.mean for other in nodes.values() if other.owner != owner]
        return took - median(others) if len(others) >= peers_min else None

    @staticmethod
    def _remember(nodes: OrderedDict[str, _Seen], node_id: str, owner: str, *, took: float) -> None:
        seen = nodes.get(node_id)
        if seen is None:
            nodes[node_id] = _Seen(owner, took)
        else:
            seen.mean += _NEWEST_WEIGHT * (took - seen.mean)
        nodes.move_to_end(node_id)
        if len(nodes) > _NODES_MAX:
            nodes.popitem(last=False)
