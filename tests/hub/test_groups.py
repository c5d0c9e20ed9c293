"""Groups: counts, results in finishing order, cancelling, and pages of bounded size."""

from __future__ import annotations

import asyncio

import httpx2

from computepool.testing.hub import HubDouble
from tests.hub.submitting import submit


async def make_group(client: httpx2.AsyncClient, name: str = "batch") -> str:
    answer = await client.post("/groups", json={"name": name})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_results_come_in_finishing_order_through_one_parked_poll(any_hub: HubDouble) -> None:
    node = await any_hub.node(cores=4)
    group = await make_group(any_hub.admin)
    jobs = await submit(any_hub.admin, items=3, group_id=group)
    grants = {grant.job_id: grant for grant in await node.take(3)}
    waiting = asyncio.create_task(any_hub.admin.get(f"/groups/{group}/results", params={"wait_ms": 10_000}))
    await node.report(grants[jobs[2]].attempt_id, result='"third"')
    first = (await asyncio.wait_for(waiting, 5)).json()
    assert [found["job_id"] for found in first["results"]] == [jobs[2]]
    await node.report(grants[jobs[0]].attempt_id)
    rest = (await any_hub.admin.get(f"/groups/{group}/results", params={"after": first["cursor"]})).json()
    assert [found["job_id"] for found in rest["results"]] == [jobs[0]]
    empty = (await any_hub.admin.get(f"/groups/{group}/results", params={"after": rest["cursor"]})).json()
    assert (empty["results"], empty["open"], empty["cursor"]) == ([], 1, rest["cursor"])
    view = (await any_hub.admin.get(f"/groups/{group}")).json()
    assert view["counts"] == {"succeeded": 2, "leased": 1}


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
    assert len(hub.hub.backlog) == 0


async def test_a_strangers_group_is_not_there(hub: HubDouble) -> None:
    group = await make_group(hub.admin)
    stranger = await hub.account("stranger", "submitter")
    assert (await stranger.get(f"/groups/{group}")).status_code == 404
    assert (await stranger.get(f"/groups/{group}/results")).status_code == 404
    body = {"spec": {"kind": "command", "name": "x", "argv": ["true"]}, "group_id": group}
    assert (await stranger.post("/jobs", json=body)).status_code == 404
