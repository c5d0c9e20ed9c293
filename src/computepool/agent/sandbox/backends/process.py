"""Level `process`: the job is a plain process with limits, in a cgroup and a session of its own.

For the owner's own jobs and for submitters the owner trusts. It hides nothing: such a job sees the host's
files and network as its user does. Limits, usage, freezing and the killing of the whole tree are those of
every level.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from computepool.agent.sandbox.base import Limits, Probe, SandboxPolicy
from computepool.agent.sandbox.scratch import give, require_reachable
from computepool.agent.sandbox.selftest.probing import run_true
from computepool.agent.sandbox.slots import Footprint, SandboxConfig, SlotPool, check_command
from computepool.agent.sandbox.supervise import SlotProcess, read_wait_status
from computepool.core.isolation import Level

#: The job's TMPDIR, in its work folder so that it is measured and removed with it.
_TMP = ".tmp"
#: Where there is no runtime.
HOST_PATH = "/usr/local/bin:/usr/bin:/bin"


class ProcessSandbox:
    """Implements base.Sandbox."""

    level = Level.PROCESS

    def __init__(self, config: SandboxConfig) -> None:
        self._config = config
        self._pool = SlotPool(config, Footprint(pids=1))  # the launcher

    @property
    def limits_kind(self) -> str:
        return self._pool.limits_kind

    def probe(self) -> Probe:
        return run_true(self, self._config.cache_dir, found=f"limits by {self.limits_kind}")

    def inside(self, host: Path, *, workdir: Path, policy: SandboxPolicy) -> str:
        return str(host)

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
        check_command(argv, policy)
        require_reachable(workdir)
        with self._pool.starting(limits, policy.cpu_ids) as slot:
            (workdir / _TMP).mkdir(mode=0o700, exist_ok=True)
            if slot.uid is not None:
                give(workdir, slot.uid)
            process = SlotProcess(
                self._pool, slot, limits=limits, workdir=workdir, read_ending=read_wait_status
            )
            folder = os.open(workdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                streams = {0: stdin, 1: stdout, 2: stderr}
                fds = {**streams, **policy.fds}
                slot.start(argv, self._env(workdir, policy), fds=fds, cwd=folder, fence=policy.fence)
            finally:
                os.close(folder)
        return process

    def close(self) -> None:
        self._pool.close()

    def _env(self, workdir: Path, policy: SandboxPolicy) -> dict[str, str]:
        runtime = self._config.runtime
        env = runtime.env(str(runtime.path)) if runtime else {"PATH": HOST_PATH}
        env |= {"HOME": str(workdir), "LANG": "C.UTF-8", "TMPDIR": str(workdir / _TMP)}
        return env | dict(policy.env)
