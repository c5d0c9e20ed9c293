"""The hub dies just before and just after each commit of a job's life, and just before it answers.

Whoever was talking to it says the same words again, and the end is as if nothing had happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import httpx2
import pytest

from computepool.hub.clock import SystemClock
from computepool.testing.node import NodeDouble
from computepool.testing.processes import HubProcess
from tests.faults.conftest import MakePool

pytestmark = pytest.mark.process

T = TypeVar("T")
#: Nothing commits but what the test does: the hub's own rounds are slower than it.
QUIET = {
    "lease_min_s": 60,
    "interval_min_s": 10,
    "sweep_s": 10,
    "boot_grace_s": 120,
    "self_fence_s": 10,
    "tick_s": 3600,
    "mature_s": 3600,
}
#: How often a hub passes each point before it serves: it looks at its prices, and at its leases.
POINTS = {"before_commit": 1, "after_commit": 1, "before_reply": 1}
#: A lease that was committed is found again, not made again: after one of these there is nothing left to commit.
LOST_AFTER_COMMIT = {name: POINTS[name] for name in ("before_commit", "after_commit")}
LOST_BEFORE_REPLY = {name: POINTS[name] for name in ("before_commit", "before_reply")}
BODY = {"spec": {"kind": "command", "name": "x", "argv": ["/bin/true"]}}


class Repeater:
    """Does each thing until it is answered, by a hub that dies at it again and again."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub = hub

    async def insist(
        self, action: Callable[[], Awaitable[T]], *, commit: int = 1, points: Mapping[str, int] = POINTS
    ) -> T:
        """`commit`: which one it is since the hub serves."""
        await self.fail(action, commit=commit, points=points)
        await self._revive()
        return await action()

    async def fail(
        self, action: Callable[[], Awaitable[T]], *, commit: int = 1, points: Mapping[str, int] = POINTS
    ) -> None:
        for point, before in points.items():
            await self._revive(crash_at=f"{point}:{before + commit}")
            with pytest.raises(httpx2.TransportError):
                await action()
            assert await asyncio.to_thread(self.hub.wait, 10) == 137, self.hub.log

    async def _revive(self, crash_at: str = "") -> None:
        self.hub.kill()
        await asyncio.to_thread(lambda: self.hub.start(crash_at=crash_at))


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_a_repeated_request_has_one_effect(make_pool: MakePool, database: str) -> None:
    pool = make_pool(database, **QUIET)
    hub = pool.hubs[0]
    headers = {"Authorization": f"Bearer {pool.admin_key}"}
    async with (
        httpx2.AsyncClient(base_url=f"{hub.url}/api/v1", headers=headers, timeout=20) as http,
        httpx2.AsyncClient(base_url=f"{hub.url}/api/v1", timeout=20) as wire,
    ):
        node = NodeDouble(wire, SystemClock())
        await node.register((await http.post("/nodes/codes")).json()["code"])
        repeat = Repeater(hub)

        async def submit() -> dict[str, list[str]]:
            answer = await http.post("/jobs", json=BODY, headers={"Idempotency-Key": "the same"})
            assert answer.status_code == 201, answer.text
            reply: dict[str, list[str]] = answer.json()
            return reply

        async def arrive() -> None:
            while (await node.poll(wait_ms=0)).reregister:
                pass

        async def run(attempt_id: str) -> None:
            await arrive()
            said = [{"attempt_id": attempt_id, "progress": 0.5}]
            await node.poll(path="/heartbeat", wait_ms=0, claim=False, running=said)

        submitted = await repeat.insist(submit)
        [job_id] = submitted["job_ids"]
        await repeat.fail(arrive)  # never answered: a hub that knows the node gives it the job in that moment
        # The first commit is its arrival at a hub that knows nobody.
        [grant] = await repeat.insist(node.take, commit=2, points=LOST_AFTER_COMMIT)
        assert grant.job_id == job_id
        await repeat.insist(lambda: run(grant.attempt_id), commit=2, points=LOST_BEFORE_REPLY)
        assert await repeat.insist(lambda: node.report(grant.attempt_id, result="42")) == "replay"

        assert await submit() == submitted
        jobs = (await http.get("/jobs")).json()["jobs"]
        assert [(job["id"], job["state"], job["attempts"]) for job in jobs] == [(job_id, "succeeded", 1)]
        assert (await http.get(f"/jobs/{job_id}/result")).json()["result"] == "42"
        events = (await http.get("/events", params={"job_id": job_id})).json()["events"]
        assert [event["after"] for event in events] == ["queued", "leased", "running", "succeeded"]
