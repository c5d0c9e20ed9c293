"""Messages between agent and hub: register, next (the long poll), heartbeat, complete (the reports) and logs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from computepool.core.fleet.node_status import NodeStatus
from computepool.core.jobs.lifecycle import REASONS_FOR, Outcome, Reason, Verdict
from computepool.protocol.base import (
    LIST_MAX,
    TEXT_MAX,
    Count,
    Digest,
    Id,
    Name,
    Page,
    Reply,
    Request,
    Signature,
    empty_list,
)
from computepool.protocol.gangs import GangGrant
from computepool.protocol.jobs.jobs import BUNDLED_MAX, RESULT_INLINE_MAX, FileName
from computepool.protocol.jobs.views import Usage
from computepool.protocol.nodes.hardware import HardwareView
from computepool.protocol.nodes.mesh import UptimeView
from computepool.protocol.nodes.profile import NewProfile, Profile
from computepool.protocol.nodes.software import Cached
from computepool.protocol.volumes.volumes import MOUNTS_MAX, VolumeChange

HOLDING_MAX = 50_000
REPORTS_MAX = 1_000
LOG_CHUNK_MAX = 64 * 1024
#: The minimum of an attempt's output, in bytes, that an agent sends. Shorter output must be complete.
LOG_SENT_MIN = 1_000_000
OUTPUTS_MAX = 1_000
LOADS_MAX = 16  #: measurements of an attempt's processes in one report

#: A duration: the maximum amount of money at the lowest price lasts longer than a Count can hold.
Lasts = Annotated[int, Field(ge=0, le=10**30)]
#: Ed25519, base64url without padding.
PublicKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{43}$")]
Stream = Annotated[str, StringConstraints(pattern=r"^(stdout|stderr)$")]


class RegisterRequest(Request):
    """First contact: a one-time code, the agent's public key, and proof that it has the private half."""

    code: Annotated[str, StringConstraints(min_length=8, max_length=128)]
    public_key: PublicKey
    proof: Signature  #: signature of the code
    protocol: int
    profile: NewProfile


class RegisterReply(Reply):
    node_id: str
    owner: str
    hub_keys: dict[str, str]  #: kid → Ed25519 public key; pinned by the agent


class LoadModel(Request):
    """The load of an attempt's processes at one moment."""

    cpu_percent: int = Field(ge=0, le=10_000_000)  #: 100 is one CPU
    rss_mb: Count
    processes: Count
    gpu_percent: int | None = Field(default=None, ge=0, le=100)  #: average of its cards; null: unknown
    vram_mb: Count | None = None  #: total used on its cards
    ago_ms: Count = 0  #: how long ago it was measured, because nodes' clocks are not trusted


class RunningAttempt(Request):
    """The progress of one attempt that the node is running."""

    attempt_id: Id
    progress: float | None = Field(default=None, ge=0, le=1)
    usage: Usage | None = None
    #: the CPUs it may use, by the numbering of the node's kernel
    cpu_ids: list[Annotated[int, Field(ge=0, lt=1 << 20)]] = Field(default=[], max_length=4_096)
    load: LoadModel | None = None
    earlier: list[LoadModel] = Field(default=[], max_length=LOADS_MAX)  #: since the last report, oldest first


class NextRequest(Request):
    """Heartbeat, lease renewal and claim in one request."""

    boot_id: Id  #: changes when the agent restarts, so that the hub knows which attempts were lost
    #: every attempt it has: waiting, running or unreported
    holding: list[Id] = empty_list(max_length=HOLDING_MAX)
    running: list[RunningAttempt] = empty_list(max_length=HOLDING_MAX)
    wait_ms: int = Field(default=0, ge=0, le=60_000)  #: 0: answer at once
    claim: bool = True  #: false: renew only (paused, draining, or a heartbeat)
    stopping: bool = False  #: the agent's last request: it stops, and the node is offline
    #: digest of the owner's rules that it has
    rules: Annotated[str, StringConstraints(max_length=64)] = ""
    profile: NewProfile | None = None  #: sent with the first poll after a start, and after changes
    cached: Cached | None = None  #: sent with the profile, and after changes


class RekeyRequest(Request):
    """A node's new key, signed with itself and with the key that it replaces (see protocol/hub_keys.py)."""

    public_key: PublicKey
    proof: Signature
    endorsement: Signature


class RekeyReply(Reply):
    node_id: str
    old_accepted_until_ms: int


