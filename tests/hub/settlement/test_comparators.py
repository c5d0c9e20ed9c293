"""Comparison of results within a tolerance, and by a function of the submitter's, through the real API."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from computepool.core.money.money import CREDIT
from computepool.core.trust.tolerance import PRINTED_MAX
from computepool.hub.db.tables import jobs as job_table
from computepool.hub.scheduling import leases
from computepool.hub.settlement.verification import unconfirmed
from computepool.protocol.values.values import encode
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.cast import upload
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import body, job, submit
from tests.hub.verifying import (
    CHARGE,
    GRANT,
    RAN_MS,
    advance,
    answer,
    answers,
    attempts_of,
    piece,
    placed,
    printing,
    send,
    violations,
)
from tests.hub.working import HOUR, balances_of, crowd, got, others

STRICT: dict[str, Any] = {"spec": HOUR, "verify": "quorum:2"}
FUNCTION = {"function": "gASVDAAAAAAAAACMA2Zvb5Qu"}
BY_FUNCTION = STRICT | {"compare_function": FUNCTION}
NEAR = STRICT | {"compare": "tolerance:1e-6"}
SETTINGS: dict[str, Any] = {"signup_grant": GRANT, "tick_s": 10_000, "verify": "adaptive"}

hub = hub_fixture(on=BOTH, **SETTINGS)


# tolerance


async def test_results_within_the_tolerance_are_confirmed_and_nobody_is_penalised(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, **NEAR)
    results = [encode({"loss": 0.5, "steps": [1, 2]}), encode({"steps": [1.0, 2], "loss": 0.50000001})]
    first, _ = await answers(hub, nodes, results)
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "confirmed", 2 * CHARGE)
    assert done["node_id"] == first.node_id
    assert (await got(sam, f"/jobs/{job_id}/result"))["result"] == results[0]
    assert await violations(sam, nodes) == [0, 0]


async def test_a_result_outside_the_tolerance_is_wrong(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, **NEAR)
    used = await answers(hub, nodes, ["0.6", "0.5", "0.50000001"])
    assert await attempts_of(sam, job_id, "state") == ["refuted", "succeeded", "succeeded"]
    assert await violations(sam, used) == [1, 0, 0]


@pytest.mark.parametrize("wanted", [{}, {"compare": "exact"}], ids=["default", "exact"])
async def test_without_a_tolerance_close_results_differ(hub: HubDouble, wanted: dict[str, str]) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, **STRICT | wanted)
    await answers(hub, nodes, ["0.5", "0.50000001"])
    assert (await job(sam, job_id))["state"] == "queued"


async def prints(nodes: list[NodeDouble], text: str) -> NodeDouble:
    """Half of it is sent at once, with a line on standard error after it, and the rest with the report."""
    node, attempt_id = await placed(nodes)
    cut = len(text) // 2
    for start in range(0, cut, 60_000):
        await send(node, piece(attempt_id, text[start : min(cut, start + 60_000)]))
    rest = [piece(attempt_id, text[start : start + 60_000]) for start in range(cut, len(text), 60_000)]
    report = node.make_report(attempt_id, ran_ms=RAN_MS, **printing(text))
    assert await node.report_all([report], logs=[piece(attempt_id, "0.7", stream="stderr"), *rest]) == ["accepted"]
    return node


LONG = "1 " * (PRINTED_MAX // 2 + 1)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("loss = 0.5, of 3 steps\n", "loss = 0.50000001, of 3 steps\n", True),
        ("loss 0.5 a", "loss 0.50000001 b", False),
        (f"{LONG}0.5", f"{LONG}0.50000001", False),
    ],
    ids=["numbers", "words", "too long"],
)
async def test_only_numbers_in_short_output_may_differ(hub: HubDouble, first: str, second: str, same: bool) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, **NEAR)
    node = await prints(nodes, first)
    await prints(others(nodes, node), second)
    assert (await job(sam, job_id))["state"] == ("succeeded" if same else "queued")


async def test_files_are_compared_exactly(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, **NEAR)
    first = await answer(hub, nodes, result="0.5")
    second, attempt_id = await placed(others(nodes, first))
    digest = await upload(second.client, b"a file")
    files = [{"name": "out.txt", "digest": digest, "size": 6}]
    assert await second.report(attempt_id, result="0.5", outputs=files) == "accepted"
    assert (await job(sam, job_id))["state"] == "queued"


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"compare": "near"}, "tolerance:1e-6"),
        ({"compare": "tolerance:2"}, "tolerance:1e-6"),
        (NEAR | {"verify": "none"}, "--verify"),
        (BY_FUNCTION | {"verify": "none"}, "--verify"),
        (NEAR | BY_FUNCTION, "not both"),
        ({"compare_function": {}}, "function or function_artifact"),
        ({"compare_function": {"function_artifact": "a" * 64}}, "upload it first"),
    ],
)
async def test_an_impossible_comparison_is_refused(hub: HubDouble, wanted: dict[str, Any], says: str) -> None:
    reply = await hub.admin.post("/jobs", json=body(**STRICT | wanted))
    assert reply.status_code in (400, 422)
    assert says in reply.text


async def test_a_node_is_not_told_how_results_are_compared(hub: HubDouble) -> None:
    sam, [node] = await crowd(hub, 1)
    await submit(sam, **BY_FUNCTION)
    await placed([node])
    assert node.last is not None
    told = node.last.model_dump_json()
    assert not [secret for secret in ("quorum", "compare", FUNCTION["function"]) if secret in told]


# a function


async def two_results(hub: HubDouble, *, owners: int) -> tuple[httpx2.AsyncClient, list[NodeDouble], str]:
    """Sam's job with two results that differ. The nodes that reported them come first."""
    sam, nodes = await crowd(hub, owners)
    [job_id] = await submit(sam, **BY_FUNCTION)
    used = await answers(hub, nodes, ['"a"', '"b"'])
    return sam, [*used, *others(nodes, *used)], job_id


