"""The first example of docs/checkpoints.md runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import computepool

PAGE = Path(__file__).parents[3] / "docs/checkpoints.md"
#: The state that an earlier attempt left after 999 steps, and the final result.
LEFT, TOTAL = f"999 {sum(step * step for step in range(999))}", str(sum(step * step for step in range(1000)))


@pytest.mark.soak
def test_the_example_saves_and_resumes(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.+?)```", PAGE.read_text(), re.S)[0]
    saved = tmp_path / "checkpoints"
    saved.mkdir()
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "state.txt").write_text(LEFT)
    source = str(Path(computepool.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "COMPUTEPOOL_CHECKPOINT": str(saved)}
    env["COMPUTEPOOL_RESTORED"] = str(tmp_path / "before")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == TOTAL
    assert re.search(r"::checkpoint \S+ 1\.0", done.stdout + done.stderr), "it saved once"
    [state] = saved.rglob("state.txt")
    assert state.read_text() == f"1000 {TOTAL}"
