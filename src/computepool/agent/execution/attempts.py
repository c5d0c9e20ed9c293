"""One attempt as the agent holds it, from the moment it is granted until the hub has answered its report."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from computepool.agent.execution.attempt_result import (
    LEASE_LOST,
    AttemptResult,
    cancelled_result,
    failed_result,
    returned_result,
)
from computepool.agent.execution.load import Load, UnsentLoads
from computepool.agent.execution.logs import LogBuffer
from computepool.agent.execution.specs import PreparedSpec, WorkerKey
from computepool.agent.network.egress import EgressProxy
from computepool.agent.sandbox.base import ProcessUsage, Status
from computepool.agent.sandbox.scratch import OPEN_FOLDER
from computepool.agent.sandbox.supervise import Process
from computepool.agent.workers.workers import Call
from computepool.core.jobs.lifecycle import JobKind, Reason
from computepool.protocol.jobs.jobs import Usage
from computepool.protocol.nodes.nodes import Grant

if TYPE_CHECKING:
    from computepool.agent.storage.checkpoints import Saving

T = TypeVar("T")


class Interrupted(Exception):
    """The attempt was stopped while it was being prepared."""


class Stop(Enum):
    """Why the agent ends an attempt that did nothing wrong."""

    CANCELLED = "cancelled"  #: by the hub
    LEASE_LOST = "lease_lost"  #: the hub was not heard of for too long and may have given it to another node
    DRAINING = "draining"  #: this agent stops

    def result(self) -> AttemptResult:
        if self is Stop.CANCELLED:
            return cancelled_result()
        if self is Stop.LEASE_LOST:
            return failed_result(Reason.LEASE_LOST, LEASE_LOST)
        return returned_result(Reason.NODE_DRAINING)

    def result_unstarted(self) -> AttemptResult:
        if self is Stop.CANCELLED:
            return cancelled_result()
        return returned_result(Reason.NODE_DRAINING if self is Stop.DRAINING else Reason.GIVEN_BACK)


@dataclass(slots=True, eq=False, kw_only=True)
class Attempt:
    grant: Grant
    spec: PreparedSpec
    sent_at: float  #: boot time when the poll that brought it was sent: its lease began after that
    received_at: float
    started_at: float | None = None
    stop: Stop | None = None
    kill: Callable[[Status], None] | None = None  #: ends what runs now; set by its runner
    log: LogBuffer | None = None
    call: Call | None = None  #: a function call that a worker already has
    announced: bool = False  #: reported to the hub as running
    sent_progress: float | None = None
    timed_out: bool = False
    usage: Usage | None = None  #: as last measured
    gpu_ms: float = 0.0
    proxy: EgressProxy | None = None  #: carries what a process sends to the hosts it listed
    workdir: Path | None = None  #: where it runs; a worker's is shared by many
    saving: Saving | None = None  #: for jobs that use checkpoints
    calls: dict[str, asyncio.Task[None]] | None = None  #: pending calls to the hub
    process: Process | None = None  #: of a command or script, while it runs
    cpu_ids: tuple[int, ...] = ()  #: reserved for it when it starts
    load: Load | None = None  #: as last measured
    #: What was measured since the hub last heard of it.
    unsent_loads: UnsentLoads = field(default_factory=UnsentLoads)

    @property
    def id(self) -> str:
        return self.grant.attempt_id

    @property
    def is_function(self) -> bool:
        """A worker runs it, in a folder that it shares with other calls."""
        return self.spec.kind not in (JobKind.SCRIPT, JobKind.COMMAND)

    @property
    def worker_key(self) -> WorkerKey:
        return self.spec.worker_key(self.grant.account_id, tuple(self.grant.gpus))

    @property
    def longest_s(self) -> float:
        """How long it may run: until its time limit, or until its budget is spent."""
        paid_ms = self.grant.paid_ms
        return self.limit_s if paid_ms is None else min(self.limit_s, paid_ms / 1000)

    @property
    def limit_s(self) -> float:
        """Attempts that resume one another share the job's time limit."""
        left_ms = self.grant.left_ms
        return self.spec.timeout_s if left_ms is None else min(self.spec.timeout_s, left_ms / 1000)

    @property
    def progress(self) -> float | None:
        return None if self.log is None else self.log.progress

    def total_usage(self, used: ProcessUsage) -> Usage:
        """The usage for the report: what the sandbox measured, plus GPU time and network traffic."""
        received, sent = (0, 0) if self.proxy is None else self.proxy.bytes_used()
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
        top = os.open(self.workdir, OPEN_FOLDER)
        try:
            here = os.open(self.folder_name(base), OPEN_FOLDER, dir_fd=top)
            try:
                yield top, here
            finally:
                os.close(here)
        finally:
            os.close(top)

    def end(self, status: Status) -> None:
        if self.kill is not None:
            self.kill(status)

    async def prepare(self, work: Coroutine[Any, Any, T]) -> T:
        """Await slow work that precedes the start, so that `end` can cancel it."""
        task = asyncio.ensure_future(work)

        def break_off(status: Status) -> None:
            task.cancel()

        self.kill = break_off
        try:
            return await task
        except asyncio.CancelledError:
            if self.stop is not None and task.cancelled():
                raise Interrupted from None
            raise
        finally:
            self.kill = None
