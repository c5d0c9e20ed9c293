"""Volumes in real sandboxes: at the path that the job chose, writable or not, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from computepool.agent.sandbox.base import SandboxPolicy
from computepool.agent.sandbox.scratch import make_workdir
from computepool.core.isolation import Level
from tests.sandbox.conftest import AtLevel
from tests.sandbox.running import run

SCRIPT = """
set -e
cat /data/deep/in/d.txt /models/m.txt
echo written > /data/deep/in/new.txt
! touch /models/new.txt 2>/dev/null
! touch /data/new.txt 2>/dev/null
! touch /beside 2>/dev/null
"""


@pytest.mark.parametrize("level", [level for level in Level if level >= Level.NAMESPACE], ids=lambda level: level.label)
def test_a_job_sees_its_volumes(at_level: AtLevel, level: Level) -> None:
    sandbox = at_level(level)
    workdir = make_workdir(sandbox.config.cache_dir.parent / "work", f"volumes-{level.label}")
    data, models = workdir / ".volumes" / "data", workdir / ".volumes" / "models"
    for folder, name in ((data, "d.txt"), (models, "m.txt")):
        folder.mkdir(parents=True)
        (folder / name).write_text(f"{name}\n")
    volumes: dict[Path, tuple[str, bool]] = {data: ("/data/deep/in", True), models: ("/models", False)}
    policy = SandboxPolicy(volumes=volumes)
    assert sandbox.inside(data / "d.txt", workdir=workdir, policy=policy) == "/data/deep/in/d.txt"
    ended = run(sandbox, ["sh", "-c", SCRIPT], policy=policy, workdir=workdir)
    assert ended.exit is not None
    assert (ended.exit.code, ended.out) == (0, "d.txt\nm.txt\n"), ended.err
    assert (data / "new.txt").read_text() == "written\n"
    assert not (models / "new.txt").exists()
