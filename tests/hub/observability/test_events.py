"""Events as pages, long polls and a stream: in order, without gaps, and only those that concern the caller."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from computepool.hub.observability import events
from computepool.testing.hub import HubDouble
from tests.hub.cast import upload
from tests.hub.streaming import opened
from tests.hub.submitting import body, submit

STREAM = "/api/v1/events/stream"


def headers(client: httpx2.AsyncClient, **more: str) -> dict[str, str]:
    return {"Authorization": client.headers["Authorization"], **more}


async def seqs(client: httpx2.AsyncClient, **params: object) -> list[int]:
    return [event["seq"] for event in (await client.get("/events", params=params)).json()["events"]]


async def test_a_stream_sends_events_from_now_on(any_hub: HubDouble) -> None:
    await submit(any_hub.admin)
    async with opened(any_hub.app, STREAM, headers(any_hub.admin)) as stream:
        assert stream.status == 200
        [job_id] = await submit(any_hub.admin)
        found = await stream.data()
        assert (found["action"], found["job_id"], found["after"]) == ("job.queued", job_id, "queued")
        await any_hub.admin.post(f"/jobs/{job_id}/cancel")
        assert (await stream.data())["action"] == "job.cancelled"


async def test_a_stream_resumes_after_the_last_event_received(any_hub: HubDouble) -> None:
    await submit(any_hub.admin, items=5, needs={"cores": 1000})
    every = await seqs(any_hub.admin)
    for last in (0, every[0], every[-3]):
        async with opened(any_hub.app, STREAM, headers(any_hub.admin, **{"Last-Event-ID": str(last)})) as stream:
            expected = [seq for seq in every if seq > last]
            assert [int((await stream.event() or {})["id"]) for _ in expected] == expected
            [job_id] = await submit(any_hub.admin, needs={"cores": 1000})
            assert (await stream.data())["job_id"] == job_id
        every = await seqs(any_hub.admin)


async def test_a_streamed_event_has_a_name_an_id_and_a_retry_time(hub: HubDouble) -> None:
    async with opened(hub.app, STREAM, headers(hub.admin)) as stream:
        await submit(hub.admin)
        event = await stream.event()
        assert event is not None
        assert event["event"] == "job.queued"
        assert int(event["id"]) > 0
        assert int(event["retry"]) > 0


async def test_everybody_sees_their_own_events_and_an_admin_all(any_hub: HubDouble) -> None:
    sam, olga = await any_hub.account("sam", "submitter"), await any_hub.account("olga", "submitter")
    [sams], [olgas] = await submit(sam), await submit(olga)
    for client, own in ((sam, sams), (olga, olgas)):
        page = (await client.get("/events")).json()["events"]
        assert {event["job_id"] for event in page} - {None} == {own}
        me = (await client.get("/me")).json()["id"]
        assert {event["account_id"] for event in page} == {me}
    assert (await sam.get("/events", params={"job_id": olgas})).json()["events"] == []
    assert {sams, olgas} <= {event["job_id"] for event in (await any_hub.admin.get("/events")).json()["events"]}
    async with opened(any_hub.app, STREAM, headers(sam, **{"Last-Event-ID": "0"})) as stream:
        [more] = await submit(olga)
        [last] = await submit(sam)
        found = []
        while last not in found:
            found.append((await stream.data())["job_id"])
        assert not {olgas, more} & set(found)


async def test_every_kind_of_event_ends_a_long_poll(any_hub: HubDouble) -> None:
    """Every kind of event wakes it, not only those of jobs."""
    admin = any_hub.admin

    async def key() -> None:
        made = (await admin.post("/keys", json={"name": "k"})).json()
        await admin.delete(f"/keys/{made['id']}")

    happenings = {
        "job.queued": lambda: submit(admin),
        "group.created": lambda: admin.post("/groups", json={"name": "g"}),
        "account.created": lambda: admin.post("/accounts", json={"name": "new"}),
        "key.created": key,
        "artifact.uploaded": lambda: upload(admin, b"x"),
        "node.code_issued": lambda: admin.post("/nodes/codes"),
        "node.enrolled": any_hub.node,
    }
    for action, happen in happenings.items():
        after = (await seqs(admin, limit=500))[-1]
        poll = asyncio.create_task(admin.get("/events", params={"after": after, "wait_ms": 20_000}))
        await asyncio.sleep(0)
        await happen()
        found = (await asyncio.wait_for(poll, 19)).json()["events"]
        assert found, action


async def test_a_long_poll_ends_without_news(hub: HubDouble) -> None:
    after = (await seqs(hub.admin))[-1]
    page = (await hub.admin.get("/events", params={"after": after, "wait_ms": 50})).json()
    assert (page["events"], page["cursor"], page["next"]) == ([], after, None)


async def test_a_revoked_key_ends_its_stream_at_once(any_hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_STREAM_WAIT_S", 3600)  # it does not look by itself
    made = (await any_hub.admin.post("/keys", json={"name": "soon gone"})).json()
    client = any_hub.client(made["key"])
    async with opened(any_hub.app, STREAM, headers(client)) as stream:
        await submit(client)
        assert (await stream.data())["action"] == "job.queued"
        assert (await any_hub.admin.delete(f"/keys/{made['id']}")).status_code == 204
        assert await stream.event() is None
    assert (await client.get("/me")).status_code == 401


async def test_pages_bring_every_event_exactly_once_while_more_are_added(any_hub: HubDouble) -> None:
    going = True

    async def add() -> int:
        added = 0
        while going:
            added += len(await submit(any_hub.admin, items=3, needs={"cores": 1000}))
        return added

    adding = asyncio.create_task(add())
    found: list[int] = []
    cursor = 0
    while len(found) < 50:
        page = (await any_hub.admin.get("/events", params={"after": cursor, "limit": 7})).json()
        found += [event["seq"] for event in page["events"]]
        cursor = page["cursor"]
    going = False
    await adding
    assert found == sorted(set(found))
    assert found == [seq for seq in await seqs(any_hub.admin, limit=500) if seq <= found[-1]]


@pytest.mark.soak
async def test_lists_bring_every_row_exactly_once_while_more_are_added(any_hub: HubDouble) -> None:
    admin = any_hub.admin

    async def add(number: int) -> None:
        await submit(admin, needs={"cores": 1000})
        await admin.post("/groups", json={"name": "g"})
        await admin.post("/keys", json={"name": "k"})
        await admin.post("/accounts", json={"name": f"n{number}"})
        await upload(admin, number.to_bytes(2, "big"))
        await any_hub.node(name=f"node-{number}", cores=0.001)

    for number in range(5):
        await add(number)
    names = {"jobs": "id", "groups": "id", "keys": "id", "accounts": "id", "nodes": "id", "artifacts": "digest"}
    before = {name: await _walk(admin, name, names[name]) for name in names}
    assert all(len(rows) >= 5 for rows in before.values())
    adding = asyncio.gather(*(add(number) for number in range(5, 9)))
    during = await asyncio.gather(*(_walk(admin, name, key) for name, key in names.items()))
    await adding
    for name, found in zip(names, during, strict=True):
        assert len(found) == len(set(found)), name
        assert set(before[name]) <= set(found), name
    after = {name: await _walk(admin, name, names[name]) for name in names}
    assert all(len(after[name]) == len(before[name]) + 4 for name in names)


async def _walk(client: httpx2.AsyncClient, name: str, key: str) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        params = {"limit": 2} | ({"after": after} if after else {})
        page = (await client.get(f"/{name}", params=params)).json()
        found += [row[key] for row in page[name]]
        after = page["next"]
        if after is None:
            return found


async def test_results_of_a_group_come_once_each_in_the_order_they_finished(any_hub: HubDouble) -> None:
    node = await any_hub.node(cores=16, ram_mb=65_536)
    group = (await any_hub.admin.post("/groups", json={"name": "g"})).json()["id"]
    await any_hub.admin.post("/jobs", json=body(items=9, group_id=group))
    grants = await node.take(9)
    order = [grants[index] for index in (4, 8, 0, 1, 7, 2, 6, 3, 5)]

    async def report() -> None:
        for grant in order:
            await node.report(grant.attempt_id)

    reporting = asyncio.create_task(report())
    found: list[str] = []
    cursor = 0
    while len(found) < 9:
        params = {"after": cursor, "limit": 2, "wait_ms": 5_000}
        page = (await any_hub.admin.get(f"/groups/{group}/results", params=params)).json()
        found += [result["job_id"] for result in page["results"]]
        cursor = page["cursor"]
    await reporting
    assert found == [grant.job_id for grant in order]
