"""Results that are checked: by whom, which one counts, who is paid and who is penalised, through the real API."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx2
import pytest

from computepool.cli.job import receipt_check
from computepool.core.money import ledger
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import charge_of
from computepool.hub.scheduling import leases
from computepool.hub.settlement.verification import sampling, unconfirmed
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.cast import upload
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.money.test_holds import CEILING, HOUR, PRICE, balance, purses
from tests.hub.submitting import body, job, submit
from tests.hub.working import crowd, granted, others

GRANT = 1_000 * CREDIT
RAN_MS = 540_000
CHARGE = charge_of(PRICE, RAN_MS)
PAY = CHARGE * 8 // 10


hub = hub_fixture(on=BOTH, signup_grant=GRANT, tick_s=10_000, verify="adaptive")


async def placed(nodes: list[NodeDouble]) -> tuple[NodeDouble, str]:
    node, grant = await granted(nodes)
    return node, grant.attempt_id


async def answer(hub: HubDouble, nodes: list[NodeDouble], **said: Any) -> NodeDouble:
    """The next node that is given the job says this."""
    node, attempt_id = await placed(nodes)
    hub.hub.clock.advance(600_000)  # type: ignore[attr-defined]
    node.sign_in()
    assert await node.report(attempt_id, **{"ran_ms": RAN_MS, "result": '"right"'} | said) == "accepted"
    return node


async def is_being_checked(client: httpx2.AsyncClient, job_id: str) -> bool:
    """It has a result, is not finished, and waits for somebody else or is with him."""
    told = (await client.get("/events", params={"job_id": job_id})).json()["events"]
    reasons = {event["reason"] for event in told}
    return (await job(client, job_id))["state"] in ("queued", "leased") and "verifying" in reasons


async def test_a_newcomers_result_is_confirmed_by_another_owner_and_both_are_paid(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    reply = (await sam.post("/jobs", json=body(spec=HOUR))).json()
    [job_id] = reply["job_ids"]
    assert (reply["verify"], reply["hold"]) == ("adaptive", 2 * CEILING)
    first = await answer(hub, nodes)
    assert await is_being_checked(sam, job_id)
    assert (await sam.get(f"/jobs/{job_id}/result")).status_code == 409, (
        "nobody sees what is not believed yet"
    )
    assert not (await first.poll(wait_ms=0)).grants, "nobody confirms himself"
    await answer(hub, others(nodes, first))
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "confirmed", 2 * CHARGE)
    assert (done["node_id"], [try_["charge"] for try_ in done["tries"]]) == (first.node_id, [CHARGE, CHARGE])
    assert await purses(hub, sam) == (GRANT - 2 * CHARGE, 0, 0)
    for node in nodes:
        seen = (await sam.get(f"/nodes/{node.node_id}")).json()
        assert seen["reputation"]["streak"] == 1
        assert await balance(hub, ledger.earn(seen["owner"])) == PAY
    await _is_told_and_proven(sam, job_id)


async def _is_told_and_proven(sam: httpx2.AsyncClient, job_id: str) -> None:
    cost = (await sam.get(f"/jobs/{job_id}/cost")).json()
    assert (cost["total"], cost["runs"], cost["charge"]) == (2 * CHARGE, 2, CHARGE)
    assert "confirmed on 1 more node" in cost["sentence"]
    receipt = (await sam.get(f"/jobs/{job_id}/receipt")).json()
    assert all(said.ok for said in receipt_check.check(receipt, trusted={}))
    assert len(receipt["receipt"]["confirmed_by"]) == 1
    receipt["receipt"]["confirmed_by"] = []
    assert not all(said.ok for said in receipt_check.check(receipt, trusted={}))


async def test_who_was_wrong_is_penalised_and_not_paid(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=HOUR)
    liar = await answer(hub, nodes, result='"wrong"')
    second = await answer(hub, others(nodes, liar))
    assert await is_being_checked(sam, job_id)
    await answer(hub, others(nodes, liar, second))
    done = await job(sam, job_id)
    assert (done["verdict"], done["charge"], done["node_id"]) == ("confirmed", 2 * CHARGE, second.node_id)
    assert [try_["state"] for try_ in done["tries"]] == ["refuted", "succeeded", "succeeded"]
    assert (await sam.get(f"/jobs/{job_id}/result")).json()["result"] == '"right"'
    seen = (await sam.get(f"/nodes/{liar.node_id}")).json()
    assert (seen["reputation"]["streak"], seen["reputation"]["violation_count"]) == (0, 1)
    assert await balance(hub, ledger.earn(seen["owner"])) == 0


async def test_a_banned_node_gets_no_jobs_of_others(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    liar = nodes[0]
    hub.hub.nodes.registry.fleet.set_integrity(liar.node_id, streak=0, banned=True)
    [job_id] = await submit(sam, needs={"host": liar.node_id})
    why = (await sam.get(f"/jobs/{job_id}/why")).json()
    assert "integrity" in {gate["gate"] for gate in why["gates"] if gate["failing"]}
    assert not (await liar.poll(wait_ms=0)).grants


async def _one_more_job(sam: httpx2.AsyncClient, nodes: list[NodeDouble]) -> None:
    """About which the first node lies: it is preferred."""
    [job_id] = await submit(sam, spec=HOUR, needs={"prefer_tags": ["n0"]})
    used: list[NodeDouble] = []
    while (await job(sam, job_id))["state"] != "succeeded":
        node, attempt_id = await placed(others(nodes, *used))
        used.append(node)
        await node.report(attempt_id, result='"wrong"' if node is nodes[0] else '"right"')


@pytest.mark.soak
async def test_one_owner_has_one_word_however_many_nodes(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    pia, otto = await hub.account("pia", "provider"), await hub.account("otto", "provider")
    pias = [await hub.node(pia, name=f"pia{number}") for number in range(3)]
    ottos = await hub.node(otto, name="otto")
    [job_id] = await submit(sam, spec=HOUR)
    first = await answer(hub, [*pias, ottos])
    rest = [ottos] if first in pias else pias
    if first in pias:
        for node in others(pias, first):
            assert not (await node.poll(wait_ms=0)).grants
    await answer(hub, rest)
    assert (await job(sam, job_id))["verdict"] == "confirmed"


async def test_an_own_node_is_believed(hub: HubDouble) -> None:
    pia = await hub.account("pia", "submitter", "provider")
    otto = await hub.account("otto", "provider")
    own = await hub.node(pia, name="own", tags=["mine"])
    await hub.node(otto, name="other", tags=["mine"])
    [job_id] = (await pia.post("/jobs", json=body(spec=HOUR) | {"max_price": 0})).json()["job_ids"]
    await answer(hub, [own])
    assert (await job(pia, job_id))["verdict"] == "own"


async def test_where_nobody_else_could_check_the_result_is_believed_at_once(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=HOUR)
    await answer(hub, nodes)
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "alone", CHARGE)
    assert await purses(hub, sam) == (GRANT - CHARGE, 0, 0)


async def test_where_nobody_comes_to_check_the_result_is_believed_after_a_while(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    first, attempt_id = await placed(nodes)
    [second] = others(nodes, first)
    await submit(sam, needs={"host": second.node_id, "cores": 4})
    await placed([second])  # it is busy
    hub.hub.clock.advance(600_000)  # type: ignore[attr-defined]
    first.sign_in()
    assert await first.report(attempt_id, ran_ms=RAN_MS) == "accepted"
    waiting = await job(sam, job_id)
    assert (waiting["state"], waiting["reason"]) == ("queued", "verifying")
    assert "another owner" in waiting["status"]
    await unconfirmed.accept(hub.hub)
    assert (await job(sam, job_id))["state"] != "succeeded", "the wait has only begun"
    hub.hub.clock.advance(round(hub.hub.settings.verify_wait_s * 1000) + 1)  # type: ignore[attr-defined]
    await unconfirmed.accept(hub.hub)
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "alone", CHARGE)


async def test_results_that_always_differ_are_nobodys_fault(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 6)
    [job_id] = await submit(sam, spec=HOUR)
    used: list[NodeDouble] = []
    for number in range(5):
        used.append(await answer(hub, others(nodes, *used), result=f'"{number}"'))
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "varies", 2 * CHARGE)
    assert (await sam.get(f"/jobs/{job_id}/result")).json()["result"] == '"0"'
    for node in used:
        assert (await sam.get(f"/nodes/{node.node_id}")).json()["reputation"]["violation_count"] == 0
    [again] = await submit(sam, spec=HOUR)
    await answer(hub, nodes, result='"9"')
    assert (await job(sam, again))["verdict"] == "unchecked", "what varies is not checked a second time"


@pytest.mark.soak
async def test_who_insists_on_a_quorum_gets_no_other_result(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 6)
    reply = (await sam.post("/jobs", json=body(spec=HOUR) | {"verify": "quorum:3"})).json()
    assert reply["hold"] == 3 * CEILING
    [job_id] = reply["job_ids"]
    used: list[NodeDouble] = []
    for number in range(5):
        used.append(await answer(hub, others(nodes, *used), result=f'"{number % 3}"'))
    failed = await job(sam, job_id)
    assert (failed["state"], failed["reason"], failed["charge"]) == ("failed", "results_differ", 0)
    assert "--compare" in failed["status"]
    assert await purses(hub, sam) == (GRANT, 0, 0)


async def test_a_quorum_is_reached_and_paid(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 4)
    [job_id] = (await sam.post("/jobs", json=body(spec=HOUR) | {"verify": "quorum:3"})).json()["job_ids"]
    used: list[NodeDouble] = []
    for result in ('"right"', '"wrong"', '"right"', '"right"'):
        used.append(await answer(hub, others(nodes, *used), result=result))
    done = await job(sam, job_id)
    assert (done["verdict"], done["charge"]) == ("confirmed", 3 * CHARGE)
    assert [try_["charge"] for try_ in done["tries"]] == [CHARGE, None, CHARGE, CHARGE]


@pytest.mark.soak
async def test_confidence_takes_as_many_as_it_needs(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 4)
    reply = (await sam.post("/jobs", json=body(spec=HOUR) | {"confidence": 0.999})).json()
    assert (reply["verify"], reply["hold"]) == ("confidence:0.999", 3 * CEILING)
    used: list[NodeDouble] = []
    for _ in range(3):
        assert (await job(sam, reply["job_ids"][0]))["state"] != "succeeded"
        used.append(await answer(hub, others(nodes, *used)))
    assert (await job(sam, reply["job_ids"][0]))["verdict"] == "confirmed"
    [known] = (await sam.post("/jobs", json=body(spec=HOUR) | {"confidence": 0.99})).json()["job_ids"]
    first = await answer(hub, nodes)
    await answer(hub, others(nodes, first))
    assert (await job(sam, known))["state"] == "succeeded"


async def test_a_strict_job_that_nobody_confirms_expires_without_a_charge(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    wanted = body(spec=HOUR) | {"verify": "quorum:2", "ttl_s": 7200}
    [job_id] = (await sam.post("/jobs", json=wanted)).json()["job_ids"]
    await answer(hub, nodes)
    why = (await sam.get(f"/jobs/{job_id}/why")).json()
    assert "run it already" in why["sentence"] or any(gate["gate"] == "other_owner" for gate in why["gates"])
    hub.hub.clock.advance(7_200_001)  # type: ignore[attr-defined]
    await unconfirmed.accept(hub.hub)
    await leases.expire_overdue(hub.hub)
    ended = await job(sam, job_id)
    assert (ended["state"], ended["reason"], ended["charge"]) == ("expired", "not_confirmed", 0)
    assert await purses(hub, sam) == (GRANT, 0, 0)


@pytest.mark.soak
async def test_files_and_printed_text_are_part_of_a_result(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 4)
    [job_id] = await submit(sam, spec=HOUR)
    first = await prints(hub, nodes, "a")
    second = await prints(hub, others(nodes, first), "b")
    third, attempt_id = await placed(others(nodes, first, second))
    digest = await upload(third.client, b"a file")
    files = [{"name": "out.txt", "digest": digest, "size": 6}]
    report = third.make_report(attempt_id, outputs=files, **printing("a"))
    assert await third.report_all([report], logs=[stdout(attempt_id, "a")]) == ["accepted"]
    assert await is_being_checked(sam, job_id), "three different results so far"
    await prints(hub, others(nodes, first, second, third), "a")
    done = await job(sam, job_id)
    assert (done["node_id"], done["outputs"]) == (first.node_id, [])
    assert [try_["state"] for try_ in done["tries"]] == ["succeeded", "refuted", "refuted", "succeeded"]


async def test_a_file_that_waits_for_the_verdict_is_read_only_after_it(hub: HubDouble) -> None:
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


def printing(text: str) -> dict[str, Any]:
    """The words of a report about such an output."""
    return {"printed": hashlib.sha256(text.encode()).hexdigest(), "printed_chars": len(text)}


def stdout(attempt_id: str, text: str) -> dict[str, Any]:
    return {"attempt_id": attempt_id, "stream": "stdout", "text": text}


async def prints(hub: HubDouble, nodes: list[NodeDouble], text: str) -> NodeDouble:
    """The next node that is given the job says that it printed this, and sends it."""
    node, attempt_id = await placed(nodes)
    report = node.make_report(attempt_id, **printing(text))
    assert await node.report_all([report], logs=[stdout(attempt_id, text)]) == ["accepted"]
    return node


async def logged(client: httpx2.AsyncClient, job_id: str) -> str:
    page = (await client.get(f"/jobs/{job_id}/logs")).json()
    return "".join(chunk["text"] for chunk in page["chunks"])


async def test_output_of_runs_that_only_confirm_is_not_shown(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = (await sam.post("/jobs", json=body(spec=HOUR) | {"verify": "quorum:2"})).json()["job_ids"]
    first = await prints(hub, nodes, "wrong\n")
    assert await logged(sam, job_id) == "wrong\n", "live output is shown as it comes"
    second = await prints(hub, others(nodes, first), "right\n")
    assert await logged(sam, job_id) == "wrong\n"
    await prints(hub, others(nodes, first, second), "right\n")
    assert (await job(sam, job_id))["verdict"] == "confirmed"
    assert await logged(sam, job_id) == "right\n"


@pytest.mark.soak
async def test_one_submitter_alone_puts_nobody_on_probation(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    for _ in range(4):
        await _one_more_job(sam, nodes)
    seen = (await sam.get(f"/nodes/{nodes[0].node_id}")).json()["reputation"]
    assert (seen["violation_count"], seen["probation_at_ms"], seen["streak"]) == (4, None, 0)
    await _one_more_job(await hub.account("sue", "submitter"), nodes)
    seen = (await sam.get(f"/nodes/{nodes[0].node_id}")).json()["reputation"]
    assert (seen["probation_at_ms"] is not None, seen["banned_at_ms"]) == (True, None)


@pytest.mark.soak
async def test_what_varies_for_one_submitter_is_checked_for_another(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 6)
    [job_id] = await submit(sam, spec=HOUR)
    used: list[NodeDouble] = []
    for number in range(5):
        used.append(await answer(hub, others(nodes, *used), result=f'"{number}"'))
    assert (await job(sam, job_id))["verdict"] == "varies"
    sue = await hub.account("sue", "submitter")
    [hers] = await submit(sue, spec=HOUR)
    first = await answer(hub, nodes)
    await answer(hub, others(nodes, first))
    assert (await job(sue, hers))["verdict"] == "confirmed"


async def test_a_check_that_fails_leaves_the_result_that_is_there(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    first = await answer(hub, nodes)
    second, attempt_id = await placed(others(nodes, first))
    failed = {"outcome": "failed", "reason": "exit_nonzero", "exit_code": 3}
    assert await second.report(attempt_id, **failed) == "accepted"
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "alone", CHARGE)


async def test_cancelling_while_it_is_checked_costs_nothing(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=HOUR)
    await answer(hub, nodes)
    assert (await sam.post(f"/jobs/{job_id}/cancel")).json()["state"] == "cancelled"
    assert await purses(hub, sam) == (GRANT, 0, 0)


async def test_what_a_job_may_cost_is_said_before(hub: HubDouble) -> None:
    sam, _ = await crowd(hub, 2)
    quote = (await sam.post("/quotes", json={"timeout_s": 3600, "verify": "quorum:3"})).json()
    assert (quote["runs"], quote["hold_each"]) == (3, 3 * CEILING)
    assert any("up to 3 runs" in sentence for sentence in quote["sentences"])
    quote = (await sam.post("/quotes", json={"timeout_s": 3600})).json()
    assert quote["verify"] == "adaptive"
    assert any("--verify none" in sentence for sentence in quote["sentences"])
    quote = (await sam.post("/quotes", json={"timeout_s": 3600, "verify": "none"})).json()
    assert (quote["runs"], quote["hold_each"]) == (1, CEILING)


async def test_an_unknown_way_to_check_is_refused(hub: HubDouble, subtests: pytest.Subtests) -> None:
    sam, _ = await crowd(hub, 0)
    wishes: list[dict[str, Any]] = [{"verify": "quorum:9"}, {"verify": "twice"}, {"confidence": 1.5}]
    for wanted in wishes:
        with subtests.test(wanted=wanted):
            assert (await sam.post("/jobs", json=body(spec=HOUR) | wanted)).status_code == 422


async def test_a_node_that_is_known_for_its_results_is_checked_now_and_then(hub: HubDouble) -> None:
    """After ten confirmed results about one in ten is checked; the draw is the hub's secret, and even."""
    ids = [f"job_{number}-1" for number in range(4_000)]
    _, nodes = await crowd(hub, 2)
    fleet = hub.hub.nodes.registry.fleet
    for node in nodes:
        await node.poll(wait_ms=0)
    assert len(sampling.draw(hub.hub, nodes[0].node_id, ids).drawn) == 4_000
    fleet.set_integrity(nodes[0].node_id, streak=10, banned=False)
    assert 320 < len(sampling.draw(hub.hub, nodes[0].node_id, ids).drawn) < 480
    fleet.set_integrity(nodes[0].node_id, streak=10_000, banned=False)
    assert 140 < len(sampling.draw(hub.hub, nodes[0].node_id, ids).drawn) < 260


async def test_items_that_raised_are_counted_when_another_node_has_confirmed_them(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    group = (await sam.post("/groups", json={"name": "map"})).json()["id"]
    wanted = body(spec=HOUR) | {"verify": "quorum:2", "items": [{"bundled": 10}], "group_id": group}
    assert (await sam.post("/jobs", json=wanted)).status_code == 201
    for _ in nodes:
        await answer(hub, nodes, items_failed=4)
    counts = (await sam.get(f"/groups/{group}")).json()["counts"]
    assert counts == {"succeeded": 6, "failed": 4}
