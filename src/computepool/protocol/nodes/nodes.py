"""Messages between an agent and the hub: register, next (the long poll), heartbeat, complete (the report), logs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from computepool.core.fleet.node_status import NodeStatus
from computepool.core.isolation import Level
from computepool.core.jobs.lifecycle import REASONS_FOR, Outcome, Reason, Verdict
from computepool.core.plaintext import is_plain
from computepool.core.resources import UNKNOWN_GPU_TIER, Capacity, Gpu, NodeProfile
from computepool.core.trust.tiers import region_of, tier_of
from computepool.protocol.base import (
    LIST_MAX,
    TEXT_MAX,
    Count,
    Digest,
    Id,
    Name,
    Page,
    Region,
    Reply,
    Request,
    Tag,
    empty_list,
)
from computepool.protocol.jobs.jobs import BUNDLED_MAX, RESULT_INLINE_MAX, FileName, Usage
from computepool.protocol.nodes.hardware import HardwareView
from computepool.protocol.nodes.mesh import UptimeView

HOLDING_MAX = 20_000
REPORTS_MAX = 1_000
LOG_CHUNK_MAX = 64 * 1024
#: Bytes that an agent sends of what an attempt writes, at least: of a shorter output nothing is missing.
LOG_SENT_MIN = 1_000_000
OUTPUTS_MAX = 1_000
LOADS_MAX = 16  #: looks at an attempt's processes, in one word about it
PYTHONS_MAX = 32  #: minor versions that a node may fetch
MESH_FIELD = "profile.mesh_version"  #: named by the error that refuses a node of another mesh

#: Of a run: all the money there is, at the lowest price, lasts longer than a Count holds.
Lasts = Annotated[int, Field(ge=0, le=10**30)]
PythonMinor = Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}$")]
Stream = Annotated[str, StringConstraints(pattern=r"^(stdout|stderr)$")]


class GpuModel(Request):
    name: Name
    tier: Tag
    vram_mb: Count

    @property
    def claim(self) -> str:
        """Its tier by its agent's word; where that does not know the name, by the hub's, which may be newer."""
        return tier_of(self.name) if self.tier == UNKNOWN_GPU_TIER else self.tier


class StatedPlace(Request):
    """Where its owner says that a node is: degrees, kept to one decimal."""

    lat: float = Field(ge=-90, le=90)
    lon: float = Field(ge=-180, le=180)

    @field_validator("lat", "lon")
    @classmethod
    def _round(cls, value: float) -> float:
        return round(value, 1)


class Profile(Request):
    """A node as its agent describes it."""

    name: Name
    cores: float = Field(gt=0, le=100_000)
    ram_mb: Count
    disk_mb: Count
    gpus: list[GpuModel] = Field(default=[], max_length=64)
    lends_gpus: bool = True  #: to strangers; agents say no until their owner says yes
    region: Region = ""
    place: StatedPlace | None = None  #: on the map; none: somewhere in its region
    tags: list[Tag] = Field(default=[], max_length=64)
    properties: dict[Tag, Name] = Field(default={}, max_length=64)
    mesh_version: Annotated[str, StringConstraints(max_length=64)] = ""
    python: PythonMinor
    #: besides it, those that the agent gets where a job needs one; its owner allows it
    fetches_python: list[PythonMinor] = Field(default=[], max_length=PYTHONS_MAX)
    #: digest of what jobs see as /usr
    runtime: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{0,64}$")] = ""
    isolation: str = "process"  #: the best level that passed the node's self-test
    #: account ids whose jobs may run unsandboxed; "*" for all
    trusted: list[Name] = Field(default=[], max_length=LIST_MAX)
    url: Annotated[str, StringConstraints(max_length=300)] = ""
    network: bool = False  #: jobs may reach the hosts they list, through the agent's proxy
    version: Annotated[str, StringConstraints(max_length=64)] = ""
    platform: Annotated[str, StringConstraints(max_length=200)] = ""

    @field_validator("isolation")
    @classmethod
    def _known_level(cls, value: str) -> str:
        Level.parse(value)
        return value

    def tiers(self) -> tuple[str, ...]:
        """Of its cards, as claimed."""
        return tuple(gpu.claim for gpu in self.gpus)

    @property
    def python_words(self) -> str:
        others = ", ".join(self.fetches_python)
        return f"{self.python} (fetches {others} where a job needs it)" if others else self.python

    def capacity(self) -> Capacity:
        return Capacity(
            cpu_milli=round(self.cores * 1000),
            ram_mb=self.ram_mb,
            disk_mb=self.disk_mb,
            gpus=tuple(Gpu(name=gpu.name, tier=gpu.claim, vram_mb=gpu.vram_mb) for gpu in self.gpus),
        )

    def node_profile(self, *, node_id: str, owner: str) -> NodeProfile:
        return NodeProfile(
            node_id=node_id,
            name=self.name,
            owner=owner,
            capacity=self.capacity(),
            region=region_of(self.region),
            tags=frozenset(self.tags),
            properties=tuple(sorted(self.properties.items())),
            mesh_version=self.mesh_version,
            python=self.python,
            fetches_python=frozenset(self.fetches_python),
            level=Level.parse(self.isolation),
            trusted=frozenset(self.trusted),
            url=self.url,
            lends_gpus=self.lends_gpus,
            network=self.network,
        )


def _check_profile(profile: Profile) -> Profile:
    """Submitters read these on their terminals; what is stored already is only escaped there."""
    cards = (card.name for card in profile.gpus)
    texts = (profile.name, profile.platform, profile.version, profile.url, profile.mesh_version)
    for text in (*texts, *profile.properties.values(), *cards):
        if not is_plain(text):
            raise ValueError(f"{text!a} has control characters or marks of direction")
    return profile


NewProfile = Annotated[Profile, AfterValidator(_check_profile)]


class RegisterRequest(Request):
    """First contact: a one-time code, the agent's own public key, and proof that it holds the private half."""

    code: Annotated[str, StringConstraints(min_length=8, max_length=128)]
    #: Ed25519, base64url without padding
    public_key: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{43}$")]
    proof: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{86}$")]  #: signature of the code
    protocol: int
    profile: NewProfile


