"""What is special about gVisor: which runsc will do, what the host sees of a job, and that nothing of it stays behind."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from computepool.agent.sandbox import cgroups, levels
from computepool.agent.sandbox.backends import runsc, seccomp
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.base import SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.agent.sandbox.selftest import isolation_evidence, selftest
from computepool.agent.sandbox.selftest.selftest import LevelReport
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.supervise import Process
from computepool.core.errors import Unavailable
from computepool.core.isolation import Level
from tests.sandbox.running import (
    LIMITS,
    Job,
    alive,
    attack,
    eventually,
    require_runsc,
    run,
    run_python,
    stage_hostile,
    started,
)


# ------------------------------------------------------------------ which runsc will do
def fake_runsc(folder: Path, *, version: str, platforms: str) -> None:
    folder.mkdir()
    program = folder / "runsc"
    program.write_text(
        f'#!/bin/sh\ncase "$1" in --version) echo "{version}";; help) printf "{platforms}";; esac\n'
    )
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "platforms", "reason"),
    [
        ("runsc version 0.0~20221219.0", "ptrace\\nkvm\\n", "is of 2022"),
        ("runsc version release-20231218.0", "systrap\\n", "is of 2023"),
        ("runsc version 0.0~20240729.0", "ptrace\\nkvm\\n", "no platform systrap"),
        ("something else", "systrap\\n", "does not tell its version"),
    ],
)
def test_a_runsc_that_will_not_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: SandboxConfig,
    version: str,
    platforms: str,
    reason: str,
) -> None:
    fake_runsc(tmp_path / "bin", version=version, platforms=platforms)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(runsc, "FOLDER", str(tmp_path / "nothing"))
    report = selftest.report(GvisorSandbox, config)
    assert (report.ok, report.limits) == (False, "")
    assert reason in report.reason
    assert "install-runsc.sh" in report.fix
    with contextlib.closing(GvisorSandbox(config)) as sandbox, pytest.raises(SandboxError, match=reason):
        run(
            sandbox,
            ["true"],
        )


def test_the_first_that_will_do_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases = {"old": "20221219", "new": "20250101", "newer": "20260101"}
    for name, release in releases.items():
        fake_runsc(tmp_path / name, version=f"runsc version release-{release}.0", platforms="systrap\\n")
    monkeypatch.setenv("PATH", ":".join(str(tmp_path / name) for name in releases))
    assert runsc.find() == runsc.Runsc(str(tmp_path / "new" / "runsc"), "20250101")
    monkeypatch.setenv("PATH", str(tmp_path / "old"))
    monkeypatch.setattr(runsc, "FOLDER", str(tmp_path / "newer"))
    assert runsc.find() == runsc.Runsc(str(tmp_path / "newer" / "runsc"), "20260101")


def test_no_runsc_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(runsc, "FOLDER", str(tmp_path))
    found = runsc.find()
    assert isinstance(found, runsc.Missing)
    assert "not installed" in found.reason


# ------------------------------------------------------------------ which level a node takes
class Machine:
    """Holds these levels, and remembers which were put to the test."""

    def __init__(self, *holding: Level) -> None:
        self.holding, self.tested = holding, list[Level]()

    def test(self, level: Level) -> LevelReport:
        self.tested.append(level)
        ok = level in self.holding
        return LevelReport(
            level=level, ok=ok, reason="a reason", fix="" if ok else "a remedy", limits="cgroup2"
        )

    def takes(self, wanted: str, *, cards: bool = False) -> Level:
        return levels.choose(self.test, wanted, cards=cards).level


def test_the_strongest_level_that_holds_is_taken() -> None:
    process, namespace, container, gvisor = Level
    assert Machine(process, namespace, container).takes("auto") is namespace
    assert Machine(process, container).takes("auto") is container
    assert Machine(process).takes("auto") is process
    assert Machine(*Level).takes("container") is container
    assert Machine(*Level).takes("auto") is gvisor
    assert Machine(*Level).takes("namespace") is namespace
    assert Machine(*Level).takes("auto", cards=True) is namespace
    assert Machine(*Level).takes("gvisor", cards=True) is gvisor
    with pytest.raises(Unavailable, match="a remedy"):
        Machine(process, namespace).takes("gvisor")


def test_an_agent_tests_no_level_that_it_would_not_take() -> None:
    machine = Machine(*Level)
    machine.takes("process")
    assert machine.tested == [Level.PROCESS]
    machine.takes("auto")
    assert machine.tested == [Level.PROCESS, Level.GVISOR]


def test_each_level_is_made_by_its_backend(config: SandboxConfig) -> None:
    for backend in selftest.BACKENDS:
        with contextlib.closing(levels.make(backend.level, config)) as made:  # type: ignore[type-var]
            assert isinstance(made, backend)


# ------------------------------------------------------------------ what the host sees
@contextlib.contextmanager
def staying(sandbox: Sandbox, name: str) -> Iterator[tuple[Process, dict[str, object]]]:
    """A job of hostile.py that has said what it got, and stays until it is ended."""
    reader, writer = os.pipe()
    code = f"import os, sys; sys.stdin = os.fdopen(5); sys.argv = ['', {name!r}, '[]']; exec(open('hostile.py').read())"
    argv = ["python3", "-I", "-c", code]
    policy = SandboxPolicy(fds={5: reader})
    with started(sandbox, argv, prepare=stage_hostile, policy=policy) as job:
        os.close(reader)
        # The output is a file: what is in it is what it has said.
        assert eventually(lambda: bool(said(job)))
        yield job.process, json.loads(said(job))
        os.close(writer)


def said(job: Job) -> str:
    assert job.process.wait(0.05) is None
    return job.read()[0]


@pytest.mark.soak
def test_the_job_is_behind_walls_and_has_raised_nothing(gvisor: GvisorSandbox, ground: Path) -> None:
    with staying(gvisor, "raise_priority_and_stay") as (process, got):
        assert got  # Its own kernel lets it believe so.
        assert isolation_evidence.breaches(process.pid) == ""
        for part in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                assert part.nice() >= 0
                assert int(Path(f"/proc/{part.pid}/oom_score_adj").read_text()) >= 900
                assert part.uids().real != 0
    assert not isolation_evidence.left_over(os.getpid())


@pytest.mark.parametrize("backend", [ProcessSandbox, BubblewrapSandbox])
def test_other_levels_have_no_such_walls(
    backend: type[ProcessSandbox] | type[BubblewrapSandbox], config: SandboxConfig
) -> None:
    with (
        contextlib.closing(backend(config)) as sandbox,
        started(sandbox, ["sleep", "30"]) as job,
    ):
        assert eventually(lambda: bool(psutil.Process(job.process.pid).children()))
        assert "0 user-space kernels" in isolation_evidence.breaches(job.process.pid)


def test_the_kernel_is_not_the_hosts(gvisor: GvisorSandbox) -> None:
    outcome = run(gvisor, ["uname", "-a"])
    assert os.uname().release not in outcome.out
    assert os.uname().version not in outcome.out


def test_what_runsc_is_told_is_for_the_job_alone(gvisor: GvisorSandbox) -> None:
    """The environment may hold secrets: the bundle is closed to every other user."""
    policy = SandboxPolicy(env={"TOKEN": "env-secret-9"})
    with started(gvisor, ["sleep", "30"], policy=policy) as job:
        (folder,) = gvisor._runs.iterdir()
        assert "env-secret-9" in (folder / "config.json").read_text()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == job.workdir.stat().st_uid
    assert list(gvisor._runs.iterdir()) == []


# ------------------------------------------------------------------ limits
@pytest.mark.soak
def test_more_processes_than_allowed_hit_the_wall_around(
    config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a user namespace of its own kernel a job is not counted any more. The filter forbids those; without the
    filter the cgroup around all of it still holds.
    """
    require_runsc()
    code = (
        "import ctypes, os, time\n"
        "print(ctypes.CDLL(None).unshare(0x10000000), flush=True)\n"
        "count = 0\n"
        "try:\n"
        "    while count < 1000:\n"
        "        if os.fork() == 0: time.sleep(60)\n"
        "        count += 1\n"
        "except OSError: print(count, flush=True)\n"
    )
    chosen = dataclasses.replace(LIMITS, pids=10, memory_mb=512, wall_s=15)
    with contextlib.closing(GvisorSandbox(config)) as sandbox:
        assert run_python(sandbox, code, limits=chosen).out == "-1\n9\n"
        monkeypatch.setattr(seccomp, "oci", lambda: {"defaultAction": "SCMP_ACT_ALLOW"})
        with started(sandbox, ["python3", "-I", "-c", code], limits=chosen) as job:
            most = 0
            while (ended := job.process.wait(0.02)) is None:
                with contextlib.suppress(psutil.Error):
                    parts = psutil.Process(job.process.pid).children(recursive=True)
                    most = max(most, len(parts))
            assert job.read()[0].startswith("0\n")  # It had a namespace of its own,
            assert not ended.ok  # and came to nothing.
            assert most <= 4 * 10 + 128
        assert run(sandbox, ["true"]).exit.ok


