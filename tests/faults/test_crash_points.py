"""The hub dies just before and just after each commit of a job's life, while booking, and just before it replies.

The client or node repeats its request, and the outcome is as if nothing had happened: what was acknowledged is kept, and
nothing is done or paid twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import httpx2
import pytest

from computepool.core.money.money import CREDIT
from computepool.hub.clock import SystemClock
from computepool.testing.node import NodeDouble
from computepool.testing.processes import HubProcess, RealPool
from tests.faults.conftest import MakePool
from tests.faults.load import transfers

pytestmark = pytest.mark.process

T = TypeVar("T")
#: Only the test's requests commit: the hub's periodic work is too slow to interfere.
QUIET = {
    "lease_min_s": 60,
    "interval_min_s": 10,
    "sweep_s": 10,
    "boot_grace_s": 120,
    "self_fence_s": 10,
    "tick_s": 3600,
    "mature_s": 3600,
}
#: How often a hub passes each point before it serves: it reads prices and leases.
POINTS = {"before_commit": 1, "after_commit": 1, "before_reply": 1}
#: A committed lease is found again, so that its repetition commits nothing.
LOST_AFTER_COMMIT = {name: POINTS[name] for name in ("before_commit", "after_commit")}
LOST_BEFORE_REPLY = {name: POINTS[name] for name in ("before_commit", "before_reply")}
#: The first two lose the transaction, the third loses the reply; the fourth is a repetition.
AFTER_COMMIT = {"in_booking": 0, **POINTS}
BEFORE_REPLY = {name: AFTER_COMMIT[name] for name in ("in_booking", "before_commit", "before_reply", "after_commit")}
DATABASES = ("sqlite", "postgresql")
GRANT = 1_000 * CREDIT
BODY = {"spec": {"kind": "command", "name": "x", "argv": ["/bin/true"]}}


class Repeater:
    """Repeats each request to a hub that dies while handling it, until it is answered."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub = hub

    async def insist(
        self, action: Callable[[], Awaitable[T]], *, commit: int = 1, points: Mapping[str, int] = POINTS
    ) -> T:
        """`commit`: the number of the commit since the hub began to serve."""
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
            assert await asyncio.to_thread(self.hub.wait, 60) == 137, self.hub.log

    async def _revive(self, crash_at: str = "") -> None:
        self.hub.kill()
        await asyncio.to_thread(lambda: self.hub.start(crash_at=crash_at))


@dataclass
class Trade:
    """`sam` pays, `pia` earns; both, and the admin, through one hub that may die at any moment."""

    hub: HubProcess
    admin: httpx2.AsyncClient
    sam: httpx2.AsyncClient
    pia: httpx2.AsyncClient
    node: NodeDouble
    ids: dict[str, str]

    async def post(self, client: httpx2.AsyncClient, path: str, **body: Any) -> Any:
        answer = await client.post(path, json=body, headers={"Idempotency-Key": f"{path} {body}"})
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def arrive(self) -> None:
        while (await self.node.poll(wait_ms=0)).reregister:
            pass

    async def run(self, attempt_id: str) -> None:
        await self.arrive()
        running = [{"attempt_id": attempt_id, "progress": 0.5}]
        await self.node.poll(path="/heartbeat", wait_ms=0, claim=False, running=running)

    async def credits(self, client: httpx2.AsyncClient) -> dict[str, int]:
        view = (await client.get("/credits")).json()
        return {name: view[name] for name in ("available", "held", "maturing", "withdrawable")}


@asynccontextmanager
async def trade(pool: RealPool) -> AsyncIterator[Trade]:
    hub = pool.hubs[0]
    clients: list[httpx2.AsyncClient] = []

    def client(key: str = "") -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        clients.append(httpx2.AsyncClient(base_url=f"{hub.url}/api/v1", headers=headers, timeout=60))
        return clients[-1]

    admin, ids, people = client(pool.admin_key), {}, {}
    for name, role in (("sam", "submitter"), ("pia", "provider")):
        made = await admin.post("/accounts", json={"name": name, "roles": [role]})
        ids[name] = made.json()["id"]
        key = await admin.post("/keys", json={"name": "k", "account_id": ids[name]})
        people[name] = client(key.json()["key"])
    node = NodeDouble(client(), SystemClock())
    await node.register((await people["pia"].post("/nodes/codes")).json()["code"])
    try:
        yield Trade(hub, admin, people["sam"], people["pia"], node, ids)
    finally:
        for one in clients:
            await one.aclose()


def moved(hub: HubProcess) -> Counter[str]:
    """The number of transfers of each kind."""
    return Counter(row.kind for row in transfers(hub))


