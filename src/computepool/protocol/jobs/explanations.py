"""Explanations of jobs: why one waits, and which nodes would take one."""

from __future__ import annotations

from pydantic import Field

from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.base import Reply, Request, Tag
from computepool.protocol.gangs import NODES_MAX
from computepool.protocol.jobs.jobs import TIMEOUT_MAX_S, Dependencies, ImageText, Needs, NetTargets


class GateView(Reply):
    """One hard gate: the nodes that fail it, and those that would take the job without it."""

    gate: str
    need: str
    failing: int
    failing_even_if_idle: int
    passing_without: int


class ChangeView(Reply):
    """A change to the job's requirements that would let it start now."""

    change: str
    nodes: int


class NodeVerdictView(Reply):
    node_id: str
    name: str
    ok: bool
    failed: list[str] = []
    busy: bool = False  #: it could run the job if it were online and idle
    score: float = 0
    terms: dict[str, float] = {}
    tags: list[str] = []
    mesh_version: str = ""


class WhyView(Reply):
    """Why a job is in its state, with numbers and with changes that would help."""

    job_id: str | None = None
    state: JobState | None = None
    reason: str
    sentence: str
    nodes: int
    eligible_now: int
    unsatisfiable: bool = False
    ahead: int | None = None  #: approximate number of jobs before it in the queue
    gates: list[GateView] = []
    changes: list[ChangeView] = []


class PreviewRequest(Request):
    needs: Needs
    net: NetTargets = []
    labels: list[Tag] = Field(default=[], max_length=32)
    timeout_s: float = Field(default=3600, gt=0, le=TIMEOUT_MAX_S)
    nodes: int = Field(default=1, ge=1, le=NODES_MAX)
    dependencies: Dependencies = []
    limit: int = Field(default=100, ge=1, le=1000)
    image: ImageText | None = None


class PreviewView(Reply):
    why: WhyView
    hosts: list[NodeVerdictView]
