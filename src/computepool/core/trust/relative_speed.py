"""The speed of a node relative to others that run the same jobs. Ratios only, without a clock.

Run times of one spec are compared with the median of other nodes in the same tier. Each node has a discounted mean of the
logarithms, with its variance, because jobs of one spec may differ in size.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

#: The discount per job, so that about the last 50 count.
KEPT = 0.98
#: A single job counts as at most 8 times slower or faster, so that one that hung does not decide alone.
_LOG_MAX = 3.0
#: The required distance of the mean from the peers', in standard errors.
_SURE = 2.0
#: The weight of about twenty jobs, and the factor up to which a node counts as equally fast.
_ENOUGH, _AS_FAST = 15.0, 1.5
#: Distinct submitters remembered; more would change nothing.
ACCOUNTS_KEPT = 2
_SPECS_MAX = 2_000
_NODES_MAX = 64
_NEWEST_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class RelativeSpeed:
    """A node's jobs compared with its peers', as logarithms to base 2: 1.0 is twice as slow."""

    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    jobs: int = 0  #: since the last judgement
    accounts: tuple[str, ...] = ()  #: submitters of the jobs

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

    def reset(self) -> RelativeSpeed:
        """Start again, as after a judgement."""
        return replace(self, weight=0.0, total=0.0, squares=0.0, jobs=0)

    @property
    def slowdown(self) -> float:
        """The factor by which its jobs take longer, on average."""
        return 1.0 if not self.weight else math.exp2(self.total / self.weight)

    @property
    def sure_slowdown(self) -> float:
        """As `slowdown`, but with the benefit of the doubt: 1 if the node may well be as fast as the others."""
        if self.weight < 2:
            return 1.0
        mean = self.total / self.weight
        variance = max(0.0, self.squares / self.weight - mean * mean)
        return math.exp2(max(0.0, mean - _SURE * math.sqrt(variance / (self.weight - 1))))

    @property
    def keeps_up(self) -> bool:
        """There were enough jobs to compare, and the node was not slower."""
        return self.weight >= _ENOUGH and self.slowdown <= _AS_FAST


NO_SLOWDOWN = RelativeSpeed()


class TimedRun(NamedTuple):
    """One successful job, to be compared with others of its spec."""

    node_id: str
    spec: str
    account: str
    cards: bool  #: it had a GPU
    ran_ms: int
    stretched: bool = False  #: it used more CPU time than its cores provide, by borrowing idle ones


@dataclass(slots=True)
class _PeerTime:
    owner: str
    mean: float  #: of the logarithm of the run time


@dataclass(slots=True)
class Peers:
    """Run times by spec and tier. Soft state; only its consequences are stored."""

    _specs: OrderedDict[tuple[str, str], OrderedDict[str, _PeerTime]] = field(default_factory=OrderedDict)

    def compare(
        self, spec: str, tier: str, *, node_id: str, owner: str, ran_ms: int, peers_min: int, alone: bool = False
    ) -> float | None:
        """The slowdown of this run compared with other owners' nodes; None if too few of them ran such jobs.

        `alone`: do not compare later runs with this one. A node gains nothing by lying about that, because this run is
        compared with the others anyway.
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
    def _remember(nodes: OrderedDict[str, _PeerTime], node_id: str, owner: str, *, took: float) -> None:
        known = nodes.setdefault(node_id, _PeerTime(owner, took))
        known.mean += _NEWEST_WEIGHT * (took - known.mean)
        nodes.move_to_end(node_id)
        if len(nodes) > _NODES_MAX:
            nodes.popitem(last=False)
