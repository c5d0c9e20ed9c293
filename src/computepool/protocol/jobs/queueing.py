"""The queue as people look at it: what each node holds and does, and what waits for a node."""

from __future__ import annotations

from pydantic import Field

from computepool.core.fleet.node_status import NodeStatus
from computepool.protocol.base import Reply


class LoadView(Reply):
    """What the processes of an attempt did when the node last spoke, or those of all its attempts."""

    cpu_percent: int = 0  #: 100 is one CPU
    rss_mb: int = 0
    processes: int = 0


class LeaseView(Reply):
    """One attempt that a node holds."""

    attempt_id: str
    job_id: str
    name: str = ""
    key: str | None = None
    group_id: str | None = None
    state: str  #: running, or leased: it is on its way, or behind another one
    since_ms: int  #: when the node got it
    age_ms: int
    lane: str
    cores: float
    cpu_ids: list[int] = Field(default_factory=list)  #: where it may run, by the node's own numbers
    progress: float | None = None
    load: LoadView | None = None  #: none: not measured yet


class QueueRow(Reply):
    """One node's share of the queue."""

    node_id: str
    name: str
    online: bool
    state: str  #: what its owner wants of it
    status: NodeStatus  #: what it does, as in GET /nodes
    running: int
    leased: int
    cores_free: float
    cores_total: float
    ram_free_mb: int
    ram_total_mb: int
    jobs: list[str]
    tags: list[str] = []
    mesh_version: str = ""
    url: str = ""
    seen_ms: int = 0  #: when it last spoke, and said what it does
    leases: list[LeaseView] = []  #: of your jobs; administrators see all
    hidden: int = 0  #: attempts of others' jobs, and those beyond the longest list
    load: LoadView = LoadView()  #: of everything that runs there, others' jobs included


class WaitingRow(Reply):
    """Jobs that wait and ask for the same."""

    needs: str
    queued: int
    able: int  #: nodes that could run them if they were idle
    sentence: str


class QueueView(Reply):
    queued: int
    delayed: int
    nodes: list[QueueRow]
    waiting: list[WaitingRow] = []  #: of your jobs, those that fit no node first; administrators see all
