"""Starting jobs has not become slow.

The bounds are far below what an idle machine does (about 1 300/s, 300/s, 40/s and 12/s), because this one is shared;
`make bench` prints the real figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from computepool.agent.sandbox.base import Limits, SandboxPolicy
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.core.isolation import Level


async def starts_per_second(sandbox: Sandbox, folders: list[Path], count: int) -> float:
    """The rate at which `/bin/true` runs, one at a time in each folder."""
    left = count

    async def keep_starting(workdir: Path) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            with contextlib.closing(
                sandbox.spawn(["/bin/true"], workdir=workdir, limits=Limits(), policy=SandboxPolicy())
            ) as job:
                assert (await job.finish()).ok

    began = time.perf_counter()
    await asyncio.gather(*map(keep_starting, folders))
    return count / (time.perf_counter() - began)


@pytest.mark.soak
@pytest.mark.process
async def test_jobs_start_quickly(sandbox: Sandbox, ground: Path) -> None:
    folders = [make_workdir(ground / "work", f"speed{number}") for number in range(2)]
    await starts_per_second(sandbox, folders, 4)
    count = {Level.CONTAINER: 12, Level.GVISOR: 4}.get(sandbox.level, 60)
    best = max([await starts_per_second(sandbox, folders, count) for _ in range(3)])
    for folder in folders:
        remove_tree(folder)
    print(f"{sandbox.level.label}: {best:.0f} starts a second with two in flight")
    assert best > {Level.PROCESS: 100, Level.NAMESPACE: 15, Level.CONTAINER: 4, Level.GVISOR: 1.5}[sandbox.level]