async def compares(
    hub: HubDouble, nodes: list[NodeDouble], result: str | None = None, **said: Any
) -> tuple[list[Any], NodeDouble]:
    """One of the nodes reports this for the next comparison. Returns what it compared, and the node."""
    node, attempt_id = await placed(nodes)
    values = json.loads(b64decode(node.holding[attempt_id].payload or ""))
    advance(hub, 10_000)
    assert await node.report(attempt_id, result=result, ran_ms=6_000, **said) == "accepted"
    return values, node


async def test_if_the_function_returns_true_both_results_are_confirmed(hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(hub, owners=3)
    waiting = await job(sam, job_id)
    assert (waiting["state"], waiting["reason"]) == ("queued", "verifying")
    assert "your function" in waiting["status"]
    assert "your function" in (await got(sam, f"/jobs/{job_id}/why"))["sentence"]
    assert not [node for node in nodes[:2] if (await node.poll(wait_ms=0)).grants], "no owner compares their own result"
    values, third = await compares(hub, nodes[2:], "true")
    assert values == ["a", "b"]
    assert third.last is not None
    [spec] = [json.loads(text) for text in third.last.specs.values()]
    assert (spec["function"], spec["timeout_s"]) == (FUNCTION["function"], 60)
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "confirmed", 2 * CHARGE)
    assert (await got(sam, f"/jobs/{job_id}/result"))["result"] == '"a"'
    assert await violations(sam, nodes) == [0, 0, 0]
    assert [one["id"] for one in (await got(sam, "/jobs"))["jobs"]] == [job_id]
    left, held, _ = await balances_of(hub, sam)
    assert held == 0
    assert 0 < GRANT - 2 * CHARGE - left < CHARGE // 10, "the comparison is paid for, and costs little"


