"""Level `process`: the job is a plain process with limits, in a cgroup and a session of its own.

For the owner's own jobs and for submitters the owner trusts. It hides nothing: such a job sees the host's files and
network as its user does. Limits, usage and the killing of the whole tree are the same as at every other level.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from computepool.agent.sandbox.base import Command, SandboxPolicy
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import open_descriptor
from computepool.agent.sandbox.slots import Footprint, Slot
from computepool.agent.sandbox.supervise import Process, read_wait_status
from computepool.core.isolation import Level

#: The job's TMPDIR, in its work folder so that it is measured and removed with it.
_TMP = ".tmp"


class ProcessSandbox(Sandbox):
    level = Level.PROCESS
    footprint = Footprint(pids=1)  # the launcher

    def inside(self, host: Path, *, workdir: Path, policy: SandboxPolicy) -> str:
        return str(host)

    def _start(self, slot: Slot, command: Command) -> Process:
        workdir, policy = command.workdir, command.policy
        tmp = f"{workdir}/{_TMP}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(tmp, 0o700)
        if slot.uid is not None:
            os.chown(tmp, slot.uid, slot.uid, follow_symlinks=False)
        process = Process(self._pool, slot, command, read_ending=read_wait_status)
        with open_descriptor(workdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as folder:
            fds = {**command.streams, **policy.fds}
            slot.start(command.argv, self._env(workdir, policy), fds=fds, cwd=folder, fence=policy.fence)
        return process

    def _env(self, workdir: Path, policy: SandboxPolicy) -> dict[str, str]:
        runtime = self.config.runtime
        own = {"HOME": str(workdir), "LANG": "C.UTF-8", "TMPDIR": f"{workdir}/{_TMP}"}
        return runtime.env(str(runtime.path)) | own | dict(policy.env)
