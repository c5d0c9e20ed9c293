"""The agent as a real process: killed, restarted, stopped."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from computepool.agent.clock import AgentClock
from computepool.agent.execution import specs
from computepool.agent.main import OPEN_FILES_MAX
from tests.agent.execution.test_lanes import alive
from tests.agent.fake_hub import CODE, FakeHub, Outcome, Reason, command, function, payload, until
from tests.sandbox.running import has_runsc

pytestmark = pytest.mark.process

PROGRAM = """
import json, sys
from pathlib import Path
from computepool.agent.config import AgentConfig, AgentLimits
from computepool.agent.main import run
from computepool.core.errors import ComputePoolError
fields = json.loads(sys.argv[1])
limits = AgentLimits(retry_base_s=0.05, retry_max_s=0.2, give_back_after_s=60)
try:
    run(AgentConfig(data_dir=Path(fields.pop("data_dir")), limits=limits, gpus=False, **fields))
except ComputePoolError as error:
    sys.exit(f"{error.code}: {error.detail}")
"""


class Program:
    def __init__(self, hub: FakeHub, folder: Path) -> None:
        self.hub = hub
        self.folder = folder
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, **fields: object) -> None:
        config = {"hub_url": self.hub.url, "data_dir": str(self.folder), "code": CODE, "sandbox": "process"}
        polls = len(self.hub.polls)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, json.dumps(config | fields), stderr=asyncio.subprocess.PIPE
        )
        await until(lambda: len(self.hub.polls) > polls or self._over())

    def _over(self) -> bool:
        return self.process is not None and self.process.returncode is not None

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.communicate()

    async def end(self, number: int = signal.SIGTERM) -> tuple[int | None, str]:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        _, stderr = await asyncio.wait_for(self.process.communicate(), 60)
        return self.process.returncode, stderr.decode()


@pytest.fixture(scope="module")
def folder(ground: Path) -> Path:
    """One folder for the module: making the jobs' Python takes seconds."""
    path = ground / "program"
    path.mkdir()
    return path


@pytest.fixture
async def program(hub: FakeHub, folder: Path) -> AsyncIterator[Program]:
    (folder / "identity.json").unlink(missing_ok=True)
    program = Program(hub, folder)
    yield program
    if program.process is not None and program.process.returncode is None:
        await program.kill()


async def test_unsent_reports_survive_kill_9(hub: FakeHub, program: Program, shared: Path) -> None:
    await program.start()
    hub.fault = lambda path: 503 if path == "/complete" else None
    attempts = hub.submit(command("sh", "-c", f"mktemp {shared}/XXXXXXXX; echo said"), [None] * 30)
    outbox = program.folder / "outbox"
    await until(lambda: sum(text.read_text().count('"outcome"') for text in outbox.glob("*.json")) >= 30)
    await program.kill()
    assert hub.reports == {}
    # A wait shorter than a second is not added to the reports; a quick machine restarts the agent sooner than that.
    newest_ms = max(int(text.read_text().split("\n")[0]) for text in outbox.glob("*.json"))
    await until(lambda: AgentClock().now_ms() - newest_ms > 1_000)
    hub.fault = None
    await program.start()
    reports = await hub.reports_of(attempts)
    assert {report.outcome for report in reports} == {Outcome.SUCCEEDED}
    assert all(report.ended_ago_ms > 0 for report in reports), "they ended before they were sent"
    assert all(hub.log_texts[attempt]["stdout"].endswith("said\n") for attempt in attempts)
    assert len(list(shared.iterdir())) == 30, "nothing ran again"
    await until(lambda: not list(outbox.iterdir()))
    assert len({poll.boot_id for poll in hub.polls}) == 2
    assert (await program.end())[0] == 0


async def test_jobs_die_with_their_agent(hub: FakeHub, program: Program) -> None:
    await program.start()
    marker = f"765432.{os.getpid()}"
    hub.submit(command("sh", "-c", f"setsid sleep {marker} & exec sleep {marker}"))
    hub.submit(function(lambda m: os.system(f"sleep {m}"), timeout_s=600), [payload(marker)])
    await until(lambda: len(alive(marker)) >= 3)
    await program.kill()
    await until(lambda: not alive(marker))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_agent_cleanly(hub: FakeHub, program: Program, number: int) -> None:
    await program.start()
    attempts = hub.submit(command("sleep", "60"), [None] * 4)
    await until(lambda: any(beat.running for beat in hub.beats))
    started = time.monotonic()
    code, stderr = await program.end(number)
    assert code == 0, stderr
    assert time.monotonic() - started < 40
    ends = {(hub.reports[attempt].outcome, hub.reports[attempt].reason) for attempt in attempts}
    assert ends == {(Outcome.RETURNED, Reason.NODE_DRAINING)}
    assert "Traceback" not in stderr


@pytest.mark.soak
async def test_an_agent_stopped_without_a_hub_reports_after_its_next_start(hub: FakeHub, program: Program) -> None:
    await program.start()
    attempts = hub.submit(command("sleep", "60"), [None] * 2)
    await until(lambda: any(beat.running for beat in hub.beats))
    port = hub.port
    await hub.stop()
    started = time.monotonic()
    code, stderr = await program.end()
    assert code == 0, stderr
    assert time.monotonic() - started < 40
    assert list((program.folder / "outbox").iterdir()), "the reports wait for the next start"
    await hub.start(port)
    await program.start()
    await hub.reports_of(attempts)
    assert (await program.end())[0] == 0


@pytest.mark.soak
async def test_a_failed_start_gives_the_owner_one_sentence(hub: FakeHub, program: Program) -> None:
    hub.codes.clear()
    await program.start()
    code, stderr = await program.end()
    assert code == 1
    assert "bad_request: The node could not be enrolled: The enrolment code is wrong" in stderr
    assert "Traceback" not in stderr


@pytest.mark.soak
async def test_the_best_level_is_chosen_and_advertised(hub: FakeHub, program: Program) -> None:
    await program.start(sandbox="auto")
    profile = next(poll.profile for poll in hub.polls if poll.profile is not None)
    assert profile.isolation == ("gvisor" if has_runsc() else "namespace")
    assert profile.python == f"3.{sys.version_info.minor}"
    report = await hub.run(command("uname", "-n"), account="acc_stranger")
    assert hub.log_texts[report.attempt_id]["stdout"] == "job\n"
    assert (await program.end())[0] == 0


@pytest.mark.soak
async def test_the_agent_may_open_more_files_and_its_jobs_no_others(hub: FakeHub, program: Program) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        await program.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert program.process is not None
    own, _ = resource.prlimit(program.process.pid, resource.RLIMIT_NOFILE)
    assert own == min(hard, OPEN_FILES_MAX)
    report = await hub.run(command("sh", "-c", "ulimit -Sn; ulimit -Hn"))
    assert hub.log_texts[report.attempt_id]["stdout"] == f"{specs.OPEN_FILES_MAX}\n" * 2
