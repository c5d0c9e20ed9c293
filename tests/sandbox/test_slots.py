"""Slots: their reuse, their uids, and that nothing is left whoever dies first."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest

import computepool
from computepool.agent.sandbox import cgroups, launcher, slots, supervise
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.base import BadCommand, Limits, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.agent.sandbox.selftest.selftest import BACKENDS
from computepool.agent.sandbox.slots import Footprint, SandboxConfig, Slot
from computepool.core.isolation import Level
from tests.sandbox.running import (
    LIMITS,
    attack,
    eventually,
    has_runsc,
    is_alive,
    run,
    run_python,
    stage_hostile,
    started,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only a root agent changes uids")


@pytest.fixture
def fresh(config: SandboxConfig) -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(config)
    yield sandbox
    sandbox.close()


def test_a_slot_is_used_again(fresh: ProcessSandbox) -> None:
    with started(fresh, ["true"]) as job:
        first = job.process.pid
        assert job.end().exit.ok
    with started(fresh, ["true"]) as job:
        assert job.process.pid == first
        with started(fresh, ["true"]) as other:
            assert other.process.pid != first


def test_a_job_with_other_file_limits_gets_another_slot(fresh: ProcessSandbox) -> None:
    code = "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_FSIZE))"
    for open_files, disk_mb, size_mb in ((256, 64, 64), (512, 65, 128), (128, 3, 64)):
        chosen = dataclasses.replace(LIMITS, open_files=open_files, disk_mb=disk_mb)
        assert (
            run_python(fresh, code, limits=chosen).out
            == f"{(open_files, open_files)} {(size_mb << 20, size_mb << 20)}\n"
        )


@pytest.mark.soak
def test_each_job_has_its_own_memory_limit(fresh: ProcessSandbox) -> None:
    for memory_mb, status in ((64, Status.OOM), (400, Status.EXIT), (64, Status.OOM)):
        chosen = dataclasses.replace(LIMITS, memory_mb=memory_mb)
        assert run_python(fresh, "b'x' * (150 << 20)", limits=chosen).exit.status is status


@as_root
def test_each_slot_has_a_uid_of_its_own(config: SandboxConfig) -> None:
    config = dataclasses.replace(config, uid_base=260_000)  # Other tests run at the same time.
    with contextlib.closing(ProcessSandbox(config)) as one, contextlib.closing(ProcessSandbox(config)) as two:
        argv = ["sleep", "30"]
        with started(one, argv) as first, started(one, argv) as second, started(two, argv) as third:
            uids = {folder.stat().st_uid for folder in (first.workdir, second.workdir, third.workdir)}
        assert len(uids) == 3
        assert min(uids) >= config.uid_base
    with contextlib.closing(ProcessSandbox(config)) as sandbox:
        assert int(run(sandbox, ["id", "-u"]).out) == min(uids), "uids are released with their slots"


@as_root
def test_a_job_has_no_groups_and_no_privileges(process: ProcessSandbox) -> None:
    outcome = run(process, ["sh", "-c", "id -G; grep -E 'NoNewPrivs|CapEff' /proc/self/status"])
    lines = outcome.out.split()
    assert int(lines[0]) >= 200_000
    assert lines[1:] == ["CapEff:", "0" * 16, "NoNewPrivs:", "1"]


@pytest.mark.parametrize("uid", [0, None])
def test_no_job_runs_as_root(config: SandboxConfig, monkeypatch: pytest.MonkeyPatch, uid: int | None) -> None:
    for backend in BACKENDS.values():
        with pytest.raises(SandboxError, match="never run as root"):
            backend(dataclasses.replace(config, uid_base=0))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SandboxError, match="never run as uid 0"):
        Slot.refuse_root(SimpleNamespace(uid=uid))


@as_root
def test_no_job_gets_a_subordinate_uid_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_subordinate_ranges", lambda: [range(100_000, 200_500)])
    lease = slots._UidLease.take(200_000)
    lease.release()
    assert lease.uid >= 200_500


@as_root
def test_a_uid_is_taken_while_the_launcher_of_a_killed_agent_lives() -> None:
    """The launcher will kill all processes of its uid: by then they must not be another job's."""
    base = 261_000  # Other tests run at the same time.
    lease = slots._UidLease.take(base)
    slot = Slot(uid=lease, cgroup=None, rlimits=(), footprint=Footprint(pids=1))
    lease.release()  # As the kernel does for an agent that was killed.
    slot._uid = None
    other = slots._UidLease.take(base)
    other.release()
    slot.destroy()
    again = slots._UidLease.take(base)
    again.release()
    assert other.uid != lease.uid
    assert again.uid == lease.uid


def test_the_number_of_slots_is_limited(config: SandboxConfig) -> None:
    with contextlib.closing(ProcessSandbox(dataclasses.replace(config, slots_max=1))) as sandbox:
        with started(sandbox, ["sleep", "30"]), pytest.raises(SandboxError, match="in use"):
            run(sandbox, ["true"])
        assert run(sandbox, ["true"]).exit.ok


