"""In-memory state of nodes: those that poll this hub, and others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from computepool.core.fleet.fleet import Fleet
from computepool.hub.batching import Batcher
from computepool.hub.fleet.parking import Parking
from computepool.hub.fleet.registry import NodeSession, Registry
from computepool.protocol.jobs.requirements import satisfies
from computepool.protocol.nodes.nodes import RegisterRequest


@dataclass(slots=True)
class RemoteNodes:
    """Nodes from the store that do not poll this hub: recently offline, or at another hub."""

    fleet: Fleet = field(default_factory=lambda: Fleet(satisfies))
    descriptions: dict[str, str] = field(default_factory=dict)  #: relevant columns of its row, by node


@dataclass(slots=True)
class NodesState:
    registry: Registry
    parking: Parking = field(default_factory=Parking)  #: for polls
    arriving: Batcher[Any, NodeSession] = field(default_factory=Batcher)
    enrolling: Batcher[RegisterRequest, tuple[str, str]] = field(default_factory=Batcher)
    elsewhere: RemoteNodes = field(default_factory=RemoteNodes)
