"""What is special about gVisor: which runsc is usable, what the host sees of a job, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
from pathlib import Path

import psutil
import pytest

from computepool.agent.sandbox.backends import runsc, seccomp
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.base import SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.selftest import isolation_evidence, selftest
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.isolation import Level
from computepool.testing.waiting import wait_until
from tests.sandbox.conftest import AtLevel
from tests.sandbox.running import LIMITS, attack, eventually, make_sandbox, run, run_python, started, started_attack


# ------------------------------------------------------------------ which runsc is usable
def fake_runsc(folder: Path, *, version: str, platforms: str = "systrap\\n") -> None:
    folder.mkdir()
    program = folder / "runsc"
    program.write_text(f'#!/bin/sh\ncase "$1" in --version) echo "{version}";; help) printf "{platforms}";; esac\n')
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "platforms", "reason"),
    [
        ("runsc version 0.0~20221219.0", "ptrace\\nkvm\\n", "is of 2022"),
        ("runsc version release-20231218.0", "systrap\\n", "is of 2023"),
        ("runsc version 0.0~20240729.0", "ptrace\\nkvm\\n", "no platform systrap"),
        ("something else", "systrap\\n", "does not tell its version"),
        ("", "", "not installed"),
    ],
)
def test_an_unusable_runsc_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: SandboxConfig, version: str, platforms: str, reason: str
) -> None:
    if version:
        fake_runsc(tmp_path / "bin", version=version, platforms=platforms)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(runsc, "FOLDER", str(tmp_path / "nothing"))
    report = selftest.report(GvisorSandbox, config)
    assert (report.ok, report.limits) == (False, "")
    assert reason in report.reason
    assert "install-runsc.sh" in report.fix


def test_the_first_usable_runsc_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases = {"old": "20221219", "new": "20250101", "newer": "20260101"}
    for name, release in releases.items():
        fake_runsc(tmp_path / name, version=f"runsc version release-{release}.0")
    monkeypatch.setenv("PATH", ":".join(str(tmp_path / name) for name in releases))
    assert runsc.find() == runsc.Runsc(str(tmp_path / "new" / "runsc"), "20250101")
    monkeypatch.setenv("PATH", str(tmp_path / "old"))
    monkeypatch.setattr(runsc, "FOLDER", str(tmp_path / "newer"))
    assert runsc.find() == runsc.Runsc(str(tmp_path / "newer" / "runsc"), "20260101")


# ------------------------------------------------------------------ what the host sees
@pytest.mark.soak
def test_a_job_is_isolated_and_has_raised_nothing(gvisor: Sandbox) -> None:
    reader, writer = os.pipe()
    with started_attack(gvisor, "raise_priority_and_stay", stdin=reader) as job:
        os.close(reader)
        assert eventually(lambda: bool(job.read()[0]))
        assert json.loads(job.read()[0]), "its own kernel lets it believe so"
        assert isolation_evidence.gvisor_breaches(job.process.pid) == ""
        for part in psutil.Process(job.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                assert part.nice() >= 0
                assert int(Path(f"/proc/{part.pid}/oom_score_adj").read_text()) >= 900
                assert part.uids().real != 0
        os.close(writer)
    assert not isolation_evidence.has_leftovers(os.getpid())


@pytest.mark.parametrize("level", [Level.PROCESS, Level.NAMESPACE])
def test_other_levels_are_not_taken_for_gvisor(level: Level, at_level: AtLevel) -> None:
    with started(at_level(level), ["sleep", "30"]) as job:
        assert eventually(lambda: bool(psutil.Process(job.process.pid).children()))
        assert "0 user-space kernels" in isolation_evidence.gvisor_breaches(job.process.pid)


def test_the_kernel_is_not_the_hosts(gvisor: Sandbox) -> None:
    outcome = run(gvisor, ["uname", "-a"])
    assert os.uname().release not in outcome.out
    assert os.uname().version not in outcome.out


def test_other_users_cannot_read_a_jobs_bundle(gvisor: GvisorSandbox) -> None:
    """It contains the environment, which may hold secrets."""
    with started(gvisor, ["sleep", "30"], policy=SandboxPolicy(env={"TOKEN": "env-secret-9"})) as job:
        (folder,) = gvisor._runs.iterdir()
        assert "env-secret-9" in (folder / "config.json").read_text()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == job.workdir.stat().st_uid
    assert list(gvisor._runs.iterdir()) == []


# ------------------------------------------------------------------ limits
@pytest.mark.soak
def test_processes_that_evade_the_limit_inside_hit_the_limit_outside(
    config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a user namespace of its own kernel a job is no longer counted. The filter forbids those; without the filter the
    cgroup around everything still holds.
    """
    code = """
import ctypes, os, time
print(ctypes.CDLL(None).unshare(0x10000000), flush=True)
count = 0
try:
    while count < 1000:
        if os.fork() == 0: time.sleep(60)
        count += 1
except OSError: print(count, flush=True)
"""
    chosen = dataclasses.replace(LIMITS, pids=10, memory_mb=512, wall_s=15)
    with contextlib.closing(make_sandbox(Level.GVISOR, config)) as sandbox:
        assert run_python(sandbox, code, limits=chosen).out == "-1\n9\n"
        monkeypatch.setattr(seccomp, "oci", lambda: {"defaultAction": "SCMP_ACT_ALLOW"})
        with started(sandbox, ["python3", "-I", "-c", code], limits=chosen) as job:
            most = 0
            while (ended := job.process.wait(0.02)) is None:
                with contextlib.suppress(psutil.Error):
                    most = max(most, len(psutil.Process(job.process.pid).children(recursive=True)))
            assert job.read()[0].startswith("0\n"), "it had a namespace of its own"
            assert not ended.ok
            assert most <= 4 * 10 + 128
        assert run(sandbox, ["true"]).exit.ok


