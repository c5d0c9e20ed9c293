"""The CPUs on which a job may run: at every level, with and without cgroups, and changed while it runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.base import SandboxPolicy
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.supervise import Process
from computepool.core.isolation import Level
from tests.sandbox.running import LIMITS, eventually, run_python, started

USABLE = tuple(sorted(os.sched_getaffinity(0)))
pytestmark = pytest.mark.skipif(len(USABLE) < 2, reason="there is one CPU only")
#: The job's own affinity and that of a child; then it tries to get all CPUs.
LOOK = """
import json, os, subprocess, sys
first = sorted(os.sched_getaffinity(0))
child = json.loads(subprocess.run([sys.executable, "-c", "import json, os; print(json.dumps(sorted(os.sched_getaffinity(0))))"],
                                  capture_output=True, text=True).stdout)
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError:
    pass
print(json.dumps({"first": first, "child": child, "after": sorted(os.sched_getaffinity(0))}))
"""


def test_a_job_and_its_children_run_only_on_their_cpus(sandbox: Sandbox) -> None:
    for ids in (USABLE[:1], USABLE[1:2], USABLE[1:2], USABLE[:2]):
        found = run_python(sandbox, LOOK, policy=SandboxPolicy(cpu_ids=ids)).got
        if sandbox.level is Level.GVISOR:  # It has numbers of its own.
            assert len(found["first"]) == len(ids)
        else:
            assert (found["first"], found["child"]) == (list(ids), list(ids))
            # With cpusets a job cannot take more.
            assert found["after"] == list(ids) or sandbox.limits_kind == "rlimit"


def test_a_pinned_slot_is_free_for_a_job_without_cpus_of_its_own(process: ProcessSandbox) -> None:
    run_python(process, LOOK, policy=SandboxPolicy(cpu_ids=USABLE[:1]))
    assert run_python(process, LOOK).got["first"] == list(USABLE)


@pytest.fixture(params=["cgroups", "affinity"])
def plain(request: pytest.FixtureRequest, config: SandboxConfig) -> Iterator[Sandbox]:
    with contextlib.closing(BubblewrapSandbox(replace(config, cgroups=request.param == "cgroups"))) as made:
        yield made


WAITING = """
import os, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("on", flush=True)
sys.stdin.read()
while True:
    pass
"""


def test_a_running_job_is_moved_with_all_its_threads(plain: Sandbox) -> None:
    limits = replace(LIMITS, cpus=1)
    with started(
        plain, ["python3", "-I", "-c", WAITING], limits=limits, policy=SandboxPolicy(cpu_ids=USABLE[:1])
    ) as job:
        assert eventually(lambda: _threads(job.process) == {USABLE[:1]} and job.process.processes() == 1)
        job.process.pin(USABLE[:2], cpus=2.0)
        assert _threads(job.process) == {USABLE[:2]}
        assert _quota(job.process) in (None, -1, 200_000)
        job.process.pin(USABLE[1:2], cpus=1.0)
        assert _threads(job.process) == {USABLE[1:2]}
        assert _quota(job.process) in (None, 100_000)


def _threads(process: Process) -> set[tuple[int, ...]]:
    """The affinities of all threads of the tree."""
    found = set()
    for member in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):  # It has ended since it was listed.
            for thread in member.threads():
                found.add(tuple(sorted(os.sched_getaffinity(thread.id))))
    return found


def _quota(process: Process) -> int | None:
    """Of its cgroup, in microseconds of each 100 000; None if there is no quota."""
    cgroup = process._slot.cgroup
    folder = None if cgroup is None else cgroup._folders.get("cpu")
    if folder is None:
        return None
    for name in ("cpu.cfs_quota_us", "cpu.max"):
        if (folder / name).exists():
            text = (folder / name).read_text().split()[0]
            return -1 if text == "max" else int(text)
    return None


def test_pinning_without_a_change_costs_nothing(process: ProcessSandbox) -> None:
    limits = replace(LIMITS, cpus=1)
    policy = SandboxPolicy(cpu_ids=USABLE[:1])
    with started(process, ["sleep", "20"], limits=limits, policy=policy) as job:
        slot = job.process._slot
        writes: list[object] = []
        if slot.cgroup is not None:
            slot.cgroup._write = lambda *given: writes.append(given)
        job.process.pin(USABLE[:1], cpus=1)
        assert writes == []
