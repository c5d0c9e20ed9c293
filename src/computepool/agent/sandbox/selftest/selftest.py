"""The node's self-test: finds out which isolation levels hold on this machine by attacking them.

Decides what a level must withstand to be advertised. Runs when the agent starts and for `pool node doctor`. A level that
fails is not offered: a leaky sandbox that is trusted is worse than none.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.backends.container import ContainerSandbox
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.base import Limits, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree, stage
from computepool.agent.sandbox.selftest import attacks, isolation_evidence
from computepool.agent.sandbox.slots import NPROC_STEP, SandboxConfig
from computepool.core.errors import Unavailable
from computepool.core.isolation import Level

#: Weakest first.
BACKENDS: dict[Level, type[Sandbox]] = {
    backend.level: backend for backend in (ProcessSandbox, BubblewrapSandbox, ContainerSandbox, GvisorSandbox)
}

_LIMITS = Limits(memory_mb=64, pids=16, cpus=0, wall_s=10, disk_mb=64, tmp_mb=8)
#: Errors of bubblewrap and runsc if the system gives ordinary users no user namespaces.
_NO_NAMESPACES = ("uid map", "Creating new namespace", "No permissions to create", "fork/exec /proc/self/exe")
_WAIT_S = 15.0
_DYING_S = 5.0
_UNTRIED = "could not be tried"
_FIX = "this is a fault of the sandbox on this machine; please report it with the output of `pool node doctor`"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelReport:
    level: Level
    ok: bool
    reason: str  #: what the level is made with, or why it does not hold
    fix: str  #: what the owner can do; empty if ok
    limits: str  #: cgroup1, cgroup2 or rlimit; empty if the level does not start at all
    attacks: tuple[tuple[str, str], ...] = ()  #: attack -> what it achieved; empty if it was held off


def choose_level(test: Callable[[Level], LevelReport], requested: str, *, cards: bool = False) -> Level:
    """The first level that passes its test, strongest first: the rest need not be attacked.

    Raises Unavailable, with a fix for the owner, if none passes. `cards`: the node has cards to lend.
    """
    failed: list[LevelReport] = []
    for level in _candidates(cards=cards) if requested == "auto" else [Level.parse(requested)]:
        report = test(level)
        if report.ok:
            return level
        failed.append(report)
    details = "; ".join(f"{report.level.label}: {report.reason}. {report.fix}".strip() for report in failed)
    raise Unavailable(f"This machine cannot provide the sandbox {requested!r} ({details}).")


def _candidates(*, cards: bool) -> list[Level]:
    # Few drivers' cards can be passed into gVisor, and a node with cards is there to lend them.
    strongest = Level.NAMESPACE if cards else Level.GVISOR
    levels = [level for level in Level if level <= strongest]
    # A container comes last among the levels that isolate untrusted jobs: as strong as a namespace, but slower.
    levels.sort(key=lambda level: (level >= Level.NAMESPACE, level is not Level.CONTAINER, level), reverse=True)
    return levels


def levels(config: SandboxConfig) -> list[LevelReport]:
    """A report for each level, weakest first. Takes seconds."""
    return [report(backend, config) for backend in BACKENDS.values()]


def report(backend: type[Sandbox], config: SandboxConfig) -> LevelReport:
    failed = functools.partial(LevelReport, level=backend.level, ok=False)
    try:
        sandbox = backend(config)
    except (SandboxError, OSError) as error:
        fix = getattr(error, "fix", "") or explain(str(error))
        return failed(reason=str(error), fix=fix, limits="")
    with contextlib.closing(sandbox):
        if reason := why_true_fails(sandbox):
            return failed(reason=reason, fix=explain(reason), limits="")
        try:
            achieved = _attack_twice(sandbox, config)
        except (SandboxError, OSError) as error:
            return failed(reason=str(error), fix=_FIX, limits=sandbox.limits_kind)
        broken = {name: text for name, text in achieved.items() if text}
        made_with = ", ".join(filter(None, (sandbox.program, f"limits by {sandbox.limits_kind}")))
        return LevelReport(
            level=backend.level,
            ok=not broken,
            reason=f"broken by {json.dumps(broken)}" if broken else made_with,
            fix=_FIX if broken else "",
            limits=sandbox.limits_kind,
            attacks=tuple(achieved.items()),
        )


def failure(sandbox: Sandbox, argv: Sequence[str], *, workdir: Path, limits: Limits, policy: SandboxPolicy) -> str:
    """Run one of the agent's own programs in the sandbox. Returns why it failed; empty if it succeeded."""
    try:
        with tempfile.TemporaryFile() as errors:
            process = sandbox.spawn(argv, workdir=workdir, limits=limits, policy=policy, stderr=errors.fileno())
            with contextlib.closing(process):
                ended = process.wait(limits.wall_s + 5)
            if ended is None:
                return "it did not end"
            errors.seek(0)
            stderr = errors.read(2000).decode(errors="replace").strip()
            return "" if ended.ok else stderr or ended.detail or f"{ended.status} {ended.code}"
    except SandboxError as error:
        return str(error)


def why_true_fails(sandbox: Sandbox) -> str:
    """Why `true` does not run in the sandbox; empty if it does."""
    workdir = make_workdir(sandbox.config.cache_dir, f"probe-{os.getpid()}-{id(sandbox):x}")
    try:
        return failure(sandbox, ["/bin/true"], workdir=workdir, limits=_LIMITS, policy=SandboxPolicy())
    finally:
        remove_tree(workdir)


