"""A machine that sleeps, or an agent that is stopped, at the moment when a job ends; and the effects of time asleep."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from computepool.agent.clock import AgentClock
from computepool.agent.execution.attempts import Stop
from computepool.protocol.jobs.jobs import RESULT_INLINE_MAX
from computepool.testing.waiting import wait_until
from tests.agent.conftest import Node, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, until

WAITING = 'echo one > outputs/one; until test -e "$0"; do sleep 0.01; done; echo two > outputs/two'


@pytest.fixture
def go(data_dir: Path) -> Path:
    """A file that jobs wait for."""
    return data_dir / "go"


async def started(node: Node, attempt: str) -> None:
    await until(lambda: (held := node.agent._executor.attempts.get(attempt)) and held.started_at is not None)


@pytest.mark.parametrize("why", list(Stop))
async def test_a_job_that_ended_before_it_was_stopped_delivers_its_outputs(
    hub: FakeHub, start_node: StartNode, go: Path, why: Stop
) -> None:
    """It ends while the agent does nothing, and the agent's next action is to stop it."""
    node = await start_node()
    (attempt,) = hub.submit(command("/bin/sh", "-c", WAITING, str(go)))
    await started(node, attempt)
    held = node.agent._executor.attempts[attempt]
    assert held.process is not None
    launcher = psutil.Process(held.process.pid)
    await until(launcher.children)
    go.touch()
    wait_until(lambda: not launcher.children(), 60, "the job has ended")  # Nothing else runs in this thread meanwhile.
    node.agent._executor.stop(held, why)
    report = await hub.report(attempt)
    assert report.outcome is Outcome.SUCCEEDED
    assert sorted(output.name for output in report.outputs) == ["one", "two"]
    assert {output.digest for output in report.outputs} <= hub.artifacts.keys()


def make(size: int) -> str:
    import computepool

    (computepool.outputs() / "made").write_text("made")
    return "x" * size


make.__module__ = "__main__"  # pickled by value, as a function of a script would be


@pytest.mark.parametrize("refusal", [400, 404])
async def test_no_success_is_reported_without_files_that_the_hub_refused(
    hub: FakeHub, start_node: StartNode, refusal: int
) -> None:
    await start_node()
    hub.fault = lambda path: refusal if path.startswith("/artifacts/") else None
    attempts = [
        *hub.submit(command("/bin/sh", "-c", "echo one > outputs/one")),
        *hub.submit(function(make), [payload(1), payload(2 * RESULT_INLINE_MAX)]),
    ]
    assert {report.reason for report in await hub.reports_of(attempts)} == {Reason.STAGING_FAILED}


def wait(go: str) -> None:
    while not os.path.exists(go):
        time.sleep(0.01)


wait.__module__ = "__main__"


async def test_time_asleep_counts_for_the_lease_and_for_nothing_else(
    hub: FakeHub, start_node: StartNode, go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept_s = 0.0
    monkeypatch.setattr(AgentClock, "boot_time", lambda _: time.clock_gettime(time.CLOCK_BOOTTIME) + slept_s)
    node = await start_node()

    def wake_after(time_s: float) -> None:
        nonlocal slept_s
        slept_s += time_s
        node.agent.loop._stop_unrenewed()
        node.agent._executor.tick()

    attempts = [
        *hub.submit(command("/bin/sh", "-c", WAITING, str(go), timeout_s=25)),
        *hub.submit(function(wait, timeout_s=25), [payload(str(go))]),
    ]
    for attempt in attempts:
        await started(node, attempt)
    wake_after(30)
    go.touch()
    for report in await hub.reports_of(attempts):
        assert report.outcome is Outcome.SUCCEEDED
        assert report.ran_ms < 30_000

    (attempt,) = hub.submit(command("/bin/sleep", "300", timeout_s=600))
    await started(node, attempt)
    wake_after(3600)
    assert (await hub.report(attempt)).reason is Reason.LEASE_LOST
