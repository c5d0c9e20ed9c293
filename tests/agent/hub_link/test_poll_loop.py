"""The poll loop: heartbeats, leases, bad networks, clocks and removal."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path

import pytest

from computepool.core.errors import Unauthenticated
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, until


class TestHeartbeats:
    async def test_a_lasting_attempt_is_announced_at_once(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        hub.interval_ms = 30_000
        (attempt,) = hub.submit(command("sleep", "60"))
        await until(lambda: bool(hub.beats))
        assert attempt not in hub.reports
        assert [run.attempt_id for run in hub.beats[0].running] == [attempt]
        assert (hub.beats[0].claim, hub.beats[0].wait_ms) == (False, 0)
        hub.stop_attempt(attempt)
        await hub.report(attempt)

    @pytest.mark.soak
    async def test_short_attempts_cause_no_heartbeats(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node(limits=dataclasses.replace(QUICK, announce_after_s=5))
        await hub.reports_of(hub.submit(function(lambda: 1), [payload()] * 2))
        hub.beats.clear()  # Starting a worker may take long enough to be announced.
        await hub.reports_of(hub.submit(function(lambda: 1), [payload()] * 100))
        assert hub.beats == []

    @pytest.mark.soak
    async def test_an_attempt_is_held_until_its_report_is_answered(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node()
        hub.interval_ms = 50
        hub.fault = lambda path: 503 if path == "/complete" else None
        (attempt,) = hub.submit(command("sleep", "0.5"))
        await until(lambda: attempt in hub.polls[-1].holding)
        await until(lambda: hub.requests["/complete"] >= 2)
        assert attempt in hub.polls[-1].holding
        hub.fault = None
        await hub.report(attempt)
        await until(lambda: attempt not in hub.polls[-1].holding)
        assert not node.agent._table.held

    @pytest.mark.soak
    async def test_the_profile_is_sent_at_first_and_on_request(self, hub: FakeHub, start_node: StartNode) -> None:
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
        hub.interval_ms, hub.lease_ms, hub.fence_ms = 200, 42_000, 38_000
        await start_node()
        attempts = hub.submit(command("sleep", "60"))
        attempts += hub.submit(function(time.sleep), [payload(60)], lane="two")
        await until(lambda: len(hub.beats) >= 1)
        hub.fault = lambda path: None if path in ("/complete", "/logs") else 503
        lost_at = time.monotonic()
        reports = await hub.reports_of(attempts)
        waited_s = time.monotonic() - lost_at
        assert 0.5 < waited_s < 41.5, "after the renewals stopped, and before the lease was over"
        assert {report.reason for report in reports} == {Reason.LEASE_LOST}
        hub.fault = None
        assert (await hub.run(command("true"))).outcome is Outcome.SUCCEEDED

    async def test_a_poll_that_hangs_renews_nothing(self, hub: FakeHub, start_node: StartNode) -> None:
        """A lease counts from when an acknowledged renewal was sent; an open connection does not matter."""
        hub.interval_ms = 100
        await start_node()
        (attempt,) = hub.submit(command("sleep", "60"))
        await until(lambda: len(hub.beats) >= 1)
        # Only now a short lease: on a busy machine one may be over before the job has started.
        hub.lease_ms, hub.fence_ms, heard = 1_500, 500, len(hub.beats)
        await until(lambda: len(hub.beats) > heard or attempt in hub.reports)
        hub.interval_ms = 60_000
        hub.fault = lambda path: 503 if path == "/heartbeat" else None
        assert (await hub.report(attempt)).reason is Reason.LEASE_LOST

    async def test_running_attempts_survive_a_short_outage(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node()
        (attempt,) = hub.submit(command("sleep", "1"))
        await until(lambda: len(hub.beats) >= 1)
        port = hub.port
        await hub.stop()
        await until(lambda: node.agent.loop.last_error)
        await hub.start(port)
        assert (await hub.report(attempt)).outcome is Outcome.SUCCEEDED


class TestRefusals:
    @pytest.mark.soak
    async def test_a_removed_node_stops_with_a_sentence(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node()
        hub.revoked = True
        hub.wake()
        hub.interval_ms = 20
        with pytest.raises(Unauthenticated, match="enrol it again"):
            await asyncio.wait_for(node.task, 60)

    @pytest.mark.parametrize("offset_ms", [-3_600_000, 3_600_000], ids=["behind", "ahead"])
    async def test_a_hub_with_another_clock_is_served(
        self, hub: FakeHub, start_node: StartNode, offset_ms: int
    ) -> None:
        """Tokens are made and checked by the hub's time; this machine's clock does not matter."""
        node = await start_node()
        hub.time_offset_ms = offset_ms
        hub.wake()
        assert (await hub.run(command("true"))).outcome is Outcome.SUCCEEDED
        assert abs(node.agent.status()["clock_offset_ms"] - offset_ms) < 60_000

    async def test_the_next_address_is_tried_when_one_fails(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node(hub_url=f"http://127.0.0.1:9,{hub.url}")
        await hub.run(command("true"))

    async def test_reports_whose_answer_was_lost_are_sent_again(self, hub: FakeHub, start_node: StartNode) -> None:
        await start_node()
        drops = iter(["drop"] * 3)
        hub.fault = lambda path: next(drops, None) if path == "/complete" else None
        attempts = hub.submit(command("true"), [None] * 5)
        await until(lambda: len(hub.reports) == 5 and next(drops, None) is None and bool(hub.repeats))
        assert set(hub.repeats) <= set(attempts), "the same reports, and nothing else"


@pytest.mark.soak
async def test_early_replies_without_work_do_not_cause_a_busy_loop(hub: FakeHub, start_node: StartNode) -> None:
    await start_node(limits=dataclasses.replace(QUICK, idle_pause_s=0.2))
    hub.interval_ms = 0
    hub.wake()
    before = len(hub.polls)
    await asyncio.sleep(1.0)  # how many polls fit into a second is the question
    assert len(hub.polls) - before < 15


async def test_one_early_reply_without_work_delays_no_job(hub: FakeHub, start_node: StartNode) -> None:
    """Hubs send one for news other than work, such as a request to measure the machine."""
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


async def test_leftovers_of_a_killed_agent_are_removed(hub: FakeHub, start_node: StartNode, data_dir: Path) -> None:
    (data_dir / "work" / "old" / "deep").mkdir(parents=True)
    await start_node()
    assert list((data_dir / "work").iterdir()) == []