def test_a_killed_launcher_is_the_nodes_fault_and_leaves_nothing(sandbox: Sandbox, ground: Path) -> None:
    marker = f"orphan-{secrets.token_hex(8)}"
    argv = ["python3", "-I", "-c", f"import os; os.execv('/bin/sleep', [{marker!r}, '60'])"]
    with started(sandbox, argv) as job:
        assert eventually(lambda: is_alive(marker, ground))
        os.kill(job.process.pid, signal.SIGKILL)
        assert job.end().exit.status is Status.SANDBOX_ERROR
        job.process.close()
        assert eventually(lambda: not is_alive(marker, ground))
    assert run(sandbox, ["true"]).exit.ok


_AGENT = """
import os, sys, time
from pathlib import Path
from computepool.agent.sandbox.base import Limits, SandboxPolicy
from computepool.agent.sandbox.backends.{module} import {name}
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.slots import SandboxConfig
cache, workdir, marker = map(str, sys.argv[1:4])
config = SandboxConfig(cache_dir=Path(cache), runtime=Runtime.prepare(Path(cache), {{}}), cgroups={cgroups})
sandbox = {name}(config)
process = sandbox.spawn(["python3", "-I", "bombs.py", "daemonize", '["' + marker + '"]'],
    workdir=Path(workdir), limits=Limits(), policy=SandboxPolicy())
other = sandbox.spawn(["python3", "-I", "-c", "import os; os.execv('/bin/sleep', ['" + marker + "', '60'])"],
    workdir=Path(workdir), limits=Limits(), policy=SandboxPolicy())
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.soak
@pytest.mark.parametrize("use_cgroups", [True, False])
def test_nothing_is_left_of_a_killed_agent(
    sandbox: Sandbox, use_cgroups: bool, ground: Path, config: SandboxConfig
) -> None:
    """Its jobs die at once; the next agent removes its folders and cgroups."""
    backend, cache = type(sandbox), ground / "cache"
    marker = f"agent-{secrets.token_hex(8)}"
    workdir = make_workdir(ground / "work", marker)
    stage_hostile(workdir)
    module = backend.__module__.rpartition(".")[2]
    code = _AGENT.format(module=module, name=backend.__name__, cgroups=use_cgroups)
    with subprocess.Popen([sys.executable, "-c", code, cache, workdir, marker], stdout=subprocess.PIPE) as agent:
        try:
            assert agent.stdout.readline() == b"ready\n"
            assert eventually(lambda: is_alive(marker, ground))
        finally:
            agent.kill()
    assert eventually(lambda: not is_alive(marker, ground))
    remove_tree(workdir)
    left = list(cache.glob(f"{sandbox.level.label}/*.{agent.pid}.*"))
    assert len(left) == (sandbox.level >= Level.CONTAINER)
    with contextlib.closing(backend(config)) as following:
        assert not any(path.exists() for path in left)
        assert run(following, ["true"]).exit.ok
    if maker := cgroups.detect():
        assert not [path for base in maker.bases.values() for path in base.glob(f"*.{agent.pid}.*")]


def test_the_next_agent_sweeps_processes_and_cgroups_of_a_killed_one() -> None:
    if (maker := cgroups.detect()) is None:
        pytest.skip("no cgroups")
    with subprocess.Popen(["sleep", "60"]) as orphan:
        dead = subprocess.Popen(["true"])
        dead.wait()
        name = f"{cgroups._pid_namespace()}.{dead.pid}.123-0"
        for base in dict.fromkeys(maker.bases.values()):
            assert eventually(lambda folder=base / name: orphan.poll() is not None or _enter(folder, orphan.pid))
        other = next(iter(maker.bases.values())) / "not-ours"
        other.mkdir()
        try:
            # Other agents on this machine may leave theirs, or sweep this one first: only the outcome is certain.
            maker.sweep()
            assert orphan.wait(60) == -signal.SIGKILL
            assert not any((base / name).exists() for base in maker.bases.values())
            assert other.exists()
        finally:
            other.rmdir()


def _enter(folder: Path, pid: int) -> bool:
    """Try to; other agents on this machine remove a stale cgroup as long as it is empty."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        launcher.write(folder / "cgroup.procs", str(pid))
        return True
    return False


@pytest.mark.parametrize("version", [cgroups.CgroupV1, cgroups.CgroupV2])
def test_half_removed_cgroups_are_swept(version: type[cgroups.Cgroup], tmp_path: Path) -> None:
    """Those of an agent that died between two folders, and those that another agent is removing."""
    controllers = ("memory", "pids", "freezer", "cpu")
    bases = {controller: tmp_path / controller for controller in controllers}
    parts = [part for size in range(1, 5) for part in itertools.combinations(controllers, size)]
    with subprocess.Popen(["true"]) as dead:
        pass
    for number, part in enumerate(parts):
        for controller in part:
            name = f"{cgroups._pid_namespace()}.{dead.pid}.123-{number}"
            (bases[controller] / name).mkdir(parents=True)
    assert cgroups.Maker(version, bases).sweep() == len(parts)
    assert [path for base in bases.values() for path in base.iterdir()] == []


