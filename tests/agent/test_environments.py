"""Packages from the index, by the real uv."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from computepool.agent.endings import BadJob, StagingFailed
from computepool.agent.environments import Environments
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, function, payload, script, until

pytestmark = pytest.mark.anyio

PEP_723 = """#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["six==1.17.0"]
# ///
import six
print(six.__version__)
"""


@pytest.mark.parametrize("level", ["process", "namespace", "gvisor"])
async def test_scripts_and_functions_with_packages(hub: FakeHub, start_node: StartNode, level: str) -> None:
    def version() -> str:
        import six

        return str(six.__version__)

    await start_node(level=level)
    (first,) = hub.submit(script(PEP_723))
    (second,) = hub.submit(function(version, dependencies=["six==1.17.0"]), [payload()])
    await until(lambda: len(hub.reports) == 2, timeout_s=60)
    assert hub.log_texts[first]["stdout"] == "1.17.0\n", hub.reports[first].error
    assert hub.reports[second].result == '"1.17.0"', hub.reports[second].error


async def test_what_cannot_be_installed(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    source = '# /// script\n# dependencies = ["{}"]\n# ///\nprint(1)'
    missing = hub.submit(script(source.format("computepool-no-such-package-0")))[0]
    hostile = hub.submit(script(source.format("six @ file:///etc/passwd")))[0]
    await until(lambda: len(hub.reports) == 2, timeout_s=60)
    for attempt in (missing, hostile):
        report = hub.reports[attempt]
        assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.BAD_JOB), report


async def test_the_same_packages_are_installed_once(data_dir: Path) -> None:
    environments = Environments(data_dir / "environments", uv=None, limits=QUICK)
    wanted = ("six==1.17.0",)
    paths = await asyncio.gather(*(environments.acquire(wanted) for _ in range(5)))
    assert len(set(paths)) == 1
    path = paths[0]
    assert path is not None
    assert (path / "six.py").is_file()
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".building")] == []


async def test_the_oldest_unused_environment_goes(data_dir: Path) -> None:
    limits = dataclasses.replace(QUICK, environments_max=1)
    environments = Environments(data_dir / "environments", uv=None, limits=limits)
    first = await environments.acquire(("six==1.17.0",))
    second = await environments.acquire(("six==1.16.0",))
    assert first is not None
    assert second is not None
    assert first.is_dir(), "it is in use"
    environments.release(first)
    environments.release(second)
    await environments.acquire(("six==1.16.0",))
    assert not first.exists()
    assert second.is_dir()


async def test_a_node_without_uv(data_dir: Path) -> None:
    environments = Environments(data_dir / "environments", uv="/nonexistent/uv", limits=QUICK)
    with pytest.raises((StagingFailed, BadJob, OSError)):
        await environments.acquire(("six",))
    assert await environments.acquire(()) is None
