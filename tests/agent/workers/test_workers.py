"""Warm workers: replies of a worker are checked, and no call is lost with one."""

from __future__ import annotations

import dataclasses
import json
import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import given, strategies as st

from computepool.agent.workers.worker import _arguments, _bytes
from computepool.agent.workers.workers import _parse
from computepool.protocol.values.values import encode
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, function, payload, until

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(st.one_of(st.binary(max_size=200), JSON.map(lambda value: json.dumps(value).encode())))
def test_only_a_well_formed_reply_is_parsed(data: bytes) -> None:
    parsed = _parse(data)
    if parsed is not None:
        assert len(json.loads(data)) == 10


def test_each_field_of_a_reply_is_checked() -> None:
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


def test_arguments_may_be_an_encoded_list_without_pickles(tmp_path: Path) -> None:
    text = encode([1, (2.5, None)])
    for data in (b64encode(text.encode()).decode(), [str(tmp_path / "payload")]):
        (tmp_path / "payload").write_text(text)
        assert _arguments(_bytes(data), allow_pickle=False) == ([1, (2.5, None)], {})
    pickled = b64encode(f"[{encode(object, allow_pickle=True)}]".encode()).decode()
    with pytest.raises(ValueError, match="pickled"):
        _arguments(_bytes(pickled), allow_pickle=False)
    assert _arguments(_bytes(pickled), allow_pickle=True) == ([object], {})


def saying(message: bytes) -> Callable[[], str]:
    """A function that finds its worker's channel to the agent and sends `message` on it."""

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
    [b"nonsense", b'[99, "result", "1", 0, 0, 0, false, 0, 0, 0]', b'[0, "ready", "", 0, 0, 0, false, 0, 0, 0]'],
    ids=["nonsense", "another call", "ready again"],
)
async def test_a_function_that_replies_for_its_worker_fails_alone(
    hub: FakeHub, start_node: StartNode, message: bytes, level: str
) -> None:
    """It is to blame, not the node; the calls behind it get a new worker."""
    await start_node(level=level)
    (bad,) = hub.submit(function(saying(message)), [payload()], lane="one")
    good = hub.submit(function(lambda: 7), [payload()] * 5, lane="one")
    report = await hub.report(bad)
    assert report.reason is Reason.EXCEPTION
    assert "interfered" in (report.error or "")
    assert [report.result for report in await hub.reports_of(good)] == ["7"] * 5


async def test_a_call_that_a_dead_worker_never_read_is_made_again(hub: FakeHub, start_node: StartNode) -> None:
    """The worker was killed while idle. Until the launcher reports that, calls are sent to it and never read."""
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
    report = await hub.report(second)
    assert worker.ended is not None
    assert (report.reason, report.result) == (Reason.COMPLETED, "32")


async def test_taking_back_a_call_does_not_lose_an_unread_one_before_it(hub: FakeHub, start_node: StartNode) -> None:
    """The worker has not been scheduled for a while, so all its calls are unread."""
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
        assert (await hub.report(second)).outcome is Outcome.CANCELLED
    finally:
        child.resume()
    assert [report.result for report in await hub.reports_of([first, third])] == ["32", "32"]


async def test_a_result_beyond_the_limit_fails_the_job(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(limits=dataclasses.replace(QUICK, result_bytes_max=400_000))
    fits, large = await hub.reports_of(hub.submit(function("x".__mul__), [payload(300_000), payload(500_000)]))
    assert (large.outcome, large.reason) == (Outcome.FAILED, Reason.OUTPUT_LIMIT)
    assert "outputs/" in (large.error or "")
    assert [*hub.artifacts] == [fits.result_artifact]


async def test_a_long_result_is_read_without_following_links(hub: FakeHub, start_node: StartNode) -> None:

    def link() -> str:
        import builtins
        import pathlib

        real_mkdir = pathlib.Path.mkdir

        def mkdir(self: pathlib.Path, *args: object, **kwargs: object) -> None:
            real_mkdir(self)
            if self.name.startswith(".result-"):
                (self / "result").symlink_to("/etc/hostname")

        pathlib.Path.mkdir = mkdir  # type: ignore[method-assign,assignment]
        builtins.open = lambda *args, **kwargs: (_ for _ in ()).throw(OSError)  # type: ignore[assignment]
        return "x" * 200_000

    await start_node()
    report = await hub.run(function(link), payload())
    assert report.result is None
    assert report.outcome is Outcome.FAILED
