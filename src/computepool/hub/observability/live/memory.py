"""The live view, in memory: the mesh as it was last looked at, and what happened lately. A restart looks again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from computepool.core.fleet.node_status import NodeStatus
from computepool.core.places import Place
from computepool.core.resources import NodeProfile
from computepool.hub.db.signals import Watch
from computepool.protocol.nodes.mesh import Activity, MeshView

#: Happenings that are remembered.
ACTIVITY_MAX = 200
#: Whole lists of nodes, compressed, one per account that looks.
BODIES_MAX = 32


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the list shows of a node; the same facts are shown by the same words."""

    profile: NodeProfile
    place: Place
    state: str
    status: NodeStatus
    running: int
    cpu_free_milli: int | None  #: none: it polls another hub


@dataclass(slots=True)
class NodeLine:
    facts: NodeFacts
    head: bytes  #: its JSON, but for whose it is


@dataclass(slots=True)
class RemoteNode:
    """A node that polls another hub, by the store's word."""

    text: str  #: its profile, as it is kept
    facts: NodeFacts


@dataclass(slots=True)
class RecentPayments:
    """What was paid lately, by the minute, so that only new transfers are ever read."""

    upto: int | None = None  #: the last transfer that is counted; none: nothing was read yet
    minutes: dict[int, tuple[int, int]] = field(default_factory=dict)  #: amount, jobs


@dataclass(slots=True)
class MeshMemory:
    view: MeshView | None = None
    looked_ms: int = 0
    number: int = 0  #: grows whenever the list of nodes changes
    listed_ms: int = 0
    lines: dict[str, NodeLine] = field(default_factory=dict)
    bodies: OrderedDict[tuple[str, str], bytes] = field(default_factory=OrderedDict)
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
    activity_upto: int = 0  #: the last event that was looked at
    activity_ms: int = 0
    activity_watch: Watch | None = None  #: hears what happens after that
    activity_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
