"""Money while hubs are killed with -9: what was acknowledged is kept, nothing moves twice, and all adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from sqlalchemy import Row

from computepool.core.money.money import CREDIT
from computepool.hub.clock import SystemClock
from computepool.hub.observability.consistency import jobs as consistency
from computepool.sdk.pool import connect
from computepool.testing.node import NodeDouble
from computepool.testing.processes import HubProcess, RealPool
from tests.faults.conftest import MakePool
from tests.faults.load import Load, command, seeded
from tests.faults.test_crash_points import BODY, LOST_BEFORE_REPLY, POINTS, QUIET, Repeater

pytestmark = pytest.mark.process

DATABASES = ("sqlite", "postgresql")
#: The first two lose the transaction, the third loses the answer; at the fourth it has been done already.
AFTER_COMMIT = {"in_booking": 0, **POINTS}
BEFORE_REPLY = {
    name: AFTER_COMMIT[name] for name in ("in_booking", "before_commit", "before_reply", "after_commit")
}
KILLS = {"sqlite": 6, "postgresql": 4}
GRANT = 1_000 * CREDIT


@dataclass
class Trade:
    """`sam` pays, `pia` earns; both, and the admin, through one hub that may die at any word."""

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

    async def credits(self, client: httpx2.AsyncClient) -> dict[str, int]:
        view = (await client.get("/credits")).json()
        return {name: view[name] for name in ("available", "held", "maturing", "withdrawable")}


@asynccontextmanager
async def trade(pool: RealPool) -> AsyncIterator[Trade]:
    hub = pool.hubs[0]
    clients: list[httpx2.AsyncClient] = []

    def client(key: str = "") -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        clients.append(httpx2.AsyncClient(base_url=f"{hub.url}/api/v1", headers=headers, timeout=20))
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


def transfers(hub: HubProcess) -> list[Row[*tuple[Any, ...]]]:
    with consistency.snapshot(hub.settings.url) as connection:
        found = connection.exec_driver_sql("SELECT * FROM transfers ORDER BY seq").all()
        return list(found)


def moved(hub: HubProcess) -> Counter[str]:
    """How many transfers there are of each kind."""
    return Counter(row.kind for row in transfers(hub))


@pytest.mark.parametrize("database", DATABASES)
async def test_money_moves_once_wherever_the_hub_dies(make_pool: MakePool, database: str) -> None:
    async with trade(make_pool(database, **QUIET, signup_grant=GRANT)) as it:
        repeat = Repeater(it.hub)
        begun = moved(it.hub)

        async def top_up() -> Any:
            return await it.post(
                it.admin, "/credits/top-ups", account="sam", amount=7 * CREDIT, source="bank"
            )

        assert (await repeat.insist(top_up, points=BEFORE_REPLY))["available"] == GRANT + 7 * CREDIT
        submitted = await repeat.insist(lambda: it.post(it.sam, "/jobs", **BODY), points=AFTER_COMMIT)
        assert submitted["hold"] > 0
        [job_id] = submitted["job_ids"]
        [grant] = await repeat.insist(it.node.take, commit=2, points=LOST_BEFORE_REPLY)
        assert grant.price > 0
        verdict = await repeat.insist(
            lambda: it.node.report(grant.attempt_id, ran_ms=100), points=BEFORE_REPLY
        )
        assert verdict == "replay"
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
            assert quick.wait(20) == 137, quick.log
        quick.start()
        pia = httpx2.AsyncClient(base_url=f"{quick.url}/api/v1", headers=it.pia.headers, timeout=30)
        async with pia:
            assert moved(quick)["mature"] == 1
            assert (await it.credits(pia))["maturing"] == 0
            assert (await it.credits(pia))["withdrawable"] == earned > 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("database", "kills"), KILLS.items())
def test_killed_under_load_it_pays_for_every_job_once(make_pool: MakePool, database: str, kills: int) -> None:
    """Real agents of the admin work for somebody else's money, which matures while hubs die."""
    pool = make_pool(database, holdback_s=1, mature_s=0.3, tick_s=1)
    hub = pool.hubs[0]
    for _ in range(2):
        pool.start_agent(trusted=("*",))
    admin = pool.client()
    account = admin.accounts.create("sam", roles=["submitter"])
    key = admin.keys.create("load", account_id=account.id).key
    client = connect(hub.url, key, retry_for=60)
    chance = seeded(9)
    try:
        with Load(client, [command("/bin/sleep", "0.05"), command("/bin/false")]) as load:
            for _ in range(kills):
                load.wait_for_more(chance.randint(2, 20))
                hub.kill()
                hub.start()
        jobs = load.wait_finished()
        assert sorted(job.id for job in jobs) == sorted(load.acknowledged)
        paid = Counter(row.job_id for row in transfers(hub) if row.kind == "pay")
        good = {job.id for job in jobs if job.state == "succeeded"}
        assert set(paid) <= good
        assert set(paid.values()) == {1}
        charged = sum(job.charge or 0 for job in jobs)
        assert charged > 0
        spent = sum(row.amount for row in transfers(hub) if row.kind in ("pay", "fee"))
        assert spent == charged
    finally:
        client.close()
