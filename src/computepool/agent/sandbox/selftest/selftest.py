"""The node's self-test: finds out which isolation levels hold on this machine by attacking them.

Owns what a level must withstand to be advertised. Runs at the start of the agent and for `pool node doctor`. A level that
fails is not offered: a leaky sandbox that is trusted is worse than none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.backends.container import ContainerSandbox
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.base import Limits, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree, stage
from computepool.agent.sandbox.selftest import attacks, isolation_evidence
from computepool.agent.sandbox.selftest.probing import explain
from computepool.agent.sandbox.slots import NPROC_STEP, SandboxConfig
from computepool.core.isolation import Level

#: Weakest first.
BACKENDS: tuple[type[Sandbox], ...] = (ProcessSandbox, BubblewrapSandbox, ContainerSandbox, GvisorSandbox)

_LIMITS = Limits(memory_mb=64, pids=16, cpus=0, wall_s=10, disk_mb=64, tmp_mb=8)
_WAIT_S = 15.0
_DYING_S = 5.0
_UNTRIED = "could not be tried"
_FIX = (
    "this is a fault of the sandbox on this machine; please report it with the output of `pool node doctor`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelReport:
    level: Level
    ok: bool
    #: What was found, or the first thing that is wrong.
    reason: str
    #: What the owner can do; empty when ok.
    fix: str
    #: cgroup1, cgroup2 or rlimit; empty if the level does not start at all.
    limits: str
    #: Attack -> what it achieved; empty text means that it was held off.
    attacks: tuple[tuple[str, str], ...] = ()


def levels(config: SandboxConfig) -> list[LevelReport]:
    """A report for each level this agent can make, weakest first. Takes seconds."""
    return [report(backend, config) for backend in BACKENDS]


def level_report(level: Level, config: SandboxConfig) -> LevelReport:
    return next(report(backend, config) for backend in BACKENDS if backend.level is level)


def report(backend: type[Sandbox], config: SandboxConfig) -> LevelReport:
    """Probe one backend and attack it."""
    level = backend.level
    try:
        sandbox = backend(config)
    except (SandboxError, OSError) as error:
        return LevelReport(level=level, ok=False, reason=str(error), fix=explain(str(error)), limits="")
    with contextlib.closing(sandbox):
        probe = sandbox.probe()
        if not probe.ok:
            return LevelReport(level=level, ok=False, reason=probe.reason, fix=probe.fix, limits="")
        try:
            achieved = _attack_twice(sandbox, config)
        except (SandboxError, OSError) as error:
            return LevelReport(level=level, ok=False, reason=str(error), fix=_FIX, limits=sandbox.limits_kind)
        broken = {name: text for name, text in achieved.items() if text}
        return LevelReport(
            level=level,
            ok=not broken,
            reason=f"broken by {json.dumps(broken)}" if broken else probe.reason,
            fix=_FIX if broken else "",
            limits=sandbox.limits_kind,
            attacks=tuple(achieved.items()),
        )


def _attack_twice(sandbox: Sandbox, config: SandboxConfig) -> dict[str, str]:
    """Repeat attacks that did not finish on a busy machine. What an attack achieved stands."""
    first = _attack(sandbox, config)
    if not any(text.startswith(_UNTRIED) for text in first.values()):
        return first
    again = _attack(sandbox, config)
    return again | {name: text for name, text in first.items() if text and not text.startswith(_UNTRIED)}


def _attack(sandbox: Sandbox, config: SandboxConfig) -> dict[str, str]:
    """Run all attacks that the level must withstand, in parallel; attack -> what it achieved."""
    scratch = config.cache_dir
    with contextlib.ExitStack() as cleanup:
        canaries = _Canaries(cleanup, scratch)
        coarse = sandbox.limits_kind == "rlimit" and os.geteuid() != 0
        plans: list[dict[str, list[Any]]] = [
            {"memory": [_LIMITS.memory_mb]},
            {"forks": [_LIMITS.pids + (2 * NPROC_STEP if coarse else 0)]},
            {"daemon": [canaries.marker]},
        ]
        if sandbox.level >= Level.NAMESPACE:
            plan = canaries.plan(sandbox.level)
            plan["files"] += _hidden_programs(config.runtime)
            plans.append(plan)
        jobs = [AttackJob(sandbox, plan, scratch=scratch, cleanup=cleanup) for plan in plans]
        achieved: dict[str, str] = {}
        for job in jobs:
            achieved |= job.result()
        if sandbox.level >= Level.CONTAINER:
            achieved["isolation"] = _look_at_isolation(sandbox, scratch, cleanup)
        return achieved | canaries.traces()


def _hidden_programs(runtime: Runtime | None) -> list[str]:
    """A program of the host that jobs must not see."""
    known = set() if runtime is None else set(os.listdir(runtime.root / "usr" / "bin"))
    return [f"/usr/bin/{name}" for name in sorted(set(os.listdir("/usr/bin")) - known)[:1]]


def _look_at_isolation(sandbox: Sandbox, scratch: Path, cleanup: contextlib.ExitStack) -> str:
    """Breaches of a running job as seen from the host, including leftovers after its end."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        job = AttackJob(sandbox, {"stay": []}, scratch=scratch, cleanup=cleanup, stdin=reader)
        look = (
            isolation_evidence.breaches
            if sandbox.level is Level.GVISOR
            else isolation_evidence.container_breaches
        )
        found = look(job.pid) if job.wait_for_output() else f"{_UNTRIED}: it did not begin"
    finally:
        os.close(reader)
        os.close(writer)
    ended = job.result()["stay"]
    return (
        found
        or ended
        or ("a part of the sandbox outlived its job" if isolation_evidence.left_over(os.getpid()) else "")
    )