@pytest.mark.parametrize("database", DATABASES)
async def test_repeated_requests_have_one_effect_wherever_the_hub_dies(make_pool: MakePool, database: str) -> None:
    async with trade(make_pool(database, **QUIET, signup_grant=GRANT)) as it:
        repeat = Repeater(it.hub)
        begun = moved(it.hub)

        async def top_up() -> Any:
            return await it.post(it.admin, "/credits/top-ups", account="sam", amount=7 * CREDIT, source="bank")

        assert (await repeat.insist(top_up, points=BEFORE_REPLY))["available"] == GRANT + 7 * CREDIT
        submitted = await repeat.insist(lambda: it.post(it.sam, "/jobs", **BODY), points=AFTER_COMMIT)
        assert submitted["hold"] > 0
        [job_id] = submitted["job_ids"]
        await repeat.fail(it.arrive)  # never answered: a hub that knows the node grants the job at once
        # The first commit is the node's arrival at a hub that knows no nodes.
        [grant] = await repeat.insist(it.node.take, commit=2, points=LOST_AFTER_COMMIT)
        assert (grant.job_id, grant.price > 0) == (job_id, True)
        await repeat.insist(lambda: it.run(grant.attempt_id), commit=2, points=LOST_BEFORE_REPLY)
        report = partial(it.node.report, grant.attempt_id, ran_ms=100, result="42")
        assert await repeat.insist(report, points=BEFORE_REPLY) == "replay"
        assert await it.post(it.sam, "/jobs", **BODY) == submitted
        jobs = (await it.sam.get("/jobs")).json()["jobs"]
        assert [(job["id"], job["state"], job["attempts"]) for job in jobs] == [(job_id, "succeeded", 1)]
        assert (await it.sam.get(f"/jobs/{job_id}/result")).json()["result"] == "42"
        events = (await it.sam.get("/events", params={"job_id": job_id})).json()["events"]
        assert [event["after"] for event in events] == ["queued", "leased", "running", "succeeded"]
        second = await it.post(it.sam, "/jobs", **BODY, priority=1)
        cancelled = await repeat.insist(
            lambda: it.post(it.sam, f"/jobs/{second['job_ids'][0]}/cancel"), points=AFTER_COMMIT
        )
        assert cancelled["state"] == "cancelled"
        charge = grant.price * 100 // 3_600_000
        fee = -(-charge // 5)
        assert (await it.sam.get(f"/jobs/{job_id}")).json()["charge"] == charge > 0
        assert await it.credits(it.sam) == {
            "available": GRANT + 7 * CREDIT - charge,
            "held": 0,
            "maturing": 0,
            "withdrawable": 0,
        }
        assert (await it.credits(it.pia))["maturing"] == charge - fee
        assert moved(it.hub) - begun == {"top_up": 1, "hold": 2, "pay": 1, "fee": 1, "refund": 2}


@pytest.mark.soak
@pytest.mark.parametrize("database", DATABASES)
async def test_earnings_mature_once_wherever_the_hub_dies(make_pool: MakePool, database: str) -> None:
    pool = make_pool(database, **QUIET, signup_grant=GRANT)
    async with trade(pool) as it:
        await it.post(it.sam, "/jobs", **BODY)
        [grant] = await it.node.take()
        await it.node.report(grant.attempt_id, ran_ms=100)
        earned = (await it.credits(it.pia))["maturing"]
        it.hub.kill()
        quick = HubProcess(
            pool.folder,
            name="maturing",
            first=it.hub.first,
            database_url=it.hub.settings.database_url,
            **{**QUIET, "mature_s": 0.05, "holdback_s": 0},
        )
        pool.hubs.append(quick)
        for point in ("in_booking", "before_commit", "after_commit"):
            quick.start(ready=False, crash_at=f"{point}:{AFTER_COMMIT[point] + 1}")
            assert quick.wait(60) == 137, quick.log
        quick.start()
        pia = httpx2.AsyncClient(base_url=f"{quick.url}/api/v1", headers=it.pia.headers, timeout=30)
        async with pia:
            assert moved(quick)["mature"] == 1
            assert (await it.credits(pia))["maturing"] == 0
            assert (await it.credits(pia))["withdrawable"] == earned > 0


@pytest.mark.soak
@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("failed", [False, True])
async def test_what_comes_after_a_job_is_freed_once_wherever_the_hub_dies(
    make_pool: MakePool, database: str, failed: bool
) -> None:
    async with trade(make_pool(database, **QUIET, signup_grant=GRANT)) as it:
        repeat = Repeater(it.hub)
        [first] = (await it.post(it.sam, "/jobs", **BODY))["job_ids"]
        after = {
            when: (await it.post(it.sam, "/jobs", **BODY, after=[first], when=when))["job_ids"][0]
            for when in ("success", "failure", "always")
        }
        [grant] = await it.node.take()
        ended = {"outcome": "failed", "reason": "exit_nonzero", "exit_code": 1} if failed else {"ran_ms": 100}
        report = partial(it.node.report, grant.attempt_id, **ended)
        assert await repeat.insist(report, points=LOST_BEFORE_REPLY) == "replay"
        await it.arrive()
        free = {after["always"], after["failure" if failed else "success"]}
        assert {grant.job_id for grant in await it.node.take(2)} == free
        for job_id in after.values():
            events = (await it.sam.get("/events", params={"job_id": job_id})).json()["events"]
            assert [event["after"] for event in events] == ["queued", "leased" if job_id in free else "cancelled"]
