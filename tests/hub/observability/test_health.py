"""The hub's health, and checks of its database's rules while it serves."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from importlib.metadata import version
from typing import Any

from sqlalchemy import text

from computepool.hub.db.session import Tx
from computepool.hub.loops import runner
from computepool.hub.observability.invariants import RULES
from computepool.hub.observability.state import LoopHealth
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.money.payouts.earning import LEAST, earn
from tests.hub.submitting import submit
from tests.hub.working import got

PARTS = {
    "database", "queue", "nodes", "clock", "versions", "hubs", "webhooks", "payouts", "approvals", "backup", "disk",
    "artifacts", "loops",
}  # fmt: skip


async def parts(hub: HubDouble) -> dict[str, dict[str, Any]]:
    return {part["name"]: part for part in (await got(hub.admin, "/hub/health"))["parts"]}


async def test_every_part_has_a_sentence_and_what_is_not_well_says_what_to_do(any_hub: HubDouble) -> None:
    view = await got(any_hub.admin, "/hub/health")
    found = {part["name"]: part for part in view["parts"]}
    assert set(found) == PARTS
    assert all(part["sentence"] for part in found.values())
    assert all(part["todo"] for part in found.values() if part["state"] != "ok")
    assert found["database"]["values"]["size_bytes"] > 0
    assert (found["nodes"]["state"], view["state"]) == ("warn", "warn"), "no machine is lent yet"
    node = await any_hub.node(version="0.0.1")
    view = await got(any_hub.admin, "/hub/health")
    assert {part["name"]: part["state"] for part in view["parts"]}["nodes"] == "ok"
    assert view["node_versions"] == [{"version": "0.0.1", "nodes": 1}]
    assert {loop["name"] for loop in view["loops"]} >= {"dispatch", "sweep", "renew", "market", "webhooks"}
    assert node.node_id not in str(view)


async def test_a_long_queue_and_a_clock_that_is_off_are_noticed(tmp_path: Any) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        await hub.node()
        await submit(hub.admin, needs={"cores": 1000})
        assert (await parts(hub))["queue"]["state"] == "ok"
        clock.advance(2 * 3_600_000)
        found = await parts(hub)
        assert (found["queue"]["state"], "2 hours" in found["queue"]["sentence"]) == ("warn", True)
        assert found["loops"]["state"] == "fail", "nothing was done for two hours"
        clock.advance(-3 * 3_600_000)
        assert (await parts(hub))["clock"]["state"] == "fail", "events are from the future"


async def test_a_full_disk_and_an_unreachable_store_are_failures(hub: HubDouble, monkeypatch: Any) -> None:
    full = type("Usage", (), {"free": 10**6, "total": 10**12})
    monkeypatch.setattr("computepool.hub.observability.health.shutil.disk_usage", lambda _folder: full)

    def away(_place: str) -> int:
        raise OSError("no such bucket")

    monkeypatch.setattr(hub.hub.artifacts.blobs, "size", away)
    found = await parts(hub)
    assert (found["disk"]["state"], found["artifacts"]["state"]) == ("fail", "fail")
    assert (await got(hub.admin, "/hub/health"))["state"] == "fail"


async def test_health_counts_what_the_list_of_approvals_shows(tmp_path: Any) -> None:
    async with running_hub(tmp_path, clock=FakeClock(), two_person="top-ups,payouts") as hub:
        assert (await parts(hub))["approvals"]["state"] == "ok"
        asked = {"account": "admin", "amount": 1_000_000, "source": "bank"}
        (await hub.admin.post("/credits/top-ups", json=asked)).raise_for_status()
        await earn(hub, (await hub.admin.get("/me")).json()["id"], LEAST)
        (await hub.admin.post("/payouts", json={"amount": LEAST, "upi": "asha@okaxis"})).raise_for_status()
        listed = (await got(hub.admin, "/approvals"))["approvals"]
        found = (await parts(hub))["approvals"]
        assert (found["state"], found["values"]["waiting"]) == ("note", len(listed))
        assert {one["kind"] for one in listed} == {"top-up", "payout"}


async def test_backups_are_ok_only_if_a_recent_one_is_known(tmp_path: Any) -> None:
    clock, stamp = FakeClock(), tmp_path / "stamp"
    async with running_hub(tmp_path / "hub", clock=clock) as hub:
        assert (await parts(hub))["backup"]["state"] == "note"
        await hub.node(version=version("computepool"))
        assert "backup" in (await got(hub.admin, "/hub/health"))["sentence"]
    async with running_hub(tmp_path / "other", clock=clock, backup_stamp=stamp) as hub:
        assert (await parts(hub))["backup"]["state"] == "warn"
        stamp.touch()
        os.utime(stamp, (clock.now_ms() / 1000,) * 2)
        assert (await parts(hub))["backup"]["state"] == "ok"
        clock.advance(3 * 24 * 3_600_000)
        found = (await parts(hub))["backup"]
        assert (found["state"], found["sentence"]) == ("warn", "The last backup is 3 days old.")


async def test_nodes_are_counted_by_what_they_do(hub: HubDouble) -> None:
    node = await hub.node()
    await hub.node()
    await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
    found = (await parts(hub))["nodes"]
    assert found["sentence"] == "2 of 2 nodes are online: 1 paused, 1 ready."


async def test_a_failing_loop_is_reported_with_its_error() -> None:
    clock = FakeClock()
    health = LoopHealth(clock)
    health.begin("sweep", 10)
    broken = True

    async def tick() -> None:
        if broken:
            raise ValueError("no such table")

    assert not await runner.run_tick("sweep", tick, health=health)
    [beat] = health.all()
    assert (beat.failures, beat.error) == (1, "ValueError: no such table")
    broken = False
    assert await runner.run_tick("sweep", tick, health=health)
    assert (beat.failures, beat.error, beat.ran_at_ms) == (0, "", clock.now_ms())


# the rules


async def test_all_rules_are_checked_in_the_background(any_hub: HubDouble) -> None:
    assert (await got(any_hub.admin, "/hub/check"))["state"] == "never"
    answers = await asyncio.gather(*(any_hub.admin.post("/hub/check") for _ in range(3)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["started_at_ms"] for answer in answers}) == 1, "one at a time"
    view = await got(any_hub.admin, "/hub/check", wait_ms=60_000)
    assert (view["state"], view["broken"], view["done"]) == ("done", 0, len(RULES))
    assert {rule["state"] for rule in view["rules"]} == {"holds"}
    assert {rule["kind"] for rule in view["rules"]} == {"pool", "money", "schema"}
    events = (await got(any_hub.admin, "/events", action="hub.checked"))["events"]
    assert [event["reason"] for event in events] == ["holds"]


async def test_a_broken_rule_is_named_with_the_row(hub: HubDouble) -> None:
    [job_id] = await submit(hub.admin, needs={"cores": 1000})
    change = "UPDATE jobs SET state = :state WHERE id = :job"

    def become(tx: Tx, state: str) -> None:
        tx.connection.execute(text(change), {"state": state, "job": job_id})

    await hub.hub.store.write(partial(become, state="running"))
    await hub.admin.post("/hub/check")
    view = await got(hub.admin, "/hub/check", wait_ms=60_000)
    broken = {rule["rule"]: rule for rule in view["rules"] if rule["state"] == "broken"}
    found = broken["a leased or running job has one live attempt, its newest"]
    assert (found["examples"], found["broken"]) == ([job_id], 1)
    assert view["broken"] == len(broken)
    await hub.hub.store.write(partial(become, state="queued"))


async def test_a_check_of_an_unreadable_database_fails_with_a_sentence(hub: HubDouble, monkeypatch: Any) -> None:
    monkeypatch.setattr(hub.hub.settings, "database_url", "sqlite:////nowhere/at/all.sqlite")
    await hub.admin.post("/hub/check")
    view = await got(hub.admin, "/hub/check", wait_ms=60_000)
    assert (view["state"], "There is no database" in view["sentence"]) == ("failed", True)
    monkeypatch.undo()
    await hub.admin.post("/hub/check")
    assert (await got(hub.admin, "/hub/check", wait_ms=60_000))["state"] == "done"


async def test_a_hub_is_new_until_somebody_signs_in(any_hub: HubDouble) -> None:
    stranger = any_hub.client()
    info = await got(stranger, "/hub")
    assert (info["setup"], "pool hub link" in info["signin_hint"]) == (True, True)
    me = (await any_hub.admin.get("/me")).json()["id"]
    code = (await any_hub.admin.post(f"/accounts/{me}/link")).json()["code"]
    assert (await got(stranger, "/hub"))["setup"], "a link is not a person yet"
    await stranger.post("/signin", json={"code": code, "kind": "cookie"})
    assert not (await got(any_hub.client(), "/hub"))["setup"]
    assert (await got(any_hub.admin, "/hub"))["signin_hint"] == ""
