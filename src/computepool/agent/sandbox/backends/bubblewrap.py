"""Level `namespace`: bubblewrap with namespaces, a seccomp filter and an unprivileged uid.

Owns bubblewrap's arguments and what the job's file system looks like. Never runs bubblewrap as uid 0: there
the uid inside is only a name, and the job could write /proc/sys/kernel/core_pattern, which is root on the
host.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from computepool.agent.sandbox.backends import seccomp
from computepool.agent.sandbox.base import MIB, Limits, Probe, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.interior import WORK, Interior, etc_folder, hidden_files, system_links
from computepool.agent.sandbox.launcher import FIRST_OWN_FD, JOB_FD_MAX
from computepool.agent.sandbox.scratch import give, require_reachable
from computepool.agent.sandbox.selftest.probing import run_true
from computepool.agent.sandbox.slots import Footprint, SandboxConfig, SlotPool, check_command
from computepool.agent.sandbox.supervise import ProcessExit, SlotProcess, read_wait_status
from computepool.core.isolation import Level

#: The last numbers that the launcher leaves to the job's side; bubblewrap closes them before the job starts.
_SECCOMP_FD, _STATUS_FD, _ARGS_FD = range(JOB_FD_MAX + 1, FIRST_OWN_FD)
_NOBODY = 65534
_FAILED = "bubblewrap could not make the sandbox; see the job's stderr"

_ISOLATION = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
    "--cap-drop", "ALL", "--clearenv", "--hostname", "job", "--uid", str(_NOBODY), "--gid", str(_NOBODY),
)  # fmt: skip


class BubblewrapSandbox:
    """Implements base.Sandbox."""

    level = Level.NAMESPACE

    def __init__(self, config: SandboxConfig) -> None:
        if not seccomp.is_supported():
            raise SandboxError(f"there is no seccomp filter for {os.uname().machine}")
        self._config = config
        self._bwrap = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin") or ""
        self._filter = seccomp.program()
        self._interior = Interior(config.runtime)
        etc = etc_folder(config.cache_dir, self._interior.runtime, uid=_NOBODY)
        self._fixed = [*_ISOLATION, *_system_mounts(self._interior.system(etc))]
        # The launcher, bubblewrap's monitor and its init
        self._pool = SlotPool(config, Footprint(pids=3, processes=3))

    @property
    def limits_kind(self) -> str:
        return self._pool.limits_kind

    def probe(self) -> Probe:
        if not self._bwrap:
            return Probe(ok=False, reason="bubblewrap is not installed", fix="sudo apt install bubblewrap")
        return run_true(
            self,
            self._config.cache_dir,
            found=f"{self._bwrap}, limits by {self.limits_kind}",
        )

    def inside(self, host: Path, *, workdir: Path, policy: SandboxPolicy) -> str:
        return self._interior.inside(host, workdir=workdir, policy=policy)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        workdir: Path,
        limits: Limits,
        policy: SandboxPolicy,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> SlotProcess:
        if not self._bwrap:
            raise SandboxError("bubblewrap is not installed: sudo apt install bubblewrap")
        check_command(argv, policy)
        require_reachable(workdir)
        with self._pool.starting(limits, policy.cpu_ids) as slot:
            slot.refuse_root()
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

            def read_ending(wait_status: int) -> ProcessExit:
                return _read_ending(wait_status, status) or self._interior.start_failure(
                    argv[0], workdir=workdir, policy=policy, otherwise=_FAILED
                )

            process = SlotProcess(self._pool, slot, limits=limits, workdir=workdir, read_ending=read_ending)
            command = [self._bwrap, "--args", str(_ARGS_FD), "--", *argv]
            streams = {0: stdin, 1: stdout, 2: stderr}
            slot.start(command, {}, fds={**streams, **policy.fds, **own}, cwd=None, fence=policy.fence)
        return process

    def close(self) -> None:
        self._pool.close()

    def _arguments(self, workdir: Path, limits: Limits, policy: SandboxPolicy) -> Iterator[str]:
        """In the order of the mounts; the last word on / and /dev is that they are read-only."""
        yield from self._fixed
        tmp_bytes = str(limits.tmp_mb * MIB)
        yield from ("--size", tmp_bytes, "--tmpfs", "/tmp", "--size", tmp_bytes, "--tmpfs", "/dev/shm")
        for outside, inside in self._interior.read_only(policy):
            yield from ("--ro-bind", str(outside), inside)
        for node in policy.gpus:
            yield from ("--dev-bind", node, node)
        yield from ("--bind", str(workdir), WORK, "--chdir", WORK)
        yield from ("--remount-ro", "/", "--remount-ro", "/dev")
        for name, value in self._interior.env(policy).items():
            yield from ("--setenv", name, value)
        yield from ("--seccomp", str(_SECCOMP_FD), "--json-status-fd", str(_STATUS_FD))


def _read_ending(wait_status: int, status_fd: int) -> ProcessExit | None:
    """How the job ended; None if it never started, because then bubblewrap recorded no exit code."""
    if b'"exit-code"' not in os.pread(status_fd, 4096, 0):
        return None
    ending = read_wait_status(wait_status)
    if 128 < ending.code <= 128 + 64:  # bubblewrap's way to pass on a signal
        return ProcessExit(Status.SIGNAL, ending.code - 128)
    return ending


def _system_mounts(folders: Mapping[str, str]) -> Iterator[str]:
    for path, target in system_links().items():
        yield from ("--symlink", target, path)
    for inside, outside in folders.items():
        yield from ("--ro-bind", outside, inside)
    yield from ("--proc", "/proc", "--dev", "/dev")
    for path in hidden_files():
        yield from ("--dev-bind", "/dev/null", path)
