"""The interface of every sandbox, and what the backends share.

The executor knows only this module and base.py. The backend is chosen once, from those that passed the self-test.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from computepool.agent.sandbox.base import Command, Limits, SandboxPolicy
from computepool.agent.sandbox.scratch import give, require_reachable
from computepool.agent.sandbox.slots import Footprint, SandboxConfig, Slot, SlotPool, check_command
from computepool.agent.sandbox.supervise import Process
from computepool.core.isolation import Level


class Sandbox:
    """Raises SandboxError if this machine cannot provide it."""

    level: Level
    footprint: Footprint
    program = ""  #: the program that starts jobs, for the owner to read; empty if there is none

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self._pool = SlotPool(config, self.footprint)

    @property
    def limits_kind(self) -> str:
        """How limits are enforced: cgroup1, cgroup2 or rlimit."""
        return self._pool.limits_kind

    def inside(self, host: Path, *, workdir: Path, policy: SandboxPolicy) -> str:
        """The path at which the job sees `host`: the work folder, something in it, or a mount."""
        raise NotImplementedError

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
    ) -> Process:
        """Start `argv` in `workdir`; returns in well under a millisecond if a slot is warm.

        Descriptors are duplicated, and the caller closes its own; None means /dev/null. `argv[0]` is searched on the
        job's PATH. As root the work folder is given to the job's uid. Raises SandboxError if the job cannot start.
        """
        check_command(argv, policy)
        require_reachable(workdir)
        streams = {0: stdin, 1: stdout, 2: stderr}
        command = Command(argv=argv, workdir=workdir, limits=limits, policy=policy, streams=streams)
        with self._pool.reserve(limits, policy.cpu_ids) as slot:
            if self.level >= Level.NAMESPACE:
                slot.refuse_root()
            if slot.uid is not None:
                give(workdir, slot.uid)
            return self._start(slot, command)

    def close(self) -> None:
        """End every job and helper process of this sandbox."""
        self._pool.close()

    def _start(self, slot: Slot, command: Command) -> Process:
        raise NotImplementedError
