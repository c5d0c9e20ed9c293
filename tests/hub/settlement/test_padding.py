"""Time is a node's word: it is billed no longer than other owners' nodes took for the same."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.cli.job import receipt_check
from computepool.core.money import ledger
from computepool.core.money.pricing import charge_of
from computepool.core.money.run_times import Timed
from computepool.hub.settlement.verification import sampling
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.jobs.test_checkpoints import saved
from tests.hub.money.test_holds import HOUR, PRICE, balance
from tests.hub.settlement.test_verification import (
    RAN_MS,
    answer,
    crowd,
    hub,
    is_being_checked,
    others,
    placed,
)
from tests.hub.submitting import body, job, submit

__all__ = ["hub"]
GRACE_MS = 2_000


async def run_on_all(hub: HubDouble, nodes: list[NodeDouble], *times: int) -> list[NodeDouble]:
    used: list[NodeDouble] = []
    for ran_ms in times:
        used.append(await answer(hub, others(nodes, *used), ran_ms=ran_ms))
    return used


async def billed(sam: httpx2.AsyncClient, job_id: str) -> list[int]:
    return [try_["charge"] for try_ in (await job(sam, job_id))["tries"]]


async def streak(sam: httpx2.AsyncClient, node: NodeDouble) -> tuple[int, int]:
    known: dict[str, Any] = (await sam.get(f"/nodes/{node.node_id}")).json()["reputation"]
    return known["streak"], known["violation_count"]


async def test_who_holds_a_trivial_job_is_billed_as_if_it_had_not(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    padder, honest = await run_on_all(hub, nodes, RAN_MS, 0)
    done = await job(sam, job_id)
    assert (done["verdict"], done["charge"]) == ("confirmed", charge_of(PRICE, GRACE_MS))
    assert await billed(sam, job_id) == [charge_of(PRICE, GRACE_MS), 0]
    assert (await streak(sam, padder), await streak(sam, honest)) == ((0, 0), (1, 0)), "no violation"
    cost = (await sam.get(f"/jobs/{job_id}/cost")).json()
    assert (cost["billed_ms"], cost["charge"]) == (GRACE_MS, charge_of(PRICE, GRACE_MS))
    receipt = (await sam.get(f"/jobs/{job_id}/receipt")).json()
    assert all(said.ok for said in receipt_check.check(receipt, trusted={})), receipt_check.check(
        receipt, trusted={}
    )
    owner = (await sam.get(f"/nodes/{padder.node_id}")).json()["owner"]
    charge = charge_of(PRICE, GRACE_MS)
    assert await balance(hub, ledger.earn(owner)) == charge * 8 // 10


@pytest.mark.parametrize("late", [False, True], ids=["first", "second"])
async def test_honest_times_are_billed_whole(hub: HubDouble, late: bool) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    times = (RAN_MS, RAN_MS * 6 // 10)
    used = await run_on_all(hub, nodes, *(reversed(times) if late else times))
    charges = [charge_of(PRICE, ms) for ms in (reversed(times) if late else times)]
    assert await billed(sam, job_id) == charges
    assert [await streak(sam, node) for node in used] == [(1, 0), (1, 0)]


async def test_among_three_the_one_in_the_middle_decides(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = (await sam.post("/jobs", json=body(spec=HOUR) | {"verify": "quorum:3"})).json()["job_ids"]
    await run_on_all(hub, nodes, 10_000, RAN_MS, 0)
    assert await billed(sam, job_id) == [charge_of(PRICE, ms) for ms in (10_000, 2 * 10_000 + GRACE_MS, 0)]


async def test_a_friend_of_the_submitter_cuts_nobodys_pay(hub: HubDouble) -> None:
    """Who asks for nodes that nobody else would be given cannot have one of them say that it took no time."""
    sam, _ = await crowd(hub, 6)
    pair = [
        await hub.node(await hub.account(f"friend{number}", "provider"), name=f"f{number}", tags=["pair"])
        for number in range(2)
    ]
    [job_id] = await submit(sam, spec=HOUR, needs={"tags": ["pair"]})
    await run_on_all(hub, pair, RAN_MS, 0)
    assert await billed(sam, job_id) == [charge_of(PRICE, RAN_MS), 0]


async def undrawn(
    hub: HubDouble, sam: httpx2.AsyncClient, nodes: list[NodeDouble], *, saves: bool
) -> tuple[str, NodeDouble, str]:
    """A job that is given to a node, and whose result is not drawn for a check; one in twenty is.

    `saves`: it goes on from a checkpoint.
    """
    for _ in range(50):
        spec = {"timeout_s": 120, "checkpoints": saves}
        [job_id] = await submit(sam, spec=spec, verify="adaptive")
        node, attempt_id = await placed(nodes)
        for each in nodes:
            hub.hub.nodes.registry.fleet.set_integrity(each.node_id, streak=10_000, banned=False)
        if saves:
            assert (await saved(node, attempt_id, b"state"))["kept"]
            await node.report(attempt_id, outcome="returned", reason="given_back", exit_code=None)
            hub.hub.clock.advance(1_000)  # type: ignore[attr-defined]
            node, attempt_id = await placed(nodes)
        if not sampling.draw(hub.hub, node.node_id, [attempt_id]).drawn:
            return job_id, node, attempt_id
        await sam.post(f"/jobs/{job_id}/cancel")
        await node.report(attempt_id, outcome="cancelled", reason="cancelled_by_user")
    raise AssertionError("all of them were drawn")


@pytest.mark.parametrize("saves", [False, True], ids=["whole", "continued"])
async def test_a_run_far_longer_than_the_program_takes_is_checked(hub: HubDouble, saves: bool) -> None:
    sam, nodes = await crowd(hub, 3)
    for is_known in (False, True):
        job_id, node, attempt_id = await undrawn(hub, sam, nodes, saves=saves)
        for _ in range(5 * is_known):
            spec = node.holding[attempt_id].spec
            hub.hub.settlement.run_times = hub.hub.settlement.run_times.note(spec, Timed(ms=1_000))
        hub.hub.clock.advance(110_000)  # type: ignore[attr-defined]
        node.sign_in()
        assert await node.report(attempt_id, ran_ms=100_000, result='"right"') == "accepted"
        assert await is_being_checked(sam, job_id) == is_known
    await answer(hub, others(nodes, node), ran_ms=1_000)
    assert (await job(sam, job_id))["verdict"] == "confirmed"
    charges = [each for each in await billed(sam, job_id) if each is not None]
    assert charges[-2:] == [charge_of(PRICE, 2 * 1_000 + GRACE_MS), charge_of(PRICE, 1_000)]
