"""A small submission is leased in the transaction that accepts it, and memory follows whatever becomes of that."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import TypeVar

import httpx2
import pytest

from computepool.core.errors import Unavailable
from computepool.hub.db.session import Commit, Store, Tx
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from computepool.testing.waiting import eventually
from tests.hub.submitting import body, job, state, submit

T = TypeVar("T")


async def told(client: httpx2.AsyncClient, job_id: str) -> list[str]:
    events = (await client.get("/events", params={"job_id": job_id})).json()["events"]
    return [event["action"] for event in events]


def free_cores(hub: HubDouble, node: NodeDouble) -> int:
    return hub.hub.nodes.registry.fleet[node.node_id].free().cpu_milli // 1_000


async def test_it_is_leased_when_it_is_answered(any_hub: HubDouble) -> None:
    node = await any_hub.node(cores=2)
    polling = asyncio.create_task(node.take())
    [job_id] = await submit(any_hub.admin)
    assert (await state(any_hub.admin, job_id), await told(any_hub.admin, job_id)) == (
        "leased",
        ["job.queued", "job.leased"],
    )
    [grant] = await polling
    assert grant.job_id == job_id
    assert len(any_hub.hub.jobs.queue.backlog) == 0


async def test_what_does_not_fit_is_queued(any_hub: HubDouble) -> None:
    node = await any_hub.node(cores=2)
    job_ids = await submit(any_hub.admin, items=3)
    assert [await state(any_hub.admin, id_) for id_ in job_ids] == ["leased", "leased", "queued"]
    assert len(any_hub.hub.jobs.queue.backlog) == 1
    for grant in await node.take(2):
        await node.report(grant.attempt_id)
    [last] = await node.take()
    assert last.job_id == job_ids[2]


async def test_a_refused_one_leaves_the_node_free(any_hub: HubDouble) -> None:
    node = await any_hub.node(cores=1)
    refused = await any_hub.admin.post("/jobs", json=body(group_id="grp-unknown"))
    assert refused.status_code == 404, refused.text
    assert (free_cores(any_hub, node), len(any_hub.hub.jobs.queue.backlog)) == (1, 0)
    [job_id] = await submit(any_hub.admin)
    assert [grant.job_id for grant in await node.take()] == [job_id]


async def test_the_same_request_again_is_given_nothing(any_hub: HubDouble) -> None:
    node, named = await any_hub.node(cores=2), {"Idempotency-Key": "k"}
    first = await any_hub.admin.post("/jobs", json=body(), headers=named)
    again = await any_hub.admin.post("/jobs", json=body(), headers=named)
    assert again.json() == first.json()
    assert (free_cores(any_hub, node), len(any_hub.hub.jobs.queue.backlog)) == (1, 0)
    assert len(await node.take()) == 1
    assert not (await node.poll(wait_ms=0)).grants


async def test_many_at_once_do_not_share_a_slot(any_hub: HubDouble) -> None:
    node = await any_hub.node(cores=1)
    found = await asyncio.gather(*(submit(any_hub.admin) for _ in range(8)))
    job_ids, ran = {job_id for [job_id] in found}, set()
    for _ in job_ids:
        assert free_cores(any_hub, node) >= 0
        [grant] = await node.take()
        assert not (await node.poll(wait_ms=0)).grants
        ran.add(grant.job_id)
        await node.report(grant.attempt_id, ran_ms=1_000)
    assert ran == job_ids


async def test_who_waited_longer_goes_first(hub: HubDouble) -> None:
    """A round places all that waits, not just what comes."""
    node = await hub.node(cores=1)
    [first] = await submit(hub.admin)
    [grant] = await node.take()
    waiting = await submit(hub.admin, items=2)
    async with hub.hub.jobs.queue.placing:  # the dispatcher comes to nothing meanwhile
        await node.report(grant.attempt_id, ran_ms=1_000)
    [late] = await submit(hub.admin)
    order = [first]
    for _ in range(3):
        [grant] = await node.take()
        order.append(grant.job_id)
        await node.report(grant.attempt_id, ran_ms=1_000)
    assert order == [first, *waiting, late]


async def test_a_write_that_fails_is_taken_back(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await hub.node(cores=1)

    def fails(_tx: Tx, _commit: Commit) -> None:
        raise Unavailable("The database is away.", retry_after_s=1)

    with monkeypatch.context() as patch:
        patch.setattr(hub.hub.store, "_hooks", type(hub.hub.store._hooks)(while_numbering=(fails,)))
        assert (await hub.admin.post("/jobs", json=body())).status_code == 503
    assert (free_cores(hub, node), len(hub.hub.jobs.queue.backlog)) == (1, 0)
    [job_id] = await submit(hub.admin)
    assert [grant.job_id for grant in await node.take()] == [job_id]


async def test_who_submits_may_go_away_meanwhile(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed is with its node."""
    node, write, began, go_on = await hub.node(cores=1), Store.write, asyncio.Event(), asyncio.Event()

    async def slow(store: Store, unit: Callable[[Tx], T]) -> T:
        began.set()
        await go_on.wait()
        return await write(store, unit)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", slow)
        submitting = asyncio.create_task(submit(hub.admin))
        await began.wait()
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
    go_on.set()
    [grant] = await node.take()
    assert (await job(hub.admin, grant.job_id))["state"] == "leased"


async def test_a_failure_after_its_client_went_away_concerns_nobody(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it any more, and an exception that nobody retrieves is reported by the event loop."""
    node, began, go_on, reported = await hub.node(cores=1), asyncio.Event(), asyncio.Event(), []

    async def fails(_store: Store, _unit: Callable[[Tx], T]) -> T:
        began.set()
        await go_on.wait()
        raise Unavailable("The database is away.", retry_after_s=1)

    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _loop, context: reported.append(context))
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", fails)
        submitting = asyncio.create_task(submit(hub.admin))
        await began.wait()
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        go_on.set()
        await eventually(lambda: not hub.hub.jobs.submitting_jobs)
        gc.collect()
    loop.set_exception_handler(before)
    assert not reported
    assert (free_cores(hub, node), len(hub.hub.jobs.queue.backlog)) == (1, 0)


async def test_jobs_of_one_submission_go_to_several_nodes(any_hub: HubDouble) -> None:
    nodes = [await any_hub.node(cores=1) for _ in range(2)]
    job_ids = set(await submit(any_hub.admin, items=2))
    for node in nodes:
        [grant] = await node.take()
        job_ids.remove(grant.job_id)
        assert (await job(any_hub.admin, grant.job_id))["node_id"] == node.node_id


async def test_of_fifty_waiting_polls_one_gets_the_job(hub: HubDouble) -> None:
    nodes = [await hub.node() for _ in range(50)]
    parked = [asyncio.ensure_future(node.poll(wait_ms=5_000)) for node in nodes]
    [job_id] = await submit(hub.admin)
    replies = await asyncio.gather(*parked)
    assert [grant.job_id for reply in replies for grant in reply.grants] == [job_id]
