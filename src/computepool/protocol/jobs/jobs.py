"""Jobs as clients submit and see them. A submission is one immutable spec plus one item per job."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from computepool.core.isolation import Level
from computepool.core.jobs.lifecycle import CALLED, JobKind, JobState, Reason
from computepool.core.network import TARGETS_MAX, parse_targets
from computepool.core.resources import DEFAULT_RAM_MB, Requirements
from computepool.core.trust.tiers import region_of
from computepool.protocol.base import (
    LIST_MAX,
    Count,
    Digest,
    Id,
    Micro,
    Name,
    NewName,
    Page,
    PositiveMicro,
    Region,
    Reply,
    Request,
    Tag,
)
from computepool.protocol.jobs.checks import CompareText, VerifyText, check_one_way
from computepool.protocol.jobs.requirements import REQUIREMENT_CHARS_MAX, check_python, minor_versions
from computepool.protocol.jobs.spec_rules import check_spec

#: Inline limits; anything larger travels as an artifact.
SOURCE_MAX = 256 * 1024
PAYLOAD_MAX = 256 * 1024
RESULT_INLINE_MAX = 256 * 1024
#: Bytes of a result as a whole, which is loaded into memory by who reads it; what is larger comes back as files.
RESULT_MAX = 64 * 1024 * 1024
ITEMS_MAX = 1_000
#: Of all jobs of a submission together: input files, and jobs that they wait for. Each is a row for each of the jobs.
LINKS_MAX = 100_000
HOSTS_MAX = 64  #: that a job leaves out
CHILDREN_MAX = 100_000
BUNDLED_MAX = 10_000  #: items of a group that one job may do
TIMEOUT_MAX_S = 7 * 24 * 3600
PRIORITY_MIN, PRIORITY_MAX = -100, 100
MB_MAX = 64 * 1024 * 1024

Megabytes = Annotated[int, Field(ge=0, le=MB_MAX)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
ShortText = Annotated[str, StringConstraints(max_length=16_384)]
#: A minor version of Python, or what a script's `requires-python` says.
PythonVersions = Annotated[
    str,
    Field(max_length=REQUIREMENT_CHARS_MAX, examples=["3.12", ">=3.12"]),
    AfterValidator(check_python),
]


FileName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Needs(Request):
    """Hard minimums and preferences. Sizes in MB, VRAM per GPU."""

    cores: float = Field(default=1, ge=0.001, le=10_000)
    ram_mb: Megabytes | None = None  #: none: the node's share for its cores, 512 at least
    disk_mb: Megabytes = 256
    gpus: int = Field(default=0, ge=0, le=64)
    vram_mb: Megabytes = 0
    tiers: list[Tag] = Field(default=[], max_length=64)
    regions: list[Region] = Field(default=[], max_length=64)
    tags: list[Tag] = Field(default=[], max_length=64)
    prefer_tags: list[Tag] = Field(default=[], max_length=64)
    exclude_tags: list[Tag] = Field(default=[], max_length=64)
    properties: dict[Tag, Name] = Field(default={}, max_length=64)
    exclude_hosts: list[Name] = Field(default=[], max_length=HOSTS_MAX)
    host: Name | None = None
    mesh_version: Tag | None = None
    python: PythonVersions | None = None
    isolation: str | None = Field(default=None, examples=["namespace"])

    @field_validator("isolation")
    @classmethod
    def _known_level(cls, value: str | None) -> str | None:
        if value is not None:
            Level.parse(value)
        return value

    def requirements(self) -> Requirements:
        return Requirements(
            cpu_milli=max(1, round(self.cores * 1000)),
            ram_mb=DEFAULT_RAM_MB if self.ram_mb is None else self.ram_mb,
            ram_by_cores=self.ram_mb is None,
            disk_mb=self.disk_mb,
            gpus=max(self.gpus, 1 if self.vram_mb else 0),
            vram_mb=self.vram_mb,
            tiers=frozenset(tier.lower() for tier in self.tiers),
            regions=frozenset(region_of(region) for region in self.regions),
            tags=frozenset(self.tags),
            prefer_tags=frozenset(self.prefer_tags),
            exclude_tags=frozenset(self.exclude_tags),
            properties=frozenset(self.properties.items()),
            exclude_nodes=frozenset(
                host.rstrip("/") if "://" in host else host for host in self.exclude_hosts
            ),
            node=self.host or "",
            mesh_version=self.mesh_version or "",
            pythons=minor_versions(self.python or ""),
            isolation=None if self.isolation is None else Level.parse(self.isolation),
        )


def _clean_targets(texts: list[str]) -> list[str]:
    return [str(target) for target in parse_targets(texts)]


#: More than the limit is let through to the parser, whose sentence is better.
NetTargets = Annotated[
    list[Annotated[str, StringConstraints(max_length=300)]],
    Field(max_length=4 * TARGETS_MAX, examples=[["files.example.org:443"]]),
    AfterValidator(_clean_targets),
]


def requirements_of(
    needs: Needs, *, net: Sequence[str], labels: Sequence[str], timeout_s: float
) -> Requirements:
    return replace(
        needs.requirements(),
        network=bool(net),
        labels=frozenset(label.lower() for label in labels),  # who denies mining means Mining, too
        minutes=math.ceil(timeout_s / 60),
    )


class InputFile(Request):
    """An artifact placed into the job's folder under `name` before it starts."""

    name: FileName
    digest: Digest
    size: Count


