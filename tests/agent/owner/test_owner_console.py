"""The owner's console with a real agent, and clearing the cache of a running agent."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import logging
import re

import pytest

from computepool.agent.clock import AgentClock
from computepool.agent.owner import control
from computepool.agent.owner.owner_console import OwnerConsole, log_to_file
from computepool.core.jobs.lifecycle import Outcome
from computepool.protocol.jobs.jobs import InputFile
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, command, function, payload, script, until

LINES = dataclasses.replace(QUICK, console_lines_max=5, console_window_s=0.5)


@pytest.mark.soak
async def test_many_jobs_make_few_lines(hub: FakeHub, start_node: StartNode) -> None:
    out = io.StringIO()
    console = OwnerConsole(clock=AgentClock(), limits=LINES, stream=out)
    await start_node(watcher=console)
    attempts = hub.submit(function(abs), [payload(-1)] * 200)
    await hub.reports_of(attempts)
    await until(lambda: "more succeeded" in out.getvalue())

    def told(word: str) -> int:
        lines = len(re.findall(rf"\) {word}", out.getvalue()))
        return lines + sum(map(int, re.findall(rf"(\d+) more {word}", out.getvalue())))

    await until(lambda: (told("started"), told("succeeded")) == (200, 200))
    assert len(out.getvalue().splitlines()) < 100


async def test_the_start_and_the_end_of_a_job_are_one_line_each(hub: FakeHub, start_node: StartNode) -> None:
    out = io.StringIO()
    console = OwnerConsole(clock=AgentClock(), limits=QUICK, stream=out)
    node = await start_node(trusted=("*",), watcher=console)
    await hub.run(command("sh", "-c", "exit 3"), account="acc_01h_stranger")
    await until(lambda: " failed" in out.getvalue())
    started, ended = out.getvalue().splitlines()
    assert "of account ranger) started: " in started
    assert "acc_01h" not in out.getvalue()
    assert "3" in ended
    await node.agent.command("pause")
    assert out.getvalue().splitlines()[-1].endswith("To resume: pool node resume")


async def test_a_closed_terminal_does_not_affect_jobs(hub: FakeHub, start_node: StartNode) -> None:
    out = io.StringIO()
    out.close()
    console = OwnerConsole(clock=AgentClock(), limits=QUICK, stream=out)
    await start_node(watcher=console)
    assert (await hub.run(command("true"))).outcome is Outcome.SUCCEEDED


async def test_a_repeated_warning_is_shown_once_and_logged_each_time(start_node: StartNode) -> None:
    node = await start_node()
    out = io.StringIO()
    console = OwnerConsole(clock=AgentClock(), limits=QUICK, stream=out)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        log_to_file(node.config.data_dir, console, limits=QUICK, format="%(message)s")
        for delay in range(3):
            logging.getLogger("test").warning("asking the hub again in %d s: \x1b[31mgone", delay)
        logging.getLogger("test").info("a detail")
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = before
        root.setLevel(level)
    [line] = out.getvalue().splitlines()
    assert "Warning: asking the hub again in 0 s" in line
    assert "\x1b" not in line
    logged = (node.config.data_dir / "agent.log").read_text().splitlines()
    assert (len([line for line in logged if "again" in line]), logged[-1]) == (3, "a detail")


async def test_the_cache_of_a_running_agent_can_be_cleared(hub: FakeHub, start_node: StartNode) -> None:
    node = await start_node()
    digest = hub.add_artifact(b"an input")
    spec = script("print(open('a').read())", inputs=[InputFile(name="a", digest=digest, size=8)])
    await hub.run(spec)
    files = node.config.cache_dir / "artifacts"
    assert [path.name for path in files.iterdir()] == [digest]
    assert await asyncio.to_thread(control.call, node.config.data_dir, "clear_cache") == {"cleared": True}
    assert list(files.iterdir()) == []
    again = await hub.run(spec)
    assert hub.log_texts[again.attempt_id]["stdout"] == "an input\n"
