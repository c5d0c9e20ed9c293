"""A running attempt in a slot: the `Process` that every backend returns.

Reads the launcher's replies, enforces the limits that the kernel does not enforce, and explains how a process ended. The
backend only interprets the wait status, which may be bubblewrap's or gVisor's and not the job's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import select
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from computepool.agent.sandbox import launcher
from computepool.agent.sandbox.base import MIB, Command, Exit, ProcessUsage, SandboxError, Status
from computepool.agent.sandbox.scratch import DiskMeter, remove_tree
from computepool.agent.sandbox.slots import Slot, SlotPool, descendants, sweep_uid

#: How often `wait` checks the limits that it enforces itself.
PATROL_S = 0.25
#: How long a launcher may take to confirm that everything is dead before its slot is given up.
_KILL_TIMEOUT_S = 5.0
#: A work folder of a fixed size with less free space than this is full.
_FULL_BELOW = 64 * 1024


def read_wait_status(wait_status: int) -> Exit:
    if os.WIFSIGNALED(wait_status):
        return Exit(Status.SIGNAL, os.WTERMSIG(wait_status))
    return Exit(Status.EXIT, os.WEXITSTATUS(wait_status))


def unwrap_signal(ending: Exit) -> Exit:
    """The end of a job whose monitor reports a signal as an exit code, as shells do."""
    if ending.status is Status.EXIT and 128 < ending.code <= 128 + 64:
        return Exit(Status.SIGNAL, ending.code - 128)
    return ending


class Process:
    """One running attempt and its whole process tree. Not thread-safe: one owner at a time."""

    def __init__(
        self,
        pool: SlotPool,
        slot: Slot,
        command: Command,
        *,
        read_ending: Callable[[int], Exit],
        folder: Path | None = None,
    ) -> None:
        """`folder` belongs to the backend and is removed when everything has ended."""
        self._pool = pool
        self._slot: Slot | None = slot
        self._limits = limits = command.limits
        self._read_ending = read_ending
        self._workdir = command.workdir
        self._folder = folder
        #: None if the folder has a file system of its own, which the kernel limits.
        self._disk = None if os.path.ismount(command.workdir) else DiskMeter(command.workdir, limit_mb=limits.disk_mb)
        self._started = time.monotonic()
        self._killed: Exit | None = None
        self._killed_at = 0.0
        self._exit: Exit | None = None
        self._clean = False
        self._peak_mb = 0
        self._cpu_seen_us = 0
        self._cpu_base_us = (slot.cgroup.cpu_us() or 0) if slot.cgroup else 0
        self._oom_base = slot.cgroup.oom_kills() if slot.cgroup else 0

    @property
    def pid(self) -> int:
        """Host pid of the process that holds the tree (the parent of the job's first process)."""
        return self._open_slot().pid

    def fileno(self) -> int:
        """Becomes readable when the tree has ended (for `loop.add_reader`); then `wait(0)` gives the Exit."""
        return self._open_slot().channel.fileno()

    async def finish(self) -> Exit:
        """Wait for the end from an event loop, without a thread, enforcing limits meanwhile."""
        loop = asyncio.get_running_loop()
        replied = asyncio.Event()
        descriptor = self.fileno()
        loop.add_reader(descriptor, replied.set)
        try:
            while (ended := self.wait(0)) is None:
                replied.clear()
                try:
                    await asyncio.wait_for(replied.wait(), PATROL_S)
                except TimeoutError:
                    self.patrol()
            return ended
        finally:
            loop.remove_reader(descriptor)

    def wait(self, timeout_s: float | None = None) -> Exit | None:
        """Block until the end and return it; None after `timeout_s`. Enforces limits meanwhile."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        self._read_channel()
        while self._exit is None and (left_s := deadline - time.monotonic()) > 0:
            poller = select.poll()
            poller.register(self.fileno(), select.POLLIN)
            if not poller.poll(min(PATROL_S, left_s) * 1000):
                self.patrol()
            self._read_channel()
        return self._exit

    def kill(self, status: Status = Status.CANCELLED) -> None:
        """SIGKILL the whole tree, daemons included. `status` becomes the Exit's. Blocks for some ms at most."""
        self._kill(Exit(status, 9))

    def usage(self) -> ProcessUsage:
        if self._exit is not None:
            return self._exit.usage
        resident_mb = self._resident_bytes() // MIB
        self._peak_mb = max(self._peak_mb, resident_mb)
        self._sample_cpu()
        return ProcessUsage(
            wall_ms=self._wall_ms(), cpu_ms=self._cpu_seen_us // 1000, rss_mb=resident_mb, peak_rss_mb=self._peak_mb
        )

    def patrol(self) -> ProcessUsage:
        """Like `usage`, but kills the job if it exceeds a limit that the kernel does not enforce.

        Those are wall time, disk and, without cgroups, memory. Call it about once a second while the job runs.
        """
        used = self.usage()
        if self._exit is not None:
            return used
        slot = self._open_slot()
        if self._killed is not None:
            # Kill what could not be frozen the first time. Give up a launcher that does not answer: its job may have stopped it.
            if time.monotonic() - self._killed_at > _KILL_TIMEOUT_S:
                self._on_launcher_lost()
            else:
                self._kill_tree()
        elif used.wall_ms > self._limits.wall_s * 1000:
            self._kill(Exit(Status.TIMEOUT, 9, f"ran longer than {self._limits.wall_s:g} s"))
        elif self._was_oom_killed():
            # cgroup v1 kills only one process. The rest of the job would wait for it, or return nonsense.
            self._kill(Exit(Status.OOM, 9, f"used more than {self._limits.memory_mb} MB of memory"))
        elif slot.cgroup is None and used.rss_mb > self._pool.resident_max_mb(self._limits):
            self._kill(Exit(Status.OOM, 9, f"used {used.rss_mb} MB of {self._limits.memory_mb} MB"))
        elif self._disk is not None and (excess := self._disk.step(self._members())):
            self._kill(Exit(Status.DISK_LIMIT, 9, excess))
        return used

    def pin(self, cpu_ids: tuple[int, ...], *, cpus: float) -> None:
        """Let the tree run only on these CPUs, with this quota of their time; costs nothing if nothing changes."""
        if self._exit is not None or self._slot is None:
            return
        if self._slot.cgroup is not None:
            with contextlib.suppress(OSError):
                self._slot.cgroup.set_cpu_quota(cpus)
        if cpu_ids != self._slot.cpu_ids:
            self._slot.pin(cpu_ids, self._members)

    def pids(self) -> list[int]:
        """The host pids of the tree, the sandbox's own processes included."""
        return [] if self._exit is not None or self._slot is None else self._members()

    def processes(self) -> int:
        """The number of the job's processes, as the host sees it."""
        return 0 if self._exit is not None else max(1, len(self._members()) - self._pool.own_processes)

    def close(self) -> None:
        """Kill what is left and give the slot back. Always call it; calling it twice is safe."""
        if self._slot is None:
            return
        self._read_channel()
        if self._exit is None:
            self._kill(Exit(Status.CANCELLED, 9))
            self.wait(2.0)
        if self._exit is None:
            self._end(Exit(Status.SANDBOX_ERROR, -1, "the job did not die within 2 s of SIGKILL"))
        slot, self._slot = self._slot, None
        self._pool.give_back(slot, clean=self._clean)
        if self._folder is not None:
            remove_tree(self._folder)

    def _open_slot(self) -> Slot:
        if self._slot is None:
            raise SandboxError("this process is closed")
        return self._slot

    def _kill(self, ending: Exit) -> None:
        if self._exit is not None:
            return
        if self._killed is None:
            self._killed = ending
            self._killed_at = time.monotonic()
        self._kill_tree()

    def _kill_tree(self) -> None:
        with contextlib.suppress(OSError):  # The cgroup is gone only if everything in it is.
            self._open_slot().kill_tree()

    def _read_channel(self) -> None:
        if self._exit is not None or self._slot is None:
            return
        try:
            while self._exit is None:
                self._on_reply(self._slot.channel.recv(8192))
        except BlockingIOError:
            pass
        except ConnectionError:
            self._on_launcher_lost()

    def _on_reply(self, data: bytes) -> None:
        if not data:
            self._on_launcher_lost()
            return
        kind, wait_status, cpu_us, peak_kb = launcher.REPLY.unpack_from(data)
        if kind == launcher.FAILED:
            text = data[launcher.REPLY.size :].decode(errors="replace")
            self._end(Exit(Status.SANDBOX_ERROR, -1, f"the launcher could not set itself up: {text}"))
        elif kind == launcher.FENCED:
            self._kill(Exit(Status.LEASE_LOST, 9))
        elif kind == launcher.LEFTOVERS:
            self._kill_tree()
        elif kind == launcher.ENDED:
            self._clean = True
            self._peak_mb = max(self._peak_mb, peak_kb // 1024)
            self._cpu_seen_us = max(self._cpu_seen_us, cpu_us)
            self._end(self._explain_exit(self._read_ending(wait_status)))

    def _on_launcher_lost(self) -> None:
        """The OOM killer killed the launcher, or a job of level `process` killed or stopped it."""
        slot = self._open_slot()
        if slot.uid is not None and slot.cgroup is None:
            sweep_uid(slot.uid)
        self._end(self._explain_exit(Exit(Status.SANDBOX_ERROR, -1, "the job's launcher was killed")))

    def _explain_exit(self, ending: Exit) -> Exit:
        """What the agent knows takes precedence over the wait status."""
        if ending.status is Status.EXIT and ending.code == 0:
            return ending  # It had finished before any kill arrived.
        if self._was_oom_killed():
            return Exit(Status.OOM, 9, f"used more than {self._limits.memory_mb} MB of memory")
        if self._killed is None and self._disk_is_full():
            text = f"the work folder is full: it holds {self._limits.disk_mb} MB"
            return Exit(Status.DISK_LIMIT, ending.code, text)
        return self._killed or ending

    def _disk_is_full(self) -> bool:
        """True if the job most likely failed because its folder was full."""
        if self._disk is not None:
            return False
        try:
            found = os.statvfs(self._workdir)
        except OSError:
            return False
        return found.f_bavail * found.f_frsize < _FULL_BELOW or found.f_favail == 0

    def _was_oom_killed(self) -> bool:
        cgroup = self._open_slot().cgroup
        try:
            return cgroup is not None and cgroup.oom_kills() > self._oom_base
        except OSError:
            return False

    def _end(self, ending: Exit) -> None:
        if ending.status is Status.OOM:
            self._peak_mb = max(self._peak_mb, self._limits.memory_mb)
        if self._open_slot().cgroup is not None:
            self._sample_cpu()
        used = ProcessUsage(wall_ms=self._wall_ms(), cpu_ms=self._cpu_seen_us // 1000, peak_rss_mb=self._peak_mb)
        self._exit = replace(ending, usage=used)

    def _wall_ms(self) -> int:
        return int((time.monotonic() - self._started) * 1000)

    def _sample_cpu(self) -> None:
        slot = self._open_slot()
        if slot.cgroup is not None:
            with contextlib.suppress(OSError):
                self._cpu_seen_us = max(self._cpu_seen_us, (slot.cgroup.cpu_us() or 0) - self._cpu_base_us)
            return
        total_s = 0.0
        for process in descendants(slot.pid):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total_s += times.user + times.system + times.children_user + times.children_system
        self._cpu_seen_us = max(self._cpu_seen_us, int(total_s * 1e6))

    def _members(self) -> list[int]:
        slot = self._open_slot()
        if slot.cgroup is not None:
            with contextlib.suppress(OSError):
                return slot.cgroup.members()
        return [process.pid for process in descendants(slot.pid)]

    def _resident_bytes(self) -> int:
        slot = self._open_slot()
        if slot.cgroup is not None:
            with contextlib.suppress(OSError):
                return slot.cgroup.resident_bytes()
        members = descendants(slot.pid)
        total = sum(_memory(process, shared=True) for process in members)
        if total > self._limits.memory_mb * MIB:
            # Forked processes share most of their pages; to count those once is exact but slow.
            total = sum(_memory(process, shared=False) for process in members)
        return total


def _memory(process: psutil.Process, *, shared: bool) -> int:
    """Resident bytes. Without `shared`, each page is divided by the number of processes that share it."""
    try:
        found = process.memory_info().rss if shared else process.memory_full_info().pss
    except psutil.Error:
        return 0
    return int(found)
