"""Slices in the SDK and the CLI, in new groups and in named ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from computepool import Pool
from computepool.testing.processes import RealPool

pytestmark = [pytest.mark.process, pytest.mark.soak]
PART = """
import sys, computepool
number, of = computepool.job_slice()
(computepool.outputs() / f"{sys.argv[1]}.txt").write_text(f"{number} of {of}")
"""


@pytest.fixture
def pool(class_pool: RealPool) -> Pool:
    return class_pool.client()


@pytest.fixture
def part(tmp_path: Path) -> Path:
    path = tmp_path / "part.py"
    path.write_text(PART)
    return path


def read(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}


def test_two_calls_with_one_group_each_fetch_their_own_slices(
    class_pool: RealPool, pool: Pool, part: Path, tmp_path: Path
) -> None:
    env = {**os.environ, "COMPUTEPOOL_HUB": class_pool.hubs[0].url, "COMPUTEPOOL_KEY": class_pool.admin_key}

    def submit(word: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "computepool.cli", "submit", str(part), "--slices", "2", "--group", "nightly",
             *options, "--", word],
            env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip

    first = submit("first", "--out", "a")
    second = submit("second", "--out", "b")
    assert "2 succeeded" in first.stderr + first.stdout
    assert "2 succeeded" in second.stderr + second.stdout
    assert read(tmp_path / "a") == {"0/first.txt": "0 of 2", "1/first.txt": "1 of 2"}
    assert read(tmp_path / "b") == {"0/second.txt": "0 of 2", "1/second.txt": "1 of 2"}
    [group] = pool.groups.list(name="nightly")
    assert (group.total, group.succeeded) == (4, 4)


def test_the_sdk_runs_slices_and_joins_groups_by_name(pool: Pool, part: Path, tmp_path: Path) -> None:
    outcomes = pool.run(part, ["sdk"], slices=3, group="of the sdk")
    files = [path.read_text() for outcome in outcomes for path in outcome.download(tmp_path / outcome.job_id)]
    assert files == ["0 of 3", "1 of 3", "2 of 3"]
    later = pool.slices(part, 2, args=["more"], group="of the sdk")
    assert [len(future.result(60).outputs) for future in later] == [1, 1]
    assert pool.submit(pow, 2, 5, group="of the sdk").result(60) == 32
    [group] = pool.groups.list(name="of the sdk")
    assert (group.total, group.succeeded) == (6, 6)
    futures = pool.run(part, ["own"], slices=2, wait=False)
    assert [future.result(60).exit_code for future in futures] == [0, 0]