class RegisterReply(Reply):
    node_id: str
    owner: str
    hub_keys: dict[str, str]  #: kid → Ed25519 public key; pinned by the agent


class LoadModel(Request):
    """What an attempt's processes do at the moment."""

    cpu_percent: int = Field(ge=0, le=10_000_000)  #: 100 is one CPU
    rss_mb: Count
    processes: Count
    gpu_percent: int | None = Field(default=None, ge=0, le=100)  #: of its cards, on average; none: not known
    vram_mb: Count | None = None  #: used on its cards, together
    ago_ms: Count = 0  #: when that was; a node's clock is not trusted


class RunningAttempt(Request):
    """Progress of one attempt the node is running now."""

    attempt_id: Id
    progress: float | None = Field(default=None, ge=0, le=1)
    usage: Usage | None = None
    #: where it may run, by the numbers of the node's kernel
    cpu_ids: list[Annotated[int, Field(ge=0, lt=1 << 20)]] = Field(default=[], max_length=4_096)
    load: LoadModel | None = None
    earlier: list[LoadModel] = Field(default=[], max_length=LOADS_MAX)  #: since the last word, oldest first


class NextRequest(Request):
    """One request is heartbeat, lease renewal and claim."""

    boot_id: Id  #: changes when the agent restarts, so the hub knows what died with it
    #: every attempt it has: waiting, running or unreported
    holding: list[Id] = empty_list(max_length=HOLDING_MAX)
    running: list[RunningAttempt] = empty_list(max_length=HOLDING_MAX)
    wait_ms: int = Field(default=0, ge=0, le=60_000)  #: 0: answer at once
    claim: bool = True  #: false: renew only (paused, draining, or a heartbeat)
    stopping: bool = False  #: the agent's last word: it ends, and the node is offline
    #: digest of the owner's rules as it knows them
    rules: Annotated[str, StringConstraints(max_length=64)] = ""
    profile: NewProfile | None = None  #: sent on the first poll of a boot and whenever it changed


class RekeyRequest(Request):
    """A node's new key, signed by itself and by the key that it replaces (see protocol/hub_keys.py)."""

    public_key: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{43}$")]
    proof: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{86}$")]
    endorsement: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{86}$")]


class RekeyReply(Reply):
    node_id: str
    old_accepted_until_ms: int


class OutputRef(Request):
    name: FileName
    digest: Digest
    size: Count


