"""Slots: warm places to run a job in, each with a launcher process, a cgroup and (for a root agent) a uid.

Making a slot costs some 40 ms (starting Python, entering cgroups, changing the uid); using a warm one costs a message.
That makes 600 jobs a second possible: `subprocess` with a uid or a preexec function forks the whole agent (1-2 ms and
growing with its memory), and entering a cgroup for each job can wait 18 ms for the kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from computepool.agent.hardware.cpus import usable_ids
from computepool.agent.sandbox import cgroups, launcher
from computepool.agent.sandbox.base import MIB, BadCommand, Limits, SandboxError, SandboxPolicy
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.scratch import open_lock

UID_COUNT = 1024
_UID_BASE_MIN = 10_000
#: By how much the limit on processes may be off if the agent has neither root nor cgroups.
NPROC_STEP = 64
_COUNT_AGAIN_S = 10.0
_PIN_ROUNDS = 10
_UID_LOCKS = Path("/run/computepool/uids")
#: RLIMIT_FSIZE is rounded up to a power of two of at least this, so that jobs of many sizes share warm slots.
_FSIZE_STEP_MB = 64
#: Descriptors of a backend that opens the job's files for it. The launcher lowers it to what the system allows.
_FILES_OF_BACKEND = 65_536

#: A job's arguments and environment together, with the byte that ends each. The rest of the launcher's request is for what
#: the sandbox adds.
COMMAND_BYTES_MAX = launcher.REQUEST_BYTES_MAX - 16 * 1024
#: Each of them: a little less than the kernel's MAX_ARG_STRLEN, because a variable's name comes before its value.
ARGUMENT_BYTES_MAX = 120 * 1024

Rlimits = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    #: Where the sandbox keeps what it builds once. For a root agent every parent must be o+x.
    cache_dir: Path
    runtime: Runtime  #: what jobs see instead of the host's files
    uid_base: int = 200_000  #: a root agent runs its jobs as uid_base + n
    slots_max: int = 256
    idle_slots_max: int = 16
    cgroups: bool = True  #: off only for tests of the fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a backend needs in a slot on top of the job's limits."""

    pids: int  #: processes and threads that are not the job's
    processes: int = 1  #: of these, the processes that always run
    pids_each: int = 1  #: the host's processes and threads for each one of the job's, at most
    memory_mb: int = 16
    #: The backend itself limits the job's files, their sizes and its processes. What it opens and maps for the job must not
    #: fall under the same limits.
    limits_inside: bool = False
    #: The backend uses only a few folders of the host; the host's other mounts would only cost it time.
    few_mounts: bool = False
    devices: str | None = None  #: where launchers make /dev for their jobs, if they may

    def pids_max(self, limits: Limits) -> int:
        return self.pids_each * limits.pids + self.pids

    def memory_max(self, limits: Limits) -> int:
        return (limits.memory_mb + self.memory_mb) * MIB


