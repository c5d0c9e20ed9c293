"""The hub's memory for people who watch it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from computepool.hub.observability.live.memory import MeshMemory
from computepool.hub.observability.loop_health import LoopHealth
from computepool.protocol.health import CheckView

_NEVER = CheckView(state="never", sentence="The rules were not checked since this hub started.")


@dataclass(slots=True)
class ObservabilityState:
    loop_health: LoopHealth
    mesh: MeshMemory = field(default_factory=MeshMemory)
    listening: Counter[str] = field(default_factory=Counter)  #: open streams, by account
    check: CheckView = _NEVER  #: the last look at the database's rules, or this one
