"""Wire models of the queue: what each node holds and does, and what waits for a node."""

from __future__ import annotations

from pydantic import Field

from computepool.core.fleet.node_status import NodeStatus
from computepool.protocol.base import Reply


class LoadView(Reply):
    """The load of an attempt's processes at the node's last report, or of all its attempts."""

    cpu_percent: int = 0  #: 100 is one CPU
    rss_mb: int = 0
    processes: int = 0


class LeaseView(Reply):
    """One attempt held by a node."""

    attempt_id: str
    job_id: str
    name: str = ""
    key: str | None = None
    group_id: str | None = None
    state: str  #: running, or leased: it is on its way, or waits behind another one
    since_ms: int  #: when the node received it
    age_ms: int
    lane: str
    cores: float
    cpu_ids: list[int] = Field(default_factory=list)  #: the CPUs it may use, by the node's numbering
    progress: float | None = None
    load: LoadView | None = None  #: null: not measured yet


class QueueRow(Reply):
    """One node's share of the queue."""

    node_id: str
    name: str
    online: bool
    state: str  #: requested by its owner
    status: NodeStatus  #: as in GET /nodes
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
    seen_ms: int = 0  #: time of its last report
    leases: list[LeaseView] = []  #: of your jobs; administrators see all
    hidden: int = 0  #: attempts of other accounts' jobs, and those beyond the limit of the list
    load: LoadView = LoadView()  #: of everything that runs there, including other accounts' jobs


class WaitingRow(Reply):
    """Waiting jobs with the same requirements."""

    needs: str
    queued: int
    able: int  #: nodes that could run them if they were idle
    sentence: str


class QueueView(Reply):
    queued: int
    delayed: int
    nodes: list[QueueRow]
    waiting: list[WaitingRow] = []  #: your jobs, those that fit no node first; administrators see all
