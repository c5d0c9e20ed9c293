"""Environments that a node's owner offers: jobs run in them, at every level, and nothing is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from computepool.agent.owner import environment_list
from computepool.agent.sandbox.runtime.runtime import Runtime
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, Outcome, function, payload, script
from tests.agent.packages.venvs import make_venv

SCRIPT = """# /// script
# dependencies = ["greet>=0.5"]
# ///
import os, sys, greet, computepool
print(greet.WORD, sys.prefix == sys.base_prefix, os.environ["VIRTUAL_ENV"] == sys.prefix, greet.__file__)
try:
    open(greet.__file__, "a")
except OSError:
    print("read-only")
"""
NOWHERE = "http://127.0.0.1:9/simple"


@pytest.fixture
def venv(shared: Path, runtime: Runtime) -> Path:
    shared.chmod(0o755)
    return make_venv(shared / "venv", runtime, greet="WORD = 'hello'\n")


@pytest.mark.parametrize("level", ["process", "namespace", "container", "gvisor"])
async def test_scripts_commands_and_functions_run_in_an_offered_environment(
    hub: FakeHub, start_node: StartNode, data_dir: Path, venv: Path, level: str
) -> None:
    def word() -> str:
        import greet

        return str(greet.WORD)

    environment_list.add(data_dir, "greeting", venv)
    await start_node(level=level, package_index=NOWHERE)
    report = await hub.run(script(SCRIPT))
    assert report.outcome is Outcome.SUCCEEDED, (report, hub.log_texts[report.attempt_id])
    lines = hub.log_texts[report.attempt_id]["stdout"].splitlines()
    assert lines == [f"hello False True {venv}/lib/{_library(venv)}/site-packages/greet.py", "read-only"]
    report = await hub.run(function(word, dependencies=["greet"]), payload())
    assert report.result == '"hello"', report.error


def _library(venv: Path) -> str:
    [library] = (venv / "lib").glob("python3.*")
    return library.name
