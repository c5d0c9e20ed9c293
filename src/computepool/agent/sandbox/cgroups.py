"""The agent's own cgroups, one per slot: limits, counters, freeze and kill, on cgroup v1 and v2 alike.

Everything that the agent touches under /sys/fs/cgroup is below directories called `computepool`. Backends do not use the
cgroup features of their tools: those differ, and lose the counters at the end.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from computepool.agent.sandbox import launcher

_log = logging.getLogger(__name__)

BASE = "computepool"
_CPU_PERIOD_US = 100_000
_V1_NEEDED = ("memory", "pids", "freezer")
_V1_OPTIONAL = ("cpu", "cpuacct", "cpuset")
_V2_NEEDED = ("memory", "pids")
_V2_OPTIONAL = ("cpu", "cpuset")
#: A process can enter a cpuset of version 1 only if these are set.
_V1_CPUSET = ("cpuset.cpus", "cpuset.mems")
_FREEZE_TIMEOUT_S = 0.2
_REMOVE_TIMEOUT_S = 2.0
_names = itertools.count()


class Cgroup:
    """One slot's cgroup. The launcher stays in it for good, so kills can spare it."""

    kind: ClassVar[str]
    needed_to_kill: ClassVar[frozenset[str]]  #: the controllers that a kill needs
    anonymous: ClassVar[str]  #: anonymous memory, in memory.stat
    oom_events: ClassVar[str]  #: the file of the controller `memory` that counts OOM kills
    #: Controller and file that freeze it, and the values that freeze and thaw.
    freezer: ClassVar[tuple[str, str, str, str]]

    def __init__(self, folders: dict[str, Path]) -> None:
        self._folders = folders
        self._fds: dict[str, int] = {}
        self._limits: tuple[int, int, float] | None = None

    @property
    def procs_files(self) -> list[str]:
        """Files into which a process writes its pid to enter."""
        return [str(folder / "cgroup.procs") for folder in dict.fromkeys(self._folders.values())]

    def limit(self, *, memory_bytes: int, pids: int, cpus: float) -> None:
        """Set the limits; free when they are the same as before. Raises OSError if the kernel refuses."""
        limits = (memory_bytes, pids, cpus)
        if limits == self._limits:
            return
        self._limits = None
        self._limit_memory(memory_bytes)
        self._write("pids", "pids.max", str(pids))
        self._limit_cpus(cpus)
        self._limits = limits

    def set_cpu_quota(self, cpus: float) -> None:
        if self._limits is not None and self._limits[2] != cpus:
            self._limit_cpus(cpus)
            self._limits = (*self._limits[:2], cpus)

    def _limit_cpus(self, cpus: float) -> None:
        if "cpu" in self._folders:
            unlimited = cpus <= 0 or cpus >= (os.cpu_count() or 1)
            self._limit_cpu(-1 if unlimited else max(1_000, int(cpus * _CPU_PERIOD_US)))

    def pin(self, ids: Collection[int]) -> bool:
        """Keep all present and future members on these CPUs. False if that is not possible here."""
        if "cpuset" not in self._folders:
            return False
        try:
            self._write("cpuset", "cpuset.cpus", ",".join(map(str, sorted(ids))))
        except OSError:
            return False
        return True

    def members(self) -> list[int]:
        # Opened anew each time: on v1 an open file keeps showing its first content.
        return [int(pid) for pid in (self._folders["pids"] / "cgroup.procs").read_text().split()]

    def tasks(self) -> int:
        """The number of threads."""
        return int(self._read("pids", "pids.current"))

    def kill(self, *, spare: Collection[int] = ()) -> None:
        """Freeze, then SIGKILL every member but `spare`, so that none forks away."""
        controller, name, frozen, thawed = self.freezer
        self._write(controller, name, frozen)
        # A process in an uninterruptible sleep freezes late. The caller repeats its kill, so giving up is safe.
        deadline = time.monotonic() + _FREEZE_TIMEOUT_S
        while not self._frozen() and time.monotonic() < deadline:
            time.sleep(0.0005)
        for pid in self.members():
            if pid not in spare:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._write(controller, name, thawed)

    def remove(self) -> None:
        """Kill everything and remove the directories, unless something does not die in time."""
        deadline = time.monotonic() + _REMOVE_TIMEOUT_S
        removed = False
        while not removed and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                self.kill()
            removed = self._remove_folders()
            if not removed:
                time.sleep(0.002)
        self.close()

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _remove_folders(self) -> bool:
        for folder in dict.fromkeys(self._folders.values()):
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    def _read(self, controller: str, name: str) -> str:
        """Read through a descriptor that stays open, at half the cost of opening it each time."""
        key = f"{controller}/{name}"
        fd = self._fds.get(key)
        if fd is None:
            fd = self._fds[key] = os.open(self._folders[controller] / name, os.O_RDONLY | os.O_CLOEXEC)
        content = b""
        while part := os.pread(fd, 16384, len(content)):
            content += part
        return content.decode()

    def _write(self, controller: str, name: str, text: str) -> None:
        launcher.write(self._folders[controller] / name, text)

    def _field(self, controller: str, name: str, field: str) -> int:
        for line in self._read(controller, name).splitlines():
            key, _, value = line.partition(" ")
            if key == field:
                return int(value)
        return 0

    def resident_bytes(self) -> int:
        """Anonymous memory and tmpfs. The page cache is left out: the kernel can reclaim it."""
        fields = dict(line.split() for line in self._read("memory", "memory.stat").splitlines())
        return int(fields.get(self.anonymous, 0)) + int(fields.get("shmem", 0))

    def oom_kills(self) -> int:
        return self._field("memory", self.oom_events, "oom_kill")

    # What differs between the versions.
    def cpu_us(self) -> int | None:
        """CPU time of all members since the cgroup was made; None if there is no counter."""
        raise NotImplementedError

    def _frozen(self) -> bool:
        raise NotImplementedError

    def _limit_memory(self, limit_bytes: int) -> None:
        raise NotImplementedError

    def _limit_cpu(self, quota_us: int) -> None:
        raise NotImplementedError


