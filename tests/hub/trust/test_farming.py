"""Nodes of friends that check each other: their record counts only where the pool chose who checks."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.hub.settlement.verification import unconfirmed
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import job, submit
from tests.hub.verifying import GRANT, answer
from tests.hub.working import HOUR, others

hub = hub_fixture(on=BOTH, signup_grant=GRANT, tick_s=10_000, mature_s=10_000, verify="adaptive", newcomer_jobs=5)


async def lend(hub: HubDouble, *tags: str) -> list[NodeDouble]:
    """One node for each tag, each with its own owner."""
    found = []
    for number, tag in enumerate(tags):
        name = f"{tag}{number}{hub.hub.clock.entropy(4).hex()}"
        found.append(await hub.node(await hub.account(name, "provider"), name=name, tags=[tag]))
    return found


async def known(hub: HubDouble, node: NodeDouble) -> dict[str, Any]:
    return (await hub.admin.get(f"/nodes/{node.node_id}")).json()["reputation"]


async def run_twice(
    hub: HubDouble, sam: httpx2.AsyncClient, nodes: list[NodeDouble], **wanted: Any
) -> list[NodeDouble]:
    """A job and its check."""
    [job_id] = await submit(sam, spec=HOUR, **wanted)
    first = await answer(hub, nodes)
    second = await answer(hub, others(nodes, first))
    assert (await job(sam, job_id))["verdict"] == "confirmed"
    return [first, second]


async def test_a_private_tag_makes_no_streak_and_no_progress_of_a_newcomer(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    friends = await lend(hub, "club", "club")
    await lend(hub, "any", "any")
    for _ in range(2):
        await run_twice(hub, sam, friends, needs={"tags": ["club"]})
    await submit(sam, spec=HOUR, needs={"tags": ["club"]}, verify="none")
    await answer(hub, friends)
    for node in friends:
        record = await known(hub, node)
        assert (record["streak"], record["verified"], record["newcomer_jobs_done"]) == (0, 0, 0)
        assert record["successes"] >= 2, "the node did work"
    evidence = (await hub.admin.get(f"/nodes/{friends[0].node_id}/evidence")).json()["rows"]
    assert {row["evidence"] for row in evidence} == {"narrow"}


async def test_no_other_way_to_choose_ones_friends_makes_a_streak(hub: HubDouble, subtests: pytest.Subtests) -> None:
    sam = await hub.account("sam", "submitter")
    friends = await lend(hub, "club", "club")
    strangers = await lend(hub, "any", "any")
    wishes: list[dict[str, Any]] = [{"exclude_tags": ["any"]}, {"exclude_hosts": [node.node_id for node in strangers]}]
    for wish in wishes:
        with subtests.test(wish=wish):
            await run_twice(hub, sam, friends, needs=wish)
            assert [(await known(hub, node))["streak"] for node in friends] == [0, 0]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("claimed", "asked"),
    [({"ram_mb": 3_000_000}, {"ram_mb": 2_900_000}), ({"python": "3.29"}, {"python": "3.29"})],
    ids=["memory", "python"],
)
async def test_what_friends_say_of_their_machines_makes_no_record(
    hub: HubDouble, claimed: dict[str, Any], asked: dict[str, Any]
) -> None:
    sam = await hub.account("sam", "submitter")
    await lend(hub, *["any"] * 6)
    friends = [
        await hub.node(await hub.account(f"friend{number}", "provider"), name=f"f{number}", **claimed)
        for number in range(4)
    ]
    await run_twice(hub, sam, friends, needs=asked)
    records = [await known(hub, node) for node in friends]
    assert {(each["streak"], each["newcomer_jobs_done"]) for each in records} == {(0, 0)}


async def test_a_check_counts_where_the_pool_chose_the_nodes_even_in_a_small_pool(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    nodes = await lend(hub, "any", "any")
    await run_twice(hub, sam, nodes)
    assert [(await known(hub, node))["streak"] for node in nodes] == [1, 1], "these two are the whole pool"
    nodes += await lend(hub, "any", "any", "any")
    for node in await run_twice(hub, sam, nodes, needs={"tags": ["any"]}):
        assert (await known(hub, node))["streak"] >= 1, "a tag that everybody has is no choice"


@pytest.mark.soak
async def test_a_later_check_by_a_friend_does_not_count_either(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    [first] = await lend(hub, "club")
    [job_id] = await submit(sam, spec=HOUR, needs={"tags": ["club"]})
    await answer(hub, [first])
    assert (await job(sam, job_id))["verdict"] == "alone"
    strangers = await lend(hub, "any", "any", "any")
    owner = await hub.account("friend", "provider")
    friend = await hub.node(owner, name="friend", tags=["club"])
    await unconfirmed.start_checks(hub.hub)
    await answer(hub, [friend, *strangers])
    assert (await job(sam, job_id))["verdict"] == "confirmed"
    assert [(await known(hub, node))["streak"] for node in (first, friend)] == [0, 0]
