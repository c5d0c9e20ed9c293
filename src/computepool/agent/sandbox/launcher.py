"""The launcher: a small process that starts the jobs of one slot. Run as a script, never imported by a job.

It enters the slot's cgroup, lowers its limits and becomes the job's user once; every job it starts inherits
all that for nothing, by posix_spawn, without running Python between fork and exec. It is the subreaper of
its jobs: daemons come back to it, so "no children left" proves that the whole tree is gone.

Protocol (unix SEQPACKET): the agent sends marshal values, which only ever travel from the agent to here; the
launcher answers with fixed structs, because a job of level `process` shares its uid and could speak for it.
Knows nothing of sandboxes: what it starts may be bubblewrap or the job itself. Standard library only: it runs
with `-I -S`, outside the agent's virtual environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

#: kind, wait status, CPU time in microseconds, peak resident kB of the biggest process; then text for FAILED.
REPLY = struct.Struct("<BxxxiQQ")
ENDED, LEFTOVERS, FAILED, FENCED = 1, 2, 3, 4
#: What a fence holds (fence.py): milliseconds of a clock that counts time asleep, 0 for no end. Eight aligned bytes are
#: read and written in one go.
DEADLINE = struct.Struct("q")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: The launcher keeps its own descriptors from here on; a backend may use those between the job's and these.
FIRST_OWN_FD = 32
JOB_FD_MAX = 28
REQUEST_BYTES_MAX = 160 * 1024
_MSG_CMSG_CLOEXEC = 0x4000_0000
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CLONE_NEWNS, _MS_REC, _MS_SLAVE, _MNT_DETACH = 0x20000, 1 << 14, 1 << 19, 2
#: File systems of which no job is ever given anything.
_NEVER_GIVEN = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs", "fusectl", "hugetlbfs",
    "mqueue", "nsfs", "pstore", "rpc_pipefs", "securityfs", "tracefs",
})  # fmt: skip

#: After the job's first process ends, the rest may end by itself (bubblewrap's init takes some ms) before
#: it is killed.
_GRACE_MS = 50
_KILL_AGAIN_MS = 5
#: A fence is looked at again after this time at the latest: waiting does not count the time asleep.
_LOOK_MS = 1000


class Launcher:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._dedicated_uid = False
        self._wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._poll.register(self._wake_reader, select.POLLIN)

    def run(self) -> None:
        setup, _ = self._receive()  # What comes along stays open, closed to jobs: it is the lock of the uid.
        if setup == "stop":  # The agent ended before it could say anything.
            return
        try:
            _enter(setup)
        except OSError as error:
            self._reply(FAILED, 0, text=f"{error.strerror}: {error.filename or setup}")
            return
        self._dedicated_uid = setup["uid"] is not None
        while True:
            request, fds = self._receive()
            if request == "stop":
                return
            if request != "cancel":  # A cancel here crossed the end of its job.
                self._run_job(request, fds)

    def _receive(self) -> tuple[Any, list[int]]:
        try:
            data, ancillary, _, _ = self._channel.recvmsg(256 * 1024, 4096, _MSG_CMSG_CLOEXEC)
        except ConnectionError:  # The agent has gone without reading an answer.
            return "stop", []
        fds: list[int] = []
        for _, _, payload in ancillary:
            fds.extend(struct.unpack(f"{len(payload) // 4}i", payload[: len(payload) // 4 * 4]))
        return (marshal.loads(data) if data else "stop"), fds

    def _reply(self, kind: int, status: int, *, cpu_us: int = 0, peak_kb: int = 0, text: str = "") -> None:
        try:
            self._channel.send(REPLY.pack(kind, status, cpu_us, peak_kb) + text.encode()[:4096])
        except OSError:
            os._exit(1)  # The agent is gone; jobs were already ended, or end with this process's cgroup.

    def _run_job(self, request: Any, fds: list[int]) -> None:
        fence = fds.pop() if request["has_fence"] and fds else None
        try:
            self._start_and_watch(request, fds, fence)
        finally:
            if fence is not None:
                os.close(fence)

    def _start_and_watch(self, request: Any, fds: list[int], fence: int | None) -> None:
        try:
            first = _start(request, fds)
        except (OSError, ValueError) as error:
            _complain(fds[2], f"computepool: cannot run {request['argv'][0]!a}: {error}\n")
            missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            self._reply(ENDED, (127 if missing else 126) << 8)
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._watch(first, fence)

    def _watch(self, first: int, fence: int | None) -> None:
        """Reap until no descendant is left; kill them on request, or if they outlive the agent, the first process or
        the fence.
        """
        status: int | None = None
        killing = False
        cpu_us = peak_kb = 0
        while True:
            try:
                pid, ended, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid:
                cpu_us += int((used.ru_utime + used.ru_stime) * 1e6)
                peak_kb = max(peak_kb, used.ru_maxrss)
                status = ended if pid == first else status
                continue
            left_ms = None if fence is None or status is not None else _left_ms(fence)
            if left_ms == 0 and not killing:
                killing = True
                self._reply(FENCED, 0)
            if killing:
                self._kill_descendants()
            events = self._wait(_KILL_AGAIN_MS if killing else left_ms if status is None else _GRACE_MS)
            if not events and not killing and status is not None:
                killing = True
                self._reply(LEFTOVERS, status)
            elif self._channel.fileno() in events:
                killing = self._receive_kill() or killing
        self._reply(ENDED, status or 0, cpu_us=cpu_us, peak_kb=peak_kb)

    def _wait(self, timeout_ms: int | None) -> set[int]:
        events = {fd for fd, _ in self._poll.poll(timeout_ms)}
        if self._wake_reader in events:
            os.read(self._wake_reader, 4096)
        return events

    def _receive_kill(self) -> bool:
        request, _ = self._receive()
        if request == "stop":
            # Nobody will read what comes next, so the agent's end of the channel must not wake the poll
            # again.
            self._poll.unregister(self._channel)
        return request in ("stop", "cancel")

    def _kill_descendants(self) -> None:
        if self._dedicated_uid:
            # Atomic: no process of this uid can fork out of the way. The uid belongs to this slot alone.
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return
        for pid in _descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


def _enter(setup: dict[str, Any]) -> None:
    """Set up what every job of this slot inherits. Each step needs rights that a later one gives up."""
    for path in setup["cgroup_procs"]:
        write(path, "0")
    write("/proc/self/oom_score_adj", "900")
    libc = ctypes.CDLL(None, use_errno=True)
    if setup["few_mounts"] and setup["uid"] is not None:  # only root may
        _drop_mounts(libc)
    for option in (_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS):
        if libc.prctl(option, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"prctl {option}")
    os.umask(0o022)
    for number, value in setup["rlimits"]:
        _, hard = resource.getrlimit(number)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    uid = setup["uid"]
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    os.chdir("/")


def _drop_mounts(libc: ctypes.CDLL) -> None:
    """Unmount, for this process and its children alone, what no job is given: bubblewrap reads the list of mounts some twenty
    times for each job.

    Only where later mounts arrive here too: work folders are mounted after this process started, and a job that does not
    see its mount would write past its limit.
    """
    dropped = []
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            options, _, source = line.partition(" - ")
            if source.split()[0] in _NEVER_GIVEN:
                dropped.append(os.fsencode(options.split()[4]))
            elif " shared:" not in options:
                return
    if libc.unshare(_CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "mount namespace")
    for point in reversed(dropped):
        libc.umount2(point, _MNT_DETACH)


def _start(request: dict[str, Any], fds: list[int]) -> int:
    """posix_spawn with the request's descriptors, environment and folder."""
    targets: list[int] = request["targets"]
    if len(fds) != len(targets) + request["has_cwd"]:
        raise OSError(errno.EMFILE, "too many open files in the launcher")
    if request["has_cwd"]:
        os.fchdir(fds[-1])
    env: dict[str, str] = request["env"]
    os.environ["PATH"] = env.get("PATH", os.defpath)  # posix_spawnp searches the caller's PATH.
    try:
        return os.posix_spawnp(
            request["argv"][0],
            request["argv"],
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, fd, target) for fd, target in zip(fds, targets, strict=False)
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),
        )
    finally:
        if request["has_cwd"]:
            os.chdir("/")


def _left_ms(fence: int) -> int:
    """Milliseconds until the fence must be checked again; 0 if its deadline has passed."""
    (until,) = DEADLINE.unpack(os.pread(fence, DEADLINE.size, 0))
    if not until:
        return _LOOK_MS
    left = until - time.clock_gettime_ns(_CLOCK) // 1_000_000
    return int(max(0, min(left, _LOOK_MS)))


def _descendants(root: int) -> list[int]:
    """Every descendant of `root`, from one pass over /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write without creating or truncating; the OSError names the file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(fd)


def _complain(stderr: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(stderr, text.encode())


def _reserve_low_fds(channel_fd: int) -> socket.socket:
    """Move the channel up and fill the rest with close-on-exec placeholders.

    Then no descriptor that arrives can collide with a number that a job wants.
    """
    moved = fcntl.fcntl(channel_fd, fcntl.F_DUPFD_CLOEXEC, FIRST_OWN_FD)
    os.close(channel_fd)
    filler = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    while filler < FIRST_OWN_FD:
        filler = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    os.close(filler)
    return socket.socket(fileno=moved)


if __name__ == "__main__":
    Launcher(_reserve_low_fds(int(sys.argv[1]))).run()
