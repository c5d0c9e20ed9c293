"""Padding: a node's time is billed for no longer than other owners' nodes took for the same job."""

from __future__ import annotations

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
from tests.hub.settlement import test_verification
from tests.hub.submitting import job, submit
from tests.hub.verifying import RAN_MS, advance, answer, attempts_of, is_being_checked, owner_of, placed, reputation
from tests.hub.working import HOUR, PRICE, balance, crowd, got, others

hub = test_verification.hub
GRACE_MS = 2_000


async def run_on_all(hub: HubDouble, nodes: list[NodeDouble], *times: int) -> list[NodeDouble]:
    used: list[NodeDouble] = []
    for ran_ms in times:
        used.append(await answer(hub, others(nodes, *used), ran_ms=ran_ms))
    return used


async def record(sam: httpx2.AsyncClient, node: NodeDouble) -> tuple[int, int]:
    known = await reputation(sam, node)
    return known["streak"], known["violation_count"]


async def test_a_padded_time_is_billed_as_if_it_was_not(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    padder, honest = await run_on_all(hub, nodes, RAN_MS, 0)
    done = await job(sam, job_id)
    assert (done["verdict"], done["charge"]) == ("confirmed", charge_of(PRICE, GRACE_MS))
    assert await attempts_of(sam, job_id, "charge") == [charge_of(PRICE, GRACE_MS), 0]
    assert (await record(sam, padder), await record(sam, honest)) == ((0, 0), (1, 0)), "no violation"
    evidence = await got(sam, f"/nodes/{padder.node_id}/evidence")
    assert [row["evidence"] for row in evidence["rows"]] == ["padded", "verified"]
    cost = await got(sam, f"/jobs/{job_id}/cost")
    assert (cost["billed_ms"], cost["charge"]) == (GRACE_MS, charge_of(PRICE, GRACE_MS))
    checked = receipt_check.check(await got(sam, f"/jobs/{job_id}/receipt"), trusted={})
    assert all(said.ok for said in checked), checked
    assert await balance(hub, ledger.earn(await owner_of(sam, padder))) == charge_of(PRICE, GRACE_MS) * 8 // 10


@pytest.mark.parametrize("late", [False, True], ids=["first", "second"])
async def test_honest_times_are_billed_in_full(hub: HubDouble, late: bool) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    times = (RAN_MS, RAN_MS * 6 // 10)
    used = await run_on_all(hub, nodes, *(reversed(times) if late else times))
    charges = [charge_of(PRICE, ms) for ms in (reversed(times) if late else times)]
    assert await attempts_of(sam, job_id, "charge") == charges
    assert [await record(sam, node) for node in used] == [(1, 0), (1, 0)]


async def test_of_three_times_the_median_decides(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=HOUR, verify="quorum:3")
    await run_on_all(hub, nodes, 10_000, RAN_MS, 0)
    assert await attempts_of(sam, job_id, "charge") == [
        charge_of(PRICE, ms) for ms in (10_000, 2 * 10_000 + GRACE_MS, 0)
    ]


async def test_a_friend_of_the_submitter_cannot_reduce_a_nodes_pay(hub: HubDouble) -> None:
    """By asking for nodes that only the friend has, one of which claims that the job took no time."""
    sam, _ = await crowd(hub, 6)
    pair = [
        await hub.node(await hub.account(f"friend{number}", "provider"), name=f"f{number}", tags=["pair"])
        for number in range(2)
    ]
    [job_id] = await submit(sam, spec=HOUR, needs={"tags": ["pair"]})
    await run_on_all(hub, pair, RAN_MS, 0)
    assert await attempts_of(sam, job_id, "charge") == [charge_of(PRICE, RAN_MS), 0]


async def undrawn(
    hub: HubDouble, sam: httpx2.AsyncClient, nodes: list[NodeDouble], *, saves: bool
) -> tuple[str, NodeDouble, str]:
    """A job at a node whose result is not drawn for a check, as one in twenty is. `saves`: it resumed from a checkpoint."""
    for _ in range(50):
        spec = {"timeout_s": 120, "checkpoints": saves}
        [job_id] = await submit(sam, spec=spec, verify="adaptive")
        node, attempt_id = await placed(nodes)
        for each in nodes:
            hub.hub.nodes.registry.fleet.set_integrity(each.node_id, streak=10_000, banned=False)
        if saves:
            assert (await saved(node, attempt_id, b"state"))["kept"]
            await node.report(attempt_id, outcome="returned", reason="given_back", exit_code=None)
            advance(hub, 1_000)
            node, attempt_id = await placed(nodes)
        if not sampling.draw(hub.hub, node.node_id, [attempt_id]).drawn:
            return job_id, node, attempt_id
        await sam.post(f"/jobs/{job_id}/cancel")
        await node.report(attempt_id, outcome="cancelled", reason="cancelled_by_user")
    raise AssertionError("all of them were drawn")


@pytest.mark.parametrize("saves", [False, True], ids=["whole", "continued"])
async def test_a_run_far_longer_than_earlier_runs_is_checked(hub: HubDouble, saves: bool) -> None:
    sam, nodes = await crowd(hub, 3)
    for is_known in (False, True):
        job_id, node, attempt_id = await undrawn(hub, sam, nodes, saves=saves)
        for _ in range(5 * is_known):
            spec = node.holding[attempt_id].spec
            hub.hub.settlement.run_times = hub.hub.settlement.run_times.with_run(spec, Timed(ms=1_000))
        advance(hub, 110_000, node)
        assert await node.report(attempt_id, ran_ms=100_000, result='"right"') == "accepted"
        assert await is_being_checked(sam, job_id) == is_known
    await answer(hub, others(nodes, node), ran_ms=1_000)
    assert (await job(sam, job_id))["verdict"] == "confirmed"
    charges = [each for each in await attempts_of(sam, job_id, "charge") if each is not None]
    assert charges[-2:] == [charge_of(PRICE, 2 * 1_000 + GRACE_MS), charge_of(PRICE, 1_000)]
