"""Wire models of a graph of jobs: which job comes after which."""

from __future__ import annotations

from computepool.core.jobs.dependencies import When
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.base import Reply


class GraphJob(Reply):
    id: str
    name: str
    key: str | None = None
    group_id: str | None = None
    state: JobState
    reason: Reason
    when: When = When.SUCCESS  #: its condition on the jobs before it


class GraphEdge(Reply):
    after_id: str  #: the job before
    job_id: str
    is_argument: bool = False  #: the job before returns an argument of the other


class GraphView(Reply):
    """Jobs, each after those that it comes after, and the edges between them."""

    jobs: list[GraphJob]
    edges: list[GraphEdge]
    more: bool = False  #: there are further jobs, which are not shown
