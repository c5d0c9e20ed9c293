"""The dispatcher's memory between its rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from computepool.core.placement.exploration import Explorer
from computepool.core.placement.gangs import GangHold
from computepool.hub.fleet.registry import Lane


@dataclass(slots=True)
class SchedulingState:
    gang_hold: GangHold
    explorer: Explorer | None = None  #: it places some jobs by chance
    lanes: dict[str, Lane] = field(default_factory=dict)  #: short-job lanes that may be topped up
