"""Level `namespace`: bubblewrap with namespaces, a seccomp filter and an unprivileged uid.

Owns bubblewrap's arguments and what the job's file system looks like. Never runs bubblewrap as uid 0: there
the uid inside is only a name, and the job could write /proc/sys/kernel/core_pattern, which is root on the
host.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from computepool.agent.sandbox import seccomp
from computepool.agent.sandbox.base import MIB, Limits, Policy, Probe, SandboxError, Status
from computepool.agent.sandbox.launcher import FIRST_OWN_FD, JOB_FD_MAX
from computepool.agent.sandbox.probing import run_true
from computepool.agent.sandbox.runtime import INSIDE as PYTHON
from computepool.agent.sandbox.scratch import give, require_reachable
from computepool.agent.sandbox.slots import SandboxConfig, Slot, SlotPool, check_command
from computepool.agent.sandbox.supervise import Ending, SlotProcess, read_wait_status
from computepool.core.isolation import Level

#: The work folder inside.
WORK = "/job"
#: The last numbers that the launcher leaves to the job's side; bubblewrap closes them before the job starts.
_SECCOMP_FD, _STATUS_FD, _ARGS_FD = range(JOB_FD_MAX + 1, FIRST_OWN_FD)
_NOBODY = "65534"

_ISOLATION = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
    "--cap-drop", "ALL", "--clearenv", "--hostname", "job", "--uid", _NOBODY, "--gid", _NOBODY,
)  # fmt: skip

_ETC = {
    "passwd": f"root:x:0:0:root:/:/bin/false\njob:x:{_NOBODY}:{_NOBODY}:job:{WORK}:/bin/sh\n",
    "group": f"root:x:0:\njob:x:{_NOBODY}:\n",
    "hosts": "127.0.0.1 localhost job\n::1 localhost job\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


class BubblewrapSandbox:
    """Implements base.Sandbox."""

    level = Level.NAMESPACE

    def __init__(self, config: SandboxConfig) -> None:
        if not seccomp.supported():
            raise SandboxError(f"there is no seccomp filter for {os.uname().machine}")
        self._config = config
        self._bwrap = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin") or ""
        self._filter = seccomp.program()
        self._fixed = [*_ISOLATION, *_system_mounts(_etc_folder(config.cache_dir))]
        self._pool = SlotPool(config, own_pids=3)  # the launcher, bubblewrap's monitor and its init

    @property
    def limits_kind(self) -> str:
        return self._pool.limits_kind

    def probe(self) -> Probe:
        if not self._bwrap:
            return Probe(ok=False, reason="bubblewrap is not installed", fix="sudo apt install bubblewrap")
        return run_true(
            self,
            self._config.cache_dir,
            found=f"{self._bwrap}, limits by {self.limits_kind}, disk by watching",
        )

    def inside(self, host: Path, *, workdir: Path, policy: Policy) -> str:
        for outside, inside in self._places(workdir, policy).items():
            if host.is_relative_to(outside):
                return os.path.join(inside, host.relative_to(outside)).rstrip("/.") or "/"
        if host.is_relative_to("/usr"):
            return str(host)
        raise SandboxError(f"the job does not see {host}")

    def spawn(
        self,
        argv: Sequence[str],
        *,
        workdir: Path,
        limits: Limits,
        policy: Policy,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> SlotProcess:
        if not self._bwrap:
            raise SandboxError("bubblewrap is not installed: sudo apt install bubblewrap")
        check_command(argv, policy)
        require_reachable(workdir)
        with self._pool.starting(limits) as slot:
            _refuse_root(slot)
            if slot.uid is not None:
                give(workdir, slot.uid)
            status = slot.memory_file("status")
            settings = slot.memory_file("arguments")
            # Not on the command line: everybody on the host can read that, and the job can read bubblewrap's.
            arguments = "".join(f"{argument}\0" for argument in self._arguments(workdir, limits, policy))
            os.pwrite(settings, os.fsencode(arguments), 0)
            own = {
                _SECCOMP_FD: slot.memory_file("seccomp", self._filter),
                _STATUS_FD: status,
                _ARGS_FD: settings,
            }

            def read_ending(wait_status: int) -> Ending:
                return _read_ending(wait_status, status) or self._not_started(
                    argv[0], workdir=workdir, policy=policy
                )

            process = SlotProcess(self._pool, slot, limits=limits, workdir=workdir, read_ending=read_ending)
            command = [self._bwrap, "--args", str(_ARGS_FD), "--", *argv]
            streams = {0: stdin, 1: stdout, 2: stderr}
            slot.start(command, {}, fds={**streams, **policy.fds, **own}, cwd=None)
        return process

    def close(self) -> None:
        self._pool.close()

    def _arguments(self, workdir: Path, limits: Limits, policy: Policy) -> Iterator[str]:
        """In the order of the mounts; the last word on / and /dev is that they are read-only."""
        yield from self._fixed
        tmp_bytes = str(limits.tmp_mb * MIB)
        yield from ("--size", tmp_bytes, "--tmpfs", "/tmp", "--size", tmp_bytes, "--tmpfs", "/dev/shm")
        runtime = self._config.runtime
        if runtime is not None:
            yield from ("--ro-bind", str(runtime.path), PYTHON)
        for outside, inside in policy.mounts.items():
            yield from ("--ro-bind", str(outside), inside)
        for node in policy.gpus:
            yield from ("--dev-bind", node, node)
        if policy.gpus:
            yield from ("--ro-bind", "/sys", "/sys")  # Drivers find their devices there.
        yield from (
            "--bind",
            str(workdir),
            WORK,
            "--chdir",
            WORK,
            "--remount-ro",
            "/",
            "--remount-ro",
            "/dev",
        )
        for name, value in self._env(policy).items():
            yield from ("--setenv", name, value)
        yield from ("--seccomp", str(_SECCOMP_FD), "--json-status-fd", str(_STATUS_FD))

    def _not_started(self, command: str, *, workdir: Path, policy: Policy) -> Ending:
        """Whose fault it is that the job never began: a command that cannot be run, or the sandbox."""
        path = self._env(policy).get("PATH", "").split(":")
        names = [command] if "/" in command else [f"{folder}/{command}" for folder in path]
        files = [self._outside(name, workdir=workdir, policy=policy) for name in names]
        found = [file for file in files if file is not None and file.is_file()]
        if not found:
            return Ending(Status.EXIT, 127, f"{command}: not found")
        if not any(file.stat().st_mode & 0o111 for file in found):
            return Ending(Status.EXIT, 126, f"{command}: not executable")
        with found[0].open("rb") as opened:
            first = opened.readline(200)
        if not first.startswith(b"\x7fELF"):
            return Ending(Status.EXIT, 126, f"{command}: its interpreter cannot be run")
        return Ending(Status.SANDBOX_ERROR, -1, "bubblewrap could not make the sandbox; see the job's stderr")

    def _outside(self, inside: str, *, workdir: Path, policy: Policy) -> Path | None:
        """The host's path of what the job would call `inside`; the reverse of `inside()`."""
        absolute = Path(WORK, inside)
        places = {Path(place): host for host, place in self._places(workdir, policy).items()}
        for place, host in places.items():
            if absolute.is_relative_to(place):
                return host / absolute.relative_to(place)
        return absolute if absolute.parts[1:2] in (("usr",), ("bin",), ("sbin",)) else None

    def _places(self, workdir: Path, policy: Policy) -> dict[Path, str]:
        places = {**policy.mounts, workdir: WORK}
        if self._config.runtime is not None:
            places[self._config.runtime.path] = PYTHON
        return places

    def _env(self, policy: Policy) -> dict[str, str]:
        runtime = self._config.runtime
        env = runtime.env(PYTHON) if runtime else {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        return env | {"HOME": WORK, "LANG": "C.UTF-8", "TMPDIR": "/tmp"} | dict(policy.env)


def _read_ending(wait_status: int, status_fd: int) -> Ending | None:
    """How the job ended; None if it never began: then bubblewrap has left no note of its exit code."""
    if b'"exit-code"' not in os.pread(status_fd, 4096, 0):
        return None
    ending = read_wait_status(wait_status)
    if 128 < ending.code <= 128 + 64:  # bubblewrap's way to pass on a signal
        return Ending(Status.SIGNAL, ending.code - 128)
    return ending


def _refuse_root(slot: Slot) -> None:
    if (os.geteuid() if slot.uid is None else slot.uid) == 0:
        raise SandboxError(
            "bubblewrap is never run as uid 0; set uid_base to the first of the jobs' own uids"
        )


def _system_mounts(etc: Path) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--ro-bind", str(etc), "/etc")
    # Debian's commands are links through here; they tell a job nothing that /usr does not.
    if Path("/etc/alternatives").is_dir():
        yield from ("--ro-bind", "/etc/alternatives", "/etc/alternatives")
    yield from ("--proc", "/proc", "--dev", "/dev")


def _etc_folder(cache_dir: Path) -> Path:
    """A small /etc that names no one on the host. Built aside and renamed, named by its content."""
    files = {name: text.encode() for name, text in _ETC.items()}
    for name in ("ld.so.cache", "localtime"):
        with contextlib.suppress(OSError):
            files[name] = Path("/etc", name).read_bytes()
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    final = cache_dir / f"etc-{digest}"
    if final.is_dir():
        return final
    cache_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".etc-", dir=cache_dir))
    (building / "alternatives").mkdir(mode=0o755)
    for name, content in files.items():
        (building / name).write_bytes(content)
        (building / name).chmod(0o644)
    building.chmod(0o755)
    try:
        building.rename(final)
    except OSError:
        shutil.rmtree(building)  # Another agent was quicker; its folder has the same content.
    return final
