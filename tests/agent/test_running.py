"""Commands, scripts and functions, from grant to report."""

from __future__ import annotations

import pytest

from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, script, until

pytestmark = pytest.mark.anyio


async def test_a_command_runs_and_its_output_arrives(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    (attempt,) = hub.submit(command("sh", "-c", "echo hello; echo oops >&2; exit 3"))
    await until(lambda: attempt in hub.reports)
    report = hub.reports[attempt]
    assert (report.outcome, report.reason, report.exit_code) == (Outcome.FAILED, Reason.EXIT_NONZERO, 3)
    assert report.error == "exit code 3: oops"
    assert hub.log_texts[attempt] == {"stdout": "hello\n", "stderr": "oops\n"}


async def test_a_function_returns_its_value(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    attempts = hub.submit(function(lambda x: x * 2), [payload(n) for n in range(50)])
    await until(lambda: len(hub.reports) == 50)
    assert [hub.reports[attempt].result for attempt in attempts] == [str(2 * n) for n in range(50)]
    assert {hub.reports[attempt].reason for attempt in attempts} == {Reason.COMPLETED}


async def test_a_script(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    (attempt,) = hub.submit(script("import sys; print(sys.argv[1:])", "a", "b"))
    await until(lambda: attempt in hub.reports)
    assert hub.log_texts[attempt]["stdout"] == "['a', 'b']\n"