def test_cards_are_refused(gvisor: GvisorSandbox) -> None:
    with pytest.raises(SandboxError, match="namespace"):
        run(gvisor, ["true"], policy=SandboxPolicy(gpus=("/dev/nvidia0",)))


# ------------------------------------------------------------------ nothing stays behind
@pytest.mark.soak
@pytest.mark.parametrize("bomb", ["memory_bomb", "fork_bomb_wild", "daemonize", "spin"])
def test_no_folder_and_no_process_is_left(gvisor: GvisorSandbox, bomb: str) -> None:
    chosen = dataclasses.replace(LIMITS, memory_mb=128, wall_s=1)
    attack(gvisor, bomb, *(["x"] if bomb == "daemonize" else []), limits=chosen)
    assert list(gvisor._runs.iterdir()) == []
    assert not isolation_evidence.left_over(os.getpid())


def test_a_killed_kernel_is_noticed(gvisor: GvisorSandbox) -> None:
    with started(gvisor, ["sleep", "60"]) as job:
        kernels: list[psutil.Process] = []

        def there() -> bool:
            parts = psutil.Process(job.process.pid).children(recursive=True)
            kernels[:] = [part for part in parts if isolation_evidence._name(part) == "runsc-sandbox"]
            return bool(kernels)

        assert eventually(there)
        kernels[0].kill()
        ended = job.end(10).exit
        assert not ended.ok
        assert ended.status in (Status.SIGNAL, Status.SANDBOX_ERROR)
    assert run(gvisor, ["true"]).exit.ok


