"""In-memory state of the live view: the latest mesh and recent activity. After a restart both are loaded again."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from computepool.core.fleet.node_status import NodeStatus
from computepool.core.places import Place
from computepool.core.resources import NodeProfile
from computepool.hub.db.signals import Watch
from computepool.protocol.nodes.mesh import Activity, MeshView

ACTIVITY_MAX = 200  #: entries kept


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All that the list shows of a node, except its owner's name."""

    profile: NodeProfile
    place: Place
    state: str
    status: NodeStatus
    running: int
    cpu_free_milli: int | None  #: None: it polls another hub


@dataclass(slots=True)
class NodeLine:
    facts: NodeFacts
    head: bytes  #: its JSON up to the value of `mine`


@dataclass(slots=True)
class RemoteNode:
    """A node that polls another hub, as the store knows it."""

    text: str  #: its profile as stored
    facts: NodeFacts


@dataclass(slots=True)
class RecentPayments:
    """Recent payments by the minute, so that only new transfers are read."""

    upto: int | None = None  #: the last transfer counted; None: nothing was read yet
    minutes: dict[int, tuple[int, int]] = field(default_factory=dict)  #: amount, jobs


@dataclass(slots=True)
class MeshMemory:
    view: MeshView | None = None
    refreshed_ms: int = 0
    number: int = 0  #: version of the list of nodes
    listed_ms: int = 0
    lines: dict[str, NodeLine] = field(default_factory=dict)
    owner_names: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, RemoteNode] = field(default_factory=dict)
    elsewhere_ms: int = 0
    queued: int = 0
    running: int = 0
    enrolled: int = 0
    counted_ms: int = 0
    count_again_ms: int = 0
    settled: RecentPayments = field(default_factory=RecentPayments)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    activity: deque[Activity] = field(default_factory=lambda: deque(maxlen=ACTIVITY_MAX))
    activity_upto: int = 0  #: the last event that was read
    activity_ms: int = 0
    activity_watch: Watch | None = None  #: for the events after that
    activity_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
