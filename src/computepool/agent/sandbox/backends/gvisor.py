"""Level `gvisor`: the job runs on a user-space kernel of its own (runsc), never on the host's.

Owns how a job is started with runsc and how its end is read. runsc runs rootless with the uid of the slot, inside the
slot's cgroup like every other backend: limits, freezing and killing are the slot's. `runsc kill` and `runsc delete` are
not needed: a sandbox consists of processes of the slot and files in one folder, and the slot kills its processes in
milliseconds, where those two commands take 80.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from computepool.agent.hardware import driver
from computepool.agent.sandbox import cgroups, launcher
from computepool.agent.sandbox.backends import runsc
from computepool.agent.sandbox.base import Exit, Network, Probe, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.interior import WORK, BoxedSandbox
from computepool.agent.sandbox.sandbox import Command
from computepool.agent.sandbox.scratch import give, remove_tree, require_reachable
from computepool.agent.sandbox.selftest import isolation_evidence
from computepool.agent.sandbox.selftest.probing import run_true
from computepool.agent.sandbox.slots import Footprint, SandboxConfig, Slot
from computepool.agent.sandbox.supervise import Process, read_wait_status, unwrap_signal
from computepool.core.isolation import Level

#: The user-space kernel and its gofer have some 30 threads and 25 MB at rest, and up to four threads of the host for
#: each of the job's. The exact limit on the job's processes is inside; this is the wall around it.
_FOOTPRINT = Footprint(pids=128, processes=7, pids_each=4, memory_mb=64, limits_inside=True)
LOG_FD = launcher.FIRST_OWN_FD - 1
_LOG_BYTES_MAX = 16 * 1024
_names = itertools.count()


class _GvisorProcess(Process):
    def _resident_bytes(self) -> int:
        slot = self._open_slot()
        return (
            isolation_evidence.memory_bytes(slot.descendants())
            if slot.cgroup is None
            else super()._resident_bytes()
        )


class GvisorSandbox(BoxedSandbox):
    """container.py starts its jobs in the same way, with another program."""

    level = Level.GVISOR
    footprint = _FOOTPRINT
    uid_inside = runsc.UID
    process: type[Process] = _GvisorProcess
    #: Exit code of the program when it could not start the job.
    not_started = 128
    #: Exit codes that may mean that the job never began.
    doubtful: tuple[int, ...] = ()

    def __init__(self, config: SandboxConfig) -> None:
        super().__init__(config)
        self._found = self._find()
        self._runs = _runs_folder(config.cache_dir / self.level.label)

    def probe(self) -> Probe:
        if isinstance(self._found, runsc.Missing):
            return Probe(ok=False, reason=self._found.reason, fix=self._found.fix)
        found = f"{self._found.path} of {self._found.release}, {self._ways}, limits by {self.limits_kind}"
        return run_true(self, found=found)

    def _program(self) -> str:
        if isinstance(self._found, runsc.Missing):
            raise SandboxError(f"{self._found.reason}: {self._found.fix}")
        return self._found.path

    def _require(self, policy: SandboxPolicy) -> None:
        program = self._program()
        if policy.gpus and (reason := self.cards_reason()):
            raise SandboxError(
                f"cards are not passed into {self.level.label}: {reason}; lend them at the level namespace"
            )
        require_reachable(Path(program))

    def _start(self, slot: Slot, command: Command) -> Process:
        policy = command.policy
        with self._new_folder() as folder:
            spec = self._configuration(command)
            self._adapt(spec, os.geteuid() if slot.uid is None else slot.uid)
            # In a file that only the job's uid can read: the environment may hold secrets.
            (folder / "config.json").write_text(json.dumps(spec))
            if slot.uid is not None:
                give(folder, slot.uid)
            log = slot.memory_file("log")

            def read_ending(wait_status: int) -> Exit:
                ending = _read_ending(wait_status, log, not_started=self.not_started)
                if ending is not None and ending.code not in self.doubtful:
                    return ending
                found = self._start_failure(command, otherwise=_failure(log, policy))
                return found if ending is None or found.code == ending.code else ending

            process = self.process(
                self._pool,
                slot,
                limits=command.limits,
                workdir=command.workdir,
                read_ending=read_ending,
                folder=folder,
            )
            fds = {**command.streams, **self._fds(policy), LOG_FD: log}
            if fds[0] is None:  # Not /dev/null: older ones took that for themselves.
                fds[0] = slot.memory_file("stdin", b"")
            argv = self._command(self._program(), folder, policy)
            slot.start(argv, {}, fds=fds, cwd=None, fence=policy.fence)
        return process

    def close(self) -> None:
        super().close()
        remove_tree(self._runs)

    @contextlib.contextmanager
    def _new_folder(self) -> Iterator[Path]:
        """A folder for one job's bundle and state; removed if the block fails, otherwise by its process."""
        folder = self._runs / str(next(_names))
        folder.mkdir(mode=0o700)
        try:
            yield folder
        except BaseException:
            remove_tree(folder)
            raise

    def _configuration(self, command: Command) -> dict[str, Any]:
        extra = self._read_only(command.policy)
        return runsc.configuration(
            command.argv,
            self._env(command.policy) | {"PWD": WORK},
            root=runsc.rootfs(self.config.cache_dir, extra),
            read_only={**self._system, **{inside: str(outside) for inside, outside in extra.items()}},
            workdir=command.workdir,
            limits=command.limits,
            memory_inside=self.limits_kind == "rlimit",
            devices=command.policy.gpus,
        )

    # ------------------------------------------------------------ what is runsc's own
    _ways = "systrap, rootless"

    def _find(self) -> runsc.Runsc | runsc.Missing:
        return runsc.find()

    def cards_reason(self) -> str:
        """Why jobs get no cards here; empty if they do."""
        if isinstance(self._found, runsc.Missing):
            return self._found.reason
        return runsc.nvproxy_reason(self._found.path, driver.version())

    def _adapt(self, spec: dict[str, Any], uid: int) -> None:
        """Adapt the configuration to the host uid of the job."""

    def _fds(self, policy: SandboxPolicy) -> Mapping[int, int | None]:
        return policy.fds

    def _command(self, program: str, folder: Path, policy: SandboxPolicy) -> list[str]:
        passed = [f"--pass-fd={number}:{number}" for number in policy.fds]
        # Of all the host's sockets only those that are mounted can be seen, let alone opened.
        opened = ["--host-uds=open"] if policy.network is Network.PROXY else []
        files = [f"--root={folder}", f"--log-fd={LOG_FD}"]
        cards = ["--nvproxy"] if policy.gpus else []
        return [program, *runsc.FLAGS, *cards, *opened, *files, "run", f"--bundle={folder}", *passed, "job"]