class Grant(Reply):
    """One attempt given to a node. Grants of one lane share its reservation and run one after the other."""

    # What a node says again, computes with or finds files by is bounded: the hub may have been broken into.
    attempt_id: Id
    attempt_no: int
    job_id: Id
    lane: str
    spec: str  #: digest; the body is in NextReply.specs
    account_id: str  #: the submitter
    payload: str | None = None
    payload_artifact: Digest | None = None
    item: int = 0
    items: int = 1
    gpus: list[int] = Field(default_factory=list)  #: indices of the node's GPUs reserved for it
    price: int = 0  #: microcredits per hour, gross; fixed for this attempt
    paid_ms: Lasts | None = None  #: how long the money lasts; the job is stopped then
    left_ms: Lasts | None = None  #: of its time limit, where earlier attempts of this run have used a part
    checkpoint: list[OutputRef] | None = None  #: it goes on from these files

    def digest(self) -> str:
        """What the job token binds: everything the node acts on."""
        parts = (
            self.attempt_id, self.job_id, self.lane, self.spec, self.account_id, self.payload or "",
            self.payload_artifact or "", str(self.item), str(self.items), ",".join(map(str, self.gpus)),
            str(self.price), str(self.paid_ms),
            *(() if self.left_ms is None else (str(self.left_ms),)),
            *(f"{file.name}={file.digest}" for file in self.checkpoint or ()),
        )  # fmt: skip
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class NextReply(Reply):
    interval_ms: Count
    lease_ms: Count
    fence_ms: Count  #: stop this long before the lease ends
    hub_time_ms: Count
    grants: list[Grant] = []
    specs: dict[str, str] = {}  #: digest → canonical JSON body of the JobSpec
    token: str | None = None  #: EdDSA JWT binding node, attempts and digests; absent when there are no grants
    cancel: list[str] = []  #: attempts to stop now
    state: str = "active"  #: what the owner or operator wants: active, paused, draining
    #: what the node does as the hub sees it (a NodeStatus); hubs of the version before say nothing
    status: str = ""
    measure: str | None = None  #: measure the hardware when idle, and report it under this id
    rules: str | None = None  #: the owner's (JSON of NodeRules), where the node has others
    #: groups whose home this node is, and that wait for it; none: as before
    result_deliveries: list[Id] | None = None
    reregister: bool = False  #: the hub does not know this node's profile; send it with the next poll
    #: the node's address as the hub sees it, which its jobs do not reach
    seen_from: Annotated[str, StringConstraints(max_length=64)] | None = None


class LogText(Request):
    attempt_id: Id
    stream: Stream
    text: Annotated[str, StringConstraints(max_length=LOG_CHUNK_MAX)]
    #: counted per attempt from 0: one that comes again is known by it, and not kept twice
    seq: Count | None = None


class LogsRequest(Request):
    chunks: list[LogText] = Field(max_length=LIST_MAX)


