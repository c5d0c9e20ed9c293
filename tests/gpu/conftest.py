"""Tests with a real graphics card. Where there is none they are not collected: a test that cannot run says nothing.

Training needs torch, too: the virtualenv that COMPUTEPOOL_TORCH names.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from computepool.agent.execution.job_environment import prepare_runtime
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.scratch import remove_tree
from computepool.testing.processes import RealPool

collect_ignore_glob = [] if os.path.exists("/dev/nvidiactl") else ["test_*.py"]
if "COMPUTEPOOL_TORCH" not in os.environ:
    collect_ignore_glob.append("test_training.py")
MEASURING: dict[str, Any] = {"measure_every_s": 3600, "measure_first_s": 0, "retier_round_s": 0.1}


@pytest.fixture(scope="session")
def ground() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="computepool-gpu-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    remove_tree(folder)


@pytest.fixture(scope="session")
def runtime(ground: Path) -> Runtime:
    (ground / "cache").mkdir(mode=0o755)
    return prepare_runtime(ground / "cache")


@pytest.fixture
def real(ground: Path, runtime: Runtime) -> Iterator[RealPool]:
    with RealPool(cache=ground / "cache", **MEASURING) as pool:
        pool.start_hub()
        yield pool
