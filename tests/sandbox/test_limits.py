"""Limits, kills and counters, at every level."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from computepool.agent.sandbox import cgroups, scratch
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.base import Limits, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.isolation import Level
from tests.sandbox.running import (
    LIMITS,
    attack,
    eventually,
    is_alive,
    make_sandbox,
    run,
    run_python,
    started,
    started_attack,
)


def limits(**changes: float) -> Limits:
    return dataclasses.replace(LIMITS, **changes)


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
def test_exit_codes_and_signals_are_reported(sandbox: Sandbox, command: str, status: Status, code: int) -> None:
    ended = run(sandbox, ["sh", "-c", command]).exit
    assert (ended.status, ended.code) == (status, code)


def test_a_command_that_cannot_run_is_the_jobs_fault(sandbox: Sandbox) -> None:
    def prepare(workdir: Path) -> None:
        (workdir / "plain").write_text("text")
        (workdir / "script").write_text("#!/no/such/interpreter\n")
        (workdir / "script").chmod(0o755)

    for command, codes in (("no-such-command", [127]), ("./plain", [126]), ("./script", [126, 127])):
        outcome = run(sandbox, [command], prepare=prepare)
        assert outcome.exit.status is Status.EXIT
        assert outcome.exit.code in codes
        assert command in outcome.err + outcome.exit.detail


def test_a_sandbox_that_cannot_be_made_is_the_nodes_fault(boxed: Sandbox, ground: Path) -> None:
    outcome = run(boxed, ["true"], policy=SandboxPolicy(mounts={ground / "missing": "/data"}))
    assert outcome.exit.status is Status.SANDBOX_ERROR
    assert "missing" in outcome.err + outcome.exit.detail


@pytest.mark.every_case
def test_a_job_gets_its_streams_variables_folder_and_descriptors(sandbox: Sandbox) -> None:
    reader, writer = os.pipe()
    stdin, typed = os.pipe()
    os.write(typed, b"typed")
    os.close(typed)
    code = (
        "import os, sys; print(os.environ['GIVEN'], sys.stdin.read()); print('err', file=sys.stderr);"
        "os.write(7, b'through'); open('outputs/result', 'w').write(os.getcwd())"
    )
    policy = SandboxPolicy(env={"GIVEN": "ü 1"}, fds={7: writer})
    with started(sandbox, ["python3", "-I", "-c", code], policy=policy, stdin=stdin) as job:
        ended = job.end()
        assert ended.exit.ok, ended.err
        assert (ended.out, ended.err) == ("ü 1 typed\n", "err\n")
        assert os.read(reader, 100) == b"through"
        seen = sandbox.inside(job.workdir, workdir=job.workdir, policy=policy)
        assert (job.workdir / "outputs" / "result").read_text() == seen
    for fd in (reader, writer, stdin):
        os.close(fd)


def test_mounts_are_read_only_and_where_they_should_be(sandbox: Sandbox, ground: Path) -> None:
    source = ground / "data"
    source.mkdir(exist_ok=True)
    (source / "file").write_text("content")
    policy = SandboxPolicy(mounts={source: "/data"})
    path = sandbox.inside(source / "file", workdir=ground, policy=policy)
    outcome = run_python(sandbox, f"print(open({path!r}).read()); open({path!r}, 'w')", policy=policy)
    assert (outcome.out, outcome.exit.code) == ("content\n", 1)
    assert "Read-only file system" in outcome.err or "Permission denied" in outcome.err


def test_a_command_that_is_too_long_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="arguments and environment"):
        run(sandbox, ["true", "x" * 200_000])
    assert run(sandbox, ["true"]).exit.ok


# ------------------------------------------------------------------ memory, processes, time
@pytest.mark.parametrize("bomb", ["memory_bomb", "memory_bomb_children"])
def test_a_memory_bomb_ends_as_oom(sandbox: Sandbox, bomb: str) -> None:
    ended = attack(sandbox, bomb, limits=limits(memory_mb=128)).exit
    assert ended.status is Status.OOM
    own_mb = 64 if sandbox.level >= Level.CONTAINER else 32  # The programs that run the job count, too.
    assert 128 <= ended.usage.peak_rss_mb <= 128 + own_mb
    assert "128 MB" in ended.detail


def test_the_oom_of_one_job_is_not_blamed_on_the_next(sandbox: Sandbox) -> None:
    assert attack(sandbox, "memory_bomb", limits=limits(memory_mb=64)).exit.status is Status.OOM
    ended = run(sandbox, ["sh", "-c", "exit 7"], limits=limits(memory_mb=64)).exit
    assert (ended.status, ended.code) == (Status.EXIT, 7)


def test_processes_and_threads_stop_at_the_limit(sandbox: Sandbox) -> None:
    """19, because the job's first process counts."""
    assert attack(sandbox, "fork_bomb", limits=limits(pids=20)).got == {"forks": 19, "errno": "EAGAIN"}
    assert attack(sandbox, "thread_bomb", limits=limits(pids=20)).got == {"threads": 19}


