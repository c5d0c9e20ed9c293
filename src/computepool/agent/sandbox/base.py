"""Inputs and outputs of every sandbox, as plain data. sandbox.py is the interface that uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

MIB = 1024 * 1024

#: Folder under the work folder whose regular files come back as artifacts.
OUTPUTS = "outputs"


class SandboxError(RuntimeError):
    """The sandbox cannot start a job. `fix` says what the owner can do about it, if anything is known."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


class BadCommand(SandboxError):
    """No node could start this command as written: the job's fault, not the sandbox's."""


class Status(StrEnum):
    #: The job ended by itself; `Exit.code` is its exit code.
    EXIT = "exit"
    #: A signal that the sandbox did not send ended the job; `Exit.code` is the signal's number.
    SIGNAL = "signal"
    #: The wall clock limit was reached.
    TIMEOUT = "timeout"
    #: The memory limit was reached.
    OOM = "oom"
    #: The job wrote more to stdout and stderr than it may, in the judgement of whoever reads the pipes.
    OUTPUT_LIMIT = "output_limit"
    #: The work folder grew beyond its limit.
    DISK_LIMIT = "disk_limit"
    #: The sandbox failed, not the job: the node's fault.
    SANDBOX_ERROR = "sandbox_error"
    #: The agent ended the job on request.
    CANCELLED = "cancelled"
    #: The launcher ended the job: the agent did not renew its lease in time (fence.py).
    LEASE_LOST = "lease_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    memory_mb: int = 512
    pids: int = 64
    cpus: float = 1.0
    wall_s: float = 3600.0
    #: The work folder, outputs included.
    disk_mb: int = 1024
    #: Each of /tmp and /dev/shm. They are held in memory and count against `memory_mb`.
    tmp_mb: int = 64
    open_files: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    #: Host path -> absolute path in the sandbox, all read-only. At level `process` nothing is mounted:
    #: ask `Sandbox.inside` for the path that the job can open.
    mounts: Mapping[Path, str] = field(default_factory=dict)
    #: The sandbox itself sets PATH, HOME, LANG and TMPDIR; these variables are added and override them.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Number in the job (3 to 28) -> descriptor of the agent.
    fds: Mapping[int, int] = field(default_factory=dict)
    #: Device nodes of GPUs, e.g. /dev/nvidia0.
    gpus: tuple[str, ...] = ()
    #: The mounts contain a unix socket of the agent's. It is the job's only way out: the sandbox has no network but a
    #: loopback of its own (at level `process` this is not enforced).
    has_proxy: bool = False
    #: CPUs to run on, by their numbers on the host; empty: all that the agent may use.
    cpu_ids: tuple[int, ...] = ()
    #: Descriptor of the fence (fence.py) that ends the job; None if no lease covers it.
    fence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUsage:
    wall_ms: int = 0
    cpu_ms: int = 0
    #: Resident memory of the whole tree now; 0 after the end.
    rss_mb: int = 0
    #: The highest sample; short peaks can be missed.
    peak_rss_mb: int = 0


@dataclass(frozen=True, slots=True)
class Exit:
    status: Status
    #: Exit code for EXIT, signal number otherwise (9 for what the sandbox killed), -1 when unknown.
    code: int
    #: One sentence for people, where the status alone does not explain the end.
    detail: str = ""
    usage: ProcessUsage = ProcessUsage()

    @property
    def ok(self) -> bool:
        return self.status is Status.EXIT and self.code == 0