class AttackJob:
    """A hostile process and what it claims to have achieved."""

    def __init__(
        self,
        sandbox: Sandbox,
        plan: dict[str, list[Any]],
        *,
        scratch: Path,
        cleanup: contextlib.ExitStack,
        stdin: int | None = None,
    ) -> None:
        self._plan = plan
        workdir = make_workdir(scratch, f"selftest-{secrets.token_hex(6)}")
        cleanup.callback(remove_tree, workdir)
        with stage(workdir, "attacks.py") as script:
            script.write(Path(attacks.__file__).read_bytes())
        self._output = cleanup.enter_context(_temporary_file())
        self._process = sandbox.spawn(
            ["python3", "-I", "attacks.py", json.dumps(plan)],
            workdir=workdir,
            limits=_LIMITS,
            policy=SandboxPolicy(),
            stdin=stdin,
            stdout=self._output.fileno(),
            stderr=self._output.fileno(),
        )
        cleanup.callback(self._process.close)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_output(self) -> bool:
        """Wait for its first output; False if it ends before."""
        deadline = time.monotonic() + _WAIT_S
        while not os.fstat(self._output.fileno()).st_size:
            if self._process.wait(0.01) is not None or time.monotonic() > deadline:
                return False
        return True

    def result(self) -> dict[str, str]:
        ended = self._process.wait(_WAIT_S)
        self._process.close()
        if ended is None:
            return dict.fromkeys(self._plan, f"{_UNTRIED}: it did not end in time")
        if ended.status is Status.OOM and "memory" in self._plan:
            return {"memory": ""}
        self._output.seek(0)
        output = self._output.read(8192).decode(errors="replace").strip()
        try:
            found = json.loads(output.splitlines()[-1])
        except (ValueError, IndexError):
            return dict.fromkeys(self._plan, f"{_UNTRIED}: {ended.status} {ended.code} {output[-200:]}")
        return {name: json.dumps(found[name]) if found[name] else "" for name in self._plan}


@contextlib.contextmanager
def _temporary_file() -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as opened:
        # Two streams write to it, and behind a user-space kernel each has a position of its own.
        fcntl.fcntl(opened, fcntl.F_SETFL, fcntl.fcntl(opened, fcntl.F_GETFL) | os.O_APPEND)
        yield opened


class _Canaries:
    """Things on the host that a job must not reach, and the traces it would leave if it did."""

    def __init__(self, cleanup: contextlib.ExitStack, scratch: Path) -> None:
        self.marker = f"computepool-daemon-{secrets.token_hex(6)}"
        folder = make_workdir(scratch, f"canary-{secrets.token_hex(6)}")
        folder.chmod(0o755)
        cleanup.callback(remove_tree, folder)
        self._secret = folder / "secret"
        self._secret.write_text(self.marker)
        self._written = [folder / "outputs" / "written", Path("/usr", self.marker), Path("/etc", self.marker)]
        (folder / "outputs").chmod(0o777)
        self._abstract = self.marker
        self._listeners = list(_listeners(self._abstract))
        for listener in self._listeners:
            cleanup.enter_context(listener)
        # Waits for input that never comes, so that it ends with the agent, even by kill -9.
        sleeper = cleanup.enter_context(
            subprocess.Popen(["computepool-canary"], executable="/bin/cat", stdin=subprocess.PIPE)
        )
        self._sleeper = psutil.Process(sleeper.pid)
        cleanup.callback(sleeper.kill)

    def plan(self, level: Level) -> dict[str, list[Any]]:
        # There uid 0 is a name, and what counts is seen from outside (isolation_evidence.py).
        own_kernel = level is Level.GVISOR
        return {
            "files": [str(self._secret)],
            "processes": [self._sleeper.pid],
            "network": [self._listeners[0].getsockname()[1], self._abstract],
            "calls": [],
            "privileges": {Level.GVISOR: [], Level.CONTAINER: ["NoNewPrivs"]}.get(
                level, ["NoNewPrivs", "uid"]
            ),
            "writes": [str(path) for path in self._written],
            **({"kernel": [os.uname().version]} if own_kernel else {}),
        }

    def _is_job(self, caller: socket.socket) -> bool:
        """True if the caller sends the job's marker. Other programs may connect to the port, too."""
        caller.setblocking(False)
        with contextlib.suppress(OSError):
            return caller.recv(len(self.marker)) == self.marker.encode()
        return False

    def traces(self) -> dict[str, str]:
        """Traces on the host, whatever the job claims."""
        found = {}
        for listener in self._listeners:
            if any(self._is_job(caller) for caller in _callers(listener)):
                found["network"] = f"connected to {listener.getsockname()!r}"
        if written := [str(path) for path in self._written if path.exists()]:
            found["writes"] = ", ".join(written)
        if not self._sleeper.is_running():
            found["processes"] = "killed a process of the host"
        if _outlives(self.marker):
            found["daemon"] = "a process outlived its job"
        return found


def _callers(listener: socket.socket) -> Iterator[socket.socket]:
    """Every connection so far."""
    with contextlib.suppress(BlockingIOError):
        while True:
            with listener.accept()[0] as caller:
                yield caller


def _listeners(abstract: str) -> Iterator[socket.socket]:
    for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, f"\0{abstract}")):
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()
        listener.setblocking(False)
        yield listener


def _outlives(marker: str) -> bool:
    """True if a process outlives its job. A killed one may need a moment on a busy machine."""
    deadline = time.monotonic() + _DYING_S
    while _runs(marker):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def _runs(marker: str) -> bool:
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and pid != os.getpid():
                return True
    return False