@pytest.mark.soak
async def test_an_event_loop_waits_for_several_jobs(sandbox: Sandbox) -> None:
    chosen = Limits(wall_s=0.5, memory_mb=128)
    with started(sandbox, ["sh", "-c", "exit 4"]) as quick, started(sandbox, ["sleep", "60"], limits=chosen) as slow:
        began = time.monotonic()
        first, second = await asyncio.gather(quick.process.finish(), slow.process.finish())
    assert (first.status, first.code) == (Status.EXIT, 4)
    assert second.status is Status.TIMEOUT
    assert time.monotonic() - began < 10


async def test_a_cancelled_wait_leaves_the_loop_clean(process: ProcessSandbox) -> None:
    with started(process, ["sleep", "60"]) as job:
        waiting = asyncio.ensure_future(job.process.finish())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not asyncio.get_running_loop().remove_reader(job.process.fileno())


# ------------------------------------------------------------------ an agent without root
_ORDINARY = """
import contextlib, json, os, sys
from pathlib import Path
from computepool.agent.sandbox.selftest import selftest
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.slots import SandboxConfig
home = Path(sys.argv[1])
config = SandboxConfig(cache_dir=home / "cache", runtime=Runtime.prepare(home / "cache", {}))
reports = selftest.levels(config)
print(json.dumps([[r.level.label, r.ok, r.limits, r.reason, dict(r.attacks)] for r in reports]))
"""


@pytest.mark.soak
@as_root
def test_the_agent_of_an_ordinary_user_offers_every_level(ground: Path) -> None:
    """The whole self-test as a user without rights, whose home is closed to all others."""
    modules = {"computepool": computepool.__path__[0], "psutil": psutil.__path__[0], "pynvml.py": pynvml.__file__}
    extra = {name: Path(path) for name, path in modules.items()}
    runtime = Runtime.prepare(ground / "ordinary", extra)
    home = ground / "home"
    home.mkdir(mode=0o700)
    os.chown(home, 299_998, 299_998)
    ran = subprocess.run(
        [runtime.python, "-I", "-c", _ORDINARY, home],
        user=299_998,
        group=299_998,
        extra_groups=[],
        env=runtime.env(str(runtime.path)),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    reports = json.loads(ran.stdout)
    expected = {"process": True, "namespace": True, "container": True, "gvisor": has_runsc()}
    assert {label: ok for label, ok, *_ in reports} == expected, ran.stdout


def test_a_slot_is_usable_after_an_attack(sandbox: Sandbox) -> None:
    for name, arguments in (("daemonize", ["x"]), ("fork_bomb", [])):
        attack(sandbox, name, *arguments)
        assert run(sandbox, ["true"]).exit.ok


def test_a_job_can_be_cancelled_whose_launcher_just_died(process: ProcessSandbox) -> None:
    with started(process, ["sleep", "60"]) as job:
        launcher = psutil.Process(job.process.pid)
        assert eventually(lambda: "sleep" in [child.name() for child in launcher.children()])
        launcher.kill()
        assert eventually(lambda: launcher.status() == psutil.STATUS_ZOMBIE)
        job.process.kill(Status.CANCELLED)
        assert job.end().exit.status is Status.CANCELLED
    assert run(process, ["true"]).exit.ok


@pytest.mark.soak
def test_a_job_that_stops_its_launcher_still_ends(process: ProcessSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_KILL_TIMEOUT_S", 0.5)
    code = "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP); time.sleep(60)"
    chosen = dataclasses.replace(LIMITS, wall_s=0.5)
    assert run_python(process, code, limits=chosen).exit.status is Status.TIMEOUT
    assert run(process, ["true"]).exit.ok


@pytest.mark.parametrize(
    ("argv", "policy"),
    [
        ([], SandboxPolicy()),
        ([""], SandboxPolicy()),
        (["true", "a\0b"], SandboxPolicy()),
        (["true", "\ud800"], SandboxPolicy()),
        (["true"], SandboxPolicy(env={"A": "b\0"})),
        (["true"], SandboxPolicy(env={"A=B": "x"})),
        (["true"], SandboxPolicy(env={"": "x"})),
        (["true"], SandboxPolicy(fds={2: 1})),
        (["true"], SandboxPolicy(fds={29: 1})),
    ],
)
def test_a_malformed_command_is_the_jobs_fault(sandbox: Sandbox, argv: list[str], policy: SandboxPolicy) -> None:
    with pytest.raises(BadCommand):
        run(sandbox, argv, policy=policy)


def test_odd_but_valid_text_arrives_unchanged(sandbox: Sandbox) -> None:
    code = "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]) + os.environb[b'A'])"
    argv = ["python3", "-I", "-c", code, "ü \udcff\n--x"]
    outcome = run(sandbox, argv, policy=SandboxPolicy(env={"A": "é=\n"}))
    assert outcome.out == "ü �\n--xé=\n", outcome.err
