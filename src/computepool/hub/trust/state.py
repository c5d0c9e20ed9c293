"""The hub's memory of nodes and submitters: how far they are trusted, and how fast nodes are."""

from __future__ import annotations

from dataclasses import dataclass, field

from computepool.core.trust.relative_speed import Peers, TimedRun
from computepool.core.trust.submitter_reputation import UNKNOWN, SubmitterReputation
from computepool.hub.clock import Clock


class Submitters:
    """Their reputations, asked for with every placement: so never from the database."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, SubmitterReputation] = {}
        self.read_up_to_ms = 0  #: what was recorded until then, by whichever hub, is here

    def follow(self, changed: dict[str, SubmitterReputation]) -> None:
        self._known.update(changed)

    def of(self, account_id: str) -> SubmitterReputation:
        return self._known.get(account_id, UNKNOWN)

    def score(self, account_id: str) -> float:
        """From 0 to 1, now; somebody of whom nothing is known is not trusted fully (0.71)."""
        return self.of(account_id).score(self._clock.now_ms())

    def accounts(self) -> list[str]:
        return list(self._known)


@dataclass(slots=True)
class TrustState:
    submitters: Submitters
    suspects: set[str] = field(default_factory=set)  #: nodes that were here, and are on probation
    peers: Peers = field(default_factory=Peers)  #: run times of the same jobs on different nodes
    runs: list[TimedRun] = field(default_factory=list)  #: not compared yet
    speeds_touched: set[str] = field(default_factory=set)  #: nodes whose speed is not stored yet
    speeds_saved_ms: int = 0