_AGENT = """
import sys, time
from pathlib import Path
from computepool.agent.sandbox.base import Limits, SandboxPolicy
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.slots import SandboxConfig
cache = Path(sys.argv[1])
sandbox = GvisorSandbox(SandboxConfig(cache_dir=cache, runtime=Runtime.prepare(cache, {})))
process = sandbox.spawn(["sleep", "60"], workdir=Path(sys.argv[2]), limits=Limits(), policy=SandboxPolicy())
print(sandbox._runs, flush=True)
time.sleep(60)
"""


@pytest.mark.soak
def test_next_agent_removes_what_a_killed_one_left(
    config: SandboxConfig, ground: Path, runtime: Runtime
) -> None:
    require_runsc()
    workdir = make_workdir(ground / "work", f"killed-{secrets.token_hex(4)}")
    command = [sys.executable, "-c", _AGENT, str(config.cache_dir), str(workdir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        left = Path(agent.stdout.readline().strip())
        assert eventually(lambda: alive("no such name", ground))
        agent.kill()
    assert eventually(lambda: not alive("no such name", ground), timeout_s=20)
    assert left.is_dir()
    with contextlib.closing(GvisorSandbox(config)) as sandbox:
        assert not left.exists()
        assert sandbox._runs.is_dir()
        assert run(sandbox, ["true"]).exit.ok
    assert not sandbox._runs.exists()
    maker = cgroups.detect()  # Sweeps too.
    if isinstance(maker, cgroups.Maker):
        assert not [path for base in maker.bases.values() for path in base.glob(f"*.{agent.pid}.*")]
    remove_tree(workdir)


@pytest.mark.soak
def test_nobody_writes_into_the_root_that_jobs_share(gvisor: GvisorSandbox) -> None:
    assert run(gvisor, ["true"]).exit.ok
    roots = {path: path.stat().st_mtime_ns for path in gvisor.config.cache_dir.glob("rootfs-*")}
    run(gvisor, ["sh", "-c", "touch /x /run/x /var/tmp/x; mkdir /y"])
    assert {path: path.stat().st_mtime_ns for path in gvisor.config.cache_dir.glob("rootfs-*")} == roots
    assert not [path for root in roots for path in root.rglob("[xy]")]
