"""What the hub remembers of nodes and submitters: how far they are trusted, and how fast nodes are."""

from __future__ import annotations

from dataclasses import dataclass, field

from computepool.core.trust.relative_speed import Peers, TimedRun
from computepool.hub.trust.submitters import Submitters


@dataclass(slots=True)
class TrustState:
    submitters: Submitters
    suspects: set[str] = field(default_factory=set)  #: nodes that were here, and are on probation
    peers: Peers = field(default_factory=Peers)  #: run times of the same jobs on different nodes
    runs: list[TimedRun] = field(default_factory=list)  #: not compared yet
    speeds_touched: set[str] = field(default_factory=set)  #: nodes whose speed is not stored yet
    speeds_saved_ms: int = 0
