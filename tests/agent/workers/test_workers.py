"""What a worker says is a stranger's claim."""

from __future__ import annotations

import dataclasses
import json
import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from computepool.agent.workers.worker import _arguments, _bytes
from computepool.agent.workers.workers import _parse
from computepool.protocol.values.values import encode
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, function, payload, until

pytestmark = pytest.mark.anyio

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(st.one_of(st.binary(max_size=200), JSON.map(lambda value: json.dumps(value).encode())))
def test_nothing_but_an_answer_is_taken_for_one(data: bytes) -> None:
    parsed = _parse(data)
    if parsed is not None:
        assert len(json.loads(data)) == 10


def test_an_answer_is_taken() -> None:
    assert _parse(b'[1, "result", "null", 5, 6, 7, false, 8, 9, 0]') is not None
    for bad in (
        b'[-1, "result", "null", 5, 6, 7, false, 8, 9]',
        b'[1, "fantasy", "null", 5, 6, 7, false, 8, 9]',
        b'[1, ["result"], "null", 5, 6, 7, false, 8, 9]',
        b'[1, "result", 3, 5, 6, 7, false, 8, 9]',
        b'[1, "result", "null", 5, 6, 1e300, false, 8, 9]',
        b'[true, "result", "null", 5, 6, 7, false, 8, 9]',
        b'[1, "result", "null", 5, 6, 99999999999999999999, false, 8, 9]',
        b'[1, "result", "null", 5, 6, 7, 0, 8, 9]',
        b'[1, "result", "null", 5, 6, 7, false, -8, 9]',
        b"[" * 100_000,
    ):
        assert _parse(bad) is None, bad[:60]


def test_arguments_may_be_an_encoded_list(tmp_path: Path) -> None:
    text = encode([1, (2.5, None)])
    for data in (b64encode(text.encode()).decode(), [str(tmp_path / "payload")]):
        (tmp_path / "payload").write_text(text)
        assert _arguments(_bytes(data), allow_pickle=False) == ([1, (2.5, None)], {})
    pickled = b64encode(f"[{encode(object, allow_pickle=True)}]".encode()).decode()
    with pytest.raises(ValueError, match="pickled"):
        _arguments(_bytes(pickled), allow_pickle=False)
    assert _arguments(_bytes(pickled), allow_pickle=True) == ([object], {})


def saying(message: bytes) -> Callable[[], str]:
    """A function that finds its worker's channel to the agent and says `message` on it."""

    def hostile() -> str:
        import os
        import socket

        for fd in range(3, 64):
            try:
                channel = socket.socket(fileno=os.dup(fd))
                if channel.family == socket.AF_UNIX:
                    channel.send(message)
            except OSError:
                continue
        return "said"

    return hostile


@pytest.mark.soak
@pytest.mark.parametrize("level", ["namespace", "gvisor"])
@pytest.mark.parametrize(
    "message",
    [
        b"nonsense",
        b'[99, "result", "1", 0, 0, 0, false, 0, 0, 0]',
        b'[0, "ready", "", 0, 0, 0, false, 0, 0, 0]',
    ],
    ids=["nonsense", "another call", "ready again"],
)
async def test_a_function_that_speaks_for_its_worker(
    hub: FakeHub, start_node: StartNode, message: bytes, level: str
) -> None:
    """It fails by its own fault, not the node's; the calls behind it get a new worker."""
    await start_node(level=level)
    (bad,) = hub.submit(function(saying(message)), [payload()], lane="one")
    good = hub.submit(function(lambda: 7), [payload()] * 5, lane="one")
    await until(lambda: len(hub.reports) == 6)
    assert hub.reports[bad].reason is Reason.EXCEPTION
    assert "interfered" in (hub.reports[bad].error or "")
    assert [hub.reports[attempt].result for attempt in good] == ["7"] * 5


async def test_a_call_that_a_dead_worker_never_read_is_called_again(
    hub: FakeHub, start_node: StartNode
) -> None:
    """It was idle, and killed; until the launcher says so, what is sent to it arrives nowhere."""
    node = await start_node()
    (first,) = hub.submit(function(os.getpid), [payload()])
    await until(lambda: first in hub.reports and node.agent._pool._idle)
    ((worker,),) = node.agent._pool._idle.values()
    launcher = psutil.Process(worker.process.pid)
    (child,) = launcher.children()
    launcher.suspend()
    try:
        child.kill()
        await until(lambda: child.status() == psutil.STATUS_ZOMBIE)
        (second,) = hub.submit(function(pow), [payload(2, 5)])
        await until(lambda: worker.sent == 1)
    finally:
        launcher.resume()
    await until(lambda: second in hub.reports)
    assert worker.ended is not None
    assert (hub.reports[second].reason, hub.reports[second].result) == (Reason.COMPLETED, "32")


async def test_a_call_that_its_worker_has_not_read_yet_is_not_lost_with_those_behind_it(
    hub: FakeHub, start_node: StartNode
) -> None:
    """What is behind it is taken back from a worker that the system has not let run for a while."""
    node = await start_node()
    (before,) = hub.submit(function(os.getpid), [payload()], lane="one")
    await until(lambda: before in hub.reports and node.agent._pool._idle)
    ((worker,),) = node.agent._pool._idle.values()
    (child,) = psutil.Process(worker.process.pid).children()
    child.suspend()
    try:
        first, second, third = hub.submit(function(pow), [payload(2, 5)] * 3, lane="one")
        await until(lambda: worker.sent == 3)
        hub.stop_attempt(second)
        await until(lambda: second in hub.reports)
    finally:
        child.resume()
    await until(lambda: {first, third} <= hub.reports.keys())
    assert [hub.reports[one].result for one in (first, third)] == ["32", "32"]
    assert hub.reports[second].outcome is Outcome.CANCELLED


async def test_a_result_beyond_the_limit_is_not_sent(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(limits=dataclasses.replace(QUICK, result_bytes_max=400_000))
    fits, large = hub.submit(function("x".__mul__), [payload(300_000), payload(500_000)])
    await until(lambda: {fits, large} <= hub.reports.keys())
    assert hub.reports[fits].result_artifact in hub.artifacts
    report = hub.reports[large]
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.OUTPUT_LIMIT)
    assert "outputs/" in (report.error or "")
    assert len(hub.artifacts) == 1


async def test_a_worker_cannot_answer_for_a_file_elsewhere(hub: FakeHub, start_node: StartNode) -> None:
    """A long result is read from the work folder without following links."""

    def link() -> str:
        import builtins
        import pathlib

        real_mkdir = pathlib.Path.mkdir

        def mkdir(self: pathlib.Path, *args: object, **kwargs: object) -> None:
            real_mkdir(self)
            if self.name.startswith(".answer-"):
                (self / "result").symlink_to("/etc/hostname")

        pathlib.Path.mkdir = mkdir  # type: ignore[method-assign,assignment]
        builtins.open = lambda *args, **kwargs: (_ for _ in ()).throw(OSError)  # type: ignore[assignment]
        return "x" * 200_000

    await start_node()
    report = await hub.run(function(link), payload())
    assert report.result is None
    assert report.outcome is Outcome.FAILED
