"""The launcher: a small process that starts the jobs of one slot. Run as a script, never imported by a job.

It enters the slot's cgroup, lowers its limits and becomes the job's user once; every job inherits all that for free, by
posix_spawn, without running Python between fork and exec. It is the subreaper of its jobs: daemons are reparented to it, so
"no children left" proves that the whole tree is gone.

Protocol (unix SEQPACKET): the agent sends marshal values, which travel only in this direction. The launcher answers with
fixed structs, because a job of level `process` shares its uid and could impersonate it. The launcher knows nothing of
sandboxes: it may start bubblewrap or the job itself. Standard library only: it runs with `-I -S`, outside the agent's
virtual environment.
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
import stat
import struct
import sys
import time
from typing import Any

#: Kind, wait status, CPU time in microseconds, peak resident kB of the largest process; then text for FAILED.
REPLY = struct.Struct("<BxxxiQQ")
ENDED, LEFTOVERS, FAILED, FENCED = 1, 2, 3, 4
#: The content of a fence (fence.py): milliseconds of a clock that counts time asleep, 0 for no deadline. Eight aligned
#: bytes are read and written at once.
DEADLINE = struct.Struct("q")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: The launcher's own descriptors begin here; a backend may use those between the job's and these.
FIRST_OWN_FD = 32
JOB_FD_MAX = 26
REQUEST_BYTES_MAX = 160 * 1024
#: First argument of a run that only tries to make the devices, in the folder that follows.
TRY_DEVICES = "try-devices"
_MSG_CMSG_CLOEXEC = 0x4000_0000
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
CLONE_NEWNS, MS_REC, MS_SLAVE, MNT_DETACH = 0x20000, 1 << 14, 1 << 19, 2
_MS_RDONLY, MS_NOSUID, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 8, 32, 1 << 12
#: File systems of which no job ever gets a part.
_NEVER_SHARED = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs", "fusectl", "hugetlbfs",
    "mqueue", "nsfs", "pstore", "rpc_pipefs", "securityfs", "tracefs",
})  # fmt: skip

#: Jobs get parts of these kernel interfaces, but none of the mounts below them.
_KERNEL_FOLDERS = ("/proc/", "/sys/")
#: The content of /dev, as bubblewrap would make it.
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "fd": "/proc/self/fd",
    "core": "/proc/kcore", "ptmx": "pts/ptmx",
}  # fmt: skip

#: When the job's first process has ended, the rest has this long to end by itself (bubblewrap's init takes some ms).
_GRACE_MS = 50
_KILL_AGAIN_MS = 5
#: A fence is checked at least this often: waiting does not count the time asleep.
_FENCE_CHECK_MS = 1000

libc = ctypes.CDLL(None, use_errno=True)


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
        setup, _ = self._receive()  # The descriptor that comes along is the lock of the uid: it stays open.
        if setup == "stop":  # The agent has ended already.
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
            if request != "cancel":  # A cancel that arrives here came too late: its job has ended.
                self._run_job(request, fds)

    def _receive(self) -> tuple[Any, list[int]]:
        try:
            data, ancillary, _, _ = self._channel.recvmsg(256 * 1024, 4096, _MSG_CMSG_CLOEXEC)
        except ConnectionError:  # The agent has ended without reading an answer.
            return "stop", []
        fds: list[int] = []
        for _, _, payload in ancillary:
            fds.extend(struct.unpack(f"{len(payload) // 4}i", payload[: len(payload) // 4 * 4]))
        return (marshal.loads(data) if data else "stop"), fds

    def _reply(self, kind: int, status: int, *, cpu_us: int = 0, peak_kb: int = 0, text: str = "") -> None:
        try:
            self._channel.send(REPLY.pack(kind, status, cpu_us, peak_kb) + text.encode()[:4096])
        except OSError:
            os._exit(1)  # The agent is gone. Its jobs have ended, or end with this process's cgroup.

    def _run_job(self, request: Any, fds: list[int]) -> None:
        fence = fds.pop() if request["has_fence"] and fds else None
        first = None
        try:
            first = _start(request, fds)
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                os.write(fds[2], f"computepool: cannot run {request['argv'][0]!a}: {error}\n".encode())
            missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            self._reply(ENDED, (127 if missing else 126) << 8)
        for fd in fds:
            os.close(fd)
        if first is not None:
            self._watch(first, fence)
        if fence is not None:
            os.close(fence)

    def _watch(self, first: int, fence: int | None) -> None:
        """Reap until no descendant is left. Kill them on request, or if they outlive the agent, `first` or the fence."""
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
            left_ms = None if fence is None or status is not None else _remaining_ms(fence)
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
            # The agent is gone: its end of the channel must not wake the poll again.
            self._poll.unregister(self._channel)
        return request in ("stop", "cancel")

    def _kill_descendants(self) -> None:
        if self._dedicated_uid:
            # Atomic: no process can escape by forking. The uid belongs to this slot alone.
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            return
        for pid in _descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


def _enter(setup: dict[str, Any]) -> None:
    """Set up what every job of this slot inherits. Each step needs rights that a later step gives up."""
    for path in setup["cgroup_procs"]:
        write(path, "0")
    write("/proc/self/oom_score_adj", "900")
    if setup["few_mounts"] and setup["uid"] is not None:  # only root may
        _make_mounts(setup["devices"])
    for option in (_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS):
        _check(libc.prctl(option, 1, 0, 0, 0), f"prctl {option}")
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


def _make_mounts(devices: str | None) -> None:
    """Make mounts that only this process and its children see. `devices`: where to make the jobs' /dev."""
    has_namespace = _drop_mounts()
    if devices is None:
        return
    if not has_namespace:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), "mount namespace")
    _make_devices(devices)