class Report(Request):
    """How one attempt ended."""

    attempt_id: Id
    outcome: Outcome
    reason: Reason
    exit_code: int | None = Field(default=None, ge=-1024, le=4096)
    error: Annotated[str, StringConstraints(max_length=TEXT_MAX)] | None = None
    result: Annotated[str, StringConstraints(max_length=RESULT_INLINE_MAX * 4 // 3 + 1024)] | None = None
    result_artifact: Digest | None = None
    outputs: list[OutputRef] = empty_list(max_length=OUTPUTS_MAX)
    #: Of a script's or command's whole standard output: SHA-256 of its text as it is sent (UTF-8, without progress
    #: lines, what is no UTF-8 replaced), and how many characters that has; agents of the version before do not count them.
    printed: Digest | None = None
    printed_chars: Count | None = None
    ran_ms: Count = 0  #: how long it ran
    ended_ago_ms: Count = 0  #: intervals, not times of day: the node's clock is not trusted
    usage: Usage | None = None
    move_to: Name | None = None  #: the host at which the job goes on, from the checkpoint that it just made
    #: of the items that a job carries, those that raised
    items_failed: int = Field(default=0, ge=0, le=BUNDLED_MAX)
    loads: list[LoadModel] = empty_list(max_length=LOADS_MAX)  #: since the last word, oldest first

    @model_validator(mode="after")
    def _reasonable(self) -> Self:
        if self.reason not in REASONS_FOR[self.outcome]:
            raise ValueError(f"{self.reason.value} is no reason for {self.outcome.value}")
        if (self.move_to is None) == (self.outcome is Outcome.MOVED):
            raise ValueError("a host to move to belongs to the outcome `moved`, and to no other")
        if self.printed is None and self.printed_chars is not None:
            raise ValueError("`printed_chars` says how long `printed` is, and is nothing without it")
        if self.outcome is Outcome.SUCCEEDED and self.exit_code not in (None, 0):
            raise ValueError(f"a program that succeeded does not exit with {self.exit_code}")
        return self

    def digest(self) -> str:
        """Names the content of the report; the same attempt reported twice must have the same."""
        parts = (
            self.attempt_id, self.outcome, self.reason, str(self.exit_code), self.error or "", self.result or "",
            self.result_artifact or "", *(f"{output.name}={output.digest}" for output in self.outputs),
            *(() if self.printed is None else (self.printed,)),
            *(() if self.move_to is None else (self.move_to,)),
        )  # fmt: skip
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def result_digest(self) -> str:
        """Names what the job came to, whoever ran it: the value, the files, and what a program printed."""
        files = sorted(f"{output.name}={output.digest}" for output in self.outputs)
        parts = (
            str(self.exit_code),
            self.result or "",
            self.result_artifact or "",
            self.printed or "",
            *(() if not self.items_failed else (str(self.items_failed),)),
            *files,
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class CompleteRequest(Request):
    reports: list[Report] = Field(min_length=1, max_length=REPORTS_MAX)
    #: last output, so that short jobs need no extra request
    logs: list[LogText] = empty_list(max_length=REPORTS_MAX * 4)
    #: by the node's key over signed_text()
    signature: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{86}$")]

    def signed_text(self, digests: Iterable[str] | None = None) -> bytes:
        return signed_text(self.reports, digests)


def signed_text(reports: Sequence[Report], digests: Iterable[str] | None = None) -> bytes:
    """What a node vouches for: how each attempt ended, and how long it ran, which is what it is paid for.

    Not how long ago it ended: that grows while a report waits for a hub that is away. `digests`: the reports', if known.
    """
    known = [report.digest() for report in reports] if digests is None else digests
    pairs = zip(reports, known, strict=True)
    return "\n".join(f"{digest} {report.ran_ms}" for report, digest in pairs).encode()


class ReportAnswer(Reply):
    attempt_id: str
    verdict: Verdict


class CompleteReply(Reply):
    answers: list[ReportAnswer]


class ReputationView(Reply):
    """How far to rely on a node, and from what that follows (docs/reputation.md)."""

    score: float  #: from 0 to 1, at this moment
    successes: int  #: jobs done, of all time
    failures: int  #: jobs failed or lost by the node's fault, of all time
    success_weight: float  #: what the successes still count: recent ones more, unverified ones a quarter
    failure_weight: float
    changed_at_ms: int | None = None  #: the last outcome that counted; none: nothing is known of it
    newcomer: bool = False  #: it gets one job of others at a time
    #: verified jobs of others, of `newcomer_jobs`; an unverified one counts a quarter
    newcomer_jobs_done: int = 0
    newcomer_jobs: int = 0
    tenure_days: int = 0  #: days on which it did a job of others well
    verified: int = 0  #: jobs of others whose results were compared with other nodes' and agreed, of all time
    verified_days: int = 0  #: days on which there was one
    #: microcredits that jobs of others on its owner's nodes may be worth; none: any
    exposure_cap: int | None = None
    streak: int = 0  #: verified results since the last one that was proven wrong
    violation_count: int = 0  #: results proven wrong, of all time
    recent_violations: int = 0  #: in the last 30 days; the third one puts it on probation
    probation_at_ms: int | None = None  #: since when it is tested, because of wrong results
    probes_right: int = 0  #: tests that it passed on this probation
    probes_wrong: int = 0
    banned_at_ms: int | None = None  #: since when it gets no jobs of others, because of wrong results


class NodeView(Reply):
    id: str
    name: str
    owner: str
    owner_name: str
    state: str = Field(description="What its owner wants of it: active, paused, draining; or revoked")
    status: NodeStatus = Field(description="What it does, all things considered; one word for every view")
    online: bool
    profile: Profile
    tier: str
    enrolled_at_ms: int
    last_seen_ms: int | None = None
    running: int = 0
    leased: int = 0
    cores_free: float | None = None
    ram_free_mb: int | None = None
    consecutive_faults: int = 0
    cool_off_until_ms: int | None = None
    reliability: float | None = None  #: the score of its reputation
    reputation: ReputationView | None = None
    hardware: HardwareView | None = None
    can_manage: bool = False
    can_pardon: bool = False  #: it has violations or a ban, and you may take them back
    region: str = ""  #: of prices; what its agent says is in the profile
    place: str = ""  #: where that is, in words
    #: microcredits for a unit-hour, its own or its owner's default; only its owner sees it
    floor: int | None = None
    floor_is_default: bool = False
    sentence: str = ""  #: what it does, or what keeps it from work; of one node, not in lists
    sandbox: str = ""  #: what its isolation level means; of one node, not in lists
    uptime: UptimeView | None = None


class NodePage(Page):
    nodes: list[NodeView]


class NodeStateRequest(Request):
    state: Annotated[str, StringConstraints(pattern=r"^(active|paused|draining)$")]


class ReviewRequest(Request):
    """An owner's word to the administrator."""

    note: Annotated[str, StringConstraints(max_length=500)] = ""


class ReviewReply(Reply):
    approval_id: str  #: what the administrator decides about


class NodeWhyRow(Reply):
    shape: str
    queued: int
    reason: str


class NodeWhyView(Reply):
    node_id: str
    sentence: str
    reputation: str = ""  #: how far the pool relies on it, and why
    hardware: str = ""  #: how its claim stands, and why
    rows: list[NodeWhyRow]