class Slot:
    """One launcher, which runs one job at a time. Not reusable once it is dead or dirty."""

    def __init__(
        self, *, uid: _UidLease | None, cgroup: cgroups.Cgroup | None, rlimits: Rlimits, footprint: Footprint
    ) -> None:
        self.cgroup = cgroup
        self.rlimits = rlimits
        self.cpu_ids: tuple[int, ...] = ()  #: where it runs; empty: wherever the agent may
        self._uid = uid
        self._files: dict[str, int] = {"null": os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)}
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [python(), "-I", "-S", launcher.__file__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        setup = {
            "cgroup_procs": cgroup.procs_files if cgroup else [],
            "rlimits": list(rlimits),
            "uid": self.uid,
            "few_mounts": footprint.few_mounts,
            "devices": footprint.devices,
        }
        # The launcher gets the uid's lock, too: if the agent is killed, the uid stays reserved until the job has ended.
        self._send(setup, (uid.lock,) if uid else ())

    @property
    def uid(self) -> int | None:
        return self._uid.uid if self._uid else None

    @property
    def pid(self) -> int:
        return self._process.pid

    def refuse_root(self) -> None:
        """Raise SandboxError if jobs would run as root: inside a sandbox made by root, the uid is a mere name."""
        if (os.geteuid() if self.uid is None else self.uid) == 0:
            raise SandboxError("untrusted jobs never run as uid 0")

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        fds: Mapping[int, int | None],
        cwd: int | None,
        fence: int | None,
    ) -> None:
        """Ask the launcher to start a job. `fds`: number in the job -> own descriptor or None for /dev/null; 0, 1, 2 first."""
        request = {
            "argv": list(argv),
            "env": dict(env),
            "targets": list(fds),
            "has_cwd": cwd is not None,
            "has_fence": fence is not None,
        }
        sent = [self._files["null"] if fd is None else fd for fd in fds.values()]
        self._send(request, [*sent, *(fd for fd in (cwd, fence) if fd is not None)])

    def memory_file(self, name: str, content: bytes | None = None) -> int:
        """A memory file of the slot, empty and rewound; with `content` it is written once and sealed.

        Kept between jobs: opening and closing descriptors is a large part of starting a small job.
        """
        fd = self._files.get(name)
        if fd is None:
            fd = self._files[name] = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            if content is not None:
                os.write(fd, content)
                seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        if content is None:
            os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def pin(self, cpu_ids: tuple[int, ...], running: Callable[[], list[int]] = list) -> None:
        """Keep the launcher and its children on these CPUs. `running` lists those that already run.

        With cpusets the kernel enforces it. Otherwise the affinity is set, which a job can change.
        """
        if cpu_ids == self.cpu_ids:
            return
        ids = cpu_ids or usable_ids()
        self.cpu_ids = cpu_ids
        if not ids or (self.cgroup is not None and self.cgroup.pin(ids)):
            return
        _set_affinity(self.pid, set(ids))
        # Repeat while there are new processes: one that was not pinned yet may have forked.
        for _ in range(_PIN_ROUNDS):
            if not sum(_set_affinity(pid, set(ids)) for pid in running()):
                return

    def kill_tree(self) -> None:
        """Kill all but the launcher, which is told in case it has not started anything yet."""
        with contextlib.suppress(SandboxError):  # The launcher is gone; reading its channel will show that.
            self._send("cancel", ())
        if self.cgroup is not None:
            self.cgroup.kill(spare=(self.pid,))

    def empty(self) -> bool:
        """True if only the launcher is left. Asks the kernel, because jobs of level `process` share the launcher's uid."""
        try:
            return self.cgroup is None or self.cgroup.tasks() == 1
        except OSError:
            return False

    def alive(self) -> bool:
        return self._process.poll() is None

    def destroy(self) -> None:
        """Kill the launcher and its children, and release cgroup and uid."""
        self.channel.close()  # The launcher then ends its job and itself.
        if self.cgroup is not None:
            self.cgroup.remove()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        if self._uid is not None:
            self._uid.release()

    def _send(self, value: dict[str, Any] | str, fds: Sequence[int]) -> None:
        try:
            socket.send_fds(self.channel, [marshal.dumps(value)], fds)
        except OSError as error:
            raise SandboxError(f"the slot's launcher is gone: {error.strerror}") from error