def explain(reason: str) -> str:
    """What the owner can do about an error of bubblewrap, runsc or the agent."""
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if any(words in reason for words in _NO_NAMESPACES):
        if restricted.exists() and restricted.read_text().strip() == "1":
            return (
                "Ubuntu's AppArmor forbids user namespaces: `sudo apt install apparmor-profiles` and load "
                "the profile bwrap-userns-restrict (one of its kind for runsc), or "
                "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
            )
        return (
            "allow user namespaces: `sudo sysctl -w user.max_user_namespaces=15000`, on older Debian also "
            "`sudo sysctl -w kernel.unprivileged_userns_clone=1`; a container must be allowed to make them"
        )
    if "unknown option" in reason.lower():
        return "install bubblewrap 0.8 or newer"
    if "closed to other users" in reason:
        return "set the node's data folder to one that other users can traverse, for example /var/lib/computepool"
    return "run `pool node doctor` for the details"


def _attack_twice(sandbox: Sandbox, config: SandboxConfig) -> dict[str, str]:
    """Attack again if the machine was too busy for some attacks. What an attack achieved the first time stands."""
    first = _attack(sandbox, config)
    if not any(text.startswith(_UNTRIED) for text in first.values()):
        return first
    second = _attack(sandbox, config)
    return second | {name: text for name, text in first.items() if text and not text.startswith(_UNTRIED)}


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
            # A program of the host that jobs must not see, if there is one.
            hidden = set(os.listdir("/usr/bin")) - set(os.listdir(config.runtime.root / "usr" / "bin"))
            plan["files"] += [f"/usr/bin/{name}" for name in sorted(hidden)[:1]]
            plans.append(plan)
        jobs = [AttackJob(sandbox, plan, scratch=scratch, cleanup=cleanup) for plan in plans]
        achieved: dict[str, str] = {}
        for job in jobs:
            achieved |= job.result()
        if sandbox.level >= Level.CONTAINER:
            achieved["isolation"] = _attack_isolation(sandbox, scratch, cleanup)
        return achieved | canaries.traces()


def _attack_isolation(sandbox: Sandbox, scratch: Path, cleanup: contextlib.ExitStack) -> str:
    """Breaches of a running job's isolation as seen from the host, including leftovers after its end."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        job = AttackJob(sandbox, {"stay": []}, scratch=scratch, cleanup=cleanup, stdin=reader)
        breaches = (
            isolation_evidence.gvisor_breaches
            if sandbox.level is Level.GVISOR
            else isolation_evidence.container_breaches
        )
        found = breaches(job.pid) if job.wait_for_output() else f"{_UNTRIED}: it did not begin"
    finally:
        os.close(reader)
        os.close(writer)
    found = found or job.result()["stay"]
    outlived = isolation_evidence.has_leftovers(os.getpid())
    return found or ("a part of the sandbox outlived its job" if outlived else "")


class AttackJob:
    """A hostile job and what it claims to have achieved."""

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
        self._output = os.memfd_create("output", os.MFD_CLOEXEC)
        cleanup.callback(os.close, self._output)
        # Two streams write to it, and in gVisor each has a position of its own.
        fcntl.fcntl(self._output, fcntl.F_SETFL, os.O_APPEND)
        self._process = sandbox.spawn(
            ["python3", "-I", "attacks.py", json.dumps(plan)],
            workdir=workdir,
            limits=_LIMITS,
            policy=SandboxPolicy(),
            stdin=stdin,
            stdout=self._output,
            stderr=self._output,
        )
        cleanup.callback(self._process.close)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_output(self) -> bool:
        """Wait for the first output; False if the job ends before."""
        deadline = time.monotonic() + _WAIT_S
        while not os.fstat(self._output).st_size:
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
        output = os.pread(self._output, 8192, 0).decode(errors="replace").strip()
        try:
            found = json.loads(output.splitlines()[-1])
        except (ValueError, IndexError):
            return dict.fromkeys(self._plan, f"{_UNTRIED}: {ended.status} {ended.code} {output[-200:]}")
        return {name: json.dumps(found[name]) if found[name] else "" for name in self._plan}


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
        self._listeners = list(_listeners(self.marker))
        for listener in self._listeners:
            cleanup.enter_context(listener)
        # Waits for input that never comes, so that it ends with the agent even if that is killed.
        sleeper = cleanup.enter_context(
            subprocess.Popen(["computepool-canary"], executable="/bin/cat", stdin=subprocess.PIPE)
        )
        self._sleeper = psutil.Process(sleeper.pid)
        cleanup.callback(sleeper.kill)

    def plan(self, level: Level) -> dict[str, list[Any]]:
        facts = {  # From `container` on, uid 0 inside is a mere name; isolation_evidence.py looks from outside.
            Level.NAMESPACE: ["NoNewPrivs", "uid"],
            Level.CONTAINER: ["NoNewPrivs"],
            Level.GVISOR: [],
        }
        return {
            "files": [str(self._secret)],
            "processes": [self._sleeper.pid],
            "network": [self._listeners[0].getsockname()[1], self.marker],
            "calls": [],
            "privileges": facts[level],
            "writes": [str(path) for path in self._written],
            **({"kernel": [os.uname().version]} if level is Level.GVISOR else {}),
        }

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

    def _is_job(self, caller: socket.socket) -> bool:
        """True if the caller sends the job's marker. Other programs may connect to the port, too."""
        caller.setblocking(False)
        with contextlib.suppress(OSError):
            return caller.recv(len(self.marker)) == self.marker.encode()
        return False


def _callers(listener: socket.socket) -> Iterator[socket.socket]:
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
    """True if a process with this marker outlives its job. On a busy machine a killed one may take a moment to go."""
    deadline = time.monotonic() + _DYING_S
    while _is_running(marker):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def _is_running(marker: str) -> bool:
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and pid != os.getpid():
                return True
    return False
