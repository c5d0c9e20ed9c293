"""Wire models of the live view: counters, places of nodes, activity, and the resource usage of attempts over time."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from computepool.core.fleet.node_status import NodeStatus
from computepool.protocol.base import Count, Micro, Reply


class MeshView(Reply):
    """Key figures of the pool, at most a second or two old. Cheap enough to request every few seconds."""

    at_ms: int
    version: str = Field(description="The version of the list of nodes, which changes with the list")
    nodes_online: Count
    nodes: Count = Field(description="Enrolled and not revoked")
    cores: float = Field(description="Lent by the nodes that are online")
    cores_busy: float = Field(description="Of these, reserved for jobs")
    gpus: Count
    gpus_busy: Count = Field(description="GPUs with at least one job")
    vram_mb: Count
    running: Count
    queued: Count
    settled_hour: Micro = Field(
        description="The cost of all jobs settled in the last hour, in microcredits, including fees"
    )
    jobs_hour: Count = Field(description="Jobs with a cost that were settled in the last hour")


class MeshNode(Reply):
    """One online node, in brief. Its place is that of its region, unless its owner stated one."""

    id: str
    name: str
    owner_name: str
    tier: str
    family: str = Field(
        description="The kind of hardware of the tier: processor, desktop card, workstation card, "
        "data centre card, other card"
    )
    region: str = Field(description="The price region")
    place: str = Field(description="The place as text, also if it is unknown")
    lat: float | None = Field(description="Degrees; null if the place is unknown")
    lon: float | None
    state: str = Field(description="The state requested by its owner: active, paused or draining")
    status: NodeStatus = Field(description="Its overall status, as in GET /nodes")
    takes_work: bool = Field(description="It takes new jobs of any account")
    capacity: Count = Field(description="In thousandths of units: its GPUs or, without GPUs, its cores")
    cores: float
    cores_free: float | None = Field(description="null: it polls another hub of the pool")
    ram_mb: Count
    gpus: Count
    vram_mb: Count = Field(description="Of all its GPUs together")
    running: Count
    mine: bool = Field(description="A node of your account")


class MeshNodes(Reply):
    version: str = Field(description="As in GET /mesh; also the ETag of the response")
    at_ms: int
    placed: Count = Field(description="Nodes with a place on the map")
    nodes: list[MeshNode]


class Happening(StrEnum):
    SUBMITTED = "submitted"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    JOINED = "joined"  #: a node came online
    LEFT = "left"  #: a node went offline


class PriceLevel(StrEnum):
    """The spot price at that moment, relative to the reference price of its zone."""

    FREE = "free"  #: the node is the submitter's own, or nothing has a price
    LOW = "low"  #: at least a tenth below
    USUAL = "usual"
    HIGH = "high"  #: at least a tenth above


class Activity(Reply):
    """Something that happened in the pool. It never reveals the job's owner or name, or the node it ran on."""

    seq: int
    at_ms: int
    what: Happening
    count: Count = Field(description="The number of equal events at the same time")
    kind: str | None = Field(
        default=None, description="The kind of the jobs: script, command, function, class; null: about a node"
    )
    tier: str | None = None
    region: str | None = None
    price_level: PriceLevel | None = None
    sentence: str


class ActivityPage(Reply):
    activity: list[Activity] = Field(description="The newest first")
    cursor: int = Field(description="Request again with `after=cursor`")


class LoadNow(Reply):
    """The node's latest report about an attempt's processes."""

    at_ms: int
    cpu_percent: Count = Field(description="100 is one CPU")
    rss_mb: Count
    processes: Count
    gpu_percent: Count | None = Field(default=None, description="Average of its GPUs; 100 is full load")
    vram_mb: Count | None = Field(default=None, description="Total of its GPUs")


class AttemptUsage(Reply):
    """One attempt over time: columns of equal length, the oldest first.

    Each value is the maximum since the previous point, so that no peak is lost if points were merged.
    """

    attempt_id: str
    number: int
    node_id: str
    node_name: str | None = None
    state: str
    live: bool = Field(description="More points may follow")
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    step_ms: Count = Field(description="The minimum time between points; 0: as they were reported")
    at_ms: list[int]
    cpu_percent: list[int] = Field(description="100 is one CPU")
    rss_mb: list[int]
    processes: list[int]
    gpu_percent: list[int] | None = Field(
        default=None, description="Average of its GPUs; null: no GPU, or the vendor's library does not report it"
    )
    vram_mb: list[int] | None = Field(default=None, description="Total used on its GPUs")
    now: LoadNow | None = Field(default=None, description="The latest report of its node; null: nothing runs")


class JobUsage(Reply):
    """The resources that the attempts of a job used. Short ones have no points: the first report is after two seconds."""

    job_id: str
    cores: float = Field(description="Reserved for it")
    ram_mb: Count = Field(description="Its limit")
    gpus: Count = Field(description="GPUs reserved for it")
    vram_mb: Count = Field(description="Reserved on each GPU; 0: the whole GPU, or none")
    every_ms: Count = Field(description="The interval of the nodes' reports; requesting more often is useless")
    attempts: list[AttemptUsage]


class Uptime(Reply):
    """The share of a span of time in which a node was online."""

    hours: Count = Field(description="The span: the last 24, 168 or 720 hours")
    online_ms: Count
    known_ms: Count = Field(description="The part of the span since the node joined")
    share_ppm: Count = Field(description="`online_ms` divided by `known_ms`, in millionths")


class UptimeView(Reply):
    online_since_ms: int | None = Field(default=None, description="Online without a break since then; null: offline")
    known_since_ms: int | None = None
    spans: list[Uptime]
    sentence: str
