"""Lanes: order, giving back, cancelling, pausing and draining."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import time
from pathlib import Path

import psutil
import pytest

from computepool.agent.owner import control
from computepool.agent.sandbox.base import Status
from computepool.agent.storage import artifacts
from computepool.core.errors import BadRequest, Unavailable
from computepool.protocol.jobs.jobs import InputFile
from computepool.protocol.nodes.nodes import Grant, NextReply
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, script, until

#: For a shell: waits for a file.
WAIT = "while [ ! -e {} ]; do sleep 0.01; done"


def alive(marker: str) -> list[int]:
    """Processes whose command line holds `marker`, and not only as the beginning of a longer number."""
    whole = re.compile(rf"{re.escape(marker)}(?!\d)")
    processes = psutil.process_iter(["cmdline"])
    return [p.pid for p in processes if any(whole.search(word) for word in p.info["cmdline"] or ())]


@pytest.mark.soak
async def test_a_lane_runs_in_order_and_one_at_a_time(hub: FakeHub, start_node: StartNode, shared: Path) -> None:
    await start_node()
    log = shared / "order.txt"
    log.touch()
    log.chmod(0o666)  # A root agent's jobs run as several users.

    def enter(path: str, number: int) -> None:
        for word in ("in", "out"):
            with open(path, "a") as file:
                file.write(f"{word} {number}\n")

    calls = [payload(str(log), n) for n in range(100)]
    functions = hub.submit(function(enter), calls[:50], lane="one")
    commands = hub.submit(command("sh", "-c", f"echo command >> {log}"), [None] * 5, lane="one")
    more = hub.submit(function(enter), calls[50:], lane="one")
    await hub.reports_of(more)
    assert hub.order == [*functions, *commands, *more]
    lines = [f"{word} {n}" for n in range(100) for word in ("in", "out")]
    assert log.read_text().splitlines() == [*lines[:100], *["command"] * 5, *lines[100:]]


async def test_different_lanes_run_side_by_side(hub: FakeHub, start_node: StartNode, shared: Path) -> None:
    """Each job waits for a file that the other one writes."""
    await start_node()
    wait = "touch {0}/{1}; while [ ! -e {0}/{2} ]; do sleep 0.01; done"
    attempts = [
        *hub.submit(command("sh", "-c", wait.format(shared, "a", "b")), lane="one"),
        *hub.submit(command("sh", "-c", wait.format(shared, "b", "a")), lane="two"),
    ]
    assert {report.outcome for report in await hub.reports_of(attempts)} == {Outcome.SUCCEEDED}


@pytest.mark.soak
@pytest.mark.parametrize("ahead", [False, True], ids=["waiting", "already at the worker"])
async def test_attempts_behind_a_long_head_are_given_back(
    hub: FakeHub, start_node: StartNode, shared: Path, ahead: bool
) -> None:
    def wait(path: str | None) -> None:
        while path is not None and not os.path.exists(path):
            time.sleep(0.01)

    await start_node(limits=dataclasses.replace(QUICK, give_back_after_s=0.5))
    quick = hub.submit(function(wait), [payload(None)] * (30 if ahead else 0), lane="one")
    head, *behind = hub.submit(function(wait), [payload(str(shared / "go")), *[payload(None)] * 9], lane="one")
    ends = {(report.outcome, report.reason) for report in await hub.reports_of(behind)}
    assert ends == {(Outcome.RETURNED, Reason.GIVEN_BACK)}
    assert head not in hub.reports
    (shared / "go").touch()
    assert {report.outcome for report in await hub.reports_of([*quick, head])} == {Outcome.SUCCEEDED}


@pytest.mark.soak
async def test_calls_behind_a_crash_run_as_if_nothing_had_happened(hub: FakeHub, start_node: StartNode) -> None:
    """The worker had them already when it died. Neither they nor the node are to blame."""
    await start_node()

    def crash_at(number: int) -> int:
        if number in (20, 21, 45):
            os.kill(os.getpid(), 9)
        return number

    attempts = hub.submit(function(crash_at), [payload(n) for n in range(60)], lane="one")
    ends = {number: report.reason for number, report in enumerate(await hub.reports_of(attempts))}
    assert {number for number, reason in ends.items() if reason is Reason.SIGNAL} == {20, 21, 45}
    assert {reason for reason in ends.values() if reason is not Reason.SIGNAL} == {Reason.COMPLETED}
    assert hub.order == attempts


@pytest.mark.soak
async def test_a_worker_that_dies_during_an_upload_takes_no_other_call_with_it(
    hub: FakeHub, start_node: StartNode
) -> None:
    """Its lane still holds it, and tries to take calls back from it and to read its output."""
    node = await start_node()
    hub.fault = lambda path: 503 if path.startswith("/artifacts/") else None

    def act(number: int) -> int:
        if number == 20:
            with open("outputs/file", "w") as file:
                file.write("kept")
        if number == 21:
            os._exit(3)
        return number

    attempts = hub.submit(function(act), [payload(n) for n in range(24)], lane="one")
    lanes = node.agent._executor.lanes
    await until(lambda: any(lane.worker is not None and not lane.worker.alive for lane, _ in lanes()))
    hub.stop_attempt(attempts[22])
    long = await hub.run(function(time.sleep, timeout_s=1), payload(600), lane="two")
    assert long.reason is Reason.TIMEOUT
    assert not node.task.done()
    hub.fault = None
    ends = [report.reason for report in await hub.reports_of(attempts[20:])]
    assert ends == [Reason.COMPLETED, Reason.EXIT_NONZERO, Reason.CANCELLED_BY_USER, Reason.COMPLETED]
    assert list(hub.artifacts.values()) == [b"kept"]


async def test_a_stop_after_the_reply_leaves_the_next_call_alone(
    hub: FakeHub, start_node: StartNode, shared: Path
) -> None:
    node = await start_node()
    runs = shared / "runs"

    def run(path: str, number: int) -> None:
        with open(path, "a") as file:
            file.write(f"{number} ")
        while number == 2 and not os.path.exists(f"{path}.go"):
            time.sleep(0.01)

    (first,) = hub.submit(function(run, timeout_s=60), [payload(str(runs), 1)], lane="one")
    stops = []

    def begun() -> bool:
        stops.extend(head.kill for _, head in node.agent._executor.lanes() if head.kill and not stops)
        return bool(stops)

    await until(begun)
    (second,) = hub.submit(function(run, timeout_s=60), [payload(str(runs), 2)], lane="one")
    await until(lambda: runs.exists() and runs.read_text() == "1 2 ")
    stops[0](Status.CANCELLED)
    (shared / "runs.go").touch()
    assert {report.outcome for report in await hub.reports_of([first, second])} == {Outcome.SUCCEEDED}
    assert runs.read_text() == "1 2 "


async def test_a_repeated_grant_is_ignored(hub: FakeHub, start_node: StartNode, shared: Path) -> None:
    await start_node()
    grants: list[Grant] = []

    def twice(reply: NextReply) -> NextReply:
        grants.extend(reply.grants)
        return reply.model_copy(update={"grants": [*reply.grants, *reply.grants]})

    hub.tamper = twice
    (attempt,) = hub.submit(command("sh", "-c", f"echo run >> {shared}/runs; {WAIT.format(shared / 'go')}"))
    await until(lambda: bool(grants))
    hub.tamper = None
    hub.grant_again(grants[0])  # while it runs
    await until(lambda: bool(hub.beats))
    (shared / "go").touch()
    await hub.report(attempt)
    hub.grant_again(grants[0])  # after it was reported
    polls = len(hub.polls)
    await until(lambda: len(hub.polls) > polls + 2)
    await hub.run(command("true"))
    assert (shared / "runs").read_text() == "run\n"
    assert hub.repeats == []


class TestCancel:
    async def test_a_cancelled_command_dies_with_all_its_processes(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        marker = f"987654.{os.getpid()}"
        tree = f"setsid sleep {marker} & (sleep {marker} & sleep {marker}) & exec sleep {marker}"
        (attempt,) = hub.submit(command("sh", "-c", tree))
        await until(lambda: len(alive(marker)) >= 4)
        hub.stop_attempt(attempt)
        report = await hub.report(attempt)
        assert (report.outcome, report.reason) == (Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
        await until(lambda: not alive(marker))

    async def test_a_cancelled_call_leaves_its_neighbours_alone(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        before = hub.submit(function(time.sleep), [payload(0)] * 20, lane="one")
        bad, *after = hub.submit(function(time.sleep), [payload(60), *[payload(0)] * 10], lane="one")
        await hub.reports_of(before)
        hub.stop_attempt(bad)
        assert (await hub.report(bad)).outcome is Outcome.CANCELLED
        assert {report.outcome for report in await hub.reports_of([*before, *after])} == {Outcome.SUCCEEDED}

    async def test_a_waiting_attempt_that_is_cancelled_never_starts(
        self, hub: FakeHub, start_node: StartNode, shared: Path
    ) -> None:
        await start_node()
        [head] = hub.submit(command("sh", "-c", WAIT.format(shared / "go")), lane="one")
        [waiting] = hub.submit(command("touch", str(shared / "touched")), lane="one")
        [last] = hub.submit(command("true"), lane="one")
        await until(lambda: bool(hub.polls) and waiting in hub.polls[-1].holding)
        hub.stop_attempt(waiting)
        assert (await hub.report(waiting)).outcome is Outcome.CANCELLED
        assert head not in hub.reports
        (shared / "go").touch()
        assert (await hub.report(last)).outcome is Outcome.SUCCEEDED
        assert not (shared / "touched").exists()

    async def test_fetching_inputs_can_be_cancelled(
        self, hub: FakeHub, start_node: StartNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(artifacts, "DOWNLOAD_TRIES", 10_000)  # It does not give up before it is stopped.
        await start_node()
        digest = hub.add_artifact(b"never arrives")
        hub.fault = lambda path: 503 if path.startswith("/artifacts/") else None
        (attempt,) = hub.submit(script("pass", inputs=[InputFile(name="a", digest=digest, size=13)]))
        await until(lambda: hub.requests[f"/artifacts/{digest}"] >= 1)
        hub.stop_attempt(attempt)
        assert (await hub.report(attempt)).outcome is Outcome.CANCELLED


class TestStates:
    async def test_a_paused_node_takes_no_jobs_until_it_resumes_also_after_a_restart(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        node = await start_node()
        status = await asyncio.to_thread(control.call, node.config.data_dir, "pause")
        assert status["state"] == "paused"
        assert "pool node resume" in status["why_idle"]
        await until(lambda: not hub.polls[-1].claim)
        await node.finish()
        again = await start_node()
        assert again.agent.status()["state"] == "paused"
        (attempt,) = hub.submit(command("true"))
        polls = len(hub.polls)
        hub.interval_ms = 50
        await until(lambda: len(hub.polls) > polls + 3)
        assert attempt not in hub.granted
        await asyncio.to_thread(control.call, again.config.data_dir, "resume")
        await hub.report(attempt)
        await again.finish()
        assert (await start_node()).agent.status()["state"] == "ready"

    async def test_a_pause_that_cannot_be_saved_is_refused(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node()
        (node.config.data_dir / "paused").mkdir()
        with pytest.raises(BadRequest, match="could not be saved"):
            await asyncio.to_thread(control.call, node.config.data_dir, "pause")
        assert node.agent.status()["state"] == "ready"

    async def test_the_hub_can_pause_a_node(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        hub.state = "paused"
        hub.wake()
        hub.interval_ms = 50
        await until(lambda: not hub.polls[-1].claim)
        hub.state = "active"
        await until(lambda: hub.polls[-1].claim)

    async def test_a_draining_node_finishes_what_runs_and_returns_the_rest(
        self, hub: FakeHub, start_node: StartNode, shared: Path
    ) -> None:
        node = await start_node()
        [head] = hub.submit(command("sh", "-c", WAIT.format(shared / "go")), lane="one")
        behind = hub.submit(command("true"), [None] * 5, lane="one")
        await until(lambda: bool(hub.polls) and behind[-1] in hub.polls[-1].holding)
        await asyncio.to_thread(control.call, node.config.data_dir, "drain")
        ends = {(report.outcome, report.reason) for report in await hub.reports_of(behind)}
        assert ends == {(Outcome.RETURNED, Reason.NODE_DRAINING)}
        assert head not in hub.reports
        (shared / "go").touch()
        await asyncio.wait_for(node.task, 60)
        assert hub.reports[head].outcome is Outcome.SUCCEEDED
        assert hub.polls[-1].stopping

    async def test_a_stopping_node_returns_everything(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node(limits=dataclasses.replace(QUICK, stop_flush_s=15))
        marker = f"876543.{os.getpid()}"
        attempts = hub.submit(command("sleep", marker), [None] * 4)
        attempts += hub.submit(function(time.sleep), [payload(60)] * 2, lane="three")
        await until(lambda: len(alive(marker)) >= 2)
        await asyncio.wait_for(node.finish(), 30)
        ends = {(hub.reports[attempt].outcome, hub.reports[attempt].reason) for attempt in attempts}
        assert ends == {(Outcome.RETURNED, Reason.NODE_DRAINING)}
        await until(lambda: not alive(marker))
        assert list(node.config.work_dir.iterdir()) == []
        assert list(node.config.outbox_dir.iterdir()) == []
        *before, last = [poll.stopping for poll in hub.polls]
        assert last, "the last poll says that the agent stops"
        assert not any(before)


class TestControl:
    async def test_the_status_shows_what_runs(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node()
        (attempt,) = hub.submit(command("sleep", "60"))
        await until(lambda: bool(node.agent.status()["running"]))
        status = await asyncio.to_thread(control.call, node.config.data_dir, "status")
        assert (status["connected"], status["level"], status["why_idle"]) == (True, "process", "")
        assert status["running"][0]["attempt_id"] == attempt
        with pytest.raises(BadRequest):
            await asyncio.to_thread(control.call, node.config.data_dir, "explode")

    async def test_a_command_without_an_agent_fails(self, data_dir: Path) -> None:
        with pytest.raises(Unavailable, match="No agent is running"):
            control.call(data_dir, "status")

    async def test_the_socket_works_in_a_deep_folder_and_is_private(self, data_dir: Path) -> None:
        deep = data_dir / ("x" * 90) / ("y" * 90)
        deep.mkdir(parents=True)

        async def reply(command: str) -> dict[str, str]:
            return {"heard": command}

        server = control.ControlServer(deep, reply)
        await server.start()
        assert await asyncio.to_thread(control.call, deep, "status") == {"heard": "status"}
        assert (deep / control.SOCKET).stat().st_mode & 0o777 == 0o600
        await server.close()
