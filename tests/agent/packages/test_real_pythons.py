"""A function of a Python that nodes must fetch, through a real hub and a real agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from computepool.agent.packages.interpreters import PYTHON
from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import JobSpec, Needs
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.agent.python_mirror import Mirror, make_mirror

pytestmark = [pytest.mark.process, pytest.mark.soak]

VERSION = "import sys\n\ndef function():\n    return list(sys.version_info[:2])"


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return make_mirror(tmp_path)


def test_a_function_of_another_python_waits_until_an_owner_lets_its_node_fetch_it(
    real: RealPool, mirror: Mirror, tmp_path: Path
) -> None:
    minor, client = mirror.other.minor, real.client()
    agent = real.start_agent(sandbox="namespace")
    wait_until(lambda: client.nodes.get(agent.node_id).cores_free is not None, 60, "the node's first poll")
    spec = JobSpec(
        kind=JobKind.FUNCTION,
        name="version",
        function=mirror.other.pickled(VERSION, tmp_path / "pickling"),
        needs=Needs(python=minor),
        timeout_s=60,
    )
    made = client.jobs.submit(spec)
    assert f"Python {minor}" in (made.warning or "")
    [job_id] = made.job_ids
    why = client.jobs.why(job_id)
    assert f"does not have Python {minor}; with Python {PYTHON} it could start now" in why.sentence
    agent.kill()
    agent.start(fetch_python=True, python_mirror=mirror.listed(tmp_path / "list.json"))
    result = client.jobs.result(job_id, timeout=200)
    assert result.result is not None, result.error
    assert json.loads(result.result) == [int(part) for part in minor.split(".")]
    assert client.nodes.get(agent.node_id).profile.fetches_python == [minor]
    note = f"[Fetching Python {minor}]\n"
    wait_until(lambda: note in client.jobs.log_text(job_id), 60, "the note in its log")
    assert client.submit(lambda: list(__import__("sys").version_info[:2])).result(60) == [
        int(part) for part in PYTHON.split(".")
    ]
    assert real.broken_rules() == []
