"""Groups: counts, results in finishing order, cancelling, and pages of bounded size."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import Connection, text

from computepool.hub.context import Hub
from computepool.hub.groups import groups
from computepool.hub.jobs import rows as job_rows
from computepool.protocol.jobs import bundles
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from tests.hub.fixtures import two_hubs
from tests.hub.submitting import COMMAND, submit


async def make_group(client: httpx2.AsyncClient, name: str = "batch") -> str:
    answer = await client.post("/groups", json={"name": name})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_results_come_in_finishing_order_through_one_parked_poll(any_hub: HubDouble) -> None:
    node = await any_hub.node(cores=4)
    group = await make_group(any_hub.admin)
    jobs = await submit(any_hub.admin, items=3, group_id=group)
    grants = {grant.job_id: grant for grant in await node.take(3)}
    waiting = asyncio.create_task(any_hub.admin.get(f"/groups/{group}/results", params={"wait_ms": 30_000}))
    await node.report(grants[jobs[2]].attempt_id, result='"third"')
    first = (await asyncio.wait_for(waiting, 29)).json()
    assert [found["job_id"] for found in first["results"]] == [jobs[2]]
    await node.report(grants[jobs[0]].attempt_id)
    rest = (await any_hub.admin.get(f"/groups/{group}/results", params={"after": first["cursor"]})).json()
    assert [found["job_id"] for found in rest["results"]] == [jobs[0]]
    empty = (await any_hub.admin.get(f"/groups/{group}/results", params={"after": rest["cursor"]})).json()
    assert (empty["results"], empty["open"], empty["cursor"]) == ([], 1, rest["cursor"])
    view = (await any_hub.admin.get(f"/groups/{group}")).json()
    assert view["counts"] == {"succeeded": 2, "leased": 1}


async def test_results_are_all_found_however_one_asks(any_hub: HubDouble) -> None:
    """What was answered is remembered for the cursor that came of it, and for as long as nothing ends."""
    node, params = await any_hub.node(cores=4), {"limit": 2, "wait_ms": 0}
    group = await make_group(any_hub.admin)
    jobs = await submit(any_hub.admin, items=4, group_id=group)
    grants = {grant.job_id: grant for grant in await node.take(4)}

    async def page(after: int, **more: int) -> tuple[list[str], int]:
        found = await any_hub.admin.get(f"/groups/{group}/results", params=params | {"after": after} | more)
        return [result["job_id"] for result in found.json()["results"]], found.json()["cursor"]

    await node.report_all([node.make_report(grants[id_].attempt_id) for id_ in jobs[:3]])
    first, cursor = await page(0)
    more, last = await page(cursor)
    assert (first, more) == (jobs[:2], [jobs[2]]), "a full page is not the last one"
    assert await page(last) == await page(last, wait_ms=20) == ([], last)
    assert (await page(last, limit=9), await page(0, limit=9)) == (([], last), (jobs[:3], last))
    await node.report(grants[jobs[3]].attempt_id)
    assert (await page(last, wait_ms=9_000))[0] == [jobs[3]], "although nobody waited when it ended"


@pytest.mark.soak
async def test_a_result_at_another_hub_ends_the_wait(tmp_path: Path, migrated_url: str) -> None:
    async with two_hubs(tmp_path, migrated_url, clock=FakeClock()) as (a, b):
        node, group, after = await b.node(), await make_group(b.admin), 0
        for _ in range(3):
            asked = a.admin.get(f"/groups/{group}/results", params={"after": after, "wait_ms": 20_000})
            waiting = asyncio.create_task(asked)
            [job_id] = await submit(b.admin, group_id=group)
            [grant] = await node.take()
            await node.report(grant.attempt_id)
            page = (await asyncio.wait_for(waiting, 19)).json()
            assert [found["job_id"] for found in page["results"]] == [job_id]
            after = page["cursor"]


async def test_what_ends_between_two_looks_is_not_missed(any_hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing new and nothing open is how a client knows that it has everything."""
    node = await any_hub.node()
    group = await make_group(any_hub.admin)
    [job_id] = await submit(any_hub.admin, group_id=group)
    [grant] = await node.take()
    count = groups.count_unfinished

    async def ends_first(hub: Hub, group_id: str) -> int:
        await node.report(grant.attempt_id)
        return await count(hub, group_id)

    monkeypatch.setattr(groups, "count_unfinished", ends_first)
    page = (await any_hub.admin.get(f"/groups/{group}/results")).json()
    assert [found["job_id"] for found in page["results"]] == [job_id] or page["open"]