def test_a_wild_fork_bomb_is_killed_completely(sandbox: Sandbox) -> None:
    with started_attack(sandbox, "fork_bomb_wild", limits=limits(pids=50, wall_s=0.5)) as job:
        uid = job.workdir.stat().st_uid
        launcher = job.process.pid
        assert job.end().exit.status is Status.TIMEOUT
        if uid:
            left = [p.pid for p in psutil.process_iter(["uids"]) if p.info["uids"] and p.info["uids"].real == uid]
            assert left == [launcher]


def test_a_job_ends_at_its_time_limit(sandbox: Sandbox) -> None:
    ended = attack(sandbox, "spin", limits=limits(wall_s=0.9)).exit
    assert ended.status is Status.TIMEOUT
    assert 900 <= ended.usage.wall_ms < 40_000


def test_a_job_gets_its_share_of_a_cpu(sandbox: Sandbox) -> None:
    """However long that takes on a busy machine."""
    with started_attack(sandbox, "spin", limits=limits(wall_s=60, cpus=0.25)) as job:
        assert eventually(lambda: job.process.usage().cpu_ms > 300)
        used = job.process.usage()
        assert used.cpu_ms < 0.25 * used.wall_ms + 200
        job.process.kill()
        assert job.end().exit.status is Status.CANCELLED


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.OUTPUT_LIMIT])
def test_a_kill_ends_a_job_that_ignores_signals(sandbox: Sandbox, status: Status) -> None:
    with started_attack(sandbox, "ignore_signals") as job:
        assert eventually(lambda: "ready" in job.read()[0])
        job.process.kill(status)
        ended = job.end().exit
        assert (ended.status, ended.code) == (status, 9)


def test_a_kill_right_after_the_start_is_not_lost(sandbox: Sandbox) -> None:
    for _ in range(5):
        with started(sandbox, ["sleep", "60"]) as job:
            job.process.kill()
            assert job.end().exit.status is Status.CANCELLED


def test_closing_a_running_job_ends_it(sandbox: Sandbox, ground: Path) -> None:
    marker = f"closed-{secrets.token_hex(8)}"
    argv = ["python3", "-I", "-c", f"import os; os.execv('/bin/sleep', [{marker!r}, '60'])"]
    with started(sandbox, argv) as job:
        assert eventually(lambda: is_alive(marker, ground))
        job.process.close()
        job.process.close()
        assert not is_alive(marker, ground)


def test_a_daemon_does_not_outlive_its_job(sandbox: Sandbox, ground: Path) -> None:
    marker = f"daemon-{secrets.token_hex(8)}"
    assert attack(sandbox, "daemonize", marker).exit.ok
    assert not is_alive(marker, ground)


def test_usage_is_measured(sandbox: Sandbox) -> None:
    reader, writer = os.pipe()
    code = "import os; held = b'x' * (60 << 20); os.read(7, 1)\nfor _ in range(3_000_000): pass"
    with started(sandbox, ["python3", "-I", "-c", code], policy=SandboxPolicy(fds={7: reader})) as job:
        os.close(reader)
        assert eventually(lambda: (seen := job.process.usage()).rss_mb >= 60 and seen.wall_ms >= 500)
        os.close(writer)  # Now the job goes on.
        ended = job.end().exit
    assert ended.ok
    assert 60 <= ended.usage.peak_rss_mb < 110
    assert ended.usage.cpu_ms >= 30
    assert ended.usage.wall_ms >= 500


