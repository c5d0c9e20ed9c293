"""Results that are checked: by whom, which one counts, who is paid and who is penalised, through the real API."""

from __future__ import annotations

import httpx2
import pytest

from computepool.cli.job import receipt_check
from computepool.core.money import ledger
from computepool.hub.scheduling import leases
from computepool.hub.settlement.verification import sampling, unconfirmed
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.cast import upload
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import body, job, submit
from tests.hub.verifying import (
    CHARGE,
    GRANT,
    PAY,
    RAN_MS,
    VARYING,
    advance,
    answer,
    answers,
    attempts_of,
    is_being_checked,
    logged,
    owner_of,
    piece,
    placed,
    printing,
    prints,
    reputation,
    violations,
)
from tests.hub.working import CEILING, HOUR, balance, balances_of, crowd, got, others

hub = hub_fixture(on=BOTH, signup_grant=GRANT, tick_s=10_000, verify="adaptive")


async def test_a_newcomers_result_is_confirmed_by_another_owner_and_both_are_paid(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    reply = (await sam.post("/jobs", json=body(spec=HOUR))).json()
    [job_id] = reply["job_ids"]
    assert (reply["verify"], reply["hold"]) == ("adaptive", 2 * CEILING)
    first = await answer(hub, nodes)
    assert await is_being_checked(sam, job_id)
    assert (await sam.get(f"/jobs/{job_id}/result")).status_code == 409, "the result is not shown before it is believed"
    assert not (await first.poll(wait_ms=0)).grants, "no owner confirms their own result"
    await answer(hub, others(nodes, first))
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "confirmed", 2 * CHARGE)
    assert (done["node_id"], await attempts_of(sam, job_id, "charge")) == (first.node_id, [CHARGE, CHARGE])
    assert await balances_of(hub, sam) == (GRANT - 2 * CHARGE, 0, 0)
    for node in nodes:
        assert (await reputation(sam, node))["streak"] == 1
        assert await balance(hub, ledger.earn(await owner_of(sam, node))) == PAY

    cost = await got(sam, f"/jobs/{job_id}/cost")
    assert (cost["total"], cost["runs"], cost["charge"]) == (2 * CHARGE, 2, CHARGE)
    assert "confirmed on 1 more node" in cost["sentence"]
    receipt = await got(sam, f"/jobs/{job_id}/receipt")
    assert all(said.ok for said in receipt_check.check(receipt, trusted={}))
    assert len(receipt["receipt"]["confirmed_by"]) == 1
    receipt["receipt"]["confirmed_by"] = []
    assert not all(said.ok for said in receipt_check.check(receipt, trusted={}))


async def test_a_node_with_a_wrong_result_is_penalised_and_not_paid(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=HOUR)
    liar, second = await answers(hub, nodes, ['"wrong"', '"right"'])
    assert await is_being_checked(sam, job_id)
    await answer(hub, others(nodes, liar, second))
    done = await job(sam, job_id)
    assert (done["verdict"], done["charge"], done["node_id"]) == ("confirmed", 2 * CHARGE, second.node_id)
    assert await attempts_of(sam, job_id, "state") == ["refuted", "succeeded", "succeeded"]
    assert (await got(sam, f"/jobs/{job_id}/result"))["result"] == '"right"'
    known = await reputation(sam, liar)
    assert (known["streak"], known["violation_count"]) == (0, 1)
    assert await balance(hub, ledger.earn(await owner_of(sam, liar))) == 0


