"""What running jobs tell their collector: in order, once, bounded, live."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.main import check
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import submit

hub = hub_fixture(on=BOTH, messages_max=3, message_max_bytes=100, messages_per_s=5)


async def start(hub: HubDouble, **rest: Any) -> tuple[httpx2.AsyncClient, NodeDouble, str, str]:
    """Sam, the node that runs a job of his, the job's group, and the attempt."""
    sam = await hub.account("sam", "submitter")
    node = await hub.node(await hub.account("pia", "provider"), name="pias")
    group = (await sam.post("/groups", json={"name": "told"})).json()["id"]
    await submit(sam, group_id=group, **rest)
    [grant] = await node.take()
    return sam, node, group, grant.attempt_id


async def send(node: NodeDouble, attempt_id: str, seq: int, value: str = "1") -> httpx2.Response:
    return await node.client.post(f"/attempts/{attempt_id}/messages", json={"seq": seq, "value": value})


async def test_messages_are_kept_once_in_order_and_bounded(hub: HubDouble) -> None:
    sam, node, group, attempt_id = await start(hub)
    assert (await send(node, attempt_id, 1, '"a"')).json() == {"number": 1}
    assert (await send(node, attempt_id, 1, '"a"')).json() == {"number": 1}, "its answer was lost"
    assert (await send(node, attempt_id, 7, '"b"')).json() == {"number": 2}
    assert (await send(node, attempt_id, 8, "9" * 101)).status_code == 413
    assert (await send(node, attempt_id, 9)).status_code == 201
    hub.hub.clock.advance(10_000)  # type: ignore[attr-defined]
    answer = await send(node, attempt_id, 10)
    assert (answer.status_code, answer.json()["detail"]) == (409, "An attempt may send 3 messages.")
    page = (await sam.get(f"/groups/{group}/messages", params={"after": 1})).json()
    told = [(one["number"], one["seq"], one["attempt"], one["value"]) for one in page["messages"]]
    assert told == [(2, 7, 1, '"b"'), (3, 9, 1, "1")]
    summary = (await sam.get(f"/groups/{group}/summary")).json()
    assert (summary["message_count"], [one["value"] for one in summary["messages"]]) == (3, ['"a"', '"b"', "1"])


async def test_they_come_only_so_fast(hub: HubDouble) -> None:
    _, node, _, attempt_id = await start(hub)
    codes = [(await send(node, attempt_id, 1)).status_code for _ in range(7)]
    assert codes == [201] * 5 + [429] * 2
    hub.hub.clock.advance(1_000)  # type: ignore[attr-defined]
    node.sign_in()
    assert (await send(node, attempt_id, 1)).status_code == 201


async def test_a_job_that_is_begun_again_tells_everything_again(hub: HubDouble) -> None:
    sam, node, group, attempt_id = await start(hub, retries=1)
    await send(node, attempt_id, 1, '"a"')
    await node.report(attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1)
    assert (await send(node, attempt_id, 2)).status_code == 409, "that attempt is over"
    hub.hub.clock.advance(120_000)  # type: ignore[attr-defined]
    node.sign_in()
    hub.hub.jobs.queue.wake()
    [grant] = await node.take()
    await send(node, grant.attempt_id, 1, '"a"')
    page = (await sam.get(f"/groups/{group}/messages")).json()
    assert [(one["attempt"], one["seq"]) for one in page["messages"]] == [(1, 1), (2, 1)]


async def test_who_waits_is_answered_when_one_comes_and_when_nothing_is_open(hub: HubDouble) -> None:
    sam, node, group, attempt_id = await start(hub)
    wanted = {"wait_ms": 20_000}
    waiting = asyncio.create_task(sam.get(f"/groups/{group}/messages", params=wanted))
    await send(node, attempt_id, 1, '"live"')
    async with asyncio.timeout(60):
        assert (await waiting).json()["messages"][0]["value"] == '"live"'
    waiting = asyncio.create_task(sam.get(f"/groups/{group}/messages", params=wanted | {"after": 1}))
    await node.report(attempt_id)
    async with asyncio.timeout(60):
        assert (await waiting).json() == {"messages": [], "cursor": 1, "open": 0}


async def test_a_job_without_a_group_and_another_node_are_refused(hub: HubDouble) -> None:
    sam, node, _, attempt_id = await start(hub)
    other = await hub.node(await hub.account("otto", "provider"), name="ottos")
    assert (await send(other, attempt_id, 1)).status_code == 404
    await submit(sam, needs={"host": node.node_id})
    [lone] = await node.take()
    answer = await send(node, lone.attempt_id, 1)
    assert (answer.status_code, "in no group" in answer.json()["detail"]) == (409, True)


async def test_messages_count_as_kept_and_go_with_the_rest_of_their_job(hub: HubDouble) -> None:
    sam, node, group, attempt_id = await start(hub)
    before = (await sam.get("/artifacts")).json()
    await send(node, attempt_id, 1, '"' + "x" * 90 + '"')
    await node.report(attempt_id)
    assert check(hub.hub.settings) == [], "what is counted is what is there"
    job_id, _, _ = attempt_id.rpartition("-")
    await hub.hub.store.write(lambda tx: artifact_rows.drop_inline(tx, [job_id]))
    assert (await sam.get(f"/groups/{group}/messages")).json()["messages"] == []
    assert (await sam.get("/artifacts")).json() == before
