"""The hub's memory of nodes: those that poll it, and the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from computepool.core.fleet.fleet import Fleet
from computepool.hub.batching import Batcher
from computepool.hub.fleet.registry import NodeSession, Registry
from computepool.protocol.nodes.nodes import RegisterRequest


@dataclass(slots=True)
class RemoteNodes:
    """Nodes that the store knows, and that do not poll this hub: offline a while, or at another hub."""

    fleet: Fleet = field(default_factory=Fleet)
    descriptions: dict[str, str] = field(default_factory=dict)  #: by node, what its row said


@dataclass(slots=True)
class NodesState:
    registry: Registry
    arriving: Batcher[Any, NodeSession] = field(default_factory=Batcher)
    enrolling: Batcher[RegisterRequest, tuple[str, str]] = field(default_factory=Batcher)
    elsewhere: RemoteNodes = field(default_factory=RemoteNodes)
