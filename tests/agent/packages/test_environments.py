"""Environments: packages that the real uv installs, and the folders that a node keeps."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from computepool.agent.config import AgentLimits
from computepool.agent.execution.attempt_result import BadJob, StagingFailed
from computepool.agent.execution.job_environment import JobEnvironment
from computepool.agent.network.egress import Egress
from computepool.agent.packages.builder import Builder
from computepool.agent.packages.environments import Environments, find_uv
from computepool.agent.packages.package_index import PackageIndex
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.volumes import Volumes
from computepool.agent.storage.folders import WorkFolders
from computepool.agent.storage.sweeper import Sweeper
from computepool.core.isolation import Level
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, function, payload, script, until
from tests.sandbox.running import make_sandbox

PEP_723 = """#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["six==1.17.0"]
# ///
import six
print(six.__version__)
"""


@pytest.mark.parametrize("level", ["process", "namespace", "gvisor"])
async def test_scripts_and_functions_get_their_packages(hub: FakeHub, start_node: StartNode, level: str) -> None:
    def version() -> str:
        import six

        return str(six.__version__)

    await start_node(level=level)
    (first,) = hub.submit(script(PEP_723))
    (second,) = hub.submit(function(version, dependencies=["six==1.17.0"]), [payload()])
    await until(lambda: len(hub.reports) == 2)
    assert hub.log_texts[first]["stdout"] == "1.17.0\n", hub.reports[first].error
    assert hub.reports[second].result == '"1.17.0"', hub.reports[second].error


@pytest.mark.soak
async def test_the_log_mentions_an_installation(hub: FakeHub, start_node: StartNode) -> None:
    """On standard error, which is not compared between nodes, and only if something is installed."""
    await start_node()
    note = "[Installing packages (six)]\n"
    first = await hub.run(script(PEP_723))
    warm = await hub.run(script(PEP_723))
    assert hub.log_texts[first.attempt_id] == {"stdout": "1.17.0\n", "stderr": note}
    assert hub.log_texts[warm.attempt_id] == {"stdout": "1.17.0\n", "stderr": ""}
    assert first.printed == warm.printed
    called = await hub.run(function(len, dependencies=["six==1.16.0"]), payload([]))
    assert hub.log_texts[called.attempt_id]["stderr"] == note


async def test_the_log_mentions_an_installation_before_it_ends(
    hub: FakeHub, start_node: StartNode, ground: Path
) -> None:
    go, uv = ground / "go-installing", ground / "slow-uv"
    uv.write_text(f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.1; done\nexit 1\n")
    uv.chmod(0o755)
    await start_node(uv=str(uv))
    (attempt,) = hub.submit(script(PEP_723))
    await until(lambda: hub.log_texts[attempt]["stderr"])
    assert attempt not in hub.reports
    go.touch()
    await until(lambda: attempt in hub.reports)


@pytest.mark.soak
async def test_packages_that_cannot_be_installed_are_the_jobs_fault(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    source = '# /// script\n# dependencies = ["{}"]\n# ///\nprint(1)'
    missing = hub.submit(script(source.format("computepool-no-such-package-0")))[0]
    hostile = hub.submit(script(source.format("six @ file:///etc/passwd")))[0]
    await until(lambda: len(hub.reports) == 2)
    for attempt in (missing, hostile):
        report = hub.reports[attempt]
        assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.BAD_JOB), report


MakeEnvironments = Callable[..., Environments]


@pytest.fixture
def make(ground: Path, data_dir: Path, runtime: Runtime) -> Iterator[MakeEnvironments]:
    """Environments whose installations run as plain processes with limits."""
    sandbox = make_sandbox(Level.PROCESS, SandboxConfig(cache_dir=ground / "cache", runtime=runtime))
    sweeper = Sweeper()
    work = data_dir / "work"
    work.mkdir(mode=0o711)
    folders = WorkFolders(work, sweeper, Volumes(ground / "cache"))
    job_environment = JobEnvironment(sandbox, runtime, ())

    def environments(uv: str | None = None, limits: AgentLimits = QUICK) -> Environments:
        builder = Builder(job_environment, folders, Egress(work, limits=limits))
        index = PackageIndex(find_uv())
        if uv is not None:
            index = PackageIndex(uv, url="http://127.0.0.1:9/simple", hosts=("127.0.0.1:9",))
        return Environments(data_dir / "environments", builder, index, uv=uv, limits=limits)

    yield environments
    sandbox.close()
    folders.close()
    sweeper.close()


async def test_the_same_packages_are_installed_once(make: MakeEnvironments) -> None:
    environments = make()
    wanted = ("six==1.17.0",)
    paths = await asyncio.gather(*(environments.acquire(wanted) for _ in range(5)))
    assert len(set(paths)) == 1
    path = paths[0]
    assert path is not None
    assert (path / "six.py").is_file()
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".building")] == []


@pytest.mark.soak
async def test_the_least_recently_used_environment_is_removed(make: MakeEnvironments) -> None:
    limits = dataclasses.replace(QUICK, environments_max=1)
    environments = make(limits=limits)
    first = await environments.acquire(("six==1.17.0",))
    second = await environments.acquire(("six==1.16.0",))
    assert first is not None
    assert second is not None
    assert first.is_dir(), "it is in use"
    environments.folders.release(first)
    environments.folders.release(second)
    await environments.acquire(("six==1.16.0",))
    assert not first.exists()
    assert second.is_dir()


async def test_a_node_without_uv_installs_nothing(make: MakeEnvironments) -> None:
    environments = make("/nonexistent/uv")
    with pytest.raises((StagingFailed, BadJob, OSError)):
        await environments.acquire(("six",))
    assert await environments.acquire(()) is None


#: In place of uv: "installs" eight files that contain the requirement.
UV = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
target=$2
while [ "$1" != -r ]; do shift; done
wanted=$(cat "$2")
mkdir -p "$target"
for number in 1 2 3 4 5 6 7 8; do echo "$wanted" > "$target/$number"; done
case "$wanted" in fails*) exit 1;; large*) head -c 1000000 /dev/zero > "$target/large";; esac
"""