class CgroupV1(Cgroup):
    kind = "cgroup1"
    needed_to_kill = frozenset({"pids", "freezer"})
    anonymous = "rss"
    oom_events = "memory.oom_control"
    freezer = ("freezer", "freezer.state", "FROZEN", "THAWED")

    def cpu_us(self) -> int | None:
        if "cpuacct" not in self._folders:
            return None
        return int(self._read("cpuacct", "cpuacct.usage")) // 1000

    def _frozen(self) -> bool:
        return self._read("freezer", "freezer.state").strip() == "FROZEN"

    def _limit_memory(self, limit_bytes: int) -> None:
        # memory + swap may never be below memory, so the order depends on the direction: try one, then the other.
        names = ["memory.limit_in_bytes"]
        if (self._folders["memory"] / "memory.memsw.limit_in_bytes").exists():
            names.append("memory.memsw.limit_in_bytes")
        try:
            for name in names:
                self._write("memory", name, str(limit_bytes))
        except OSError:
            for name in reversed(names):
                self._write("memory", name, str(limit_bytes))

    def _limit_cpu(self, quota_us: int) -> None:
        self._write("cpu", "cpu.cfs_period_us", str(_CPU_PERIOD_US))
        self._write("cpu", "cpu.cfs_quota_us", str(quota_us))


