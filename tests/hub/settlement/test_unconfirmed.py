"""Results that are due for a check which nobody can do now: who waits, who gets the result, and when it is paid."""

from __future__ import annotations

import httpx2
import pytest

from computepool.core.money import ledger
from computepool.core.money.pricing import charge_of
from computepool.core.trust.discounting import DAY_MS
from computepool.hub.money import credits as credit_service
from computepool.hub.nodes import known_nodes
from computepool.hub.scheduling import housekeeping, leases
from computepool.hub.settlement.verification import unconfirmed
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.settlement.test_verification import CHARGE, GRANT, PAY, RAN_MS, answer, is_being_checked
from tests.hub.submitting import job, submit
from tests.hub.working import HOUR, PRICE, balance, balances_of, crowd

FAULT = {"outcome": "failed", "reason": "node_restarted", "exit_code": None}


hub = hub_fixture(on=BOTH, signup_grant=GRANT, tick_s=10_000, mature_s=10_000, verify="adaptive", breaker_faults=1)


def advance(hub: HubDouble, ms: float) -> None:
    hub.hub.clock.advance(round(ms))  # type: ignore[attr-defined]


async def cool_off(sam: httpx2.AsyncClient, nodes: list[NodeDouble]) -> None:
    for node in nodes:
        [job_id] = await submit(sam, needs={"host": node.node_id})
        [grant] = await node.take()
        await node.report(grant.attempt_id, **FAULT)
        assert (await sam.post(f"/jobs/{job_id}/cancel")).status_code == 200


async def earning(hub: HubDouble, node: NodeDouble) -> tuple[int, int]:
    """Of its owner: maturing, and matured."""
    owner = (await hub.admin.get(f"/nodes/{node.node_id}")).json()["owner"]
    return await balance(hub, ledger.earn(owner)), await balance(hub, ledger.owner(owner))


async def check_held(hub: HubDouble, nodes: list[NodeDouble], *, runs: int, ran_ms: int = RAN_MS) -> None:
    """Whatever is held is run again, by these nodes, which are right."""
    for node in nodes:
        node.sign_in()
        await node.poll(wait_ms=0)
    await unconfirmed.start_checks(hub.hub)
    for _ in range(runs):
        await answer(hub, nodes, ran_ms=ran_ms)


async def test_a_cheat_is_not_paid_because_everybody_else_cools_off(hub: HubDouble) -> None:
    sam, [cheat, *honest] = await crowd(hub, 3)
    await cool_off(sam, honest)
    before = (await balances_of(hub, sam))[0]
    [job_id] = await submit(sam, spec=HOUR)
    await answer(hub, [cheat], result='"wrong"')
    assert await is_being_checked(sam, job_id), "who rests now can check it later"
    advance(hub, hub.hub.settings.verify_wait_s * 1000 + 1)
    await unconfirmed.accept(hub.hub)
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "alone", CHARGE)
    advance(hub, 8 * DAY_MS)
    await credit_service.mature(hub.hub)
    assert await earning(hub, cheat) == (PAY, 0), "it is held, however long it has waited"
    await check_held(hub, honest, runs=2)
    done = await job(sam, job_id)
    assert (done["verdict"], done["taken_back"]) == ("refuted", CHARGE)
    assert (await balances_of(hub, sam))[0] == before
    advance(hub, 40 * DAY_MS)
    await credit_service.mature(hub.hub)
    assert await earning(hub, cheat) == (0, 0)


async def test_the_only_lender_is_paid_when_somebody_else_has_confirmed_it(hub: HubDouble) -> None:
    sam, [first] = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=HOUR)
    await answer(hub, [first])
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "alone", CHARGE), "at once"
    advance(hub, 8 * DAY_MS)
    await credit_service.mature(hub.hub)
    assert await earning(hub, first) == (PAY, 0)
    assert not await unconfirmed.start_checks(hub.hub), "nobody could run it"
    owner = await hub.account("late", "provider")
    second = await hub.node(owner, name="second")
    await check_held(hub, [second], runs=1)
    assert (await job(sam, job_id))["verdict"] == "confirmed"
    await credit_service.mature(hub.hub)
    assert await earning(hub, first) == (0, PAY)
    assert (await hub.admin.get(f"/nodes/{first.node_id}")).json()["reputation"]["streak"] == 1