@pytest.mark.soak
async def test_if_the_function_returns_false_the_job_runs_again(hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(hub, owners=4)
    await compares(hub, nodes[2:], "false")
    third, attempt_id = await placed(nodes[2:])
    assert attempt_id == f"{job_id}-3"
    assert await third.report(attempt_id, result='"c"', ran_ms=RAN_MS) == "accepted"
    fourth = others(nodes[2:], third)
    assert (await compares(hub, fourth, "false"))[0] == ["a", "c"]
    numpys_true = '{"$scalar":{"dtype":"|b1","data":"AQ=="}}'
    assert (await compares(hub, fourth, numpys_true))[0] == ["b", "c"]
    assert await attempts_of(sam, job_id, "state") == ["refuted", "succeeded", "succeeded"]
    assert await violations(sam, [*nodes[:2], third]) == [1, 0, 0]


FAILED = {"outcome": "failed", "reason": "exception", "error": "TypeError"}


@pytest.mark.parametrize("said", [FAILED, {"result": "1"}, {"result": None}], ids=["fails", "one", "nothing"])
async def test_if_the_function_gives_no_answer_the_results_differ(hub: HubDouble, said: dict[str, Any]) -> None:
    sam, nodes, job_id = await two_results(hub, owners=3)
    await compares(hub, nodes[2:], **said)
    third, attempt_id = await placed(nodes[2:])
    assert attempt_id == f"{job_id}-3", "the job runs again"
    assert await third.report(attempt_id, result='"b"', ran_ms=RAN_MS) == "accepted"
    done = await job(sam, job_id)
    assert done["verdict"] == "confirmed", "a and b are not compared again"
    assert await attempts_of(sam, job_id, "state") == ["refuted", "succeeded", "succeeded"]


async def test_if_no_node_runs_the_comparison_the_results_differ(hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(hub, owners=2)
    advance(hub, hub.hub.settings.verify_wait_s * 1000 + 1)
    await unconfirmed.accept(hub.hub)
    await leases.expire_overdue(hub.hub)
    owner = await hub.account("late", "provider")
    third, attempt_id = await placed([await hub.node(owner, name="late")])
    assert attempt_id == f"{job_id}-3"
    assert await third.report(attempt_id, result='"a"', ran_ms=RAN_MS) == "accepted"
    assert (await job(sam, job_id))["verdict"] == "confirmed"
    assert await violations(sam, nodes) == [0, 1]


async def test_if_the_comparison_cannot_be_paid_the_results_differ(hub: HubDouble) -> None:
    """Only a thousandth of a credit is left, although the owner of a third node is free to compare."""
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, **BY_FUNCTION)
    left, _, _ = await balances_of(hub, sam)
    await submit(sam, spec=HOUR, needs={"tags": ["nobody"]}, verify="none", max_price=left - CREDIT // 1000)
    used = await answers(hub, nodes, ['"a"', '"b"'])
    third, attempt_id = await placed(others(nodes, *used))
    assert attempt_id == f"{job_id}-3"
    assert await third.report(attempt_id, result='"b"', ran_ms=RAN_MS) == "accepted"
    assert (await job(sam, job_id))["verdict"] == "confirmed"


@pytest.mark.soak
async def test_a_quorum_whose_results_all_differ_leaves_no_result(hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(hub, owners=6)
    used = nodes[:2]
    for number in range(2, 6):
        for _ in range(number - 1):
            await compares(hub, others(nodes, *used), "false")
        if number == 5:
            break
        used.append(await answer(hub, others(nodes, *used), result=str(number)))
    failed = await job(sam, job_id)
    assert (failed["state"], failed["reason"], failed["charge"]) == ("failed", "results_differ", 0)
    assert await violations(sam, nodes) == [0] * 6


async def test_a_job_cancelled_during_a_comparison_stays_cancelled(hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(hub, owners=3)
    [third] = nodes[2:]
    _, attempt_id = await placed([third])
    assert (await sam.post(f"/jobs/{job_id}/cancel")).json()["state"] == "cancelled"
    assert await balances_of(hub, sam) == (GRANT, 0, 0), "nor does the comparison cost anything"
    assert (await third.poll(wait_ms=0)).cancel == [attempt_id]
    assert await third.report(attempt_id, result="true") == "cancelled"
    assert (await job(sam, job_id))["state"] == "cancelled"


async def test_a_program_that_varies_is_checked_if_a_tolerance_is_named(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, **NEAR | {"verify": "adaptive"})
    columns = select(job_table.c.account_id, job_table.c.spec_digest)
    programs = await hub.hub.store.read(lambda connection: connection.execute(columns).all())
    hub.hub.settlement.varying |= {(account_id, digest) for account_id, digest in programs}
    await answer(hub, nodes, result="0.5")
    assert (await job(sam, job_id))["reason"] in ("verifying", "placed")
    await sam.post(f"/jobs/{job_id}/cancel")
    [job_id] = await submit(sam, spec=HOUR, verify="adaptive")
    await answer(hub, nodes, result="0.5")
    assert (await job(sam, job_id))["verdict"] == "unchecked"


async def test_values_too_long_for_the_function_are_compared_exactly(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, **BY_FUNCTION)
    await answers(hub, nodes, [encode("a" * 150_000), encode("b" * 150_000)])
    assert (await job(sam, job_id))["state"] == "queued"
    owner = await hub.account("third", "provider")
    _, attempt_id = await placed([await hub.node(owner, name="third")])
    assert attempt_id == f"{job_id}-3"


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_a_comparison_survives_a_restart_of_the_hub(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("migrated_url") if database == "postgresql" else ""
    clock = FakeClock()
    async with running_hub(tmp_path, database_url=url, clock=clock, **SETTINGS) as hub:
        sam, nodes, job_id = await two_results(hub, owners=3)
        key = sam.headers["Authorization"].removeprefix("Bearer ")
    async with running_hub(tmp_path, database_url=url, clock=clock, **SETTINGS) as hub:
        sam = hub.client(key)
        assert (await job(sam, job_id))["state"] == "queued"
        back = []
        for known in nodes:
            node = NodeDouble(hub.client(), clock)
            node.key, node.node_id = known.key, known.node_id
            back.append(node)
        values, _ = await compares(hub, back, "true")
        assert values == ["a", "b"]
        assert (await job(sam, job_id))["verdict"] == "confirmed"