def _drop_mounts() -> bool:
    """Enter a mount namespace without the mounts that no job gets; False if that is not possible.

    bubblewrap reads the list of mounts some twenty times for each job. Only possible where later mounts arrive here, too:
    work folders are mounted after this process has started, and a job that did not see its mount would write past its limit.
    """
    dropped = []
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            options, _, source = line.partition(" - ")
            point = options.split()[4]
            if source.split()[0] in _NEVER_SHARED or point.startswith(_KERNEL_FOLDERS):
                dropped.append(os.fsencode(point))
            elif " shared:" not in options:
                return False
    _check(libc.unshare(CLONE_NEWNS), "mount namespace")
    mount("none", "/", flags=MS_REC | MS_SLAVE)
    for point_bytes in reversed(dropped):
        libc.umount2(point_bytes, MNT_DETACH)
    return True


def _make_devices(folder: str) -> None:
    """Make in `folder` the /dev that bubblewrap would otherwise make for each job, with six mounts.

    One job after the other gets it, read-only; a terminal ends with the processes that hold it.
    """
    mount("tmpfs", folder, kind="tmpfs", flags=MS_NOSUID | _MS_NOEXEC, options="mode=0755,size=64k")
    os.umask(0)
    for name in _DEVICES:
        os.mknod(f"{folder}/{name}", stat.S_IFCHR | 0o666, os.stat(f"/dev/{name}").st_rdev)
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"{folder}/{name}")
    for name in ("shm", "pts"):
        os.mkdir(f"{folder}/{name}", 0o755)
    terminals = "newinstance,ptmxmode=0666,mode=620"
    mount("devpts", f"{folder}/pts", kind="devpts", flags=MS_NOSUID | _MS_NOEXEC, options=terminals)
    mount("none", folder, flags=_MS_BIND | _MS_REMOUNT | _MS_RDONLY | MS_NOSUID | _MS_NOEXEC)
    with open(f"{folder}/null", "wb"):  # Fails where devices are not allowed.
        pass


def mount(source: str, target: str, *, kind: str | None = None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _check(libc.mount(texts[0], texts[1], texts[2], flags, texts[3]), f"mount {target}")


def _check(result: int, what: str) -> None:
    """Raise OSError if a call of the C library failed."""
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)


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
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for fd, target in zip(fds, targets, strict=False)],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),
        )
    finally:
        if request["has_cwd"]:
            os.chdir("/")


def _remaining_ms(fence: int) -> int:
    """Milliseconds until the fence must be checked again; 0 if its deadline has passed."""
    (deadline,) = DEADLINE.unpack(os.pread(fence, DEADLINE.size, 0))
    if not deadline:
        return _FENCE_CHECK_MS
    left = deadline - time.clock_gettime_ns(_CLOCK) // 1_000_000
    return int(max(0, min(left, _FENCE_CHECK_MS)))


def _descendants(root: int) -> list[int]:
    """Every descendant of `root`, found in one pass over /proc."""
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


def _reserve_low_fds(channel_fd: int) -> socket.socket:
    """Move the channel up and fill the numbers below with close-on-exec placeholders.

    Then no descriptor that arrives can have a number that a job wants.
    """
    moved = fcntl.fcntl(channel_fd, fcntl.F_DUPFD_CLOEXEC, FIRST_OWN_FD)
    os.close(channel_fd)
    filler = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    while filler < FIRST_OWN_FD:
        filler = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    os.close(filler)
    return socket.socket(fileno=moved)


if __name__ == "__main__":
    if sys.argv[1] == TRY_DEVICES:
        _make_mounts(sys.argv[2])
        sys.exit()
    Launcher(_reserve_low_fds(int(sys.argv[1]))).run()