async def test_who_held_a_trivial_job_while_nobody_else_was_there_is_paid_as_if_it_had_not(hub: HubDouble) -> None:
    sam, [padder] = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=HOUR)
    await answer(hub, [padder])
    second = await hub.node(await hub.account("late", "provider"), name="second")
    await check_held(hub, [second], runs=1, ran_ms=0)
    fair = charge_of(PRICE, 2_000)
    done = await job(sam, job_id)
    assert (done["verdict"], done["charge"], done["taken_back"]) == ("confirmed", CHARGE, CHARGE - fair)
    assert (await balances_of(hub, sam))[0] == GRANT - fair
    assert "in far less time" in (await sam.get(f"/jobs/{job_id}/cost")).json()["sentence"]
    advance(hub, 8 * DAY_MS)
    await credit_service.mature(hub.hub)
    assert await earning(hub, padder) == (0, fair * 8 // 10)
    seen = (await hub.admin.get(f"/nodes/{padder.node_id}")).json()["reputation"]
    assert (seen["streak"], seen["violation_count"]) == (0, 0)


async def test_an_honest_time_is_paid_whole_when_it_is_confirmed_later(hub: HubDouble) -> None:
    sam, [first] = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=HOUR)
    await answer(hub, [first])
    second = await hub.node(await hub.account("late", "provider"), name="second")
    await check_held(hub, [second], runs=1, ran_ms=RAN_MS * 6 // 10)
    assert (await job(sam, job_id))["taken_back"] is None
    advance(hub, 8 * DAY_MS)
    await credit_service.mature(hub.hub)
    assert await earning(hub, first) == (0, PAY)


async def test_what_nobody_ever_checks_is_paid_in_the_end_and_delays_nothing_else(hub: HubDouble) -> None:
    sam, [node] = await crowd(hub, 1)
    held = await submit(sam, spec=HOUR)
    await answer(hub, [node])
    plain = await submit(sam, spec=HOUR, verify="none")
    await answer(hub, [node])
    assert [(await job(sam, id_))["verdict"] for id_ in held + plain] == ["alone", "unchecked"]
    shown = (await hub.admin.get("/credits", params={"account_id": await owner_of(hub, node)})).json()
    assert (shown["maturing"], shown["unconfirmed"]) == (2 * PAY, PAY)
    advance(hub, 8 * DAY_MS)
    await credit_service.mature(hub.hub)
    assert await earning(hub, node) == (PAY, PAY), "only the one that was to be checked waits"
    advance(hub, hub.hub.settings.unconfirmed_days * DAY_MS)
    await credit_service.mature(hub.hub)
    assert await earning(hub, node) == (0, 2 * PAY)
    await credit_service.mature(hub.hub)
    assert await earning(hub, node) == (0, 2 * PAY), "once"


async def test_what_was_found_on_the_network_is_not_looked_for_again(hub: HubDouble) -> None:
    """It may be another page by then, and its node was right."""
    sam, _ = await crowd(hub, 0)
    first = await hub.node(await hub.account("first", "provider"), name="first", network=True)
    [job_id] = await submit(sam, spec=HOUR | {"net": ["example.org:443"]})
    await answer(hub, [first])
    assert (await job(sam, job_id))["verdict"] == "alone"
    second = await hub.node(await hub.account("late", "provider"), name="second", network=True)
    await check_held(hub, [second], runs=0)
    assert not (await second.poll(wait_ms=0)).grants
    advance(hub, hub.hub.settings.unconfirmed_days * DAY_MS + 1)
    await credit_service.mature(hub.hub)
    assert await earning(hub, first) == (0, PAY)


async def owner_of(hub: HubDouble, node: NodeDouble) -> str:
    return str((await hub.admin.get(f"/nodes/{node.node_id}")).json()["owner"])


async def test_a_node_that_went_away_a_moment_ago_could_still_check(hub: HubDouble) -> None:
    """So could one that polls another hub: the store knows both."""
    sam, [stays, leaves] = await crowd(hub, 2)
    advance(hub, 10 * 60_000)
    stays.sign_in()
    await stays.poll(wait_ms=0)
    await housekeeping.drop_silent(hub.hub)
    assert hub.hub.nodes.registry.get(leaves.node_id) is None
    [job_id] = await submit(sam, spec=HOUR)
    await answer(hub, [stays])
    assert await is_being_checked(sam, job_id)
    [pinned] = await submit(sam, spec=HOUR, needs={"host": stays.node_id})
    await answer(hub, [stays])
    assert (await job(sam, pinned))["verdict"] == "alone", "nobody else could ever run it"
    assert len(hub.hub.nodes.elsewhere.fleet) == 1
    advance(hub, hub.hub.settings.verify_known_s * 1000 + 1)
    await known_nodes.refresh(hub.hub)
    assert len(hub.hub.nodes.elsewhere.fleet) == 0, "it is not waited for any more"


async def violation_count(hub: HubDouble, nodes: list[NodeDouble]) -> list[int]:
    seen = [(await hub.admin.get(f"/nodes/{node.node_id}")).json() for node in nodes]
    return [node["reputation"]["violation_count"] for node in seen]


async def disagree(hub: HubDouble, sam: httpx2.AsyncClient, nodes: list[NodeDouble]) -> tuple[str, NodeDouble]:
    """Two owners come to different results. The job, and whose node was first."""
    [job_id] = await submit(sam, spec=HOUR)
    first = await answer(hub, nodes, result='"1"')
    await answer(hub, [node for node in nodes if node is not first], result='"2"')
    return job_id, first


async def test_a_tie_that_nobody_could_break_is_ended_at_once(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id, first = await disagree(hub, sam, nodes)
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["node_id"]) == ("succeeded", "alone", first.node_id)
    assert "came to a different result" in done["status"]
    assert (await sam.get(f"/jobs/{job_id}/result")).json()["result"] == '"1"'
    assert await violation_count(hub, nodes) == [0, 0], "nobody can tell who was wrong, if anybody"
    assert await earning(hub, first) == (PAY, 0)
    assert not await unconfirmed.start_checks(hub.hub), "the second would only say the same again"


async def test_a_third_owner_breaks_the_tie_later(hub: HubDouble) -> None:
    """The first was wrong: it is not paid in the end, and has a violation."""
    sam, nodes = await crowd(hub, 2)
    job_id, first = await disagree(hub, sam, nodes)
    [second] = [node for node in nodes if node is not first]
    third = await hub.node(await hub.account("third", "provider"), name="third")
    await third.poll(wait_ms=0)
    await unconfirmed.start_checks(hub.hub)
    await answer(hub, [third], result='"2"')
    await answer(hub, [second], result='"2"')
    done = await job(sam, job_id)
    assert (done["verdict"], done["taken_back"]) == ("refuted", CHARGE)
    assert await violation_count(hub, [first, second, third]) == [1, 0, 0]


async def test_a_tie_waits_where_a_third_owner_could_break_it(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    await cool_off(sam, nodes[2:])
    job_id, _ = await disagree(hub, sam, nodes[:2])
    assert await is_being_checked(sam, job_id)


@pytest.mark.soak
async def test_a_program_whose_results_tie_again_and_again_is_not_run_twice(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    for _ in range(hub.hub.settings.verify_ties_max):
        await disagree(hub, sam, nodes)
    [alone] = await submit(sam, spec=HOUR)
    await answer(hub, nodes, result='"3"')
    assert (await job(sam, alone))["verdict"] == "alone", "its pay is held all the same"
    assert not await unconfirmed.start_checks(hub.hub)
    [other] = await submit(sam, spec=HOUR | {"name": "other"})
    first = await answer(hub, nodes)
    assert await is_being_checked(sam, other), "another program"
    await answer(hub, [node for node in nodes if node is not first])
    nodes.append(await hub.node(await hub.account("third", "provider"), name="third"))
    await nodes[-1].poll(wait_ms=0)
    [checked] = await submit(sam, spec=HOUR)
    first = await answer(hub, nodes[:2])
    assert await is_being_checked(sam, checked), "now somebody could break a tie"
    await answer(hub, [node for node in nodes if node is not first])
    assert (await job(sam, checked))["verdict"] == "confirmed"


async def test_a_late_result_that_only_its_host_could_make_is_given_out_at_once(hub: HubDouble) -> None:
    sam, [host, _other] = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR, needs={"host": host.node_id})
    [grant] = await host.take()
    advance(hub, 10 * 60_000)
    host.sign_in()
    await housekeeping.drop_silent(hub.hub)
    await leases.expire_overdue(hub.hub)
    assert (await job(sam, job_id))["state"] == "queued"
    assert await host.report(grant.attempt_id, ran_ms=RAN_MS) == "accepted_late"
    assert (await job(sam, job_id))["verdict"] == "alone"


async def test_why_says_when_a_waiting_result_is_accepted(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    await cool_off(sam, nodes[2:])
    job_id, _ = await disagree(hub, sam, nodes[:2])
    advance(hub, 60_000)
    why = (await sam.get(f"/jobs/{job_id}/why")).json()
    assert "If none does, it is accepted in 9 minutes." in why["sentence"]
    assert "2 results, which do not decide" in why["sentence"]
    assert not why["unsatisfiable"]
    wanted = {"verify": "quorum:2", "ttl_s": 7_200, "needs": {"exclude_hosts": [nodes[1].node_id]}}
    [strict] = await submit(sam, spec=HOUR, **wanted)
    await answer(hub, nodes[:1])
    why = (await sam.get(f"/jobs/{strict}/why")).json()
    assert why["sentence"].startswith("It has a result, which another owner's node must confirm.")
    assert "ends without a result in 2 hours." in why["sentence"]