class JobSpec(Request):
    """What to run and what it needs. Immutable, named by its digest, shared by all jobs of a submission."""

    kind: JobKind
    name: Name
    needs: Needs = Needs()
    argv: list[ShortText] = Field(default=[], max_length=LIST_MAX)  #: command line, or arguments of a script
    source: str | None = Field(default=None, max_length=SOURCE_MAX)  #: text of a script
    #: base64 of a pickled callable
    function: str | None = Field(default=None, max_length=SOURCE_MAX * 4 // 3 + 4)
    function_artifact: Digest | None = None  #: the same, when larger than the inline limit
    dependencies: list[ShortText] = Field(default=[], max_length=200)  #: PEP 508, installed from wheels only
    env: dict[EnvName, ShortText] = Field(default={}, max_length=200)
    inputs: list[InputFile] = Field(default=[], max_length=LIST_MAX)
    timeout_s: float = Field(default=3600, gt=0, le=TIMEOUT_MAX_S)
    allow_pickle: bool = False  #: the client will accept a pickled result
    labels: list[Tag] = Field(default=[], max_length=32)
    #: X25519, base64: what it brings back is encrypted to this key before it leaves the node
    seal_to: str | None = Field(default=None, pattern=r"^[A-Za-z0-9+/]{43}=$")
    net: NetTargets = []  #: hosts it may reach, as host:port or *.domain:port; none by default
    checkpoints: bool = False  #: it saves where it is; no checkpoint of any other job is kept
    moves: bool = False  #: it goes on at hosts that it names; then it saves, too
    #: jobs that it may submit while it runs, with those that they submit
    children: int = Field(default=0, ge=0, le=CHILDREN_MAX)
    #: microcredits that they may cost together; default: what is set aside for it, times `children`
    children_budget: Micro | None = None

    @property
    def saves(self) -> bool:
        return self.checkpoints or self.moves

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind is JobKind.COMMAND and not self.argv:
            raise ValueError("a command job needs argv")
        if self.kind is JobKind.SCRIPT and not self.source:
            raise ValueError("a script job needs its source")
        if self.kind in CALLED and not (self.function or self.function_artifact):
            raise ValueError(f"a {self.kind} job needs function or function_artifact")
        return self

    def requirements(self) -> Requirements:
        """All that decides where it may run: also what owners have rules about."""
        return requirements_of(self.needs, net=self.net, labels=self.labels, timeout_s=self.timeout_s)

    def body(self) -> str:
        """The canonical text that is stored, signed and digested."""
        return self.model_dump_json(exclude_defaults=True)


def spec_digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


class Item(Request):
    """One job of a submission."""

    key: NewName | None = None  #: the submitter's name for it, unique in its group
    #: base64; arguments of a function
    payload: str | None = Field(default=None, max_length=PAYLOAD_MAX * 4 // 3 + 4)
    payload_artifact: Digest | None = None
    bundled: int = Field(default=1, ge=1, le=BUNDLED_MAX)  #: how many items of its group the job does
    #: a finished job of the group that had these items: they count here from now on
    replaces: Id | None = None


class CompareFunction(Request):
    """Of two results, a function of the submitter's: true when they are the same. It runs on a node, as a job does."""

    #: base64 of a pickled callable
    function: str | None = Field(default=None, max_length=SOURCE_MAX * 4 // 3 + 4)
    function_artifact: Digest | None = None  #: the same, when larger than the inline limit
    python: PythonVersions | None = None  #: that it was pickled with

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if bool(self.function) == bool(self.function_artifact):
            raise ValueError("a comparison needs function or function_artifact, and not both")
        return self


class SubmitRequest(Request):
    """One spec, one job per item (default: a single job)."""

    spec: Annotated[JobSpec, AfterValidator(check_spec)]
    items: list[Item] = Field(default=[Item()], min_length=1, max_length=ITEMS_MAX)
    priority: int = Field(default=0, ge=PRIORITY_MIN, le=PRIORITY_MAX)
    retries: int = Field(default=0, ge=0, le=100)
    after: list[Id] = Field(default=[], max_length=LIST_MAX)
    ttl_s: float = Field(default=7 * 24 * 3600, gt=0, le=90 * 24 * 3600)
    group_id: Id | None = None  #: an existing group of yours
    #: Microcredits per hour and job; 0: only your own nodes; default: about twice today's price.
    max_price: Micro | None = None
    #: Microcredits for all items together; each job stops when its share is spent.
    budget: PositiveMicro | None = None
    #: none, adaptive, quorum:K or confidence:P; default: what the hub's operator chose.
    verify: VerifyText | None = None
    confidence: float | None = Field(default=None, ge=0.5, lt=1)  #: shorthand for verify=confidence:P
    #: exact (default), tolerance:REL or tolerance:REL,ABS; needs verification
    compare: CompareText | None = None
    compare_function: CompareFunction | None = None  #: in place of compare
    #: What becomes of jobs that no node could ever run: they wait for one that can, or nothing is submitted (409).
    impossible: Literal["queue", "refuse"] = "queue"

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.compare is not None and self.compare_function is not None:
            raise ValueError("results are compared by compare or by compare_function, not by both")
        check_one_way(self.verify, self.confidence)
        return self


class ResubmitRequest(Request):
    """The same job as a new one."""

    #: same: what the first one might cost at most; today: as if it were submitted now without limits
    terms: Literal["same", "today"] = "same"


class SubmitReply(Reply):
    job_ids: list[str]  #: in the order of the items
    group_id: str | None = None
    hold: int = 0  #: microcredits set aside, for all of them
    max_price: int = 0  #: what each may cost per hour
    verify: str = "none"  #: how their results are checked
    own_node: bool = False  #: a node of yours could run them, for nothing
    warning: str = ""  #: no connected node can run them: why, in a sentence; they wait in the queue


class Usage(Reply):
    """Measured by the node for one attempt."""

    wall_ms: int = 0
    cpu_ms: int = 0
    peak_rss_mb: int = 0
    gpu_ms: int = 0
    net_in_bytes: int = 0  #: through the node's proxy, for a job that listed hosts
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
    charge: int | None = None  #: what was paid for it
    resumed: int | None = None  #: the attempt whose checkpoint it went on from


class JobView(Reply):
    id: str
    name: str
    kind: JobKind
    state: JobState
    reason: Reason
    status: str  #: one sentence for people
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
    progress: float | None = None  #: 0..1, as the job itself reports it
    attempts: int = 0
    can_cancel: bool = False
    can_resubmit: bool = False  #: you may submit the same once more (POST /jobs/{job_id}/resubmit)
    max_price: int = 0  #: microcredits per hour it may cost
    hold: int = 0  #: set aside at submission
    charge: int | None = None  #: what it cost; null until it is finished
    verify: str = "none"  #: how its result is checked
    compare: str = "exact"  #: when two results are the same: exact, tolerance:REL,ABS or function
    #: why its result is believed: unchecked, own, confirmed, alone or varies; or refuted: it is wrong
    verdict: str | None = None
    taken_back: int | None = None  #: of the charge, because the result was proven wrong afterwards
    parent_id: str | None = None  #: the job that submitted it while it ran


class CorrectedResult(Reply):
    """What two other owners' nodes came to, where the result that was believed is wrong."""

    result: str | None = None
    result_artifact: str | None = None
    outputs: list[OutputFile] = []


class CheckpointView(Reply):
    """Where an unfinished job goes on from when it has to start again."""

    attempt: int  #: the attempt that made it
    at_ms: int
    progress: float | None = None
    files: int
    size: int
    covered_ms: int  #: how much of the job's time limit went into it


class JobDetail(JobView):
    spec: JobSpec
    after: list[str] = []
    tries: list[AttemptView] = []
    outputs: list[OutputFile] = []
    corrected: CorrectedResult | None = None  #: only where the verdict is refuted
    checkpoint: CheckpointView | None = None
    dropped_at_ms: int | None = None  #: when its arguments, result and output ceased to be kept
    pinned: str = ""  #: the host that it asked to go on at
    moves: int = 0
    children: list[str] = []  #: the first of those that it submitted


class JobResult(Reply):
    """A finished job as result streams deliver it."""

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
    dropped: bool = False  #: it had a result, which is no longer kept
    outputs: list[OutputFile] = []
    bundled: int = 1  #: items that count here; those that were sent again count in their new jobs
    carried: int | None = None  #: answers in its result, of each item one; null: as `bundled`
    ran_ms: int | None = None  #: how long the run that counts took, by the node's word


class JobPage(Page):
    """No job and a `next`: none was found so far, and there is more to look at."""

    jobs: list[JobView]
    searched_to_ms: int | None = None  #: how far back was looked; null: to the beginning


class LogChunk(Reply):
    seq: int
    attempt_id: str
    stream: str  #: stdout or stderr
    text: str


class LogPage(Reply):
    chunks: list[LogChunk]
    cursor: int
    ended: bool  #: the job is finished and everything was delivered
    #: Of a program that ended well: its standard output is here as its run reported it; false: some is missing, or it was not
    #: compared. Null: nothing was reported of it.
    complete: bool | None = None


class GateView(Reply):
    """One hard gate: how many nodes fail it, and how many would take the job without it."""

    gate: str
    need: str
    failing: int
    failing_even_if_idle: int
    passing_without: int


class ChangeView(Reply):
    """A change of the job's requirements that would let it start now."""

    change: str
    nodes: int


class NodeVerdictView(Reply):
    node_id: str
    name: str
    ok: bool
    failed: list[str] = []
    busy: bool = False  #: it would do if it were online and idle
    score: float = 0
    terms: dict[str, float] = {}
    tags: list[str] = []
    mesh_version: str = ""


class WhyView(Reply):
    """Why a job is in its state, with numbers and what would change it."""

    job_id: str | None = None
    state: JobState | None = None
    reason: str
    sentence: str
    nodes: int
    eligible_now: int
    unsatisfiable: bool = False
    ahead: int | None = None  #: jobs before it in the queue, about
    gates: list[GateView] = []
    changes: list[ChangeView] = []


class PreviewRequest(Request):
    needs: Needs
    net: NetTargets = []
    labels: list[Tag] = Field(default=[], max_length=32)
    timeout_s: float = Field(default=3600, gt=0, le=TIMEOUT_MAX_S)
    limit: int = Field(default=100, ge=1, le=1000)


class PreviewView(Reply):
    why: WhyView
    hosts: list[NodeVerdictView]


def too_large_result(size: int | None, most: int) -> str:
    """To the submitter. `size`: None where nobody measured it."""
    has = "is larger" if size is None else f"has {size} bytes, more"
    return f"The result {has} than the limit of {most} bytes; write large data to files in outputs/ instead."
