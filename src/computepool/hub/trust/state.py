"""In-memory state of trust: submitters' reputations, nodes on probation, and run times."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from computepool.core.trust.relative_speed import Peers, TimedRun
from computepool.core.trust.submitter_reputation import SubmitterReputation


@dataclass(slots=True)
class TrustState:
    submitters: dict[str, SubmitterReputation] = field(default_factory=dict)  #: by account
    submitters_read_ms: int = 0  #: what any hub recorded until then has been read
    suspects: set[str] = field(default_factory=set)  #: nodes on probation that have polled this hub
    peers: Peers = field(default_factory=Peers)  #: run times of the same jobs on different nodes
    runs: list[TimedRun] = field(default_factory=list)  #: to be compared
    speeds_touched: set[str] = field(default_factory=set)  #: nodes whose new speed is not stored yet
    speeds_saved_ms: int = 0
    #: Decisions about hardware take turns, because each begins with what the one before found.
    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
