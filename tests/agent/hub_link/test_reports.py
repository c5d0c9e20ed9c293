"""The outbox and the reporter: on disk before they are sent, sent until they are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentLimits
from computepool.agent.context import Node
from computepool.agent.hub_link.identity import Identity
from computepool.agent.hub_link.outbox import Outbox
from computepool.agent.hub_link.reporter import Reporter
from computepool.core.errors import BadRequest, ComputePoolError, Unavailable
from computepool.core.jobs.lifecycle import Outcome, Reason, Verdict
from computepool.protocol.nodes.nodes import CompleteReply, CompleteRequest, LogsRequest, LogText, Report, ReportAnswer
from tests.agent.conftest import QUICK
from tests.agent.fake_hub import Ed25519PrivateKey, until

IDENTITY = Identity(key=Ed25519PrivateKey.generate(), node_id="n", owner="o", hub_keys={}, hub_url="")


class Clock(AgentClock):
    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Hub:
    """The one call of the client that a reporter makes."""

    def __init__(self) -> None:
        self.requests: list[CompleteRequest] = []
        self.errors: list[ComputePoolError] = []
        self.accepted: list[str] = []
        self.poison: set[str] = set()
        self.silent: set[str] = set()
        self.logs_seen: list[LogText] = []

    async def logs(self, request: LogsRequest) -> None:
        if self.errors:
            raise self.errors.pop()
        self.logs_seen += request.chunks

    async def complete(self, body: bytes) -> CompleteReply:
        request = CompleteRequest.model_validate_json(body)
        self.requests.append(request)
        if self.errors:
            raise self.errors.pop()
        ids = [report.attempt_id for report in request.reports]
        if self.poison & set(ids):
            raise BadRequest("cannot be read")
        answers = [ReportAnswer(attempt_id=id_, verdict=Verdict.ACCEPTED) for id_ in ids if id_ not in self.silent]
        self.accepted += [answer.attempt_id for answer in answers if answer.attempt_id not in self.accepted]
        self.silent.clear()
        return CompleteReply(answers=answers)


class Desk:
    def __init__(self, folder: Path, *, limits: AgentLimits = QUICK, busy: bool = False) -> None:
        self.hub = Hub()
        self.clock = Clock()
        self.outbox = Outbox(folder, clock=self.clock, age_max_s=60)
        self.settled: list[str] = []
        node = Node(client=self.hub, identity=IDENTITY, clock=self.clock, limits=limits)  # type: ignore[arg-type]
        self.reporter = Reporter(node, self.outbox, on_settled=self.settled.append, is_busy=lambda: busy)

    async def __aenter__(self) -> Desk:
        self.task = asyncio.create_task(self.reporter.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def report(name: str, result: str | None = None) -> Report:
    return Report(attempt_id=name, outcome=Outcome.SUCCEEDED, reason=Reason.COMPLETED, result=result)


async def test_reports_share_requests(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        for number in range(1200):
            desk.reporter.add(report(f"a{number}"))
        await desk.reporter.wait_until_flushed()
        assert [len(request.reports) for request in desk.hub.requests] == [500, 500, 200]
        assert len(desk.settled) == 1200
        assert list(tmp_path.iterdir()) == []
        assert desk.reporter.waiting == 0


async def test_large_results_are_split(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        for number in range(40):
            desk.reporter.add(report(f"a{number}", "x" * 250_000))
        await desk.reporter.wait_until_flushed()
        sizes = [sum(len(item.result or "") for item in request.reports) for request in desk.hub.requests]
        assert max(sizes) <= desk.reporter.node.limits.batch_bytes_max
        assert sum(sizes) == 40 * 250_000


async def test_reports_are_sent_again_until_the_hub_is_back(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        desk.hub.errors = [Unavailable()] * 4
        desk.reporter.add(report("a"), [LogText(attempt_id="a", stream="stdout", text="hi")])
        await desk.reporter.wait_until_flushed()
        assert len(desk.hub.requests) == 5
        assert {len(request.logs) for request in desk.hub.requests} == {1}


async def test_long_output_is_sent_whole_before_its_report_also_by_the_next_agent(tmp_path: Path) -> None:
    texts = [LogText(attempt_id="a", stream="stdout", text="x" * 60_000, seq=seq) for seq in range(40)]
    first = Desk(tmp_path)
    first.reporter.add(report("a"), texts)
    first.reporter.spill()
    again = Desk(tmp_path)
    assert again.reporter.load() == ["a"]
    async with again:
        again.hub.errors = [Unavailable()] * 3
        await again.reporter.wait_until_flushed()
    assert sorted({text.seq or 0 for text in again.hub.logs_seen}) == list(range(40))
    assert [request.logs for request in again.hub.requests] == [[]]
    assert again.settled == ["a"]
    assert list(tmp_path.iterdir()) == []


async def test_only_the_report_that_the_hub_refuses_is_given_up(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        desk.hub.poison = {"a3"}
        for number in range(6):
            desk.reporter.add(report(f"a{number}"))
        await desk.reporter.wait_until_flushed()
        assert desk.hub.accepted == ["a0", "a1", "a2", "a4", "a5"]
        assert sorted(desk.settled) == [f"a{n}" for n in range(6)]
        assert list(tmp_path.iterdir()) == []


async def test_a_report_without_an_answer_is_sent_again(tmp_path: Path) -> None:
    async with Desk(tmp_path) as desk:
        desk.hub.silent = {"a1"}
        for number in range(3):
            desk.reporter.add(report(f"a{number}"))
        await desk.reporter.wait_until_flushed()
        assert desk.hub.accepted == desk.settled == ["a0", "a2", "a1"]
        assert len(desk.hub.requests) == 2


async def test_the_next_start_sends_what_a_killed_agent_left(tmp_path: Path) -> None:
    first = Desk(tmp_path)
    for number in range(5):
        first.reporter.add(report(f"a{number}"))
    first.reporter.spill()
    (tmp_path / "half.part").write_text("cut off")
    (tmp_path / "000.json").write_text("12\n{damaged")
    second = Desk(tmp_path)
    second.clock.ahead_ms = 5_000
    assert second.reporter.load() == [f"a{number}" for number in range(5)]
    async with second:
        await second.reporter.wait_until_flushed()
    assert all(5_000 <= item.ended_ago_ms < 60_000 for item in second.hub.requests[0].reports)
    assert list(tmp_path.iterdir()) == []


async def test_outdated_reports_are_dropped(tmp_path: Path) -> None:
    first = Desk(tmp_path)
    first.reporter.add(report("old"))
    first.reporter.spill()
    second = Desk(tmp_path)
    second.clock.ahead_ms = 61_000
    assert second.reporter.load() == []
    assert list(tmp_path.iterdir()) == []


async def test_reports_are_saved_while_a_request_hangs(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    hang = asyncio.Event()

    async def never(body: bytes) -> CompleteReply:
        await hang.wait()
        raise Unavailable

    desk.hub.complete = never  # type: ignore[method-assign]
    async with desk:
        desk.reporter.add(report("first"))
        await until(lambda: len(list(tmp_path.glob("*.json"))) == 1)
        desk.reporter.add(report("second"))
        await until(lambda: len(list(tmp_path.glob("*.json"))) == 2)


async def test_requests_are_spaced_while_attempts_wait(tmp_path: Path) -> None:
    async with Desk(tmp_path, busy=True) as desk:
        started = desk.clock.steady()
        for number in range(10):
            desk.reporter.add(report(f"a{number}"))
            await desk.reporter.wait_until_flushed()
        assert desk.clock.steady() - started > 8 * QUICK.busy_gap_s
