"""Schedules at the hub: one submission per tick, rules for what overlaps or was missed, and failures that are seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.hub.db.group_tables import schedules
from computepool.hub.db.queries import set_where
from computepool.hub.schedules import rounds, rows
from computepool.testing.clock import EPOCH_MS, FakeClock
from computepool.testing.hub import HubDouble
from tests.hub.fixtures import BOTH, hub_fixture, two_hubs
from tests.hub.submitting import body, job

MINUTE = 60_000
SETTINGS: dict[str, Any] = {"schedule_round_s": 10_000, "schedules_max": 2, "schedule_failures_max": 3}
hub = hub_fixture(on=BOTH, **SETTINGS)


def schedule(**fields: Any) -> dict[str, Any]:
    """Every minute, unless the fields say otherwise."""
    spec = fields.pop("spec", {})
    items = fields.pop("items", 1)
    return {"name": "nightly", "cron": "* * * * *", "request": body(spec=spec, items=items), **fields}


async def add(client: httpx2.AsyncClient, **fields: Any) -> str:
    answer = await client.post("/schedules", json=schedule(**fields))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def show(client: httpx2.AsyncClient, schedule_id: str) -> dict[str, Any]:
    answer = await client.get(f"/schedules/{schedule_id}")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def states(client: httpx2.AsyncClient, schedule_id: str) -> list[str]:
    """Of its runs, oldest first."""
    return [run["state"] for run in reversed((await show(client, schedule_id))["runs"])]


async def end_jobs(client: httpx2.AsyncClient) -> None:
    for one in (await client.get("/jobs")).json()["jobs"]:
        await client.post(f"/jobs/{one['id']}/cancel")


async def tick(hub: HubDouble, clock: FakeClock, minutes: float = 1) -> None:
    clock.advance(round(minutes * MINUTE))
    await rounds.run(hub.hub)


async def test_each_tick_submits_once(hub: HubDouble, clock: FakeClock, sam: httpx2.AsyncClient) -> None:
    made = (await sam.post("/schedules", json=schedule(spec={"labels": ["x"]}, items=2))).json()
    first = (EPOCH_MS // MINUTE + 1) * MINUTE
    assert made["next_ms"] == [first, first + MINUTE, first + 2 * MINUTE]
    await rounds.run(hub.hub)
    assert (await sam.get("/jobs")).json()["jobs"] == []
    for _ in range(2):
        await tick(hub, clock)
        await rounds.run(hub.hub)
        await end_jobs(sam)
    shown = await show(sam, made["id"])
    assert [run["state"] for run in shown["runs"]] == ["submitted"] * 2
    assert [run["tick_ms"] for run in shown["runs"]] == [first + MINUTE, first]
    assert shown["runs"][0]["outcome"] == "2 cancelled"
    assert len((await sam.get("/jobs")).json()["jobs"]) == 4
    one = await job(sam, shown["runs"][0]["job_ids"][0])
    assert one["spec"]["labels"] == ["x", "schedule:nightly"]
    listed = (await sam.get(f"/schedules/{made['id']}/runs", params={"limit": 1})).json()
    older = (await sam.get(f"/schedules/{made['id']}/runs", params={"limit": 1, "before": listed["next"]})).json()
    assert [run["tick_ms"] for run in (*listed["runs"], *older["runs"])] == [first + MINUTE, first]


@pytest.mark.parametrize(
    ("overlap", "expected", "jobs"),
    [("skip", ["submitted", "skipped", "skipped"], 1), ("replace", ["submitted"] * 3, 3)],
)
async def test_overlap(
    hub: HubDouble, clock: FakeClock, sam: httpx2.AsyncClient, overlap: str, expected: list[str], jobs: int
) -> None:
    schedule_id = await add(sam, overlap=overlap)
    for _ in range(3):
        await tick(hub, clock)
    assert await states(sam, schedule_id) == expected
    found = (await sam.get("/jobs")).json()["jobs"]
    assert len(found) == jobs
    assert [one["state"] for one in found] == ["queued"] + ["cancelled"] * (jobs - 1)


async def test_queued_runs_start_one_after_the_other(hub: HubDouble, clock: FakeClock, sam: httpx2.AsyncClient) -> None:
    schedule_id = await add(sam, overlap="queue")
    for _ in range(12):
        await tick(hub, clock)
    assert await states(sam, schedule_id) == ["submitted"] + ["waiting"] * 10 + ["skipped"]
    await end_jobs(sam)
    await rounds.run(hub.hub)
    assert await states(sam, schedule_id) == ["submitted"] * 2 + ["waiting"] * 9 + ["skipped"]
    await sam.post(f"/schedules/{schedule_id}/pause")
    await end_jobs(sam)
    await rounds.run(hub.hub)
    assert (await states(sam, schedule_id)).count("waiting") == 9
    assert len((await sam.get("/jobs")).json()["jobs"]) == 2


@pytest.mark.parametrize(("missed", "expected"), [("run-once", "submitted"), ("skip", "missed")])
async def test_ticks_that_were_missed(
    hub: HubDouble, clock: FakeClock, sam: httpx2.AsyncClient, missed: str, expected: str
) -> None:
    schedule_id = await add(sam, missed=missed, cron="0 * * * *")
    await tick(hub, clock, 60 * 24 * 3 + 30)
    assert await states(sam, schedule_id) == [expected]
    shown = await show(sam, schedule_id)
    assert hub.hub.now_ms() - 3600_000 < shown["runs"][0]["tick_ms"] <= hub.hub.now_ms() < shown["next_ms"][0]


async def test_failures_to_submit_are_seen_and_pause_it(
    hub: HubDouble, clock: FakeClock, sam: httpx2.AsyncClient
) -> None:
    await sam.put("/secrets/TOKEN", json={"value": "abcd"})
    schedule_id = await add(sam, spec={"secrets": {"TOKEN": "TOKEN"}})
    await sam.delete("/secrets/TOKEN")
    await tick(hub, clock)
    shown = await show(sam, schedule_id)
    assert (shown["state"], shown["failures"]) == ("active", 1)
    assert shown["reason"].startswith("You have no secret TOKEN")
    await sam.put("/secrets/TOKEN", json={"value": "abcd"})
    await tick(hub, clock)
    assert ((await show(sam, schedule_id))["failures"], (await show(sam, schedule_id))["reason"]) == (0, "")
    await end_jobs(sam)
    await sam.delete("/secrets/TOKEN")
    for _ in range(4):
        await tick(hub, clock)
    shown = await show(sam, schedule_id)
    assert shown["state"] == "paused"
    assert shown["reason"].startswith("3 runs in a row could not be submitted: You have no secret TOKEN")
    assert await states(sam, schedule_id) == ["failed", "submitted", "failed", "failed", "failed"]
    assert shown["next_ms"] == []
    resumed = (await sam.post(f"/schedules/{schedule_id}/resume")).json()
    assert (resumed["state"], resumed["reason"], len(resumed["next_ms"])) == ("active", "", 3)
    events = (await sam.get("/events", params={"newest": "true", "action": "schedule."})).json()["events"]
    assert {event["action"] for event in events} >= {"schedule.failed", "schedule.paused", "schedule.resumed"}


async def test_by_hand_paused_and_removed(hub: HubDouble, clock: FakeClock, sam: httpx2.AsyncClient) -> None:
    schedule_id = await add(sam)
    assert (await sam.post(f"/schedules/{schedule_id}/pause")).json()["state"] == "paused"
    await tick(hub, clock, 5)
    assert await states(sam, schedule_id) == []
    ran = (await sam.post(f"/schedules/{schedule_id}/run", headers={"Idempotency-Key": "k"})).json()
    assert (ran["state"], ran["by_hand"], len(ran["job_ids"])) == ("submitted", True, 1)
    clock.advance(5)
    again = await sam.post(f"/schedules/{schedule_id}/run", headers={"Idempotency-Key": "k"})
    assert again.json()["job_ids"] == ran["job_ids"]
    assert (await sam.delete(f"/schedules/{schedule_id}")).status_code == 204
    assert (await sam.get(f"/schedules/{schedule_id}")).status_code == 404
    assert (await job(sam, ran["job_ids"][0]))["state"] == "queued"
    assert len((await sam.get("/jobs")).json()["jobs"]) == 1


async def test_bad_input_is_refused_in_one_sentence(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    for fields, status, sentence in (
        ({"cron": "0 0 30 2 *"}, 422, "never fires"),
        ({"tz": "Mars/Olympus"}, 422, "not a time zone"),
        ({"name": "a b"}, 422, "name"),
        ({"overlap": "both"}, 422, "overlap"),
        ({"spec": {"secrets": {"A": "NONE"}}}, 404, "You have no secret NONE"),
        ({"spec": {"needs": {"host": "nowhere"}}}, 422, "nowhere"),
        ({"spec": {"inputs": [{"name": "a", "digest": "0" * 64, "size": 1}]}}, 422, "upload it first"),
        ({"request": {**body(), "after": ["job_x"]}}, 422, "cannot wait for others"),
        ({"request": {**body(), "items": [{"key": "k"}]}}, 422, "nor belong to a group"),
    ):
        answer = await sam.post("/schedules", json=schedule(**fields))
        assert answer.status_code == status, (fields, answer.text)
        assert sentence in answer.json()["detail"], answer.text
    await add(sam)
    assert (await sam.post("/schedules", json=schedule())).status_code == 409
    await add(sam, name="second")
    assert (await sam.post("/schedules", json=schedule(name="third"))).status_code == 413
    eve = await hub.account("eve", "submitter")
    found = (await sam.get("/schedules")).json()["schedules"]
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/run"), ("GET", "/runs")):
        answer = await eve.request(method, f"/schedules/{found[0]['id']}{path}")
        assert answer.status_code == 404
    assert (await eve.get("/schedules")).json()["schedules"] == []


async def test_a_run_whose_hub_died_is_submitted_once(
    hub: HubDouble, clock: FakeClock, sam: httpx2.AsyncClient
) -> None:
    """It died after it had passed the tick, or after it had submitted the jobs: the next hub cannot know."""
    schedule_id = await add(sam)
    for submitted in (False, True):
        clock.advance(MINUTE)
        [due] = await hub.hub.store.read(rows.due, hub.hub.now_ms(), limit=9)
        run = await hub.hub.store.write(rounds._pass, due, settings=hub.hub.settings)
        assert run is not None
        if submitted:
            await rounds.start(hub.hub, due, run)
            noted = rows.RunRow(**{**run._asdict(), "state": "submitted"})
            await hub.hub.store.write(rows.change_run, noted, state="starting", job_ids="[]")
        await rounds.run(hub.hub)
        assert (await states(sam, schedule_id))[-1] == "starting"
        clock.advance(30_000)
        await rounds.run(hub.hub)
        assert (await states(sam, schedule_id))[-1] == "submitted"
        assert len((await sam.get("/jobs")).json()["jobs"]) == 1 + submitted
        await end_jobs(sam)
        clock.advance(30_000 - MINUTE)


@pytest.fixture
async def pair(tmp_path: Path, migrated_url: str, clock: FakeClock) -> AsyncIterator[tuple[HubDouble, HubDouble]]:
    async with two_hubs(tmp_path, migrated_url, clock=clock, **SETTINGS) as hubs:
        yield hubs


async def test_two_hubs_share_the_ticks(pair: tuple[HubDouble, HubDouble], clock: FakeClock) -> None:
    first, second = pair
    sam = await first.account("sam", "submitter")
    schedule_id = await add(sam, overlap="replace")
    for _ in range(8):
        clock.advance(MINUTE)
        await asyncio.gather(*(rounds.run(hub.hub) for hub in (first, second, first, second)))
    assert await states(sam, schedule_id) == ["submitted"] * 8
    jobs = (await sam.get("/jobs")).json()["jobs"]
    assert len(jobs) == 8
    runs = (await show(sam, schedule_id))["runs"]
    assert sorted(one["id"] for one in jobs) == sorted(run["job_ids"][0] for run in runs), json.dumps(runs)


async def test_a_schedule_that_cannot_be_read_does_not_stop_the_others(
    hub: HubDouble, clock: FakeClock, sam: httpx2.AsyncClient
) -> None:
    broken, fine = await add(sam, name="broken"), await add(sam, name="fine")
    await hub.hub.store.write(lambda tx: set_where(tx, schedules, schedules.c.id == broken, tz="No/Zone"))
    await tick(hub, clock)
    assert await states(sam, fine) == ["submitted"]
    shown = {one["name"]: one for one in (await sam.get("/schedules")).json()["schedules"]}
    assert (shown["broken"]["state"], shown["fine"]["state"]) == ("paused", "active")
    assert "not a time zone" in shown["broken"]["reason"]
