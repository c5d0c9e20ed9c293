"""Replies about jobs: their state, results and logs, and why they wait."""

from __future__ import annotations

from computepool.core.jobs.lifecycle import JobKind, JobState, Reason, When
from computepool.protocol.base import Page, Reply
from computepool.protocol.gangs import GangMember
from computepool.protocol.jobs.jobs import JobSpec


class Usage(Reply):
    """Measured by the node for one attempt."""

    wall_ms: int = 0
    cpu_ms: int = 0
    peak_rss_mb: int = 0
    gpu_ms: int = 0
    net_in_bytes: int = 0  #: through the node's proxy, for jobs that list hosts
    net_out_bytes: int = 0


class OutputFile(Reply):
    name: str
    digest: str
    size: int


class AttemptView(Reply):
    id: str
    number: int
    node_id: str
    node_name: str
    state: str
    reason: str
    leased_at_ms: int
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    exit_code: int | None = None
    error: str | None = None
    usage: Usage | None = None
    price: int = 0  #: microcredits per hour, agreed when it was placed
    billed_ms: int | None = None
    charge: int | None = None  #: paid for it
    resumed: int | None = None  #: the attempt whose checkpoint it resumed from


class JobView(Reply):
    id: str
    name: str
    kind: JobKind
    state: JobState
    reason: Reason
    status: str  #: a sentence for people
    account_id: str
    account_name: str | None = None  #: in lists, for administrators
    group_id: str | None = None
    key: str | None = None
    item: int = 0
    priority: int
    retries: int
    node_id: str | None = None
    node_name: str | None = None
    created_at_ms: int
    queued_at_ms: int
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    exit_code: int | None = None
    error: str | None = None
    progress: float | None = None  #: from 0 to 1, as reported by the job itself
    attempts: int = 0
    can_cancel: bool = False
    can_resubmit: bool = False  #: you may submit it again (POST /jobs/{job_id}/resubmit)
    max_price: int = 0  #: the most that it may cost, in microcredits per hour
    hold: int = 0  #: set aside at submission
    charge: int | None = None  #: its cost; null until it is finished
    verify: str = "none"  #: how its result is checked
    compare: str = "exact"  #: how results are compared: exact, tolerance:REL,ABS or function
    #: why its result is accepted: unchecked, own, confirmed, alone or varies; or refuted, if it is wrong
    verdict: str | None = None
    taken_back: int | None = None  #: the part of the charge returned because the result was proven wrong later
    parent_id: str | None = None  #: the job that submitted it while it ran


class CorrectedResult(Reply):
    """The result of two other owners' nodes, if the accepted result is wrong."""

    result: str | None = None
    result_artifact: str | None = None
    outputs: list[OutputFile] = []


class CheckpointView(Reply):
    """The checkpoint from which an unfinished job resumes if it must start again."""

    attempt: int  #: the attempt that made it
    at_ms: int
    progress: float | None = None
    files: int
    size: int
    covered_ms: int  #: the part of the job's time limit that it took


class JobDetail(JobView):
    spec: JobSpec
    after: list[str] = []
    when: When = When.SUCCESS  #: the condition on these jobs
    uses: list[str] = []  #: those of them whose results are among its arguments
    tries: list[AttemptView] = []
    outputs: list[OutputFile] = []
    corrected: CorrectedResult | None = None  #: only if the verdict is refuted
    checkpoint: CheckpointView | None = None
    dropped_at_ms: int | None = None  #: when its arguments, result and output were deleted
    pinned: str = ""  #: the host on which it asked to continue
    moves: int = 0
    children: list[str] = []  #: the first of the jobs that it submitted
    gang: list[GangMember] = []  #: all ranks of a job on several nodes, of which this job is one


class JobResult(Reply):
    """A finished job in a stream of results."""

    seq: int
    job_id: str
    key: str | None = None
    item: int = 0
    state: JobState
    reason: Reason
    exit_code: int | None = None
    error: str | None = None
    result: str | None = None  #: an encoded value (see values.py), or null
    result_artifact: str | None = None
    dropped: bool = False  #: its result is no longer kept
    outputs: list[OutputFile] = []
    bundled: int = 1  #: items that count here; items that were submitted again count in their new jobs
    carried: int | None = None  #: answers in its result, one per item; null: as `bundled`
    ran_ms: int | None = None  #: duration of the accepted run, as reported by its node


class JobPage(Page):
    """A page without jobs but with a `next` means that none was found so far, and the search can continue."""

    jobs: list[JobView]
    searched_to_ms: int | None = None  #: how far back was searched; null: to the beginning


class LogChunk(Reply):
    seq: int
    attempt_id: str
    stream: str  #: stdout or stderr
    text: str


class LogPage(Reply):
    chunks: list[LogChunk]
    cursor: int
    ended: bool  #: the job is finished and everything was delivered
    #: For a successful program: whether its standard output is here as its run reported it; false: some of it is missing, or
    #: it was not compared. Null: nothing was reported.
    complete: bool | None = None


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
