"""A job from submission to result through the real API, and every way in which it can go wrong on the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.errors import Unavailable
from computepool.hub.jobs.running import checkpoints
from computepool.hub.loops import dispatch as dispatch_loop
from computepool.hub.nodes import nodes
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import job, state, submit


async def test_a_job_goes_from_queue_to_result(any_hub: HubDouble) -> None:
    node = await any_hub.node()
    [job_id] = await submit(any_hub.admin)

    [grant] = await node.take()
    assert grant.job_id == job_id
    assert await state(any_hub.admin, job_id) == "leased"

    await node.poll(
        path="/heartbeat", wait_ms=0, claim=False, running=[{"attempt_id": grant.attempt_id, "progress": 0.5}]
    )
    running = await job(any_hub.admin, job_id)
    assert (running["state"], running["progress"]) == ("running", 0.5)

    assert await node.report(grant.attempt_id, result="42") == "accepted"
    done = (await any_hub.admin.get(f"/jobs/{job_id}/result")).json()
    assert (done["state"], done["result"], done["exit_code"]) == ("succeeded", "42", 0)

    events = (await any_hub.admin.get("/events", params={"job_id": job_id})).json()["events"]
    steps = [(event["before"], event["after"]) for event in events]
    assert steps == [(None, "queued"), ("queued", "leased"), ("leased", "running"), ("running", "succeeded")]


async def test_a_parked_poll_is_answered_when_a_job_comes(hub: HubDouble) -> None:
    node = await hub.node()
    poll = asyncio.create_task(node.poll(wait_ms=30_000))
    await asyncio.sleep(0)
    [job_id] = await submit(hub.admin)
    reply = await asyncio.wait_for(poll, 29)
    assert [grant.job_id for grant in reply.grants] == [job_id]


async def test_fifty_pollers_and_one_job_give_one_lease(any_hub: HubDouble) -> None:
    nodes = await asyncio.gather(*(any_hub.node(name=f"node-{number}") for number in range(50)))
    polls = [asyncio.create_task(node.poll(wait_ms=3_000)) for node in nodes]
    await submit(any_hub.admin)
    replies = await asyncio.gather(*polls)
    assert sum(len(reply.grants) for reply in replies) == 1


async def test_an_empty_queue_answers_without_work(hub: HubDouble) -> None:
    node = await hub.node()
    assert (await node.poll(wait_ms=0)).grants == []


async def test_several_jobs_share_a_node_as_long_as_they_fit(hub: HubDouble) -> None:
    node = await hub.node(cores=4, ram_mb=8192)
    await submit(hub.admin, items=5, needs={"cores": 1, "ram_mb": 2048})
    assert len(await node.take(4)) == 4
    assert (await node.poll(wait_ms=0)).grants == []


async def test_the_same_report_again_gets_the_same_answer_and_another_a_conflict(any_hub: HubDouble) -> None:
    node = await any_hub.node()
    [job_id] = await submit(any_hub.admin)
    [grant] = await node.take()
    assert await node.report(grant.attempt_id, result="1") == "accepted"
    assert await node.report(grant.attempt_id, result="1") == "replay"
    assert await node.report(grant.attempt_id, result="2") == "conflict"
    assert (await any_hub.admin.get(f"/jobs/{job_id}/result")).json()["result"] == "1"


async def test_a_node_that_reports_a_foreign_attempt_changes_nothing(hub: HubDouble) -> None:
    holder, stranger = await hub.node(name="holder"), await hub.node(name="stranger", cores=1)
    [job_id] = await submit(hub.admin, needs={"cores": 2})
    [grant] = await holder.take()
    assert await stranger.report(grant.attempt_id) == "foreign"
    assert await stranger.report("job_nonsense-1") == "foreign"
    assert await state(hub.admin, job_id) == "leased"


async def test_cancel_reaches_the_node_and_a_late_report_is_told_so(any_hub: HubDouble) -> None:
    node = await any_hub.node()
    [job_id] = await submit(any_hub.admin)
    [grant] = await node.take()
    poll = asyncio.create_task(node.poll(wait_ms=30_000))
    await asyncio.sleep(0.05)
    assert (await any_hub.admin.post(f"/jobs/{job_id}/cancel")).json()["state"] == "cancelled"
    assert (await asyncio.wait_for(poll, 29)).cancel == [grant.attempt_id]
    assert await node.report(grant.attempt_id) == "cancelled"
    assert await state(any_hub.admin, job_id) == "cancelled"


async def test_a_job_fault_is_retried_only_as_often_as_asked_and_elsewhere_first(hub: HubDouble) -> None:
    first, second = await hub.node(name="first"), await hub.node(name="second")
    hub.hub.settings.backoff_base_s = 0.01
    [job_id] = await submit(hub.admin, retries=1)
    polls = {node: asyncio.create_task(node.poll(wait_ms=30_000)) for node in (first, second)}
    done, _ = await asyncio.wait(polls.values(), return_when=asyncio.FIRST_COMPLETED)
    failing = next(node for node, poll in polls.items() if poll in done)
    other = second if failing is first else first
    [attempt] = list(failing.holding)
    assert await failing.report(attempt, outcome="failed", reason="exit_nonzero", exit_code=3) == "accepted"
    await asyncio.wait_for(polls[other], 29)
    [again] = list(other.holding)
    assert again == f"{job_id}-2"
    await other.report(again, outcome="failed", reason="exit_nonzero", exit_code=4)
    ended = await job(hub.admin, job_id)
    assert (ended["state"], ended["reason"], ended["exit_code"], ended["attempts"]) == ("failed", "exit_nonzero", 4, 2)


async def test_a_restarted_agent_loses_what_it_held_and_the_job_runs_again(any_hub: HubDouble) -> None:
    node = await any_hub.node()
    [job_id] = await submit(any_hub.admin)
    [grant] = await node.take()
    node.restart()
    [again] = await node.take()
    assert again.attempt_id == f"{job_id}-2"
    assert await node.report(grant.attempt_id, result="late") == "accepted_late"
    assert await state(any_hub.admin, job_id) == "succeeded"
    assert again.attempt_id in (await node.poll(wait_ms=1_000)).cancel
    assert await node.report(again.attempt_id) == "superseded"


async def test_a_lost_reply_is_said_again(hub: HubDouble) -> None:
    node = await hub.node()
    await submit(hub.admin)
    [grant] = await node.take()
    node.holding.clear()  # the agent never saw that reply
    assert [again.attempt_id for again in (await node.poll(wait_ms=0)).grants] == [grant.attempt_id]


@pytest.mark.parametrize("parks", [True, False], ids=["parked", "still being written"])
async def test_the_last_poll_of_a_node_hears_what_was_on_its_way_to_it(hub: HubDouble, *, parks: bool) -> None:
    """Else a job given to an agent in the moment it stops would wait there until its lease ends. The poll that it broke off
    takes nothing, wherever that one was."""
    node = await hub.node()
    session = hub.hub.nodes.registry.get(node.node_id)
    assert session is not None
    running = []
    if not parks:
        await submit(hub.admin)
        hub.hub.jobs.queue.wake()
        running = [{"attempt_id": grant.attempt_id} for grant in (await node.poll()).grants]
    await node.poll(wait_ms=0, claim=False)
    [job_id] = await submit(hub.admin)
    commits = threading.Event()
    slow = asyncio.create_task(hub.hub.store.write(lambda _: commits.wait(60)))  # the lease comes after it
    broken_off = asyncio.create_task(node.poll(wait_ms=30_000, running=running))
    await until(lambda: session.claims and (session.waiter is not None) is parks)
    hub.hub.jobs.queue.wake()
    await until(lambda: len(hub.hub.jobs.queue.backlog) == 0)
    last = asyncio.create_task(node.poll(wait_ms=0, claim=False))
    await until(lambda: not session.claims)
    commits.set()
    assert [grant.job_id for grant in (await last).grants] == [job_id]
    assert (await broken_off).grants == []
    await slow


async def test_a_poll_that_was_broken_off_does_not_park_over_the_newer_one(hub: HubDouble) -> None:
    node = await hub.node()
    session = hub.hub.nodes.registry.get(node.node_id)
    assert session is not None
    async with hub.hub.jobs.queue.placing:
        broken_off = asyncio.create_task(node.poll(wait_ms=30_000, claim=False))
        await until(lambda: not session.claims)
        newer = asyncio.create_task(node.poll(wait_ms=30_000))
        await until(lambda: session.waiter is not None)
    assert (await broken_off).grants == []
    [job_id] = await submit(hub.admin)
    hub.hub.jobs.queue.wake()
    assert [grant.job_id for grant in (await newer).grants] == [job_id]


async def test_a_pause_while_a_node_arrives_is_not_missed(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between what the store said of it and the moment from which the hub knows it."""
    node = await hub.node()
    load = hub.hub.jobs.specs.load

    async def load_slowly(digests: set[str]) -> Any:
        monkeypatch.undo()
        paused = await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
        assert paused.status_code == 200
        return await load(digests)

    hub.hub.nodes.registry.on_node_lost(node.node_id)
    monkeypatch.setattr(hub.hub.jobs.specs, "load", load_slowly)
    node.restart()
    assert (await node.poll(wait_ms=0)).state == "paused"
    [job_id] = await submit(hub.admin)
    hub.hub.jobs.queue.wake()
    assert (await node.poll(wait_ms=200)).grants == []
    assert await state(hub.admin, job_id) == "queued"


