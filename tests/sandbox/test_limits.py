"""Limits, kills and counters, at every level."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from computepool.agent.sandbox import cgroups, scratch
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.base import MIB, Limits, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.isolation import Level
from tests.sandbox.running import (
    LIMITS,
    alive,
    attack,
    eventually,
    require_runsc,
    run,
    run_python,
    stage_hostile,
    started,
)


def limits(**changes: float) -> Limits:
    return dataclasses.replace(LIMITS, **changes)  # type: ignore[arg-type]


# ------------------------------------------------------------------ ordinary ends
@pytest.mark.every_case
@pytest.mark.parametrize(
    ("command", "status", "code"),
    [
        ("exit 0", Status.EXIT, 0),
        ("exit 3", Status.EXIT, 3),
        ("kill -SEGV $$", Status.SIGNAL, 11),
        ("kill -KILL $$", Status.SIGNAL, 9),
        ("kill -TERM $$", Status.SIGNAL, 15),
    ],
)
def test_end_is_named(sandbox: Sandbox, command: str, status: Status, code: int) -> None:
    ended = run(sandbox, ["sh", "-c", command]).exit
    assert (ended.status, ended.code) == (status, code)


def test_command_that_does_not_exist(sandbox: Sandbox) -> None:
    outcome = run(sandbox, ["no-such-command"])
    assert (outcome.exit.status, outcome.exit.code) == (Status.EXIT, 127)
    assert "no-such-command" in outcome.err


def test_command_that_cannot_be_run(sandbox: Sandbox) -> None:
    def prepare(workdir: Path) -> None:
        (workdir / "plain").write_text("text")
        (workdir / "script").write_text("#!/no/such/interpreter\n")
        (workdir / "script").chmod(0o755)

    for command in ("./plain", "./script"):
        ended = run(sandbox, [command], prepare=prepare).exit
        assert ended.status is Status.EXIT
        assert ended.code in (126, 127)


def test_broken_sandbox_is_not_the_jobs_fault(boxed: Sandbox, ground: Path) -> None:
    policy = SandboxPolicy(mounts={ground / "missing": "/data"})
    outcome = run(boxed, ["true"], policy=policy)
    assert outcome.exit.status is Status.SANDBOX_ERROR
    assert "missing" in outcome.err + outcome.exit.detail


@pytest.mark.every_case
def test_streams_environment_folder_and_descriptors(sandbox: Sandbox) -> None:
    reader, writer = os.pipe()
    code = (
        "import os, sys; print(os.environ['GIVEN'], sys.stdin.read()); print('err', file=sys.stderr);"
        "os.write(7, b'through'); open('outputs/result', 'w').write(os.getcwd())"
    )
    policy = SandboxPolicy(env={"GIVEN": "ü 1"}, fds={7: writer})
    argv = ["python3", "-I", "-c", code]
    with started(sandbox, argv, policy=policy, stdin=b"typed") as job:
        os.close(writer)
        ended = job.end(20)
        assert ended.exit.ok, ended.err
        assert (ended.out, ended.err) == ("ü 1 typed\n", "err\n")
        assert os.read(reader, 100) == b"through"
        os.close(reader)
        seen = sandbox.inside(job.workdir, workdir=job.workdir, policy=policy)
        assert (job.workdir / "outputs" / "result").read_text() == seen


def test_mounts_are_read_only_and_where_they_should_be(sandbox: Sandbox, ground: Path) -> None:
    source = ground / "data"
    source.mkdir(exist_ok=True)
    (source / "file").write_text("content")
    policy = SandboxPolicy(mounts={source: "/data"})

    def path(workdir: Path) -> str:
        return sandbox.inside(source / "file", workdir=workdir, policy=policy)

    code = f"print(open({path(ground)!r}).read()); open({path(ground)!r}, 'w')"
    outcome = run_python(sandbox, code, policy=policy)
    assert outcome.out == "content\n"
    assert outcome.exit.code == 1
    assert "Read-only file system" in outcome.err or "Permission denied" in outcome.err


def test_oversized_request_is_refused_and_the_sandbox_goes_on(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="arguments and environment"):
        run(sandbox, ["true", "x" * 200_000])
    assert run(sandbox, ["true"]).exit.ok


# ------------------------------------------------------------------ memory, processes, time
@pytest.mark.parametrize("bomb", ["memory_bomb", "memory_bomb_children"])
def test_memory_bomb_ends_as_oom(sandbox: Sandbox, bomb: str) -> None:
    ended = attack(sandbox, bomb, limits=limits(memory_mb=128)).exit
    assert ended.status is Status.OOM
    own_mb = 64 if sandbox.level >= Level.CONTAINER else 32  # What carries the job counts too.
    assert 128 <= ended.usage.peak_rss_mb <= 128 + own_mb
    assert "128 MB" in ended.detail


def test_oom_of_one_job_is_not_blamed_on_the_next(sandbox: Sandbox) -> None:
    assert attack(sandbox, "memory_bomb", limits=limits(memory_mb=64)).exit.status is Status.OOM
    ended = run(sandbox, ["sh", "-c", "exit 7"], limits=limits(memory_mb=64)).exit
    assert (ended.status, ended.code) == (Status.EXIT, 7)


def test_fork_bomb_stops_at_the_limit(sandbox: Sandbox) -> None:
    outcome = attack(sandbox, "fork_bomb", limits=limits(pids=20))
    assert outcome.got == {"forks": 19, "errno": "EAGAIN"}  # and the job's first process


def test_thread_bomb_stops_at_the_limit(sandbox: Sandbox) -> None:
    assert attack(sandbox, "thread_bomb", limits=limits(pids=20)).got == {"threads": 19}


def test_wild_fork_bomb_is_killed_whole(sandbox: Sandbox) -> None:
    argv = ["python3", "-I", "bombs.py", "fork_bomb_wild", "[]"]
    chosen = limits(pids=50, wall_s=0.5)
    with started(sandbox, argv, prepare=stage_hostile, limits=chosen) as job:
        uid = job.workdir.stat().st_uid
        launcher = job.process.pid
        assert job.end(20).exit.status is Status.TIMEOUT
        if uid:
            left = [
                p.pid for p in psutil.process_iter(["uids"]) if p.info["uids"] and p.info["uids"].real == uid
            ]
            assert left == [launcher]


def test_time_limit(sandbox: Sandbox) -> None:
    began = time.monotonic()
    ended = attack(sandbox, "spin", limits=limits(wall_s=2)).exit
    assert ended.status is Status.TIMEOUT
    assert 2000 <= ended.usage.wall_ms < 10_000
    assert ended.usage.cpu_ms > 100
    assert time.monotonic() - began < 20


def test_cpu_share_is_limited(sandbox: Sandbox) -> None:
    ended = attack(sandbox, "spin", limits=limits(wall_s=0.9, cpus=0.25)).exit
    assert ended.usage.cpu_ms < 0.25 * ended.usage.wall_ms + 200


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.OUTPUT_LIMIT])
def test_kill_ends_a_job_that_ignores_signals(sandbox: Sandbox, status: Status) -> None:
    argv = ["python3", "-I", "bombs.py", "ignore_signals", "[]"]
    with started(sandbox, argv, prepare=stage_hostile) as job:
        assert job.process.wait(0.3) is None
        began = time.monotonic()
        job.process.kill(status)
        ended = job.end(10).exit
        assert (ended.status, ended.code) == (status, 9)
        assert time.monotonic() - began < 8


def test_kill_right_after_spawn(sandbox: Sandbox) -> None:
    for _ in range(5):
        with started(sandbox, ["sleep", "60"]) as job:
            job.process.kill()
            assert job.end(10).exit.status is Status.CANCELLED


def test_close_of_a_running_job_leaves_nothing(sandbox: Sandbox, ground: Path) -> None:
    marker = f"closed-{secrets.token_hex(8)}"
    argv = ["python3", "-I", "-c", f"import os; os.execv('/bin/sleep', [{marker!r}, '60'])"]
    with started(sandbox, argv) as job:
        assert eventually(lambda: alive(marker, ground))
        job.process.close()
        job.process.close()
        assert not alive(marker, ground)


def test_daemon_does_not_outlive_its_job(sandbox: Sandbox, ground: Path) -> None:
    marker = f"daemon-{secrets.token_hex(8)}"
    outcome = attack(sandbox, "daemonize", marker)
    assert outcome.exit.ok
    assert not alive(marker, ground)


def test_usage_is_measured(sandbox: Sandbox) -> None:
    reader, writer = os.pipe()
    code = "import os; held = b'x' * (60 << 20); os.read(7, 1)\nfor _ in range(3_000_000): pass"
    argv, policy = ["python3", "-I", "-c", code], SandboxPolicy(fds={7: reader})
    with started(sandbox, argv, policy=policy) as job:
        os.close(reader)
        assert eventually(lambda: (seen := job.process.usage()).rss_mb >= 60 and seen.wall_ms >= 500)
        os.close(writer)  # It was seen, and goes on.
        ended = job.end(20).exit
    assert ended.ok
    assert 60 <= ended.usage.peak_rss_mb < 110
    assert ended.usage.cpu_ms >= 30
    assert ended.usage.wall_ms >= 500


# ------------------------------------------------------------------ disk and output
def test_temporary_folders_are_limited(boxed: Sandbox) -> None:
    got = attack(boxed, "fill", ["/tmp", "/dev/shm", "/dev", "/", "/etc", "/opt/python"]).got
    assert got.pop("/tmp") == [16, "ENOSPC"]
    assert got.pop("/dev/shm") == [16, "ENOSPC"]
    if boxed.level is Level.GVISOR:  # There it is memory of the job's own, so that /dev/null can be written.
        assert got.pop("/dev") == [64, "EFBIG"]
    assert set(got) | {"/dev"} == {"/dev", "/", "/etc", "/opt/python"}
    assert all(written == 0 and error in ("EROFS", "EACCES") for written, error in got.values())  # type: ignore[misc]


def test_one_file_is_limited_at_once(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_SCAN_PAUSE_S", 60)  # Not by the patrol.
    assert attack(sandbox, "fill", ["."]).got == {".": [64, "EFBIG"]}


@pytest.mark.parametrize("filling", ["fill_slowly", "fill_unlinked", "fill_inodes"])
def test_work_folder_is_limited(sandbox: Sandbox, filling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_FILES_MIN", 500)  # Some file systems make only a thousand a second.
    monkeypatch.setattr(scratch, "_FILES_PER_MB", 1)
    ended = attack(sandbox, filling, limits=limits(disk_mb=8)).exit
    assert ended.status is Status.DISK_LIMIT
    assert "work folder" in ended.detail


def test_flood_is_cut_by_the_reader(sandbox: Sandbox, ground: Path) -> None:
    reader, writer = os.pipe()
    workdir = ground / "work" / f"flood-{secrets.token_hex(4)}"
    workdir.mkdir(parents=True)
    stage_hostile(workdir)
    process = sandbox.spawn(
        ["python3", "-I", "bombs.py", "flood", "[]"],
        workdir=workdir,
        limits=LIMITS,
        policy=SandboxPolicy(),
        stdout=writer,
    )
    os.close(writer)
    seen = 0
    while seen < 4 * MIB:
        seen += len(os.read(reader, 65536))
    process.kill(Status.OUTPUT_LIMIT)
    ended = process.wait(10)
    os.close(reader)
    process.close()
    assert ended is not None
    assert ended.status is Status.OUTPUT_LIMIT


# ------------------------------------------------------------------ without cgroups
@pytest.fixture(params=["process", "namespace", "gvisor"])
def fallback(request: pytest.FixtureRequest, config: SandboxConfig) -> Iterator[Sandbox]:
    """A sandbox on a machine that gives the agent no cgroups."""
    if request.param == "namespace" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    if request.param == "gvisor":
        require_runsc()
    backends = {"process": ProcessSandbox, "namespace": BubblewrapSandbox, "gvisor": GvisorSandbox}
    made: Sandbox = backends[request.param](dataclasses.replace(config, cgroups=False))
    assert made.limits_kind == "rlimit"
    yield made
    made.close()


def test_fallback_limits_one_process(fallback: Sandbox) -> None:
    outcome = run_python(fallback, "b'x' * (800 << 20)", limits=limits(memory_mb=128))
    assert outcome.exit.code == 1
    assert "MemoryError" in outcome.err


def test_fallback_limits_the_sum_by_patrol(fallback: Sandbox) -> None:
    ended = attack(fallback, "memory_bomb_children", limits=limits(memory_mb=200)).exit
    assert ended.status is Status.OOM


@pytest.mark.skipif(os.geteuid() != 0, reason="without root the limit counts the user's other processes too")
def test_fallback_limits_processes(fallback: Sandbox) -> None:
    got = attack(fallback, "fork_bomb", limits=limits(pids=20)).got
    assert 15 <= int(str(got["forks"])) <= 20


@pytest.mark.soak
def test_fallback_kills_trees_and_daemons(fallback: Sandbox, ground: Path) -> None:
    marker = f"daemon-{secrets.token_hex(8)}"
    assert attack(fallback, "daemonize", marker).exit.ok
    assert not alive(marker, ground)
    ended = attack(fallback, "fork_bomb_wild", limits=limits(pids=30, wall_s=0.5)).exit
    assert ended.status is Status.TIMEOUT


# ------------------------------------------------------------------ what the agent leaves on the host
def test_closing_leaves_no_cgroup_and_no_process(config: SandboxConfig) -> None:
    maker = cgroups.detect()
    if isinstance(maker, cgroups.CgroupsUnavailable):
        pytest.skip(maker.reason)
    before = _own_cgroups(maker)
    children = set(psutil.Process().children(recursive=True))
    sandbox = ProcessSandbox(config)
    assert run(sandbox, ["true"]).exit.ok
    assert _own_cgroups(maker) > before
    sandbox.close()
    assert _own_cgroups(maker) <= before
    assert set(psutil.Process().children(recursive=True)) <= children


def _own_cgroups(maker: cgroups.Maker) -> set[Path]:
    """Those of this process: other agents of this machine make and remove theirs meanwhile."""
    return {path for base in maker.bases.values() for path in base.glob(f"{cgroups.own_prefix()}-*")}