class CgroupV2(Cgroup):
    kind = "cgroup2"
    needed_to_kill = frozenset({"pids"})
    anonymous = "anon"
    oom_events = "memory.events"
    freezer = ("pids", "cgroup.freeze", "1", "0")

    def cpu_us(self) -> int | None:
        return self._field("pids", "cpu.stat", "usage_usec")

    def _frozen(self) -> bool:
        return self._field("pids", "cgroup.events", "frozen") == 1

    def _limit_memory(self, limit_bytes: int) -> None:
        self._write("memory", "memory.max", str(limit_bytes))
        # Absent if the kernel has no swap. oom.group ends the whole job, launcher included: no half-dead jobs.
        for name, text in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            if (self._folders["memory"] / name).exists():
                self._write("memory", name, text)

    def _limit_cpu(self, quota_us: int) -> None:
        self._write("cpu", "cpu.max", f"{'max' if quota_us < 0 else quota_us} {_CPU_PERIOD_US}")


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes cgroups below `bases` (controller -> directory)."""

    version: type[Cgroup]
    bases: dict[str, Path]

    def make(self) -> Cgroup:
        name = f"{own_prefix()}-{next(_names)}"
        folders = {controller: base / name for controller, base in self.bases.items()}
        for folder in dict.fromkeys(folders.values()):
            folder.mkdir(parents=True, exist_ok=True)
        return self.version(folders)

    def sweep(self) -> int:
        """Kill and remove cgroups of agents that died without cleaning up; returns how many."""
        names = {entry.name for base in self.bases.values() if base.is_dir() for entry in base.iterdir()}
        stale = [name for name in names if is_stale(name)]
        for name in stale:
            folders = {key: base / name for key, base in self.bases.items() if (base / name).is_dir()}
            if self.version.needed_to_kill <= set(folders):
                self.version(folders).remove()
            else:
                # Its agent died between two folders, or another agent is removing it: no process is in it.
                for folder in folders.values():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
        return len(stale)


def detect() -> Maker | None:
    """Find out whether this process can make cgroups, by making one."""
    mounts = list(_mounts())
    v1 = {
        c: path for path, kind, options in mounts if kind == "cgroup" for c in options if c in _V1_NEEDED + _V1_OPTIONAL
    }
    v2 = next((path for path, kind, _ in mounts if kind == "cgroup2"), None)
    candidates = []
    if set(v1) >= set(_V1_NEEDED):
        candidates = [functools.partial(_v1_maker, v1)]
    elif v2 is not None:
        candidates = [functools.partial(_v2_maker, parent) for parent in dict.fromkeys((_own_v2(v2), v2))]
    for make in candidates:
        try:
            maker = make()
            _verify(maker)
        except OSError as error:
            _log.debug("cannot make cgroups: %s", error)
        else:
            return maker
    return None


def _v1_maker(roots: dict[str, Path]) -> Maker:
    bases = {controller: root / BASE for controller, root in roots.items()}
    if "cpuset" in bases and not _cpuset_works(bases["cpuset"]):
        del bases["cpuset"]
    return Maker(CgroupV1, bases)


def _cpuset_works(base: Path) -> bool:
    """Optional: without cpusets, jobs are pinned by affinity, which they can change."""
    try:
        base.mkdir(exist_ok=True)
        # A new cpuset of version 1 is empty, and no process can enter it: begin with all that the parent has.
        for name in _V1_CPUSET:
            if not (base / name).read_text().strip():
                launcher.write(base / name, (base.parent / name).read_text().strip())
        launcher.write(base / "cgroup.clone_children", "1")
    except OSError:
        return False
    return True


def _verify(maker: Maker) -> None:
    """Raise OSError if it cannot make cgroups here; else remove what dead agents left."""
    cgroup = maker.make()
    cgroup.limit(memory_bytes=1 << 28, pids=16, cpus=0.5)
    cgroup.members()
    cgroup.remove()
    maker.sweep()


def _v2_maker(parent: Path) -> Maker:
    available = (parent / "cgroup.controllers").read_text().split()
    missing = [controller for controller in _V2_NEEDED if controller not in available]
    if missing:
        raise OSError(0, f"controllers not delegated: {', '.join(missing)}")
    controllers = [c for c in (*_V2_NEEDED, *_V2_OPTIONAL) if c in available]
    enable = " ".join(f"+{controller}" for controller in controllers)
    try:
        launcher.write(parent / "cgroup.subtree_control", enable)
    except OSError:
        # A cgroup with processes cannot have limited children, so this process moves into a leaf of its own.
        leaf = parent / f"{BASE}-agent"
        leaf.mkdir(exist_ok=True)
        launcher.write(leaf / "cgroup.procs", "0")
        launcher.write(parent / "cgroup.subtree_control", enable)
    base = parent / BASE
    base.mkdir(exist_ok=True)
    launcher.write(base / "cgroup.subtree_control", enable)
    return Maker(CgroupV2, dict.fromkeys(controllers, base))


def _own_v2(root: Path) -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return root / line[3:].strip().removesuffix(f"/{BASE}-agent").lstrip("/")
    return root


def _mounts() -> Iterator[tuple[Path, str, list[str]]]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, path, kind, options, *_ = line.split()
        yield Path(path), kind, options.split(",")


def own_prefix() -> str:
    """A name for this process from which a later one can tell whether it still runs."""
    return f"{_pid_namespace()}.{os.getpid()}.{_start_time(os.getpid())}"


def is_stale(name: str) -> bool:
    """True if `name` belongs to an agent of this pid namespace that no longer runs."""
    namespace, _, rest = name.partition(".")
    pid, _, started = rest.partition("-")[0].partition(".")
    if namespace != str(_pid_namespace()) or not pid.isdigit():
        return False
    return started != str(_start_time(int(pid)))


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _start_time(pid: int) -> int | None:
    """In clock ticks since boot; tells two processes with one pid apart. None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[19])
