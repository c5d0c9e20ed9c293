"""Measurements of a node's hardware, and what it counts as."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, StringConstraints

from computepool.protocol.base import Id, NewName, Reply, Request

Score = Annotated[int, Field(ge=0, le=10**12)]


class HardwareReport(Request):
    """What a node measured on itself when the hub asked. None: not measured; a note says why."""

    id: Id  #: `measure` of the reply that asked
    cpu: Score | None = None  #: of one core, 1000 is the reference
    memory_mb_s: Score | None = None
    disk_mb_s: Score | None = None
    net_mb_s: Score | None = None
    rtt_us: Score | None = None
    gflops: list[Score | None] = Field(default=[], max_length=64)  #: of each card, in the profile's order
    notes: list[NewName] = Field(default=[], max_length=16)
    #: by the node's key over signed_text()
    signature: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{86}$")]

    def signed_text(self) -> bytes:
        return hardware_text(self)


def hardware_text(report: HardwareReport) -> bytes:
    fields = report.model_dump(exclude={"signature"}, mode="json")
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
    """What a node claims, what was measured, and what it counts as (docs/node.md)."""

    claimed: str
    tier: str  #: in force
    cpu_tier: str  #: of its cores, for jobs without a card
    standing: str  #: claimed (not measured), confirmed, measured (no table knows it), lowered
    sentence: str
    scores: ScoresView
    notes: list[str] = []
    measured_at_ms: int | None = None
    slowdown: float | None = None  #: how many times longer its jobs take than on other nodes of the tier
    compared_jobs: int = 0
    history: list[MeasuredView] = []