async def test_a_banned_node_gets_no_jobs_of_others(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    liar = nodes[0]
    hub.hub.nodes.registry.fleet.set_integrity(liar.node_id, streak=0, banned=True)
    [job_id] = await submit(sam, needs={"host": liar.node_id})
    why = await got(sam, f"/jobs/{job_id}/why")
    assert "integrity" in {gate["gate"] for gate in why["gates"] if gate["failing"]}
    assert not (await liar.poll(wait_ms=0)).grants


@pytest.mark.soak
async def test_an_owner_with_several_nodes_reports_only_one_result(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    pia, otto = await hub.account("pia", "provider"), await hub.account("otto", "provider")
    pias = [await hub.node(pia, name=f"pia{number}") for number in range(3)]
    ottos = await hub.node(otto, name="otto")
    [job_id] = await submit(sam, spec=HOUR)
    first = await answer(hub, [*pias, ottos])
    if first in pias:
        for node in others(pias, first):
            assert not (await node.poll(wait_ms=0)).grants
    await answer(hub, [ottos] if first in pias else pias)
    assert (await job(sam, job_id))["verdict"] == "confirmed"


async def test_a_result_of_the_submitters_own_node_is_believed(hub: HubDouble) -> None:
    pia = await hub.account("pia", "submitter", "provider")
    own = await hub.node(pia, name="own", tags=["mine"])
    await hub.node(await hub.account("otto", "provider"), name="other", tags=["mine"])
    [job_id] = await submit(pia, spec=HOUR, max_price=0)
    await answer(hub, [own])
    assert (await job(pia, job_id))["verdict"] == "own"


async def test_a_result_that_no_node_comes_to_check_is_believed_after_a_while(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    first, attempt_id = await placed(nodes)
    [second] = others(nodes, first)
    await submit(sam, needs={"host": second.node_id, "cores": 4})
    await placed([second])  # it is busy
    advance(hub, 600_000, first)
    assert await first.report(attempt_id, ran_ms=RAN_MS) == "accepted"
    waiting = await job(sam, job_id)
    assert (waiting["state"], waiting["reason"]) == ("queued", "verifying")
    assert "another owner" in waiting["status"]
    await unconfirmed.accept(hub.hub)
    assert (await job(sam, job_id))["state"] != "succeeded", "the wait has only begun"
    advance(hub, hub.hub.settings.verify_wait_s * 1000 + 1)
    await unconfirmed.accept(hub.hub)
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "alone", CHARGE)


async def test_a_program_whose_results_always_differ_is_nobodys_fault(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 6)
    [job_id] = await submit(sam, spec=HOUR)
    used = await answers(hub, nodes, VARYING)
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "varies", 2 * CHARGE)
    assert (await got(sam, f"/jobs/{job_id}/result"))["result"] == '"0"'
    assert await violations(sam, used) == [0] * 5
    [again] = await submit(sam, spec=HOUR)
    await answer(hub, nodes, result='"9"')
    assert (await job(sam, again))["verdict"] == "unchecked", "this submitter's next result is not checked"
    sue = await hub.account("sue", "submitter")
    [hers] = await submit(sue, spec=HOUR)
    await answers(hub, nodes, ['"right"'] * 2)
    assert (await job(sue, hers))["verdict"] == "confirmed", "another submitter's is"


@pytest.mark.soak
async def test_a_quorum_that_is_not_reached_leaves_no_result(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 6)
    reply = (await sam.post("/jobs", json=body(spec=HOUR, verify="quorum:3"))).json()
    assert reply["hold"] == 3 * CEILING
    await answers(hub, nodes, [f'"{number % 3}"' for number in range(5)])
    failed = await job(sam, reply["job_ids"][0])
    assert (failed["state"], failed["reason"], failed["charge"]) == ("failed", "results_differ", 0)
    assert "--compare" in failed["status"]
    assert await balances_of(hub, sam) == (GRANT, 0, 0)


async def test_all_nodes_of_a_quorum_are_paid(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 4)
    [job_id] = await submit(sam, spec=HOUR, verify="quorum:3")
    await answers(hub, nodes, ['"right"', '"wrong"', '"right"', '"right"'])
    done = await job(sam, job_id)
    assert (done["verdict"], done["charge"]) == ("confirmed", 3 * CHARGE)
    assert await attempts_of(sam, job_id, "charge") == [CHARGE, None, CHARGE, CHARGE]


@pytest.mark.soak
async def test_confidence_takes_as_many_runs_as_it_needs(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 4)
    reply = (await sam.post("/jobs", json=body(spec=HOUR, confidence=0.999))).json()
    assert (reply["verify"], reply["hold"]) == ("confidence:0.999", 3 * CEILING)
    used: list[NodeDouble] = []
    for _ in range(3):
        assert (await job(sam, reply["job_ids"][0]))["state"] != "succeeded"
        used.append(await answer(hub, others(nodes, *used)))
    assert (await job(sam, reply["job_ids"][0]))["verdict"] == "confirmed"
    [known] = await submit(sam, spec=HOUR, confidence=0.99)
    await answers(hub, nodes, ['"right"'] * 2)
    assert (await job(sam, known))["state"] == "succeeded"


async def test_a_strict_job_that_nobody_confirms_expires_without_a_charge(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=HOUR, verify="quorum:2", ttl_s=7200)
    await answer(hub, nodes)
    why = await got(sam, f"/jobs/{job_id}/why")
    assert "already run it" in why["sentence"] or any(gate["gate"] == "other_owner" for gate in why["gates"])
    advance(hub, 7_200_001)
    await unconfirmed.accept(hub.hub)
    await leases.expire_overdue(hub.hub)
    ended = await job(sam, job_id)
    assert (ended["state"], ended["reason"], ended["charge"]) == ("expired", "not_confirmed", 0)
    assert await balances_of(hub, sam) == (GRANT, 0, 0)


@pytest.mark.soak
async def test_files_and_printed_text_are_part_of_a_result(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 4)
    [job_id] = await submit(sam, spec=HOUR)
    first = await prints(nodes, "a")
    second = await prints(others(nodes, first), "b")
    third, attempt_id = await placed(others(nodes, first, second))
    digest = await upload(third.client, b"a file")
    files = [{"name": "out.txt", "digest": digest, "size": 6}]
    report = third.make_report(attempt_id, outputs=files, **printing("a"))
    assert await third.report_all([report], logs=[piece(attempt_id, "a")]) == ["accepted"]
    assert await is_being_checked(sam, job_id), "three different results so far"
    await prints(others(nodes, first, second, third), "a")
    done = await job(sam, job_id)
    assert (done["node_id"], done["outputs"]) == (first.node_id, [])
    assert await attempts_of(sam, job_id, "state") == ["succeeded", "refuted", "refuted", "succeeded"]


async def test_a_file_of_a_result_is_readable_only_after_the_verdict(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    first, attempt_id = await placed(nodes)
    digest = await upload(first.client, b"a file")
    files = [{"name": "out.txt", "digest": digest, "size": 6}]
    assert await first.report(attempt_id, outputs=files) == "accepted"
    assert (await sam.get(f"/artifacts/{digest}")).status_code == 404
    [second] = others(nodes, first)
    _, attempt_id = await placed([second])
    await upload(second.client, b"a file")
    assert await second.report(attempt_id, outputs=files) == "accepted"
    assert (await job(sam, job_id))["outputs"][0]["name"] == "out.txt"
    assert (await sam.get(f"/artifacts/{digest}")).content == b"a file"


async def test_output_of_runs_that_only_confirm_is_not_shown(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=HOUR, verify="quorum:2")
    first = await prints(nodes, "wrong\n")
    assert await logged(sam, job_id) == "wrong\n", "live output is shown as it arrives"
    second = await prints(others(nodes, first), "right\n")
    assert await logged(sam, job_id) == "wrong\n"
    await prints(others(nodes, first, second), "right\n")
    assert (await job(sam, job_id))["verdict"] == "confirmed"
    assert await logged(sam, job_id) == "right\n"


@pytest.mark.soak
async def test_jobs_of_one_submitter_put_no_node_on_probation(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)

    async def lie(client: httpx2.AsyncClient) -> None:
        """About one more job of this submitter, for which the first node is preferred."""
        [job_id] = await submit(client, spec=HOUR, needs={"prefer_tags": ["n0"]})
        used: list[NodeDouble] = []
        while (await job(client, job_id))["state"] != "succeeded":
            node, attempt_id = await placed(others(nodes, *used))
            used.append(node)
            await node.report(attempt_id, result='"wrong"' if node is nodes[0] else '"right"')

    for _ in range(4):
        await lie(sam)
    known = await reputation(sam, nodes[0])
    assert (known["violation_count"], known["probation_at_ms"], known["streak"]) == (4, None, 0)
    await lie(await hub.account("sue", "submitter"))
    known = await reputation(sam, nodes[0])
    assert (known["probation_at_ms"] is not None, known["banned_at_ms"]) == (True, None)


async def test_if_the_check_fails_the_first_result_is_given_out(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    first = await answer(hub, nodes)
    second, attempt_id = await placed(others(nodes, first))
    failed = {"outcome": "failed", "reason": "exit_nonzero", "exit_code": 3}
    assert await second.report(attempt_id, **failed) == "accepted"
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "alone", CHARGE)


async def test_a_job_cancelled_while_it_is_checked_costs_nothing(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    await answer(hub, nodes)
    assert (await sam.post(f"/jobs/{job_id}/cancel")).json()["state"] == "cancelled"
    assert await balances_of(hub, sam) == (GRANT, 0, 0)


async def test_a_quote_includes_the_runs_for_verification(hub: HubDouble) -> None:
    sam, _ = await crowd(hub, 2)
    quote = (await sam.post("/quotes", json={"timeout_s": 3600, "verify": "quorum:3"})).json()
    assert (quote["runs"], quote["hold_each"]) == (3, 3 * CEILING)
    assert any("up to 3 runs" in sentence for sentence in quote["sentences"])
    quote = (await sam.post("/quotes", json={"timeout_s": 3600})).json()
    assert quote["verify"] == "adaptive"
    assert any("--verify none" in sentence for sentence in quote["sentences"])
    quote = (await sam.post("/quotes", json={"timeout_s": 3600, "verify": "none"})).json()
    assert (quote["runs"], quote["hold_each"]) == (1, CEILING)


@pytest.mark.parametrize("wanted", [{"verify": "quorum:9"}, {"verify": "twice"}, {"confidence": 1.5}])
async def test_an_unknown_verification_is_refused(hub: HubDouble, wanted: dict[str, object]) -> None:
    assert (await hub.admin.post("/jobs", json=body(spec=HOUR) | wanted)).status_code == 422


async def test_results_of_a_well_known_node_are_checked_now_and_then(hub: HubDouble) -> None:
    """About one in ten after ten confirmed results. The draw is secret and uniform."""
    ids = [f"job_{number}-1" for number in range(4_000)]
    _, [node] = await crowd(hub, 1)
    fleet = hub.hub.nodes.registry.fleet
    assert len(sampling.draw(hub.hub, node.node_id, ids).drawn) == 4_000
    fleet.set_integrity(node.node_id, streak=10, banned=False)
    assert 320 < len(sampling.draw(hub.hub, node.node_id, ids).drawn) < 480
    fleet.set_integrity(node.node_id, streak=10_000, banned=False)
    assert 140 < len(sampling.draw(hub.hub, node.node_id, ids).drawn) < 260


async def test_items_that_raised_are_counted_once_the_result_is_confirmed(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    group = (await sam.post("/groups", json={"name": "map"})).json()["id"]
    wanted = body(spec=HOUR) | {"verify": "quorum:2", "items": [{"bundled": 10}], "group_id": group}
    assert (await sam.post("/jobs", json=wanted)).status_code == 201
    for _ in nodes:
        await answer(hub, nodes, items_failed=4)
    assert (await got(sam, f"/groups/{group}"))["counts"] == {"succeeded": 6, "failed": 4}
