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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from computepool.agent.hardware import driver
from computepool.agent.sandbox import cgroups, launcher
from computepool.agent.sandbox.backends import runsc, seccomp
from computepool.agent.sandbox.base import Limits, Network, Probe, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.interior import WORK, Interior, etc_folder
from computepool.agent.sandbox.scratch import give, remove_tree, require_reachable
from computepool.agent.sandbox.selftest import isolation_evidence
from computepool.agent.sandbox.selftest.probing import run_true
from computepool.agent.sandbox.slots import Footprint, SandboxConfig, SlotPool, check_command
from computepool.agent.sandbox.supervise import ProcessExit, SlotProcess, read_wait_status
from computepool.core.isolation import Level

#: The user-space kernel and its gofer have some 30 threads and 25 MB at rest, and up to four threads of the host for
#: each of the job's. The exact limit on the job's processes is inside; this is the wall around it.
_FOOTPRINT = Footprint(pids=128, processes=7, pids_each=4, memory_mb=64, limits_inside=True)
LOG_FD = launcher.FIRST_OWN_FD - 1
_LOG_BYTES_MAX = 16 * 1024
_names = itertools.count()


class _GvisorProcess(SlotProcess):
    def _resident_bytes(self) -> int:
        slot = self._open_slot()
        return (
            isolation_evidence.memory_bytes(slot.descendants())
            if slot.cgroup is None
            else super()._resident_bytes()
        )


class GvisorSandbox:
    """Implements base.Sandbox. container.py starts its jobs in the same way, with another program."""

    level: Level = Level.GVISOR
    footprint = _FOOTPRINT
    process: type[SlotProcess] = _GvisorProcess
    #: Exit code of the program when it could not start the job.
    not_started = 128
    #: Exit codes that may mean that the job never began.
    doubtful: tuple[int, ...] = ()

    def __init__(self, config: SandboxConfig) -> None:
        if not seccomp.is_supported():
            raise SandboxError(f"there is no seccomp filter for {os.uname().machine}")
        self._config = config
        self._found = self._find()
        self._interior = Interior(config.runtime)
        self._system = self._interior.system(
            etc_folder(config.cache_dir, self._interior.runtime, uid=runsc.UID)
        )
        self._pool = SlotPool(config, self.footprint)
        self._runs = _runs_folder(config.cache_dir / self.level.label)

    @property
    def limits_kind(self) -> str:
        return self._pool.limits_kind

    def probe(self) -> Probe:
        if isinstance(self._found, runsc.Missing):
            return Probe(ok=False, reason=self._found.reason, fix=self._found.fix)
        found = f"{self._found.path} of {self._found.release}, {self._ways}, limits by {self.limits_kind}"
        return run_true(self, self._config.cache_dir, found=found)

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
        if isinstance(self._found, runsc.Missing):
            raise SandboxError(f"{self._found.reason}: {self._found.fix}")
        check_command(argv, policy)
        if policy.gpus and (reason := self.cards_reason()):
            raise SandboxError(
                f"cards are not passed into {self.level.label}: {reason}; lend them at the level namespace"
            )
        for path in (workdir, Path(self._found.path)):
            require_reachable(path)
        with self._pool.starting(limits, policy.cpu_ids) as slot, self._new_folder() as folder:
            slot.refuse_root()
            spec = self._configuration(argv, workdir=workdir, limits=limits, policy=policy)
            self._adapt(spec, os.geteuid() if slot.uid is None else slot.uid)
            # In a file that only the job's uid can read: the environment may hold secrets.
            (folder / "config.json").write_text(json.dumps(spec))
            if slot.uid is not None:
                give(workdir, slot.uid)
                give(folder, slot.uid)
            log = slot.memory_file("log")

            def read_ending(wait_status: int) -> ProcessExit:
                ending = _read_ending(wait_status, log, not_started=self.not_started)
                if ending is not None and ending.code not in self.doubtful:
                    return ending
                found = self._interior.start_failure(
                    argv[0], workdir=workdir, policy=policy, otherwise=_failure(log, policy)
                )
                return found if ending is None or found.code == ending.code else ending

            process = self.process(
                self._pool, slot, limits=limits, workdir=workdir, read_ending=read_ending, folder=folder
            )
            # Not /dev/null: older ones took that for themselves, and nothing is lost by never handing it over.
            given = slot.memory_file("stdin", b"") if stdin is None else stdin
            fds = {0: given, 1: stdout, 2: stderr, **self._fds(policy), LOG_FD: log}
            command = self._command(self._found.path, folder, policy)
            slot.start(command, {}, fds=fds, cwd=None, fence=policy.fence)
        return process

    def close(self) -> None:
        self._pool.close()
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

    def _configuration(
        self, argv: Sequence[str], *, workdir: Path, limits: Limits, policy: SandboxPolicy
    ) -> dict[str, Any]:
        extra = {inside: outside for outside, inside in self._interior.read_only(policy)}
        return runsc.configuration(
            argv,
            self._interior.env(policy) | {"PWD": WORK},
            root=runsc.rootfs(self._config.cache_dir, extra),
            read_only={**self._system, **{inside: str(outside) for inside, outside in extra.items()}},
            workdir=workdir,
            limits=limits,
            memory_inside=self.limits_kind == "rlimit",
            devices=policy.gpus,
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


def _read_ending(wait_status: int, log: int, *, not_started: int) -> ProcessExit | None:
    """How the job ended; None if it never started, in which case the log says why."""
    ending = read_wait_status(wait_status)
    if ending.status is Status.EXIT and ending.code == not_started and _last_error(log):
        return None
    if ending.status is Status.EXIT and 128 < ending.code <= 128 + 64:  # The way to pass on a signal
        return ProcessExit(Status.SIGNAL, ending.code - 128)
    return ending


def _last_error(log: int) -> str:
    """The last error in the program's own log, which the job cannot write to."""
    said = ""
    for line in os.pread(log, _LOG_BYTES_MAX, 0).splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError):
            entry = json.loads(line)
            said = str(entry["msg"]) if entry["level"] == "error" else said
    return said


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
