"""Attempts as the agent holds them, from their grant until the hub has answered their reports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from computepool.agent.execution.attempt_result import LEASE_LOST, AttemptResult, BadJob, failed_result, returned_result
from computepool.agent.execution.load import Load, UnsentLoads
from computepool.agent.execution.logs import CheckpointLine, LogBuffer
from computepool.agent.execution.specs import PreparedSpec, SoftwareNeeds, WorkerKey
from computepool.agent.network.egress import EgressProxy
from computepool.agent.network.gang_link import GangLink
from computepool.agent.sandbox.base import ProcessUsage, Status
from computepool.agent.sandbox.scratch import OPEN_FOLDER, open_descriptor
from computepool.agent.sandbox.supervise import Process
from computepool.agent.workers.workers import Call
from computepool.core.jobs.lifecycle import JobKind, Outcome, Reason
from computepool.protocol.jobs.views import Usage
from computepool.protocol.nodes.nodes import Grant
from computepool.protocol.sealing import Seal, public_bytes
from computepool.protocol.secrets import SecretBundle
from computepool.protocol.volumes.manifest import VolumeManifest
from computepool.protocol.volumes.volumes import OpenedVolumes, VolumeMount

T = TypeVar("T")


class Interrupted(Exception):
    """The attempt was stopped while it was being prepared."""


class Stop(Enum):
    """Why the agent ends an attempt that did nothing wrong."""

    CANCELLED = "cancelled"  #: by the hub
    LEASE_LOST = "lease_lost"  #: the hub did not answer for too long and may have given it to another node
    DRAINING = "draining"  #: this agent stops

    def result(self, *, started: bool) -> AttemptResult:
        if self is Stop.CANCELLED:
            return AttemptResult(outcome=Outcome.CANCELLED, reason=Reason.CANCELLED_BY_USER)
        if self is Stop.DRAINING:
            return returned_result(Reason.NODE_DRAINING)
        return failed_result(Reason.LEASE_LOST, LEASE_LOST) if started else returned_result(Reason.GIVEN_BACK)


@dataclass(slots=True, eq=False, kw_only=True)
class CheckpointState:
    known: set[str] = field(default_factory=set)  #: digests that the hub has for this job: not sent again
    seq: int = 0
    pending: CheckpointLine | None = None  #: waits until the next checkpoint is due
    move: CheckpointLine | None = None
    task: asyncio.Task[None] | None = None  #: sends checkpoints while the job runs
    urgent: asyncio.Event = field(default_factory=asyncio.Event)  #: this node or the job is about to stop
    saved_last: bool = False  #: a checkpoint was kept since then
    closed: bool = False  #: the hub accepts no more of this attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedVolume:
    """A volume that was created for an attempt."""

    mount: VolumeMount
    folder: Path  #: in the work folder
    base: VolumeManifest  #: of the version in it when the job started
    limits: OpenedVolumes  #: of what it may become

    @property
    def place(self) -> tuple[str, bool]:
        """Where the job sees it, and whether it may write there."""
        return self.mount.path, not self.mount.read_only


@dataclass(slots=True, eq=False, kw_only=True)
class Attempt:
    grant: Grant
    spec: PreparedSpec
    sent_at: float  #: boot time when the poll that brought it was sent; its lease began after that
    received_at: float
    started_at: float | None = None
    stop: Stop | None = None
    kill: Callable[[Status], object] | None = None  #: ends what runs now; set by its runner
    log: LogBuffer | None = None
    secrets: SecretBundle | None = field(default=None, repr=False)  #: of a job that has some, once they were fetched
    login: tuple[str, str] | None = field(default=None, repr=False)  #: for the registry of its image
    call: Call | None = None  #: the function call, once a worker has it
    announced: bool = False  #: reported to the hub as running
    sent_progress: float | None = None
    timed_out: bool = False
    usage: Usage | None = None  #: as last measured
    gpu_ms: float = 0.0
    vram_mb: int | None = None  #: what it uses of its cards, as last measured; None: unknown, or it has no limit
    vram_excess_mb: int = 0  #: used of one card, if that was more than it asked for, and so ended it
    proxy: EgressProxy | None = None  #: carries what a process sends to the hosts it listed
    gang: GangLink | None = None  #: of a member of a gang, while it runs
    waited_s: float = 0.0  #: for the other members of its gang
    workdir: Path | None = None  #: a worker's folder serves many attempts
    checkpoints: CheckpointState | None = None  #: of a job that uses them
    volumes: tuple[StagedVolume, ...] = ()  #: that it mounts
    calls: dict[str, asyncio.Task[None]] | None = None  #: pending calls to the hub
    process: Process | None = None  #: of a command or script, while it runs
    cpu_ids: tuple[int, ...] = ()  #: reserved for it when it starts
    load: Load | None = None  #: as last measured
    unsent_loads: UnsentLoads = field(default_factory=UnsentLoads)

    @property
    def id(self) -> str:
        return self.grant.attempt_id

    @property
    def is_function(self) -> bool:
        """A worker runs it, in a folder that it shares with other calls."""
        return self.spec.kind not in (JobKind.SCRIPT, JobKind.COMMAND)

    @property
    def seal(self) -> Seal | None:
        """The submitter's seal; None if the job is not sealed."""
        to = self.spec.spec.seal_to
        return None if to is None else Seal(public_bytes(to), self.grant.job_id)

    @property
    def worker_key(self) -> WorkerKey:
        """A worker that had secrets serves only attempts of the same account that get the very same ones."""
        key = self.spec.worker_key(self.grant.account_id, tuple(self.grant.gpus))
        if self.secrets is not None:
            software = replace(key.software, login=self.login)
            key = replace(key, secrets=tuple(sorted(self.secrets.env.items())), software=software)
        # The network of a gang and volumes are there from the start of a worker, so nobody else can use it.
        alone = self.grant.gang is not None or self.spec.spec.volumes
        return replace(key, only_for=self.id) if alone else key

    def software(self, packages: tuple[str, ...]) -> SoftwareNeeds:
        return replace(self.spec.software(packages), login=self.login)

    def receive_secrets(self, secrets: SecretBundle) -> None:
        """Raises BadJob if a login is none."""
        self.secrets, self.login = secrets, _login_of(secrets, self.spec.spec.registry_secret)
        if self.log is not None:
            self.log.mask(secrets.values())

    @property
    def allowed_s(self) -> float:
        """How long it may run: until its time limit, or until its budget is spent."""
        paid_ms = self.grant.paid_ms
        return self.time_limit_s if paid_ms is None else min(self.time_limit_s, paid_ms / 1000)

    @property
    def time_limit_s(self) -> float:
        """Attempts that resume one another share the job's time limit."""
        left_ms = self.grant.left_ms
        return self.spec.timeout_s if left_ms is None else min(self.spec.timeout_s, left_ms / 1000)

    def add_wait(self, result: AttemptResult) -> None:
        """The node was reserved while the member waited for others, so this counts as run time, within what is paid."""
        if self.waited_s:
            total_ms = result.ran_ms + round(self.waited_s * 1000)
            result.ran_ms = max(result.ran_ms, min(total_ms, round(self.allowed_s * 1000)))

    @property
    def progress(self) -> float | None:
        return None if self.log is None else self.log.progress

    def total_usage(self, used: ProcessUsage) -> Usage:
        """What the sandbox measured, plus GPU time and network traffic."""
        received, sent = (0, 0) if self.proxy is None else self.proxy.bytes_used()
        if self.gang is not None:
            received, sent = received + self.gang.received, sent + self.gang.sent
        return Usage(
            wall_ms=used.wall_ms,
            cpu_ms=used.cpu_ms,
            peak_rss_mb=used.peak_rss_mb,
            gpu_ms=int(self.gpu_ms),
            net_in_bytes=received,
            net_out_bytes=sent,
        )

    def folder_name(self, base: str) -> str:
        """A worker's folder serves many calls, so each has its own subfolder (worker.py)."""
        return f"{base}-{self.id}" if self.is_function else base

    @contextlib.contextmanager
    def open_folder(self, base: str) -> Iterator[tuple[int, int]]:
        """Descriptors of its work folder and of the job's folder `base` in it. No link is followed. Raises OSError."""
        if self.workdir is None:
            raise FileNotFoundError(errno.ENOENT, "the job has not started")
        with (
            open_descriptor(self.workdir, OPEN_FOLDER) as top,
            open_descriptor(self.folder_name(base), OPEN_FOLDER, dir_fd=top) as here,
        ):
            yield top, here

    def end(self, status: Status) -> None:
        if self.kill is not None:
            self.kill(status)

    async def prepare(self, work: Coroutine[Any, Any, T]) -> T:
        """Await slow work that precedes the start. `end` cancels it, which raises Interrupted."""
        task = asyncio.ensure_future(work)
        self.kill = lambda _: task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if self.stop is not None and task.cancelled():
                raise Interrupted from None
            raise
        finally:
            self.kill = None


