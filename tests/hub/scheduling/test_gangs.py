"""Gangs at the hub: all members are leased or none, and what happens to one of them happens to all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.hub.main import check
from computepool.protocol.nodes.nodes import Grant
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture, two_hubs
from tests.hub.scheduling.test_leases import sweep
from tests.hub.submitting import body, job, state, submit
from tests.hub.working import got, me

hub = hub_fixture(on=BOTH)


async def owners_nodes(hub: HubDouble, count: int, *, name: str = "pia", **profile: Any) -> list[NodeDouble]:
    owner = await hub.account(name, "provider", "submitter")
    given = {"gangs": True, "cores": 1, **profile}
    return [await hub.node(owner, name=f"{name}-{number}", **given) for number in range(count)]


async def gang(client: httpx2.AsyncClient, nodes: int, **fields: Any) -> list[str]:
    return await submit(client, spec={"nodes": nodes, **fields.pop("spec", {})}, **fields)


async def grants_of(nodes: list[NodeDouble]) -> list[Grant]:
    """One grant for each of the nodes, in the order of the ranks."""
    found = [grant for node in nodes for grant in await node.take()]
    return sorted(found, key=lambda grant: grant.item)


async def states(client: httpx2.AsyncClient, job_ids: list[str]) -> list[str]:
    return [await state(client, job_id) for job_id in job_ids]


def holder(nodes: list[NodeDouble], grant: Grant) -> NodeDouble:
    return next(node for node in nodes if grant.attempt_id in node.holding)


@pytest.mark.every_case
async def test_the_members_run_on_nodes_of_one_owner_with_their_ranks(hub: HubDouble) -> None:
    await owners_nodes(hub, 2, name="ann")
    nodes = await owners_nodes(hub, 3)
    sam = await hub.account("sam", "submitter")
    job_ids = await gang(sam, 3)
    grants = await grants_of(nodes)
    assert [(grant.item, grant.items, grant.job_id) for grant in grants] == [
        (rank, 3, job_id) for rank, job_id in enumerate(job_ids)
    ]
    assert {grant.gang.id for grant in grants if grant.gang} == {job_ids[0]}
    shown = (await job(sam, job_ids[1]))["gang"]
    assert [member["rank"] for member in shown] == [0, 1, 2]
    assert {member["state"] for member in shown} == {"leased"}
    for grant in grants:
        assert await holder(nodes, grant).report(grant.attempt_id) == "accepted"
    assert await states(sam, job_ids) == ["succeeded"] * 3


async def test_too_few_nodes_of_one_owner_are_not_touched_and_the_reason_says_so(hub: HubDouble) -> None:
    nodes = [*await owners_nodes(hub, 3, name="ann"), *await owners_nodes(hub, 2)]
    sam = await hub.account("sam", "submitter")
    job_ids = await gang(sam, 4)
    why = await got(sam, f"/jobs/{job_ids[2]}/why")
    assert why["sentence"] == (
        "No node can run this: it needs 4 nodes of one owner at once; the best owner has 3 that could run it."
    )
    others = await submit(sam, items=5)
    await grants_of(nodes)
    assert await states(sam, [*job_ids, *others]) == ["queued"] * 4 + ["leased"] * 5


async def test_a_gang_waits_until_its_nodes_are_free_together(hub: HubDouble) -> None:
    nodes = await owners_nodes(hub, 2)
    sam = await hub.account("sam", "submitter")
    [small] = await submit(sam)
    await _granted(nodes, 1)
    [busy] = [node for node in nodes if node.holding]
    job_ids = await gang(sam, 2)
    why = await got(sam, f"/jobs/{job_ids[0]}/why")
    assert why["sentence"] == "Waiting: it needs 2 nodes of one owner at once; the best owner has 1 free."
    [attempt_id] = busy.holding
    await busy.report(attempt_id)
    assert await state(sam, small) == "succeeded"
    assert [grant.job_id for grant in await grants_of(nodes)] == job_ids


@pytest.mark.parametrize("how", ["exit", "node_error", "returned", "restart", "silent", "revoked"])
async def test_what_happens_to_one_member_stops_the_others_and_all_begin_again(
    hub: HubDouble, clock: FakeClock, how: str
) -> None:
    nodes = await owners_nodes(hub, 3)
    sam = await hub.account("sam", "submitter")
    job_ids = await gang(sam, 2, retries=1)
    grants = await _granted(nodes, 2)
    lost, other = (holder(nodes, grant) for grant in grants)
    await _break(hub, lost, grants[0], how=how, clock=clock, speaking=[node for node in nodes if node is not lost])
    assert grants[1].attempt_id in (await other.poll(wait_ms=0)).cancel
    rows = [await job(sam, job_id) for job_id in job_ids]
    assert rows[1]["reason"] in ("gang_member_lost", "placed")
    cancelled = (await job(sam, job_ids[1]))["tries"][0]
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "gang_member_lost")
    said = await other.report(grants[1].attempt_id, outcome=Outcome.CANCELLED, reason=Reason.CANCELLED_BY_USER)
    assert said == "cancelled"
    clock.advance(5_000)
    for node in nodes:
        node.sign_in()
    hub.hub.jobs.queue.wake()
    # A node that gave its member back is not avoided.
    again = await _granted([node for node in nodes if node is not lost or how == "returned"], 2, number=2)
    assert sorted(grant.job_id for grant in again) == sorted(job_ids)
    late = await other.report(grants[1].attempt_id, outcome=Outcome.SUCCEEDED, reason=Reason.COMPLETED)
    assert late in ("conflict", "cancelled")


async def _granted(nodes: list[NodeDouble], count: int, *, number: int = 1) -> list[Grant]:
    """`count` attempts of this number, from whichever of the nodes hold them."""
    async with asyncio.timeout(60):
        while True:
            held = [grant for node in nodes for grant in node.holding.values() if grant.attempt_no == number]
            if len(held) >= count:
                return sorted(held, key=lambda grant: grant.item)
            for node in nodes:
                await node.poll(wait_ms=20)


async def _break(
    hub: HubDouble, node: NodeDouble, grant: Grant, *, how: str, clock: FakeClock, speaking: list[NodeDouble]
) -> None:
    if how == "exit":
        await node.report(grant.attempt_id, outcome=Outcome.FAILED, reason=Reason.EXIT_NONZERO, exit_code=1)
    elif how == "node_error":
        await node.report(grant.attempt_id, outcome=Outcome.FAILED, reason=Reason.NODE_ERROR, exit_code=None)
    elif how == "returned":
        await node.report(grant.attempt_id, outcome=Outcome.RETURNED, reason=Reason.GANG_NOT_READY, exit_code=None)
    elif how == "restart":
        node.restart()
        await node.poll(wait_ms=0)
    elif how == "revoked":
        (await hub.admin.post(f"/nodes/{node.node_id}/revoke")).raise_for_status()
    else:
        clock.advance(61_000)
        for other in speaking:
            other.sign_in()
            await other.poll(wait_ms=0, claim=False)
        await sweep(hub)


async def test_node_loss_uses_up_no_retry_and_the_failures_of_all_members_count_together(hub: HubDouble) -> None:
    nodes = await owners_nodes(hub, 2)
    sam = await hub.account("sam", "submitter")
    job_ids = await gang(sam, 2, retries=0)
    first = await grants_of(nodes)
    await holder(nodes, first[0]).report(
        first[0].attempt_id, outcome=Outcome.FAILED, reason=Reason.NODE_ERROR, exit_code=None
    )
    await holder(nodes, first[1]).poll(wait_ms=0)
    second = await grants_of(nodes)
    failing = holder(nodes, second[1])
    await failing.report(second[1].attempt_id, outcome=Outcome.FAILED, reason=Reason.EXIT_NONZERO, exit_code=3)
    rows = [await job(sam, job_id) for job_id in job_ids]
    assert [(row["state"], row["reason"]) for row in rows] == [
        ("cancelled", "gang_member_failed"),
        ("failed", "exit_nonzero"),
    ]
    assert second[0].attempt_id in (await holder(nodes, second[0]).poll(wait_ms=0)).cancel


async def test_cancelling_one_member_cancels_all_and_frees_the_money(hub: HubDouble) -> None:
    nodes = await owners_nodes(hub, 2)
    sam = await hub.account("sam", "submitter")
    job_ids = await gang(sam, 2)
    await grants_of(nodes)
    (await sam.post(f"/jobs/{job_ids[1]}/cancel")).raise_for_status()
    rows = [await job(sam, job_id) for job_id in job_ids]
    assert {(row["state"], row["reason"], row["charge"]) for row in rows} == {("cancelled", "cancelled_by_user", 0)}


@pytest.mark.every_case
async def test_a_member_that_is_lost_after_others_have_finished_ends_the_job(hub: HubDouble) -> None:
    nodes = await owners_nodes(hub, 2)
    sam = await hub.account("sam", "submitter")
    job_ids = await gang(sam, 2)
    grants = await grants_of(nodes)
    await holder(nodes, grants[0]).report(grants[0].attempt_id)
    lost = holder(nodes, grants[1])
    lost.restart()
    await lost.poll(wait_ms=0)
    assert await states(sam, job_ids) == ["succeeded", "failed"]
    assert "finished" in (await job(sam, job_ids[1]))["error"]


async def test_members_of_a_mesh_may_belong_to_several_owners(hub: HubDouble) -> None:
    nodes = [
        *await owners_nodes(hub, 1, name="ann", mesh_version="lab"),
        *await owners_nodes(hub, 1, name="bob", mesh_version="lab"),
    ]
    sam = await hub.account("sam", "submitter")
    apart = await gang(sam, 2)
    job_ids = await gang(sam, 2, spec={"needs": {"mesh_version": "lab"}})
    assert [grant.job_id for grant in await grants_of(nodes)] == job_ids
    assert await states(sam, apart) == ["queued", "queued"]


async def test_each_member_is_billed_and_the_hold_covers_all(hub: HubDouble) -> None:
    nodes = await owners_nodes(hub, 2)
    sam = await hub.account("sam", "submitter")
    quote = (await sam.post("/quotes", json={"nodes": 2})).json()
    answer = (await sam.post("/jobs", json=body(spec={"nodes": 2}))).json()
    assert (quote["hold_total"], quote["items"]) == (answer["hold"], 2)
    one = (await sam.post("/quotes", json={})).json()
    assert answer["hold"] == 2 * one["hold_total"] > 0
    grants = await grants_of(nodes)
    assert isinstance(hub.hub.clock, FakeClock)
    hub.hub.clock.advance(600_000)
    for node in nodes:
        node.sign_in()
    for grant in grants:
        await holder(nodes, grant).report(grant.attempt_id, ran_ms=540_000)
    charges = [(await job(sam, job_id))["charge"] for job_id in answer["job_ids"]]
    assert charges[0] == charges[1] > 0
    few = (await sam.post("/quotes", json={"nodes": 3})).json()
    assert "it needs 3 nodes of one owner at once" in " ".join(few["sentences"])


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"spec": {"nodes": 0}}, "nodes"),
        ({"spec": {"nodes": 251}}, "nodes"),
        ({"spec": {"nodes": 65}}, "64 nodes at most"),
        ({"spec": {"nodes": 2}, "items": 2}, "submitted alone"),
        ({"spec": {"nodes": 2, "moves": True}}, "cannot move"),
        ({"spec": {"nodes": 2, "needs": {"host": "h"}}}, "cannot name one host"),
        ({"spec": {"nodes": 2}, "verify": "quorum:2"}, "not verified"),
    ],
)
async def test_what_cannot_be_is_refused_with_a_sentence(hub: HubDouble, fields: dict[str, Any], named: str) -> None:
    sam = await hub.account("sam", "submitter")
    answer = await sam.post("/jobs", json=body(**fields))
    assert answer.status_code in (400, 422), answer.text
    assert named in answer.text
    assert (await got(sam, "/jobs"))["jobs"] == []


async def test_a_gang_that_has_waited_is_not_passed_for_ever(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        nodes = await owners_nodes(hub, 2)
        sam = await hub.account("sam", "submitter")
        first = await submit(sam, items=2)
        held = await grants_of(nodes)
        job_ids = await gang(sam, 2)
        later = await submit(sam, items=4, priority=1)
        clock.advance(61_000)
        for grant in held:
            node = holder(nodes, grant)
            node.sign_in()
            await node.poll(wait_ms=0)
        for grant in held:
            await holder(nodes, grant).report(grant.attempt_id)
        assert [grant.job_id for grant in await grants_of(nodes)] == job_ids
        assert await states(sam, [*first, *later]) == ["succeeded"] * 2 + ["queued"] * 4


async def test_two_hubs_lease_a_gang_once_and_whole(tmp_path: Path, migrated_url: str) -> None:
    async with two_hubs(tmp_path, migrated_url) as (first, second):
        pia, ann = await first.account("pia", "provider"), await first.account("ann", "provider")
        here = [await first.node(pia, name=f"a{number}", gangs=True, cores=1) for number in range(2)]
        client = second.client(ann.headers["Authorization"].removeprefix("Bearer "))
        there = [await second.node(client, name=f"b{number}", gangs=True, cores=1) for number in range(2)]
        sam = await first.account("sam", "submitter")
        gangs = [await gang(sam, 2) for _ in range(2)]
        placed: dict[str, list[Grant]] = {}
        async with asyncio.timeout(60):
            while sum(map(len, placed.values())) < 4:
                for side, nodes in (("here", here), ("there", there)):
                    for node in nodes:
                        placed.setdefault(side, []).extend((await node.poll(wait_ms=20)).grants)
        for grants in placed.values():
            assert len(grants) == 2
            assert len({grant.gang.id for grant in grants if grant.gang}) == 1
        assert sorted(grant.job_id for grants in placed.values() for grant in grants) == sorted(
            job_id for job_ids in gangs for job_id in job_ids
        )
        assert check(first.hub.settings) == []
        assert await me(sam)
