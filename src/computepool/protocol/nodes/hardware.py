"""Wire models of hardware measurements and their results."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from computepool.protocol.base import Id, NewName, Reply, Request, Signature

Score = Annotated[int, Field(ge=0, le=10**12)]


class HardwareReport(Request):
    """A node's measurement of its own hardware, at the hub's request. Null: not measured; a note says why."""

    id: Id  #: `measure` from the hub's request
    cpu: Score | None = None  #: of one core; 1000 is the reference
    memory_mb_s: Score | None = None
    disk_mb_s: Score | None = None
    net_mb_s: Score | None = None
    rtt_us: Score | None = None
    gflops: list[Score | None] = Field(default=[], max_length=64)  #: of each card, in the order of the profile
    notes: list[NewName] = Field(default=[], max_length=16)
    signature: Signature  #: over signed_text()

    def signed_text(self) -> bytes:
        fields = self.model_dump(exclude={"signature"}, mode="json")
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


class ScoresView(Reply):
    cpu: int | None = None
    memory_mb_s: int | None = None
    disk_mb_s: int | None = None
    net_mb_s: int | None = None
    rtt_us: int | None = None
    gflops: list[int | None] = []


class MeasuredView(Reply):
    at_ms: int
    scores: ScoresView


class HardwareView(Reply):
    """A node's claimed hardware, its measurements, and the resulting tiers (docs/node.md)."""

    claimed: str
    tier: str  #: in effect
    cpu_tier: str  #: of its cores, for jobs without a card
    standing: str  #: claimed (not measured), confirmed, measured (an unknown card), lowered
    sentence: str
    scores: ScoresView
    notes: list[str] = []
    measured_at_ms: int | None = None
    slowdown: float | None = None  #: the factor by which its jobs take longer than on other nodes of the tier
    compared_jobs: int = 0
    history: list[MeasuredView] = []
