"""Wire models of jobs. A submission consists of one immutable spec and one item per job."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

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
from computepool.protocol.volumes.volumes import MOUNTS_MAX, VolumeMount, check_mounts

#: Limits for inline data; anything larger is sent as an artifact.
SOURCE_MAX = 256 * 1024
PAYLOAD_MAX = 256 * 1024
RESULT_INLINE_MAX = 256 * 1024
#: Bytes of a whole result, which its reader loads into memory. Larger data must be written to files.
RESULT_MAX = 64 * 1024 * 1024
ITEMS_MAX = 1_000
#: Input files and dependencies of all jobs of a submission together. Each one is a row per job.
LINKS_MAX = 100_000
HOSTS_MAX = 64  #: hosts that a job may exclude
CHILDREN_MAX = 100_000
BUNDLED_MAX = 10_000  #: items in one job
TIMEOUT_MAX_S = 7 * 24 * 3600
PRIORITY_MIN, PRIORITY_MAX = -100, 100
MB_MAX = 64 * 1024 * 1024

Megabytes = Annotated[int, Field(ge=0, le=MB_MAX)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
ShortText = Annotated[str, StringConstraints(max_length=16_384)]
#: A minor version of Python, or a specifier as in a script's `requires-python`.
PythonVersions = Annotated[
    str, Field(max_length=REQUIREMENT_CHARS_MAX, examples=["3.12", ">=3.12"]), AfterValidator(check_python)
]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]


def _check_level(text: str) -> str:
    Level.parse(text)
    return text


LevelName = Annotated[str, AfterValidator(_check_level)]


class Needs(Request):
    """Hard minimums and preferences. Sizes in MB, VRAM per GPU."""

    cores: float = Field(default=1, ge=0.001, le=10_000)
    ram_mb: Megabytes | None = None  #: null: the cores' share of the node's memory, and 512 at least
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
    isolation: LevelName | None = Field(default=None, examples=["namespace"])

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
            exclude_nodes=frozenset(host.rstrip("/") if "://" in host else host for host in self.exclude_hosts),
            node=self.host or "",
            mesh_version=self.mesh_version or "",
            pythons=minor_versions(self.python or ""),
            isolation=None if self.isolation is None else Level.parse(self.isolation),
        )


#: The parser enforces the exact limit, because its message is better.
NetTargets = Annotated[
    list[Annotated[str, StringConstraints(max_length=300)]],
    Field(max_length=4 * TARGETS_MAX, examples=[["files.example.org:443"]]),
    AfterValidator(lambda texts: [str(target) for target in parse_targets(texts)]),
]


def requirements_of(needs: Needs, *, net: Sequence[str], labels: Sequence[str], timeout_s: float) -> Requirements:
    return replace(
        needs.requirements(),
        network=bool(net),
        labels=frozenset(label.lower() for label in labels),  # a rule against `mining` also means `Mining`
        minutes=math.ceil(timeout_s / 60),
    )


class InputFile(Request):
    """An artifact that is placed in the job's folder as `name` before it starts."""

    name: FileName
    digest: Digest
    size: Count