class OutputRef(Request):
    name: FileName
    digest: Digest
    size: Count


def _digest_of(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class Grant(Reply):
    """One attempt given to a node. Grants of one lane share its reservation and run one after the other."""

    # Everything that a node repeats, computes with or uses for file names is bounded: the hub may be compromised.
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
    gpus: list[int] = Field(default_factory=list)  #: indexes of the node's GPUs reserved for it
    price: int = 0  #: gross microcredits per hour; fixed for this attempt
    paid_ms: Lasts | None = None  #: how long the money lasts; then the job is stopped
    left_ms: Lasts | None = None  #: the rest of its time limit, if earlier attempts of this run used a part
    checkpoint: list[OutputRef] | None = None  #: the files to resume from
    gang: GangGrant | None = None  #: of a member of a gang

    def digest(self) -> str:
        """Covers everything that the node acts on; bound by the job token."""
        return _digest_of(
            self.attempt_id, self.job_id, self.lane, self.spec, self.account_id, self.payload or "",
            self.payload_artifact or "", str(self.item), str(self.items), ",".join(map(str, self.gpus)),
            str(self.price), str(self.paid_ms),
            *(() if self.left_ms is None else (str(self.left_ms),)),
            *(f"{file.name}={file.digest}" for file in self.checkpoint or ()),
            *(() if self.gang is None else (self.gang.text(),)),
        )  # fmt: skip


class NextReply(Reply):
    interval_ms: Count
    lease_ms: Count
    fence_ms: Count  #: stop attempts this long before the lease ends
    hub_time_ms: Count
    grants: list[Grant] = []
    specs: dict[str, str] = {}  #: digest → canonical JSON body of the JobSpec
    token: str | None = None  #: EdDSA JWT that binds node, attempts and digests; null without grants
    cancel: list[str] = []  #: attempts to stop now
    state: str = "active"  #: requested by the owner or operator: active, paused, draining
    status: str = ""  #: the node's status at the hub (a NodeStatus); earlier hubs send none
    measure: str | None = None  #: measure the hardware when idle, and report it with this id
    rules: str | None = None  #: the owner's rules (JSON of NodeRules), if the node has others
    #: groups that wait for delivery to this node; null: as before
    result_deliveries: list[Id] | None = None
    reregister: bool = False  #: the hub does not know this node's profile; send it with the next poll
    #: the node's address as seen by the hub, which its jobs must not reach
    seen_from: Annotated[str, StringConstraints(max_length=64)] | None = None


class LogText(Request):
    attempt_id: Id
    stream: Stream
    text: Annotated[str, StringConstraints(max_length=LOG_CHUNK_MAX)]
    #: brief per attempt from 0, so that repeated chunks are stored once
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
    #: For a script or command, the SHA-256 of its whole standard output as sent (UTF-8, without progress lines, invalid bytes
    #: replaced), and its length in characters, which earlier agents do not send.
    printed: Digest | None = None
    printed_chars: Count | None = None
    ran_ms: Count = 0  #: how long it ran
    ended_ago_ms: Count = 0  #: an interval, because the node's clock is not trusted
    usage: Usage | None = None
    move_to: Name | None = None  #: the host on which the job continues from its latest checkpoint
    items_failed: int = Field(default=0, ge=0, le=BUNDLED_MAX)  #: items of a bundle that raised
    loads: list[LoadModel] = empty_list(max_length=LOADS_MAX)  #: since the last report, oldest first
    volumes: list[VolumeChange] = empty_list(max_length=MOUNTS_MAX)  #: what it changed in volumes, if it succeeded

    @model_validator(mode="after")
    def _reasonable(self) -> Self:
        if self.reason not in REASONS_FOR[self.outcome]:
            raise ValueError(f"{self.reason.value} is not a reason for {self.outcome.value}")
        if (self.move_to is None) == (self.outcome is Outcome.MOVED):
            raise ValueError("`move_to` is required for the outcome `moved`, and not allowed for others")
        if self.printed is None and self.printed_chars is not None:
            raise ValueError("`printed_chars` requires `printed`")
        if self.outcome is Outcome.SUCCEEDED and self.exit_code not in (None, 0):
            raise ValueError(f"a program that succeeded does not exit with {self.exit_code}")
        if self.volumes and self.outcome is not Outcome.SUCCEEDED:
            raise ValueError("only a success changes volumes")
        return self

    def digest(self) -> str:
        """Identifies the content of the report. Repeated reports of an attempt must have the same digest."""
        return _digest_of(
            self.attempt_id, self.outcome, self.reason, str(self.exit_code), self.error or "", self.result or "",
            self.result_artifact or "", *(f"{output.name}={output.digest}" for output in self.outputs),
            *(() if self.printed is None else (self.printed,)),
            *(() if self.move_to is None else (self.move_to,)),
            *(change.signed_part() for change in self.volumes),
        )  # fmt: skip

    def result_digest(self) -> str:
        """Identifies the result, whichever node ran the job: the value, the files, and the output of a program."""
        return _digest_of(
            str(self.exit_code), self.result or "", self.result_artifact or "", self.printed or "",
            *(() if not self.items_failed else (str(self.items_failed),)),
            *sorted(f"{output.name}={output.digest}" for output in self.outputs),
        )  # fmt: skip


class CompleteRequest(Request):
    reports: list[Report] = Field(min_length=1, max_length=REPORTS_MAX)
    #: the last output, so that short jobs need no further request
    logs: list[LogText] = empty_list(max_length=REPORTS_MAX * 4)
    signature: Signature  #: over signed_text()

    def signed_text(self, digests: Iterable[str] | None = None) -> bytes:
        return signed_text(self.reports, digests)


def signed_text(reports: Sequence[Report], digests: Iterable[str] | None = None) -> bytes:
    """The signed text: how each attempt ended, and how long it ran, which determines the pay.

    Excludes how long ago it ended, which grows while a report waits for an absent hub. `digests`: of the reports, if known.
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
    """The reliability of a node, and the evidence behind it (docs/reputation.md)."""

    score: float  #: from 0 to 1, at this moment
    successes: int  #: completed jobs, of all time
    failures: int  #: jobs failed or lost through the node's fault, of all time
    success_weight: float  #: the current weight of the successes: recent ones weigh more, unverified ones a quarter
    failure_weight: float
    changed_at_ms: int | None = None  #: time of the last outcome that brief; null if there is none
    newcomer: bool = False  #: it gets one job of other accounts at a time
    #: verified jobs of other accounts, out of `newcomer_jobs`; unverified ones count a quarter
    newcomer_jobs_done: int = 0
    newcomer_jobs: int = 0
    tenure_days: int = 0  #: days on which it completed a job of another account
    verified: int = 0  #: jobs of other accounts whose results agreed with those of other nodes, of all time
    verified_days: int = 0  #: days with such a result
    #: microcredits that other accounts' jobs on its owner's nodes may be worth; null: no limit
    exposure_cap: int | None = None
    streak: int = 0  #: verified results since the last violation
    violation_count: int = 0  #: results proven wrong, of all time
    recent_violations: int = 0  #: in the last 30 days; the third one leads to probation
    probation_at_ms: int | None = None  #: start of its probation, during which it is tested
    probes_right: int = 0  #: tests passed in this probation
    probes_wrong: int = 0
    banned_at_ms: int | None = None  #: when it was banned from other accounts' jobs, because of wrong results


class NodeView(Reply):
    id: str
    name: str
    owner: str
    owner_name: str
    state: str = Field(description="The state requested by its owner: active, paused, draining; or revoked")
    status: NodeStatus = Field(description="Its overall status, which is the same in every view")
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
    can_pardon: bool = False  #: it has violations or a ban that you may clear
    region: str = ""  #: the price region; the profile has the agent's own text
    place: str = ""  #: its place as text
    #: microcredits for a unit-hour, its own or its owner's default; only its owner sees it
    floor: int | None = None
    floor_is_default: bool = False
    sentence: str = ""  #: what it does, or why it gets no jobs; for a single node, not in lists
    sandbox: str = ""  #: the meaning of its isolation level; for a single node, not in lists
    uptime: UptimeView | None = None


class NodePage(Page):
    nodes: list[NodeView]


class NodeStateRequest(Request):
    state: Annotated[str, StringConstraints(pattern=r"^(active|paused|draining)$")]


class ReviewRequest(Request):
    """An owner's request to the administrator."""

    note: Annotated[str, StringConstraints(max_length=500)] = ""


class ReviewReply(Reply):
    approval_id: str  #: of the approval that the administrator decides


class NodeWhyRow(Reply):
    shape: str
    queued: int
    reason: str


class NodeWhyView(Reply):
    node_id: str
    sentence: str
    reputation: str = ""  #: a sentence about its reputation
    hardware: str = ""  #: a sentence about its hardware claim
    rows: list[NodeWhyRow]