@pytest.fixture
def uv(tmp_path: Path) -> str:
    program = tmp_path / "uv"
    program.write_text(UV)
    program.chmod(0o755)
    return str(program)


async def test_no_job_gets_an_environment_that_is_being_removed(
    make: MakeEnvironments, data_dir: Path, uv: str
) -> None:
    limits = dataclasses.replace(QUICK, environments_max=1)
    environments = make(uv, limits)

    async def use(number: int) -> None:
        for turn in range(4):
            wanted = f"package{(number + turn) % 5}"
            path = await environments.acquire((wanted,))
            assert path is not None
            for name in range(1, 9):
                assert (path / str(name)).read_text() == f"{wanted}\n"
                await asyncio.sleep(0)
            environments.folders.release(path)

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(use(number))
    await environments.acquire(("package0",))
    left = [path.name for path in (data_dir / "environments").iterdir()]
    assert len([name for name in left if not name.startswith(".")]) <= 2
    assert [name for name in left if name.startswith((".gone", ".building"))] == []


async def test_an_environment_is_out_of_reach_before_any_of_it_is_removed(
    make: MakeEnvironments, uv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job needs the environment at the moment when its files are removed."""
    limits = dataclasses.replace(QUICK, environments_max=1)
    environments = make(uv, limits)
    first = await environments.acquire(("first",))
    environments.folders.release(first)
    os.utime(first or "", (1, 1))
    begun, go_on = threading.Event(), threading.Event()

    def slowly(path: Path) -> None:
        begun.set()
        go_on.wait(60)
        remove_tree(path)

    monkeypatch.setattr("computepool.agent.packages.cached_folders.remove_tree", slowly)
    other = asyncio.create_task(environments.acquire(("second",)))
    await until(begun.is_set)
    again = asyncio.create_task(environments.acquire(("first",)))
    await until(lambda: first is not None and (first / "8").exists())
    go_on.set()
    await asyncio.gather(other, again)
    assert again.result() == first
    assert first is not None
    assert len(list(first.glob("[!.]*"))) == 8


async def test_what_a_killed_agent_left_is_removed(make: MakeEnvironments, data_dir: Path, uv: str) -> None:
    folder = data_dir / "environments"
    for name in (".building-1", ".gone-1", ".uv-1"):
        (folder / name / "deep").mkdir(parents=True)
    environments = make(uv)
    path = await environments.acquire(("package",))
    assert path is not None
    assert {found.name for found in folder.iterdir()} == {path.name}


async def test_the_size_of_all_environments_is_limited(make: MakeEnvironments, data_dir: Path, uv: str) -> None:
    limits = dataclasses.replace(QUICK, environments_bytes_max=2_500_000)
    folder = data_dir / "environments"
    for turn in range(2):  # The second agent finds and measures those of the first.
        environments = make(uv, limits)
        for number in range(5):
            path = await environments.acquire((f"large{turn}{number}",))
            assert path is not None
            assert (path / "large").stat().st_size == 1_000_000
            environments.folders.release(path)
            assert len(list(folder.iterdir())) <= 3
    assert len(list(folder.iterdir())) == 2


async def test_nothing_is_left_of_a_failed_installation(make: MakeEnvironments, data_dir: Path, uv: str) -> None:
    environments = make(uv)
    with pytest.raises(StagingFailed):
        await environments.acquire(("fails",))
    assert not list((data_dir / "environments").iterdir())
    await until(lambda: not list((data_dir / "work").iterdir()))