class JobSpec(Request):
    """What to run, and what it needs. Immutable, identified by its digest, shared by all jobs of a submission."""

    kind: JobKind
    name: Name
    needs: Needs = Needs()
    argv: list[ShortText] = Field(default=[], max_length=LIST_MAX)  #: command line, or arguments of a script
    source: str | None = Field(default=None, max_length=SOURCE_MAX)  #: text of a script
    #: base64 of a pickled callable
    function: str | None = Field(default=None, max_length=SOURCE_MAX * 4 // 3 + 4)
    function_artifact: Digest | None = None  #: the callable as an artifact, if larger than the inline limit
    dependencies: list[ShortText] = Field(default=[], max_length=200)  #: PEP 508, installed from wheels only
    env: dict[EnvName, ShortText] = Field(default={}, max_length=200)
    inputs: list[InputFile] = Field(default=[], max_length=LIST_MAX)
    timeout_s: float = Field(default=3600, gt=0, le=TIMEOUT_MAX_S)
    allow_pickle: bool = False  #: the client accepts a pickled result
    labels: list[Tag] = Field(default=[], max_length=32)
    #: X25519 key in base64: its results and outputs are encrypted to this key before they leave the node
    seal_to: str | None = Field(default=None, pattern=r"^[A-Za-z0-9+/]{43}=$")
    net: NetTargets = []  #: hosts it may reach, as host:port or *.domain:port; none by default
    checkpoints: bool = False  #: it saves checkpoints, which are kept only for such jobs
    moves: bool = False  #: it may continue on hosts that it names; implies checkpoints
    #: named folders that outlive it
    volumes: Annotated[list[VolumeMount], AfterValidator(check_mounts)] = Field(default=[], max_length=MOUNTS_MAX)
    #: jobs that it may submit while it runs, including those that they submit
    children: int = Field(default=0, ge=0, le=CHILDREN_MAX)
    #: microcredits that they may cost together; default: its own hold times `children`
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
        """Everything that decides where it may run, including what owners' rules are about."""
        return requirements_of(self.needs, net=self.net, labels=self.labels, timeout_s=self.timeout_s)

    def body(self) -> str:
        """The canonical text, which is stored, signed and digested."""
        return self.model_dump_json(exclude_defaults=True)


def spec_digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


class Item(Request):
    """One job of a submission."""

    key: NewName | None = None  #: the submitter's name for it, unique in its group
    #: base64; arguments of a function
    payload: str | None = Field(default=None, max_length=PAYLOAD_MAX * 4 // 3 + 4)
    payload_artifact: Digest | None = None
    bundled: int = Field(default=1, ge=1, le=BUNDLED_MAX)  #: items of its group in this job
    #: a finished job of the group that had these items, which count here from now on
    replaces: Id | None = None

    @property
    def is_bundle(self) -> bool:
        """Whether the payload was written by `bundles.pack`, whose codec the hub does not load."""
        try:
            return self.payload is not None and base64.b64decode(self.payload[:4])[:1] == b"*"
        except ValueError:
            return False


class CompareFunction(Request):
    """A function that the submitter provides: true if two results are equal. It runs on a node, like a job."""

    #: base64 of a pickled callable
    function: str | None = Field(default=None, max_length=SOURCE_MAX * 4 // 3 + 4)
    function_artifact: Digest | None = None  #: the callable as an artifact, if larger than the inline limit
    python: PythonVersions | None = None  #: the version that pickled it

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if bool(self.function) == bool(self.function_artifact):
            raise ValueError("a comparison needs either function or function_artifact")
        return self


class SubmitRequest(Request):
    """One spec, one job per item (default: a single job)."""

    spec: Annotated[JobSpec, AfterValidator(check_spec)]
    items: list[Item] = Field(default=[Item()], min_length=1, max_length=ITEMS_MAX)
    priority: int = Field(default=0, ge=PRIORITY_MIN, le=PRIORITY_MAX)
    retries: int = Field(default=0, ge=0, le=100)
    after: list[Id] = Field(default=[], max_length=LIST_MAX)
    ttl_s: float = Field(default=7 * 24 * 3600, gt=0, le=90 * 24 * 3600)
    group_id: Id | None = None  #: one of your groups
    #: Microcredits per hour and job; 0: only your own nodes; default: about twice the current price.
    max_price: Micro | None = None
    #: Microcredits for all items together; each job stops when its share is spent.
    budget: PositiveMicro | None = None
    #: none, adaptive, quorum:K or confidence:P; default: the operator's choice.
    verify: VerifyText | None = None
    confidence: float | None = Field(default=None, ge=0.5, lt=1)  #: shorthand for verify=confidence:P
    #: exact (default), tolerance:REL or tolerance:REL,ABS; needs verification
    compare: CompareText | None = None
    compare_function: CompareFunction | None = None  #: instead of compare
    #: For jobs that no node could ever run: wait for a node that can, or submit nothing (409).
    impossible: Literal["queue", "refuse"] = "queue"

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.compare is not None and self.compare_function is not None:
            raise ValueError("use either compare or compare_function, not both")
        check_one_way(self.verify, self.confidence)
        return self


class ResubmitRequest(Request):
    """Submit the same job again."""

    #: same: the original limits; today: as if submitted now without limits
    terms: Literal["same", "today"] = "same"


class SubmitReply(Reply):
    job_ids: list[str]  #: in the order of the items
    group_id: str | None = None
    hold: int = 0  #: microcredits set aside for all of them
    max_price: int = 0  #: the most that each may cost per hour
    verify: str = "none"  #: how their results are checked
    own_node: bool = False  #: one of your own nodes could run them for free
    warning: str = ""  #: why no connected node can run them, as a sentence; they wait in the queue


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
    tries: list[AttemptView] = []
    outputs: list[OutputFile] = []
    corrected: CorrectedResult | None = None  #: only if the verdict is refuted
    checkpoint: CheckpointView | None = None
    dropped_at_ms: int | None = None  #: when its arguments, result and output were deleted
    pinned: str = ""  #: the host on which it asked to continue
    moves: int = 0
    children: list[str] = []  #: the first of the jobs that it submitted


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
    limit: int = Field(default=100, ge=1, le=1000)


class PreviewView(Reply):
    why: WhyView
    hosts: list[NodeVerdictView]


def too_large_result(size: int | None, most: int) -> str:
    """For the submitter. `size`: None if unknown."""
    has = "is larger" if size is None else f"has {size} bytes, more"
    return f"The result {has} than the limit of {most} bytes; write large data to files in outputs/ instead."