class SlotPool:
    """Hands out slots by their resource limits and keeps some warm."""

    def __init__(self, config: SandboxConfig, footprint: Footprint) -> None:
        if config.uid_base < _UID_BASE_MIN:
            raise SandboxError(f"uid_base is {config.uid_base}: jobs never run as root or as a system user")
        self._config = config
        self._footprint = footprint
        self._counted = 0
        self._counted_until = 0.0
        self._idle: list[Slot] = []
        self._busy: set[Slot] = set()
        self._maker = cgroups.detect() if config.cgroups else None

    def resident_max_mb(self, limits: Limits) -> int:
        """The memory limit of all processes of a job, including the backend's, without a cgroup."""
        return limits.memory_mb + (self._footprint.memory_mb if self._footprint.limits_inside else 0)

    @property
    def own_processes(self) -> int:
        """Processes in a slot besides the job's; without a cgroup the launcher is not counted."""
        return self._footprint.processes - (self._maker is None)

    @property
    def limits_kind(self) -> str:
        return self._maker.version.kind if self._maker else "rlimit"

    def _take(self, limits: Limits, cpu_ids: tuple[int, ...]) -> Slot:
        rlimits = self._rlimits(limits)
        slot = self._warm(rlimits, cpu_ids)
        if slot is not None and not self._set_limits(slot, limits):
            slot.destroy()
            slot = None
        if slot is None:
            slot = self._make(rlimits)
            if not self._set_limits(slot, limits):
                slot.destroy()
                raise SandboxError("the kernel refuses the job's limits")
        slot.pin(cpu_ids)
        self._busy.add(slot)
        return slot

    def _set_limits(self, slot: Slot, limits: Limits) -> bool:
        """Set the cgroup's limits. The kernel refuses a memory limit below what the last job left charged (EBUSY)."""
        if slot.cgroup is None:
            return True
        try:
            slot.cgroup.limit(
                memory_bytes=self._footprint.memory_max(limits), pids=self._footprint.pids_max(limits), cpus=limits.cpus
            )
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def reserve(self, limits: Limits, cpu_ids: tuple[int, ...]) -> Iterator[Slot]:
        """A slot for the block, given back only if the block fails. An OSError becomes a SandboxError."""
        slot = self._take(limits, cpu_ids)
        try:
            yield slot
        except OSError as error:
            self.give_back(slot, clean=False)
            raise SandboxError(f"cannot start the job: {error}") from error
        except BaseException:
            self.give_back(slot, clean=False)
            raise

    def give_back(self, slot: Slot, *, clean: bool) -> None:
        """`clean`: the launcher has confirmed that the tree is gone."""
        self._busy.discard(slot)
        if not clean or not slot.empty() or not slot.alive() or len(self._idle) >= self._config.idle_slots_max:
            slot.destroy()
        else:
            self._idle.append(slot)

    def close(self) -> None:
        for slot in [*self._busy, *self._idle]:
            slot.destroy()
        self._busy.clear()
        self._idle.clear()

    def _warm(self, rlimits: Rlimits, cpu_ids: tuple[int, ...]) -> Slot | None:
        # The most recently used, whose memory is in the caches, but rather one on the same CPUs.
        alike = [slot for slot in reversed(self._idle) if slot.rlimits == rlimits]
        slot = min(alike, key=lambda slot: slot.cpu_ids != cpu_ids, default=None)
        if slot is not None:
            self._idle.remove(slot)
            if not slot.alive():
                slot.destroy()
                return None
        return slot

    def _make(self, rlimits: Rlimits) -> Slot:
        if len(self._busy) >= self._config.slots_max:
            raise SandboxError(f"all {self._config.slots_max} slots of this node are in use")
        if self._idle and len(self._busy) + len(self._idle) >= self._config.slots_max:
            self._idle.pop(0).destroy()
        uid = _UidLease.take(self._config.uid_base) if os.geteuid() == 0 else None
        cgroup: cgroups.Cgroup | None = None
        try:
            cgroup = self._maker.make() if self._maker else None
            return Slot(uid=uid, cgroup=cgroup, rlimits=rlimits, footprint=self._footprint)
        except (OSError, SandboxError) as error:
            if cgroup is not None:
                cgroup.remove()
            if uid is not None:
                uid.release()
            raise SandboxError(f"cannot make a slot: {error}") from error

    def _rlimits(self, limits: Limits) -> Rlimits:
        chosen = [(resource.RLIMIT_CORE, 0)]
        limits_inside = self._footprint.limits_inside
        if limits_inside:
            chosen.append((resource.RLIMIT_NOFILE, _FILES_OF_BACKEND))
        else:
            size_mb = _FSIZE_STEP_MB
            while size_mb < limits.disk_mb:
                size_mb *= 2
            chosen.append((resource.RLIMIT_FSIZE, size_mb * MIB))
            chosen.append((resource.RLIMIT_NOFILE, max(64, limits.open_files)))
        if self._maker is None:
            # RLIMIT_DATA counts what a process can write; RLIMIT_AS would also count address space that language runtimes
            # and GPU drivers only reserve. It holds for each process; the patrol watches the sum.
            if not limits_inside:
                chosen.append((resource.RLIMIT_DATA, self._footprint.memory_max(limits)))
            processes = self._processes_of_user() + self._footprint.pids_max(limits)
            chosen.append((resource.RLIMIT_NPROC, processes))
        return tuple(chosen)

    def _processes_of_user(self) -> int:
        """RLIMIT_NPROC counts every thread of a user, so without root add those that this user already runs."""
        if os.geteuid() == 0:
            return 0
        now = time.monotonic()
        if now < self._counted_until:
            return self._counted
        threads = 0
        for process in psutil.process_iter(["uids", "num_threads"]):
            uids = process.info["uids"]
            if uids is not None and uids.real == os.getuid():
                threads += process.info["num_threads"] or 1
        # In steps: only slots with the same number are alike.
        self._counted = (threads // NPROC_STEP + 1) * NPROC_STEP
        self._counted_until = now + _COUNT_AGAIN_S
        return self._counted


@dataclass(frozen=True, slots=True)
class _UidLease:
    """A uid that no other slot on this machine uses, not even another agent's. Agent and launcher lock a file for it."""

    uid: int
    lock: int

    @classmethod
    def take(cls, base: int) -> _UidLease:
        _UID_LOCKS.mkdir(mode=0o755, parents=True, exist_ok=True)
        reserved = _subordinate_ranges()
        for uid in range(base, base + UID_COUNT):
            if any(uid in taken for taken in reserved):
                continue
            with contextlib.suppress(BlockingIOError):
                return cls(uid, open_lock(_UID_LOCKS / str(uid), fcntl.LOCK_EX | fcntl.LOCK_NB))
        raise SandboxError(f"no free uid for a job from {base} to {base + UID_COUNT - 1}")

    def release(self) -> None:
        os.close(self.lock)


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _set_affinity(pid: int, ids: set[int]) -> int:
    """Set the affinity of every thread of a process; returns how many changed."""
    count = 0
    with contextlib.suppress(OSError):  # the process has ended
        for name in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # the thread has ended, or the CPUs are gone
                if os.sched_getaffinity(int(name)) != ids:
                    os.sched_setaffinity(int(name), ids)
                    count += 1
    return count


def _subordinate_ranges() -> list[range]:
    """Uids that /etc/subuid assigns to users' containers. A job must not be able to signal those."""
    ranges = []
    with contextlib.suppress(OSError):
        for line in Path("/etc/subuid").read_text().splitlines():
            _, _, numbers = line.partition(":")
            first, _, count = numbers.partition(":")
            if first.isdigit() and count.isdigit():
                ranges.append(range(int(first), int(first) + int(count)))
    return ranges


def check_command(argv: Sequence[str], policy: SandboxPolicy) -> None:
    """Raise BadCommand if no launcher could start the command."""
    if not argv or not argv[0]:
        raise BadCommand("the command is empty")
    image = policy.image
    env = dict(policy.env) if image is None else {**image.env, **policy.env, "PWD": image.workdir}
    for name in env:
        if not name or "=" in name:
            raise BadCommand(f"{name!r} is not a valid variable name")
    texts = (*argv, *env, *env.values())
    try:
        joined = os.fsencode("\0".join(texts))
    except UnicodeEncodeError as error:
        raise BadCommand("the command or its environment is not text") from error
    if joined.count(b"\0") >= len(texts):
        raise BadCommand("the command or its environment has a NUL character")
    size = len(joined) + 1
    if size > COMMAND_BYTES_MAX or max(map(len, joined.split(b"\0"))) > ARGUMENT_BYTES_MAX:
        raise BadCommand(
            f"arguments and environment take {size} bytes of {COMMAND_BYTES_MAX}, and each at most {ARGUMENT_BYTES_MAX}"
        )
    if any(not 3 <= number <= launcher.JOB_FD_MAX for number in policy.fds):
        raise BadCommand(f"descriptors of a job are numbered 3 to {launcher.JOB_FD_MAX}")


def sweep_uid(uid: int) -> None:
    """Kill what a dead launcher left behind. Only for a leased uid: nothing else runs as that."""
    for process in psutil.process_iter(["uids"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == uid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def python() -> str:
    """The interpreter without the virtual environment, which starts faster."""
    return os.path.realpath(sys.executable)
