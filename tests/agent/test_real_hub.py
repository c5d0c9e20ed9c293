"""The agent and the real hub, as processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.sdk.errors import JobFailed
from computepool.sdk.pool import Pool
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.agent.execution.test_lanes import alive

pytestmark = pytest.mark.process


@pytest.fixture
def client(real: RealPool) -> Pool:
    return real.client()


@pytest.mark.every_case
@pytest.mark.parametrize("level", ["process", "namespace", "gvisor"])
def test_functions_and_scripts_run_at_every_level(real: RealPool, client: Pool, tmp_path: Path, level: str) -> None:
    real.start_agent(sandbox=level)
    assert list(client.map(lambda n: n * n, range(300))) == [n * n for n in range(300)]
    with pytest.raises(JobFailed, match="ZeroDivisionError"):
        client.submit(lambda: 1 / 0).result(60)
    source = tmp_path / "job.py"
    source.write_text("import computepool\n(computepool.outputs() / 'a.txt').write_text('made here')\nprint('hi')")
    outcome = client.run(source)
    assert (outcome.exit_code, outcome.output) == (0, "hi\n")
    assert [output.name for output in outcome.outputs] == ["a.txt"]


def test_no_job_is_lost_or_counted_twice_under_kill_9(real: RealPool, client: Pool) -> None:
    agent = real.start_agent(cores=4)
    futures = [client.submit(_slow_square, n, retries=0) for n in range(150)]
    for _ in range(5):
        done = sum(future.done() for future in futures)
        wait_until(lambda done=done: sum(f.done() for f in futures) >= min(150, done + 10), 60, "some more")
        agent.restart()
    assert [future.result(120) for future in futures] == [n * n for n in range(150)]
    assert real.broken_rules() == []


def _slow_square(n: int) -> int:
    time.sleep(0.01)
    return n * n


_slow_square.__module__ = "__main__"  # pickled by value, as a function of a script would be


@pytest.fixture
def patient() -> Iterator[RealPool]:
    """Its agents go on without a hub for a while."""
    with RealPool(lease_min_s=20, self_fence_s=1) as real:
        real.start_hub()
        yield real


def test_a_running_job_survives_a_restart_of_the_hub(patient: RealPool) -> None:
    real, client = patient, patient.client()
    real.start_agent()
    marker = real.shared_folder("marks") / "runs"

    def once(path: str) -> str:
        import time

        with open(path, "a") as file:
            file.write("run\n")
        time.sleep(3)
        return "kept"

    future = client.submit(once, str(marker))
    wait_until(marker.exists, 60, "it runs")
    real.hubs[0].restart()
    assert future.result(60) == "kept"
    assert marker.read_text() == "run\n"


@pytest.mark.soak
def test_jobs_are_cancelled_and_nodes_drained_through_the_hub(real: RealPool, client: Pool) -> None:
    agent = real.start_agent()
    marker = f"654321.{os.getpid()}"
    future = client.submit(lambda m: __import__("os").system(f"sleep {m}"), marker)
    wait_until(lambda: alive(marker), 60, "it runs")
    future.cancel()
    wait_until(lambda: not alive(marker), 60, "it was killed")
    client.nodes.drain(agent.node_id)
    assert agent.wait(60) == 0


@pytest.mark.soak
def test_the_usage_of_a_job_is_shown_while_it_runs_and_afterwards(real: RealPool, client: Pool, tmp_path: Path) -> None:
    real.start_agent(sandbox="namespace", region="in")
    source = tmp_path / "busy.py"
    source.write_text(
        "import time\nfilled = b'x' * 50_000_000\nend = time.monotonic() + 8\nwhile time.monotonic() < end: pass"
    )
    job = client.run(source, wait=False, ram="256MB")
    wait_until(lambda: client.jobs.usage(job.job_id).attempts[:1], 60, "a try")
    wait_until(lambda: client.jobs.usage(job.job_id).attempts[0].now is not None, 60, "the node's first word")
    assert client.mesh().running == 1
    job.result(60)

    def whole() -> bool:
        [attempt] = client.jobs.usage(job.job_id).attempts
        return not attempt.live and len(attempt.at_ms) >= 2

    wait_until(whole, 60, "the whole curve")
    real.hubs[0].restart()
    found = client.jobs.usage(job.job_id)
    [attempt] = found.attempts
    assert len(attempt.at_ms) >= 2
    assert max(attempt.cpu_percent) >= 10
    assert 50 <= max(attempt.rss_mb) <= found.ram_mb == 256
    assert attempt.gpu_percent is None
    assert [node.place for node in client.mesh.nodes().nodes] in ([], ["India"]), "it may not be back yet"
    told = [item.sentence for item in client.mesh.activity()]
    assert "A script finished on cpu, India" in told


@pytest.mark.soak
def test_equal_outputs_of_two_jobs_are_sent_once(real: RealPool, client: Pool, tmp_path: Path) -> None:
    """Each job has the file under its own name."""
    real.start_agent()
    for name in ("first", "second"):
        source = tmp_path / f"{name}.py"
        source.write_text(f"import computepool\n(computepool.outputs() / '{name}').write_bytes(b'x' * 3_000_000)")
        outcome = client.run(source)
        assert [(output.name, output.size) for output in outcome.outputs] == [(name, 3_000_000)]
    assert real.broken_rules() == []