def _read_ending(wait_status: int, log: int, *, not_started: int) -> Exit | None:
    """How the job ended; None if it never started, in which case the log says why."""
    ending = read_wait_status(wait_status)
    if ending.status is Status.EXIT and ending.code == not_started and _last_error(log):
        return None
    return unwrap_signal(ending)


def _last_error(log: int) -> str:
    """The last error in the program's own log, which the job cannot write to."""
    message = ""
    for line in os.pread(log, _LOG_BYTES_MAX, 0).splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError):
            entry = json.loads(line)
            message = str(entry["msg"]) if entry["level"] == "error" else message
    return message


def _failure(log: int, policy: SandboxPolicy) -> str:
    """The error with missing mounts, which runsc does not name."""
    missing = [str(path) for path in policy.mounts if not path.exists()]
    return _last_error(log) + (f" (missing: {', '.join(missing)})" if missing else "")


def _runs_folder(parent: Path) -> Path:
    """A folder for the bundles of this sandbox; what dead agents left beside it is removed."""
    parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    for entry in list(parent.iterdir()):
        if cgroups.is_stale(entry.name):
            remove_tree(entry)
    folder = parent / f"{cgroups.own_prefix()}-{next(_names)}"
    folder.mkdir(mode=0o711)
    return folder
