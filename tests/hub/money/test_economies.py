"""Other economies: a time bank, and a pool without credits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from computepool.core.errors import Conflict
from computepool.core.money.money import CREDIT
from computepool.hub.main import check
from computepool.hub.money import credits as credit_service
from computepool.testing.clock import FakeClock
from computepool.testing.hub import running_hub
from tests.hub.submitting import submit
from tests.hub.working import HOUR, got, run_job

DAY_MS = 24 * 3600 * 1000


async def test_a_time_bank_lends_hours_and_pays_out_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, economy="time-bank", signup_grant=10 * CREDIT) as hub:
        sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
        node = await hub.node(pia)
        [job_id] = await submit(sam, spec=HOUR)
        assert (await got(sam, "/credits"))["held"] == CREDIT
        [grant] = await node.take()
        clock.advance(1_800_000)
        node.sign_in()
        await node.report(grant.attempt_id, ran_ms=1_800_000)
        cost = await got(sam, f"/jobs/{job_id}/cost")
        assert (cost["charge"], cost["fee"], cost["pay"]) == (CREDIT // 2, 0, CREDIT // 2)
        clock.advance(8 * DAY_MS)
        assert await credit_service.mature(hub.hub) == 1
        have = await got(pia, "/credits")
        assert (have["available"], have["withdrawable"]) == (10 * CREDIT + CREDIT // 2, 0)
        bought = await hub.admin.post("/credits/top-ups", json={"account": "sam", "amount": 1, "source": "bank"})
        assert (bought.status_code, bought.json()["field"]) == (422, "source")
        assert (await hub.admin.post("/credits/top-ups", json={"account": "sam", "amount": 1})).status_code == 201
        assert check(hub.hub.settings) == []


async def test_without_an_economy_nothing_costs_anything(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, economy="none") as hub:
        sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
        job_id = await run_job(hub, sam, pia)
        have = await got(sam, "/credits")
        assert (have["economy"], have["available"], have["held"]) == ("none", 0, 0)
        assert (await got(sam, f"/jobs/{job_id}/cost"))["sentence"] == (
            "This job cost nothing: test-node ran it at a price of 0."
        )
        assert (await got(sam, "/credits/statement"))["entries"] == []
        assert (await sam.get(f"/jobs/{job_id}/receipt")).status_code == 409
        assert (await hub.admin.post("/credits/top-ups", json={"account": "sam", "amount": 1})).status_code == 409
        board = await got(sam, "/credits/leaderboard", by="hours")
        assert [(one["name"], one["ran_ms"]) for one in board["lenders"]] == [("pia", 540_001)]
        assert check(hub.hub.settings) == []


async def test_credits_do_not_become_something_else_by_a_variable(tmp_path: Path) -> None:
    async with running_hub(tmp_path, clock=FakeClock()) as hub:
        table = (await hub.admin.get("/prices")).json()
        wanted = {name: table[name] for name in ("tiers", "regions", "fee_ppm", "spot_range", "payout_min")}
        wanted |= {"based_on": table["version"], "base": 12 * CREDIT}
        changed = await hub.admin.put("/prices", json=wanted)
        assert changed.status_code == 200, changed.text
    with pytest.raises(Conflict, match="COMPUTEPOOL_ECONOMY_CONVERT"):
        async with running_hub(tmp_path, clock=FakeClock(), economy="time-bank"):
            pass
    async with running_hub(tmp_path, clock=FakeClock(), economy="none") as hub:
        assert (await hub.admin.get("/prices")).json()["base"] == 0
    async with running_hub(tmp_path, clock=FakeClock()) as hub:
        found = (await hub.admin.get("/prices")).json()
        assert (found["economy"], found["base"]) == ("market", 12 * CREDIT), "the operator's own table is back"
    converted: dict[str, Any] = {"economy": "time-bank", "economy_convert": True}
    async with running_hub(tmp_path, clock=FakeClock(), **converted) as hub:
        assert (await hub.admin.get("/prices")).json()["base"] == CREDIT