async def test_a_pause_after_the_look_at_the_store_is_not_undone_by_it(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await hub.node()
    read = hub.hub.store.read

    async def read_early(load: Any) -> Any:
        found = await read(load)
        monkeypatch.undo()
        await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
        return found

    monkeypatch.setattr(hub.hub.store, "read", read_early)
    await nodes.reconcile(hub.hub, node.node_id)
    assert (await node.poll(wait_ms=0)).state == "paused"


async def test_a_node_whose_arrival_fails_half_way_keeps_what_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub was restarted, and its store is away just when a node comes back."""
    async with running_hub(tmp_path) as hub:
        node = await hub.node()
        await submit(hub.admin)
        [grant] = await node.take()
    async with running_hub(tmp_path) as hub:
        node.client = hub.client()
        node.sign_in()
        node._introduced = False

        def away(*_: object) -> None:
            monkeypatch.undo()
            raise Unavailable("The store is away.")

        monkeypatch.setattr(checkpoints, "adopted_checkpoints", away)
        with pytest.raises(httpx2.HTTPStatusError, match="503"):
            await node.poll(wait_ms=0)
        assert (await node.poll(wait_ms=0)).cancel == []
        assert await node.report(grant.attempt_id) == "accepted"


async def test_a_hub_that_is_always_busy_finds_what_fell_out_of_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_loop, "_LOAD_ALL_S", 0.1)
    async with running_hub(tmp_path) as hub:
        [job_id] = await submit(hub.admin)
        hub.hub.jobs.queue.backlog.remove(job_id)
        node = await hub.node()
        async with asyncio.timeout(60):
            while job_id not in {grant.job_id for grant in (await node.poll(wait_ms=0)).grants}:
                hub.hub.jobs.queue.wake()
                await asyncio.sleep(0.01)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - nothing there tells
            await asyncio.sleep(0.005)


async def test_dependencies_start_only_after_success_and_fail_with_their_cause(hub: HubDouble) -> None:
    node = await hub.node()
    [first] = await submit(hub.admin)
    [second] = await submit(hub.admin, after=[first])
    [third] = await submit(hub.admin, after=[second])
    [grant] = await node.take()
    assert grant.job_id == first
    assert (await job(hub.admin, second))["reason"] == "waiting_for_jobs"
    await node.report(grant.attempt_id)
    [grant] = await node.take()
    assert grant.job_id == second
    await node.report(grant.attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1)
    ended = await job(hub.admin, third)
    assert (ended["state"], ended["reason"]) == ("cancelled", "dependency_failed")


async def test_priority_goes_first(hub: HubDouble) -> None:
    [low] = await submit(hub.admin, priority=-5)
    [high] = await submit(hub.admin, priority=5)
    node = await hub.node(cores=1)
    [grant] = await node.take()
    assert grant.job_id == high
    await node.report(grant.attempt_id)
    [grant] = await node.take()
    assert grant.job_id == low


async def test_the_same_idempotency_key_submits_once(any_hub: HubDouble) -> None:
    headers = {"Idempotency-Key": "abc"}
    body = {"spec": {"kind": "command", "name": "x", "argv": ["true"]}}
    first = await any_hub.admin.post("/jobs", json=body, headers=headers)
    again = await any_hub.admin.post("/jobs", json=body, headers=headers)
    other = await any_hub.admin.post("/jobs", json=body | {"priority": 1}, headers=headers)
    assert first.json() == again.json()
    assert other.status_code == 409
    assert len((await any_hub.admin.get("/jobs")).json()["jobs"]) == 1
