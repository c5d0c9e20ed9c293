"""Inputs and outputs of every sandbox, as plain data. sandbox.py is the interface that uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    EXIT = "exit"  #: the job ended by itself; `Exit.code` is its exit code
    SIGNAL = "signal"  #: a signal that the sandbox did not send ended the job; `Exit.code` is the signal's number
    TIMEOUT = "timeout"  #: the wall clock limit was reached
    OOM = "oom"  #: the memory limit was reached
    VRAM_LIMIT = "vram_limit"  #: the job used more GPU memory than it asked for, in the judgement of the agent
    #: The job wrote more to stdout and stderr than it may, in the judgement of whoever reads the pipes.
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"  #: the work folder grew beyond its limit
    SANDBOX_ERROR = "sandbox_error"  #: the sandbox failed, not the job: the node's fault
    CANCELLED = "cancelled"  #: the agent ended the job on request
    LEASE_LOST = "lease_lost"  #: the launcher ended the job: the agent did not renew its lease in time (fence.py)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    memory_mb: int = 512
    pids: int = 64
    cpus: float = 1.0
    wall_s: float = 3600.0
    disk_mb: int = 1024  #: the work folder, outputs included
    #: Each of /tmp and /dev/shm. They are held in memory and count against `memory_mb`.
    tmp_mb: int = 64
    open_files: int = 1024


#: The search path of an image that names none.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class ImageRoot:
    """The files that a job sees instead of the node's runtime; read-only, and the job's own folders in them."""

    path: Path
    env: Mapping[str, str] = field(default_factory=dict)  #: the image's own variables
    workdir: str = ""  #: where the job starts; empty: in its work folder

    @property
    def search_path(self) -> list[str]:
        return self.env.get("PATH", _PATH).split(":")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    #: Host path -> absolute path in the sandbox, all read-only. At level `process` nothing is mounted:
    #: ask `Sandbox.inside` for the path that the job can open.
    mounts: Mapping[Path, str] = field(default_factory=dict)
    #: Folder in the work folder -> absolute path in the sandbox, and whether the job may write there. At level `process`
    #: nothing is mounted.
    volumes: Mapping[Path, tuple[str, bool]] = field(default_factory=dict)
    #: The sandbox itself sets PATH, HOME, LANG and TMPDIR; these variables are added and override them.
    env: Mapping[str, str] = field(default_factory=dict)
    fds: Mapping[int, int] = field(default_factory=dict)  #: number in the job (3 to 28) -> descriptor of the agent
    gpus: tuple[str, ...] = ()  #: device nodes of GPUs, e.g. /dev/nvidia0
    #: The mounts contain a unix socket of the agent's. It is the job's only way out: the sandbox has no network but a
    #: loopback of its own (at level `process` this is not enforced).
    has_proxy: bool = False
    #: Of a member of a gang: descriptors of the agent's. The sandbox writes its pid to the first, and starts the program when
    #: the second has something to read, or ends. Meanwhile the agent makes its network. Only for level `namespace`.
    hold: tuple[int, int] | None = None
    cpu_ids: tuple[int, ...] = ()  #: CPUs to run on, by their numbers on the host; empty: all that the agent may use
    image: ImageRoot | None = None  #: None: the node's runtime
    fence: int | None = None  #: descriptor of the fence (fence.py) that ends the job; None if no lease covers it


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The arguments of `Sandbox.spawn`."""

    argv: Sequence[str]
    workdir: Path
    limits: Limits
    policy: SandboxPolicy
    streams: Mapping[int, int | None]  #: 0, 1 and 2 -> descriptor of the agent; None: /dev/null


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUsage:
    wall_ms: int = 0
    cpu_ms: int = 0
    rss_mb: int = 0  #: resident memory of the whole tree now; 0 after the end
    peak_rss_mb: int = 0  #: the highest sample; short peaks can be missed


@dataclass(frozen=True, slots=True)
class Exit:
    status: Status
    code: int  #: exit code for EXIT, signal number otherwise (9 for what the sandbox killed), -1 when unknown
    detail: str = ""  #: one sentence for people, where the status alone does not explain the end
    usage: ProcessUsage = ProcessUsage()

    @property
    def ok(self) -> bool:
        return self.status is Status.EXIT and self.code == 0