class AttemptTable:
    """The attempts of this node. The poll loop fills it; the executor and the reporter empty it."""

    def __init__(self, *, remembered_max: int) -> None:
        self._remembered_max = remembered_max
        self.active: dict[str, Attempt] = {}  #: waiting or running: they have no result yet
        self.held: dict[str, None] = {}  #: counted as this node's by the hub, oldest first
        self._answered: OrderedDict[str, None] = OrderedDict()

    def is_known(self, attempt_id: str) -> bool:
        """True also for a recently answered attempt: a grant of it is a repetition."""
        return attempt_id in self.held or attempt_id in self._answered

    def hold(self, attempt_ids: Iterable[str]) -> None:
        self.held.update(dict.fromkeys(attempt_ids))

    def drop(self, attempt_id: str) -> None:
        """Forget a grant that was not started, so that the hub grants it again."""
        self.held.pop(attempt_id, None)

    def settle(self, attempt_id: str) -> None:
        """Call it when the hub has answered the report, or the report was given up."""
        self.held.pop(attempt_id, None)
        self._answered[attempt_id] = None
        while len(self._answered) > self._remembered_max:
            self._answered.popitem(last=False)


def _login_of(secrets: SecretBundle, name: str | None) -> tuple[str, str] | None:
    if secrets.registry is None:
        return None
    user, separator, password = secrets.registry.strip().partition(":")
    if not (user and separator and password):
        raise BadJob(f"The secret {name} is no login of the form USER:PASSWORD.")
    return user, password
