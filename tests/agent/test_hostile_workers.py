"""Functions that turn on the worker that calls them, or on the folder it works in: the node goes on, and is not to blame."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from computepool.core.jobs import NODE_FAULTS
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, function, payload, until

pytestmark = pytest.mark.anyio


async def test_a_folder_in_the_place_of_a_call(hub: FakeHub, start_node: StartNode, ground: Path) -> None:
    """Calls that were handed over ahead as files are taken back when the one before them is stopped."""
    shared = ground / "folders"
    shared.mkdir()
    shared.chmod(0o777)

    def act(place: str, number: int, padding: str) -> int:
        names = [name for name in os.listdir() if name.startswith(".call-")]
        if names and not os.listdir(place):
            for name in names:
                os.unlink(name)
                os.mkdir(name)
            os.mkdir(f"{place}/{number}")
            time.sleep(600)
        return number

    node = await start_node()
    args = [payload(str(shared), number, "x" * 100_000) for number in range(40)]
    attempts = hub.submit(function(act), args, lane="one")
    await until(lambda: any(shared.iterdir()))
    acted = int(next(shared.iterdir()).name)
    hub.stop_attempt(attempts[acted])
    await until(lambda: len(hub.reports) == 40)
    assert not node.task.done()
    assert hub.reports[attempts[acted]].outcome is Outcome.CANCELLED
    assert [hub.reports[attempt].result for attempt in attempts[acted + 1 :]] == [
        str(number) for number in range(acted + 1, 40)
    ]


async def test_a_lane_that_cannot_be_looked_at_keeps_the_clock_from_no_other(
    hub: FakeHub, start_node: StartNode
) -> None:
    node = await start_node()
    (bad,) = hub.submit(function(time.sleep), [payload(600)], lane="one")
    lanes = node.agent._executor.lanes
    await until(lambda: any(lane.worker is not None and lane.worker.ready for lane, _ in lanes()))
    worker = lanes()[0][0].worker
    assert worker is not None
    files, worker._files = worker._files, (-1, -1)
    (late,) = hub.submit(function(time.sleep, timeout_s=0.5), [payload(600)], lane="two")
    await until(lambda: late in hub.reports)
    assert hub.reports[late].reason is Reason.TIMEOUT
    worker._files = files
    hub.stop_attempt(bad)
    await until(lambda: bad in hub.reports)


async def test_a_word_of_the_hubs_that_cannot_be_followed_does_not_end_the_node(
    hub: FakeHub, start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    hub.interval_ms = 100
    (long,) = hub.submit(function(time.sleep), [payload(600)], lane="one")
    await until(lambda: any(run.attempt_id == long for beat in hub.beats for run in beat.running))

    def broken(*args: object) -> None:
        raise RuntimeError("as the test wished")

    with monkeypatch.context() as patch:
        patch.setattr(node.agent._executor, "start", broken)
        (other,) = hub.submit(function(len), [payload("four")], lane="two")
        await until(lambda: other in hub.granted)
        patch.setattr(node.agent._executor, "stop", broken)
        hub.stop_attempt(long)
        polls = len(hub.polls)
        await until(lambda: len(hub.polls) > polls + 2 or node.task.done())
    await until(lambda: len(hub.reports) == 2 or node.task.done())
    assert not node.task.done()
    assert hub.reports[other].result == "4", "it was granted again"
