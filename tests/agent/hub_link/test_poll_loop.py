"""The conversation with the hub: heartbeats, leases, bad networks, clocks and removal."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path

import pytest

from computepool.agent.clock import SystemAgentClock
from computepool.agent.hub_link.hub_client import HubClient
from computepool.core.errors import BadRequest, RateLimited, Unauthenticated, Unavailable
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, until

pytestmark = pytest.mark.anyio


class TestHeartbeats:
    async def test_an_attempt_is_announced_when_it_lasts(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        hub.interval_ms = 30_000
        (attempt,) = hub.submit(command("sleep", "60"))
        await until(lambda: bool(hub.beats))
        assert attempt not in hub.reports
        assert [run.attempt_id for run in hub.beats[0].running] == [attempt]
        assert (hub.beats[0].claim, hub.beats[0].wait_ms) == (False, 0)
        hub.stop_attempt(attempt)
        await until(lambda: attempt in hub.reports)

    @pytest.mark.soak
    async def test_short_attempts_cause_none(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node(limits=dataclasses.replace(QUICK, announce_after_s=5))
        hub.submit(function(lambda: 1), [payload()] * 2)
        await until(lambda: len(hub.reports) == 2)
        hub.beats.clear()  # starting a worker may take long enough to be announced
        hub.submit(function(lambda: 1), [payload()] * 100)
        await until(lambda: len(hub.reports) == 102)
        assert hub.beats == []

    @pytest.mark.soak
    async def test_every_attempt_is_held_until_it_is_answered(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        node = await start_node()
        hub.interval_ms = 50
        hub.fault = lambda path: 503 if path == "/complete" else None
        (attempt,) = hub.submit(command("sleep", "0.5"))
        await until(lambda: attempt in hub.polls[-1].holding)
        await until(lambda: hub.requests["/complete"] >= 2)
        assert attempt in hub.polls[-1].holding
        hub.fault = None
        await until(lambda: attempt in hub.reports)
        await until(lambda: attempt not in hub.polls[-1].holding)
        assert not node.agent._table.held

    @pytest.mark.soak
    async def test_the_profile_is_sent_once_and_on_request(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        hub.interval_ms = 50
        hub.wake()
        await until(lambda: len(hub.polls) > 5)
        assert [poll.profile is not None for poll in hub.polls][:3] == [True, False, False]
        hub.reregister = True
        before = len(hub.polls)
        await until(lambda: any(poll.profile is not None for poll in list(hub.polls)[before:]))


class TestLeases:
    async def test_the_node_stops_before_its_lease_ends(self, hub: FakeHub, start_node: StartNode) -> None:
        hub.interval_ms, hub.lease_ms, hub.fence_ms = 200, 10_000, 8_000
        await start_node()
        attempts = hub.submit(command("sleep", "60"))
        attempts += hub.submit(function(time.sleep), [payload(60)], lane="two")
        await until(lambda: len(hub.beats) >= 1)
        hub.fault = lambda path: None if path in ("/complete", "/logs") else 503
        lost_at = time.monotonic()
        await until(lambda: len(hub.reports) == 2)
        waited_s = time.monotonic() - lost_at
        assert 1.0 < waited_s < 9.5, "after the renewals stopped, and before the lease was over"
        for attempt in attempts:
            assert hub.reports[attempt].reason is Reason.LEASE_LOST
        hub.fault = None
        after = await hub.run(command("true"))
        assert after.outcome is Outcome.SUCCEEDED

    async def test_a_poll_that_hangs_renews_nothing(self, hub: FakeHub, start_node: StartNode) -> None:
        """What counts is when an acknowledged renewal was sent, not that a connection is open."""
        hub.interval_ms, hub.lease_ms, hub.fence_ms = 100, 1_500, 500
        await start_node()
        (attempt,) = hub.submit(command("sleep", "60"))
        await until(lambda: len(hub.beats) >= 1)
        hub.interval_ms = 60_000
        hub.fault = lambda path: 503 if path == "/heartbeat" else None
        hub.polls.clear()
        await until(lambda: attempt in hub.reports)
        assert hub.reports[attempt].reason is Reason.LEASE_LOST

    async def test_running_attempts_survive_a_short_outage(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        (attempt,) = hub.submit(command("sleep", "1"))
        await until(lambda: len(hub.beats) >= 1)
        port = hub.port
        await hub.stop()
        await asyncio.sleep(0.3)  # the outage itself
        await hub.start(port)
        await until(lambda: attempt in hub.reports)
        assert hub.reports[attempt].outcome is Outcome.SUCCEEDED


class TestGoodbye:
    async def test_the_last_word_of_a_stopped_agent_is_that_it_stops(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        node = await start_node()
        (attempt,) = hub.submit(command("sleep", "60"))
        await until(lambda: node.agent.status()["running"])
        await node.finish()
        assert attempt in hub.reports, "what runs is reported first"
        *before, last = [poll.stopping for poll in hub.polls]
        assert last
        assert not any(before)

    async def test_so_it_is_of_a_drained_one(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node()
        await node.agent.command("drain")
        await node.task
        assert hub.polls[-1].stopping


class TestRefusals:
    @pytest.mark.soak
    async def test_a_removed_node_stops_with_a_sentence(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node()
        hub.revoked = True
        hub.wake()
        hub.interval_ms = 20
        with pytest.raises(Unauthenticated, match="enrol it again"):
            await asyncio.wait_for(node.task, 10)

    @pytest.mark.parametrize("offset_ms", [-3_600_000, 3_600_000], ids=["behind", "ahead"])
    async def test_a_hub_with_another_clock(
        self, hub: FakeHub, start_node: StartNode, offset_ms: int
    ) -> None:
        """Tokens are made and checked by the hub's time; this machine's clock does not matter."""
        node = await start_node()
        hub.time_offset_ms = offset_ms
        hub.wake()
        report = await hub.run(command("true"))
        assert report.outcome is Outcome.SUCCEEDED
        assert abs(node.agent.status()["clock_offset_ms"] - offset_ms) < 5_000

    async def test_the_next_address_is_tried(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node(hub_url=f"http://127.0.0.1:9,{hub.url}")
        await hub.run(command("true"))

    async def test_a_reply_that_is_lost_after_the_hub_acted(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        await start_node()
        dropped = []

        def drop(path: str) -> str | None:
            if path == "/complete" and len(dropped) < 3:
                dropped.append(path)
                return "drop"
            return None

        hub.fault = drop
        attempts = hub.submit(command("true"), [None] * 5)
        await until(lambda: len(hub.reports) == 5 and len(dropped) == 3 and bool(hub.repeats))
        assert set(hub.repeats) <= set(attempts), "the same reports came again, and nothing else"


class TestClient:
    @pytest.mark.parametrize(
        ("status", "kind"), [(503, Unavailable), (400, BadRequest), (500, Unavailable), (429, RateLimited)]
    )
    async def test_answers_become_errors(self, hub: FakeHub, status: int, kind: type[Exception]) -> None:
        client = HubClient((hub.url,), clock=SystemAgentClock(), limits=QUICK)
        hub.fault = lambda path: status
        with pytest.raises(kind):
            await client.hub_time_ms()
        await client.close()

    async def test_unreachable(self) -> None:
        client = HubClient(("http://127.0.0.1:9",), clock=SystemAgentClock(), limits=QUICK)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await client.hub_time_ms()
        await client.close()


@pytest.mark.soak
async def test_an_early_answer_without_work_is_not_a_busy_loop(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(limits=dataclasses.replace(QUICK, idle_pause_s=0.2))
    hub.interval_ms = 0
    hub.wake()
    before = len(hub.polls)
    await asyncio.sleep(1.0)  # how many polls fit into a second is the question
    assert len(hub.polls) - before < 15


async def test_one_early_answer_without_work_delays_no_job(hub: FakeHub, start_node: StartNode) -> None:
    """Hubs give one for news that is not work, such as a request to measure the machine."""
    await start_node(limits=dataclasses.replace(QUICK, idle_pause_s=600))
    hub.early = 1
    hub.wake()
    await until(lambda: not hub.early)
    assert (await hub.run(command("true"))).outcome is Outcome.SUCCEEDED


async def test_a_long_job_delays_no_report_of_another(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(limits=dataclasses.replace(QUICK, busy_gap_s=600))
    hub.submit(command("sleep", "60"), lane="lane0")
    for _ in range(2):
        assert (await hub.run(command("true"), lane="lane1")).outcome is Outcome.SUCCEEDED


async def test_leftovers_of_a_killed_agent_are_removed(
    hub: FakeHub, start_node: StartNode, data_dir: Path
) -> None:
    (data_dir / "work" / "old" / "deep").mkdir(parents=True)
    await start_node()
    assert list((data_dir / "work").iterdir()) == []