# ------------------------------------------------------------------ disk
def test_temporary_folders_are_limited(boxed: Sandbox) -> None:
    got = attack(boxed, "fill", ["/tmp", "/dev/shm", "/dev", "/", "/etc", "/opt/python"]).got
    assert got.pop("/tmp") == [16, "ENOSPC"]
    assert got.pop("/dev/shm") == [16, "ENOSPC"]
    if boxed.level is Level.GVISOR:  # There /dev is memory of the job's own, so that /dev/null can be written.
        assert got.pop("/dev") == [64, "EFBIG"]
    assert set(got) | {"/dev"} == {"/dev", "/", "/etc", "/opt/python"}
    assert all(written == 0 and error in ("EROFS", "EACCES") for written, error in got.values())


def test_the_kernel_limits_a_single_file(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_SCAN_PAUSE_S", 60)  # The patrol does not.
    assert attack(sandbox, "fill", ["."]).got == {".": [64, "EFBIG"]}


@pytest.mark.parametrize("filling", ["fill_slowly", "fill_unlinked", "fill_inodes"])
def test_the_work_folder_is_limited(sandbox: Sandbox, filling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_FILES_MIN", 500)  # Some file systems make only a thousand a second.
    monkeypatch.setattr(scratch, "_FILES_PER_MB", 1)
    ended = attack(sandbox, filling, limits=limits(disk_mb=8)).exit
    assert ended.status is Status.DISK_LIMIT
    assert "work folder" in ended.detail


# ------------------------------------------------------------------ without cgroups
@pytest.fixture(params=["process", "namespace", "gvisor"])
def without_cgroups(request: pytest.FixtureRequest, config: SandboxConfig) -> Iterator[Sandbox]:
    made = make_sandbox(Level.parse(request.param), dataclasses.replace(config, cgroups=False))
    with contextlib.closing(made):
        assert made.limits_kind == "rlimit"
        yield made


def test_without_cgroups_the_memory_of_one_process_is_limited(without_cgroups: Sandbox) -> None:
    outcome = run_python(without_cgroups, "b'x' * (800 << 20)", limits=limits(memory_mb=128))
    assert outcome.exit.code == 1
    assert "MemoryError" in outcome.err


def test_without_cgroups_the_patrol_limits_the_memory_of_all_processes(without_cgroups: Sandbox) -> None:
    ended = attack(without_cgroups, "memory_bomb_children", limits=limits(memory_mb=200)).exit
    assert ended.status is Status.OOM


@pytest.mark.skipif(os.geteuid() != 0, reason="without root the limit counts the user's other processes, too")
def test_without_cgroups_processes_are_limited(without_cgroups: Sandbox) -> None:
    got = attack(without_cgroups, "fork_bomb", limits=limits(pids=20)).got
    assert 15 <= int(got["forks"]) <= 20


@pytest.mark.soak
def test_without_cgroups_trees_and_daemons_are_killed(without_cgroups: Sandbox, ground: Path) -> None:
    marker = f"daemon-{secrets.token_hex(8)}"
    assert attack(without_cgroups, "daemonize", marker).exit.ok
    assert not is_alive(marker, ground)
    ended = attack(without_cgroups, "fork_bomb_wild", limits=limits(pids=30, wall_s=0.5)).exit
    assert ended.status is Status.TIMEOUT


# ------------------------------------------------------------------ what the agent leaves on the host
def test_closing_leaves_no_cgroup_and_no_process(config: SandboxConfig) -> None:
    if (maker := cgroups.detect()) is None:
        pytest.skip("no cgroups")

    def own_cgroups() -> set[Path]:
        """Only this process's: other agents on this machine make and remove theirs meanwhile."""
        return {path for base in maker.bases.values() for path in base.glob(f"{cgroups.own_prefix()}-*")}

    before = own_cgroups()
    children = set(psutil.Process().children(recursive=True))
    with contextlib.closing(ProcessSandbox(config)) as sandbox:
        assert run(sandbox, ["true"]).exit.ok
        assert own_cgroups() > before
    assert own_cgroups() <= before
    assert set(psutil.Process().children(recursive=True)) <= children