async def test_what_is_submitted_while_a_group_is_cancelled_is_cancelled_too(
    any_hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await make_group(any_hub.admin)
    await submit(any_hub.admin, group_id=group)
    write = any_hub.hub.store.write

    async def write_after_another(unit: Any) -> Any:
        monkeypatch.undo()
        await submit(any_hub.admin, group_id=group)
        return await write(unit)

    monkeypatch.setattr(any_hub.hub.store, "write", write_after_another)
    answer = await any_hub.admin.post(f"/groups/{group}/cancel")
    assert answer.json()["counts"] == {"cancelled": 2}


async def test_a_page_of_large_results_ends_early_and_the_cursor_brings_the_rest(hub: HubDouble) -> None:
    hub.hub.settings.result_page_bytes = 250
    node = await hub.node(cores=4)
    group = await make_group(hub.admin)
    jobs = await submit(hub.admin, items=4, group_id=group)
    for grant in await node.take(4):
        await node.report(grant.attempt_id, result='"' + "x" * 100 + '"')
    seen: list[str] = []
    pages, cursor = 0, 0
    while len(seen) < 4:
        page = (await hub.admin.get(f"/groups/{group}/results", params={"after": cursor})).json()
        seen += [found["job_id"] for found in page["results"]]
        cursor, pages = page["cursor"], pages + 1
    assert sorted(seen) == sorted(jobs)
    assert pages == 2


async def test_cancelling_a_group_ends_what_runs_and_what_waits(hub: HubDouble) -> None:
    node = await hub.node(cores=1)
    group = await make_group(hub.admin)
    await submit(hub.admin, items=3, group_id=group)
    [grant] = await node.take()
    assert (await hub.admin.post(f"/groups/{group}/cancel")).json()["counts"] == {"cancelled": 3}
    assert (await node.poll(wait_ms=1_000)).cancel == [grant.attempt_id]
    assert len(hub.hub.jobs.queue.backlog) == 0


async def test_a_strangers_group_is_not_there(hub: HubDouble) -> None:
    group = await make_group(hub.admin)
    stranger = await hub.account("stranger", "submitter")
    assert (await stranger.get(f"/groups/{group}")).status_code == 404
    assert (await stranger.get(f"/groups/{group}/results")).status_code == 404
    body = {"spec": {"kind": "command", "name": "x", "argv": ["true"]}, "group_id": group}
    assert (await stranger.post("/jobs", json=body)).status_code == 404


async def send_items(client: httpx2.AsyncClient, group: str, *items: dict[str, object]) -> list[str]:
    answer = await client.post("/jobs", json={"spec": COMMAND, "items": list(items), "group_id": group})
    assert answer.status_code == 201, answer.text
    return list(answer.json()["job_ids"])


async def test_items_that_travel_together_count_once_each_as_what_came_of_them(any_hub: HubDouble) -> None:
    """Two jobs of 10: three items of one raised, and are tried again; the other one died, and is sent in two parts."""
    hub = any_hub
    node = await hub.node(cores=8)
    group, other = await make_group(hub.admin), await make_group(hub.admin, "other")

    async def counts() -> dict[str, int]:
        return dict((await hub.admin.get(f"/groups/{group}")).json()["counts"])

    raised, died = await send_items(hub.admin, group, {"bundled": 10}, {"bundled": 10})
    grants = {grant.job_id: grant.attempt_id for grant in await node.take(2)}
    await node.report(grants[raised], items_failed=3)
    await node.report(grants[died], outcome="failed", reason="exception")
    assert await counts() == {"succeeded": 7, "failed": 13}
    found = (await hub.admin.get(f"/groups/{group}/summary")).json()
    assert [item["job_id"] for item in found["results"]["items"]] == [raised]
    assert [(item["job_id"], item["items_failed"]) for item in found["failures"]["items"]] == [(raised, 3), (died, 0)]

    again = [{"bundled": 5, "replaces": died}] * 2 + [{"replaces": raised}] * 3
    jobs = await send_items(hub.admin, group, *again)
    # The node is known to be free, so that they may have been given to it by now.
    now = await counts()
    assert now.pop("succeeded") == 7
    assert set(now) <= {"queued", "leased"}
    assert sum(now.values()) == 13
    grants = {grant.job_id: grant.attempt_id for grant in await node.take(5)}
    for place, job_id in enumerate(jobs):
        said = {"outcome": "failed", "reason": "exception"} if place == 4 else {"items_failed": 99}
        await node.report(grants[job_id], **said)
    # More than there are is all of them, and a job of one item says by its own end what came of it.
    assert await counts() == {"succeeded": 9, "failed": 11}
    found = (await hub.admin.get(f"/groups/{group}/summary")).json()
    assert [item["job_id"] for item in found["failures"]["items"]] == [jobs[0], jobs[1], jobs[4]]

    await send_items(hub.admin, other, {"replaces": raised}, {"replaces": "job_nowhere"})
    assert (await hub.admin.get(f"/groups/{group}")).json()["total"] == 20


async def test_a_result_of_several_answers_says_how_many_whatever_was_sent_again(any_hub: HubDouble) -> None:
    hub = any_hub
    node = await hub.node(cores=8)
    group = await make_group(hub.admin)
    several = base64.b64encode(bundles.pack([b"[1]", b"[2]", b"[3]"])).decode()
    jobs = await send_items(
        hub.admin, group, {"bundled": 3, "payload": several}, {"bundled": 3, "payload": "W1syXSx7fV0="}
    )
    answer = bundles.answer([bundles.value_answer("1"), bundles.raised_answer("E: 2"), bundles.value_answer("3")])
    for grant in await node.take(2):
        await node.report(grant.attempt_id, result=answer, items_failed=1)
    await send_items(hub.admin, group, {"replaces": jobs[0]})
    results = (await hub.admin.get(f"/groups/{group}/results")).json()["results"]
    items = (await hub.admin.get(f"/groups/{group}/items")).json()["items"]
    for found in (results, items):
        told = {one["job_id"]: (one["bundled"], one["carried"]) for one in found}
        assert (told[jobs[0]], told[jobs[1]]) == ((2, 3), (3, 1))
    again = await hub.admin.post(f"/jobs/{jobs[0]}/resubmit", json={})
    assert again.status_code == 201, again.text
    row = await hub.hub.store.read(lambda connection: job_rows.get_job_full(connection, again.json()["job_ids"][0]))
    assert row is not None
    assert (row.bundled, row.carried) == (3, 3)


@pytest.mark.soak
async def test_the_states_of_all_items_come_page_by_page_jobs_first(any_hub: HubDouble) -> None:
    node = await any_hub.node(cores=1)
    group = await make_group(any_hub.admin)
    items: list[dict[str, object]] = [{"key": f"k{number}"} for number in range(5)]
    await send_items(any_hub.admin, group, *items)
    keys = [{"key": "outside"}, {"key": "told"}]
    await any_hub.admin.post(f"/groups/{group}/keys", json={"keys": keys})
    told = {"reports": [{"key": "told", "outcome": "succeeded"}]}
    await any_hub.admin.post(f"/groups/{group}/reports", json=told)
    [grant] = await node.take()
    await node.report(grant.attempt_id, result='"large"')
    seen: list[dict[str, object]] = []
    after: dict[str, str] = {}
    while True:
        page = (await any_hub.admin.get(f"/groups/{group}/states", params={"limit": 2, **after})).json()
        seen += page["items"]
        if page.get("next") is None:
            break
        after = {"after": page["next"]}
    assert [item["key"] for item in seen] == ["k0", "k1", "k2", "k3", "k4", "outside", "told"]
    assert seen[0] == {"key": "k0", "job_id": grant.job_id, "state": "succeeded"}  # and no result
    assert [item["state"] for item in seen[5:]] == ["expected", "succeeded"]


async def test_a_group_is_found_by_a_part_of_its_name_and_a_search_looks_at_so_many_at_once(
    any_hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sweep 1", "100% Sweep", "other", "1000 others", "sweep 2"):
        await make_group(any_hub.admin, name)

    async def search(text: str, **params: str | int) -> tuple[list[str], str | None]:
        page = (await any_hub.admin.get("/groups", params={"q": text, **params})).json()
        return [group["name"] for group in page["groups"]], page.get("next")

    assert await search("SWEEP") == (["sweep 2", "100% Sweep", "sweep 1"], None)
    assert await search("100%") == (["100% Sweep"], None)  # not a pattern
    names, after = await search("sweep", limit=2)
    assert names == ["sweep 2", "100% Sweep"]
    assert await search("sweep", after=after or "") == (["sweep 1"], None)
    monkeypatch.setattr("computepool.hub.groups.rows.SEARCH_WINDOW", 3)
    names, after = await search("sweep")
    assert names == ["sweep 2"]
    assert await search("sweep", after=after or "") == (["100% Sweep", "sweep 1"], None)


async def test_several_jobs_of_one_node_say_how_far_they_are_at_once(any_hub: HubDouble) -> None:
    node = await any_hub.node(cores=4)
    jobs = await submit(any_hub.admin, items=3)
    grants = await node.take(3)
    running = [{"attempt_id": grant.attempt_id, "progress": 0.5} for grant in grants]
    await node.poll(wait_ms=0, path="/heartbeat", running=running)
    seen = [(await any_hub.admin.get(f"/jobs/{job_id}")).json()["progress"] for job_id in jobs]
    assert seen == [0.5, 0.5, 0.5]


async def test_asking_for_results_does_not_stall_the_hub_while_its_readers_are_busy(any_hub: HubDouble) -> None:
    """Polls, renewals of leases and dispatch run on the same event loop, which frees the readers here."""
    group, store, free = await make_group(any_hub.admin), any_hub.hub.store, threading.Event()
    entered = threading.Semaphore(0)

    def hold(connection: Connection) -> None:
        connection.execute(text("SELECT 1"))
        entered.release()
        free.wait(60)

    path, now = f"/groups/{group}/results", {"wait_ms": 0}
    await any_hub.admin.get(path, params=now)  # so that its owner is known
    readers = any_hub.hub.settings.read_threads
    held = [asyncio.create_task(store.read(hold)) for _ in range(readers)]
    for _ in range(readers):
        await asyncio.to_thread(entered.acquire)
    asking = asyncio.create_task(any_hub.admin.get(path, params=now))
    await asyncio.wait([asking], timeout=0.2)
    assert not asking.done()
    free.set()
    assert (await asking).status_code == 200
    await asyncio.gather(*held)
