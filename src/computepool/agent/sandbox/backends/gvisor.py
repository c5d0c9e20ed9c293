"""Level `gvisor`: the job runs on a user-space kernel of its own (runsc), never on the host's.

Starts a job with runsc and reads how it ended. runsc runs rootless with the slot's uid in the slot's cgroup, so limits,
freezing and killing are the slot's, as in every other backend. `runsc kill` and `runsc delete` are not used: a sandbox
consists of processes of the slot and files in one folder, and the slot kills its processes in milliseconds, where those
two commands take 80.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from computepool.agent.hardware import driver
from computepool.agent.sandbox import cgroups, launcher
from computepool.agent.sandbox.backends import runsc
from computepool.agent.sandbox.base import Command, Exit, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.interior import BoxedSandbox
from computepool.agent.sandbox.scratch import give, remove_tree, require_reachable
from computepool.agent.sandbox.selftest import isolation_evidence
from computepool.agent.sandbox.slots import Footprint, SandboxConfig, Slot
from computepool.agent.sandbox.supervise import Process, read_wait_status, unwrap_signal
from computepool.core.isolation import Level

LOG_FD = launcher.FIRST_OWN_FD - 1
_LOG_BYTES_MAX = 16 * 1024
_names = itertools.count()


class _GvisorProcess(Process):
    def _resident_bytes(self) -> int:
        slot = self._open_slot()
        return isolation_evidence.memory_bytes(slot.pid) if slot.cgroup is None else super()._resident_bytes()


class GvisorSandbox(BoxedSandbox):
    """container.py starts its jobs in the same way, with another program."""

    level = Level.GVISOR
    #: The user-space kernel and its gofer have some 30 threads and 25 MB at rest, and up to four threads of the host for
    #: each of the job's. The job's processes are limited exactly inside; this is the outer limit.
    footprint = Footprint(pids=128, processes=7, pids_each=4, memory_mb=64, limits_inside=True)
    uid_inside = runsc.UID
    process: type[Process] = _GvisorProcess
    not_started = 128  #: exit code of the program if it could not start the job
    ambiguous_codes: tuple[int, ...] = ()  #: exit codes that may also mean that the job never began

    def __init__(self, config: SandboxConfig) -> None:
        self._path, self.program = self._find_program()
        require_reachable(Path(self._path))
        super().__init__(config)
        self._runs = _runs_folder(config.cache_dir / self.level.label)

    def _start(self, slot: Slot, command: Command) -> Process:
        policy = command.policy
        if policy.gpus and (reason := self._cards_reason()):
            raise SandboxError(
                f"GPUs are not passed into {self.level.label}: {reason}; lend them at the level namespace"
            )
        folder = self._runs / str(next(_names))  #: the job's bundle and state; removed by its process
        folder.mkdir(mode=0o700)
        try:
            spec = self._configuration(command, folder)
            self._adapt(spec, policy, uid=os.geteuid() if slot.uid is None else slot.uid)
            # In a file that only the job's uid can read: the environment may hold secrets.
            (folder / "config.json").write_text(json.dumps(spec))
            if slot.uid is not None:
                give(folder, slot.uid)
            log = slot.memory_file("log")

            def read_ending(wait_status: int) -> Exit:
                ending = _read_ending(wait_status, log, not_started=self.not_started)
                if ending is not None and ending.code not in self.ambiguous_codes:
                    return ending
                found = self._start_failure(command, node_error=_failure(log, policy))
                return found if ending is None or found.code == ending.code else ending

            process = self.process(self._pool, slot, command, read_ending=read_ending, folder=folder)
            fds = {**command.streams, **self._fds(policy), LOG_FD: log}
            if fds[0] is None:
                fds[0] = slot.memory_file("stdin", b"")  # Not /dev/null: an older runsc took that for itself.
            slot.start(self._command(folder, policy), {}, fds=fds, cwd=None, fence=policy.fence)
        except BaseException:
            remove_tree(folder)
            raise
        return process

    def close(self) -> None:
        super().close()
        remove_tree(self._runs)

    def _configuration(self, command: Command, folder: Path) -> dict[str, Any]:
        """`folder`: the job's own, for a root with the paths of its volumes, which it chose."""
        extra, image, cwd = self._read_only(command.policy), command.policy.image, self._cwd(command.policy)
        if image is None:
            volumes = {inside: outside for outside, (inside, _) in command.policy.volumes.items()}
            root = runsc.rootfs(folder if volumes else self.config.cache_dir, {**extra, **volumes})
        else:
            root = image.path
        return runsc.configuration(
            command,
            self._env(command.policy) | {"PWD": cwd},
            root=root,
            read_only={
                **(self._system if image is None else {}),
                **{inside: str(outside) for inside, outside in extra.items()},
            },
            cwd=cwd,
            memory_inside=self.limits_kind == "rlimit",
        )

    # ------------------------------------------------------------ specific to runsc
    def _find_program(self) -> tuple[str, str]:
        """Path and description. Raises SandboxError."""
        found = runsc.find()
        return found.path, f"{found.path} of {found.release}, systrap, rootless"

    def _cards_reason(self) -> str:
        """Why jobs get no cards here; empty if they do."""
        return runsc.nvproxy_reason(self._path, driver.version())

    def _adapt(self, spec: dict[str, Any], policy: SandboxPolicy, *, uid: int) -> None:
        """Adapt the configuration to the host uid of the job."""

    def _fds(self, policy: SandboxPolicy) -> Mapping[int, int | None]:
        return policy.fds

    def _command(self, folder: Path, policy: SandboxPolicy) -> list[str]:
        passed = [f"--pass-fd={number}:{number}" for number in policy.fds]
        # The job can see, and so open, only those of the host's sockets that are mounted.
        opened = ["--host-uds=open"] if policy.has_proxy else []
        files = [f"--root={folder}", f"--log-fd={LOG_FD}"]
        cards = ["--nvproxy"] if policy.gpus else []
        return [self._path, *runsc.FLAGS, *cards, *opened, *files, "run", f"--bundle={folder}", *passed, "job"]


def _read_ending(wait_status: int, log: int, *, not_started: int) -> Exit | None:
    """How the job ended; None if it never started, in which case the log says why."""
    ending = read_wait_status(wait_status)
    if ending.status is Status.EXIT and ending.code == not_started and _last_error(log):
        return None
    return unwrap_signal(ending)


def _last_error(log: int) -> str:
    """The last error in the program's own log, to which the job cannot write."""
    message = ""
    for line in os.pread(log, _LOG_BYTES_MAX, 0).splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError):
            entry = json.loads(line)
            message = str(entry["msg"]) if entry["level"] == "error" else message
    return message


def _failure(log: int, policy: SandboxPolicy) -> str:
    """The last error, with the missing mounts, which runsc does not name."""
    missing = [str(path) for path in policy.mounts if not path.exists()]
    return _last_error(log) + (f" (missing: {', '.join(missing)})" if missing else "")


def _runs_folder(parent: Path) -> Path:
    """A folder for the bundles of this sandbox. Removes what dead agents left beside it."""
    parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    for entry in list(parent.iterdir()):
        if cgroups.is_stale(entry.name):
            remove_tree(entry)
    folder = parent / f"{cgroups.own_prefix()}-{next(_names)}"
    folder.mkdir(mode=0o711)
    return folder
