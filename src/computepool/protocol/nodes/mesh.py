"""The mesh as people watch it: counters, where the nodes are, what happens, and what attempts use over time."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from computepool.core.fleet.node_status import NodeStatus
from computepool.protocol.base import Count, Micro, Reply


class MeshView(Reply):
    """The pool in a few numbers, at most a second or two old. Cheap to ask every few seconds."""

    at_ms: int
    version: str = Field(description="Of the list of nodes; while it stays the same, so does the list")
    nodes_online: Count
    nodes: Count = Field(description="Enrolled and not revoked")
    cores: float = Field(description="Lent by the nodes that are online")
    cores_busy: float = Field(description="Of these, reserved for jobs")
    gpus: Count
    gpus_busy: Count = Field(description="Cards that at least one job is on")
    vram_mb: Count
    running: Count
    queued: Count
    settled_hour: Micro = Field(
        description="What jobs cost that were settled in the last hour, fees included, in microcredits"
    )
    jobs_hour: Count = Field(description="Jobs that cost something and were settled in the last hour")


class MeshNode(Reply):
    """One node that is online, in few words. Its place is its region's, unless its owner stated one."""

    id: str
    name: str
    owner_name: str
    tier: str
    family: str = Field(
        description="What kind of hardware the tier is: processor, desktop card, workstation card, "
        "data centre card, other card"
    )
    region: str = Field(description="The price region")
    place: str = Field(description="Where that is, in words; says so when it is not known")
    lat: float | None = Field(description="Degrees; null where the place is not known")
    lon: float | None
    state: str = Field(description="What its owner wants of it: active, paused or draining")
    status: NodeStatus = Field(description="What it does, all things considered, as in GET /nodes")
    takes_work: bool = Field(description="New jobs of everybody may go there now")
    capacity: Count = Field(description="In thousandths of units: its cards, or its cores where it has none")
    cores: float
    cores_free: float | None = Field(description="null: it polls another hub of the pool")
    ram_mb: Count
    gpus: Count
    vram_mb: Count = Field(description="Of all its cards together")
    running: Count
    mine: bool = Field(description="A node of your account")


class MeshNodes(Reply):
    version: str = Field(description="The same as in GET /mesh; also the answer's ETag")
    at_ms: int
    placed: Count = Field(description="Nodes that have a place on the map")
    nodes: list[MeshNode]


class Happening(StrEnum):
    SUBMITTED = "submitted"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    JOINED = "joined"  #: a node came online
    LEFT = "left"  #: a node was not heard of any more


class PriceLevel(StrEnum):
    """The spot price of that moment, held against the reference of its zone."""

    FREE = "free"  #: the node is the submitter's own, or nothing has a price
    LOW = "low"  #: at least a tenth below
    USUAL = "usual"
    HIGH = "high"  #: at least a tenth above


class Activity(Reply):
    """Something that happened in the pool. Never whose job it was, what it is called, or on which node it ran."""

    seq: int
    at_ms: int
    what: Happening
    count: Count = Field(description="So many of the same kind at the same time")
    kind: str | None = Field(
        default=None, description="Of the jobs: script, command, function, class; null: about a node"
    )
    tier: str | None = None
    region: str | None = None
    price_level: PriceLevel | None = None
    sentence: str


class ActivityPage(Reply):
    activity: list[Activity] = Field(description="The newest first")
    cursor: int = Field(description="Ask again with `after=cursor`")


class LoadNow(Reply):
    """What the node said last of an attempt's processes."""

    at_ms: int
    cpu_percent: Count = Field(description="100 is one CPU")
    rss_mb: Count
    processes: Count
    gpu_percent: Count | None = Field(
        default=None, description="Of its cards, on average; 100 is all of them"
    )
    vram_mb: Count | None = Field(default=None, description="Of its cards, together")


class AttemptUsage(Reply):
    """One try over time: columns of equal length, the oldest first.

    Each value is the highest since the point before, so that no peak is lost where points were taken together.
    """

    attempt_id: str
    number: int
    node_id: str
    node_name: str | None = None
    state: str
    live: bool = Field(description="More may come")
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    step_ms: Count = Field(description="How far apart the points are at least; 0: as they came")
    at_ms: list[int]
    cpu_percent: list[int] = Field(description="100 is one CPU")
    rss_mb: list[int]
    processes: list[int]
    gpu_percent: list[int] | None = Field(
        default=None,
        description="Of its cards, on average; null: no card, or its maker's library does not say",
    )
    vram_mb: list[int] | None = Field(default=None, description="Used on its cards, together")
    now: LoadNow | None = Field(default=None, description="The last word of its node; null: nothing runs")


class JobUsage(Reply):
    """What the tries of a job used while they ran. Short ones have no points: nodes first tell after two seconds."""

    job_id: str
    cores: float = Field(description="Reserved for it")
    ram_mb: Count = Field(description="Its limit")
    gpus: Count = Field(description="Cards reserved for it")
    vram_mb: Count = Field(description="Reserved on each card; 0: the whole card, or none")
    every_ms: Count = Field(description="How often nodes tell; asking more often brings nothing")
    attempts: list[AttemptUsage]


class Uptime(Reply):
    """How much of a span of time a node was online."""

    hours: Count = Field(description="The span: the last 24, 168 or 720 hours")
    online_ms: Count
    known_ms: Count = Field(description="Of the span, since the node is known; less than it for a new node")
    share_ppm: Count = Field(description="Online by known, in millionths")


class UptimeView(Reply):
    online_since_ms: int | None = Field(
        default=None, description="Since when without a break; null: it is offline"
    )
    known_since_ms: int | None = None
    spans: list[Uptime]
    sentence: str