def test_cards_are_refused(gvisor: Sandbox) -> None:
    with pytest.raises(SandboxError, match="namespace"):
        run(gvisor, ["true"], policy=SandboxPolicy(gpus=("/dev/nvidia0",)))


# ------------------------------------------------------------------ nothing is left
@pytest.mark.soak
@pytest.mark.parametrize("bomb", ["memory_bomb", "fork_bomb_wild", "daemonize", "spin"])
def test_no_folder_and_no_process_is_left(gvisor: GvisorSandbox, bomb: str) -> None:
    chosen = dataclasses.replace(LIMITS, memory_mb=128, wall_s=1)
    attack(gvisor, bomb, *(["x"] if bomb == "daemonize" else []), limits=chosen)
    assert list(gvisor._runs.iterdir()) == []
    assert not isolation_evidence.has_leftovers(os.getpid())


def test_a_killed_kernel_is_noticed(gvisor: Sandbox) -> None:
    def kernels() -> list[psutil.Process]:
        parts = psutil.Process(job.process.pid).children(recursive=True)
        return [part for part in parts if isolation_evidence._name(part) == "runsc-sandbox"]

    with started(gvisor, ["sleep", "60"]) as job:
        found = wait_until(kernels, 60, "the kernel runs")
        found[0].kill()
        assert job.end().exit.status in (Status.SIGNAL, Status.SANDBOX_ERROR)
    assert run(gvisor, ["true"]).exit.ok


@pytest.mark.soak
def test_no_job_writes_into_the_root_that_jobs_share(gvisor: Sandbox) -> None:
    assert run(gvisor, ["true"]).exit.ok
    roots = {path: path.stat().st_mtime_ns for path in gvisor.config.cache_dir.glob("rootfs-*")}
    run(gvisor, ["sh", "-c", "touch /x /run/x /var/tmp/x; mkdir /y"])
    assert {path: path.stat().st_mtime_ns for path in gvisor.config.cache_dir.glob("rootfs-*")} == roots
    assert not [path for root in roots for path in root.rglob("[xy]")]
