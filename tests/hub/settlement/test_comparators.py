"""How results are compared: within a tolerance, and by a function of the submitter's, through the real API."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import Connection, select

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
from tests.hub.money.test_holds import HOUR, purses
from tests.hub.settlement.test_verification import CHARGE, RAN_MS, answer, crowd, others, placed
from tests.hub.submitting import body, job

GRANT = 1_000 * CREDIT
FUNCTION = {"function": "gASVDAAAAAAAAACMA2Zvb5Qu"}
BY_FUNCTION = {"compare_function": FUNCTION}
NEAR = {"compare": "tolerance:1e-6"}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else request.getfixturevalue("migrated_url")


@pytest.fixture
async def any_hub(url: str, tmp_path: Path) -> AsyncIterator[HubDouble]:
    async with start(url, tmp_path, FakeClock()) as hub:
        yield hub


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubDouble]:
    """For rules that are the same on every database."""
    async with start("", tmp_path, FakeClock()) as hub:
        yield hub


def start(url: str, folder: Path, clock: FakeClock) -> Any:
    settings: dict[str, Any] = {"signup_grant": GRANT, "tick_s": 10_000, "verify": "adaptive"}
    return running_hub(folder, database_url=url, clock=clock, **settings)


async def submit(sam: httpx2.AsyncClient, **wanted: Any) -> str:
    reply = await sam.post("/jobs", json=body(spec=HOUR) | {"verify": "quorum:2"} | wanted)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["job_ids"][0])


async def violation_count(sam: httpx2.AsyncClient, nodes: list[NodeDouble]) -> list[int]:
    seen = [(await sam.get(f"/nodes/{node.node_id}")).json() for node in nodes]
    return [node["reputation"]["violation_count"] for node in seen]


# tolerance


async def test_results_within_the_tolerance_are_confirmed_and_nobody_is_penalised(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, **NEAR)
    first = await answer(hub, nodes, result=encode({"loss": 0.5, "steps": [1, 2]}))
    await answer(hub, others(nodes, first), result=encode({"steps": [1.0, 2], "loss": 0.50000001}))
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "confirmed", 2 * CHARGE)
    assert done["node_id"] == first.node_id
    assert (await sam.get(f"/jobs/{job_id}/result")).json()["result"] == encode(
        {"loss": 0.5, "steps": [1, 2]}
    )
    assert await violation_count(sam, nodes) == [0, 0]


async def test_a_result_outside_of_it_is_wrong(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    job_id = await submit(sam, **NEAR)
    liar = await answer(hub, nodes, result="0.6")
    second = await answer(hub, others(nodes, liar), result="0.5")
    await answer(hub, others(nodes, liar, second), result="0.50000001")
    done = await job(sam, job_id)
    assert [try_["state"] for try_ in done["tries"]] == ["refuted", "succeeded", "succeeded"]
    assert await violation_count(sam, [liar, second]) == [1, 0]


async def test_without_one_the_same_results_differ(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    for wanted in ({}, {"compare": "exact"}):
        job_id = await submit(sam, **wanted)
        first = await answer(hub, nodes, result="0.5")
        await answer(hub, others(nodes, first), result="0.50000001")
        assert (await job(sam, job_id))["state"] == "queued"
        await sam.post(f"/jobs/{job_id}/cancel")


def printing(text: str) -> dict[str, Any]:
    named = {"printed": hashlib.sha256(text.encode()).hexdigest(), "printed_chars": len(text)}
    return {"result": None, "ran_ms": RAN_MS, **named}


async def prints(hub: HubDouble, nodes: list[NodeDouble], text: str) -> NodeDouble:
    """One half of it on the way, the other with the report."""
    node, attempt_id = await placed(nodes)
    cut = len(text) // 2
    chunks = [
        {"attempt_id": attempt_id, "stream": stream, "text": part}
        for stream, part in (("stdout", text[:cut]), ("stderr", "0.7"), ("stdout", text[cut:]))
        if part
    ]
    (await node.client.post("/logs", json={"chunks": chunks[:1]})).raise_for_status()
    report = node.make_report(attempt_id, **printing(text))
    assert await node.report_all([report], logs=chunks[1:]) == ["accepted"]
    return node


async def test_numbers_in_printed_text_may_differ_a_little(any_hub: HubDouble) -> None:
    sam, nodes = await crowd(any_hub, 2)
    job_id = await submit(sam, **NEAR)
    first = await prints(any_hub, nodes, "loss = 0.5, of 3 steps\n")
    await prints(any_hub, others(nodes, first), "loss = 0.50000001, of 3 steps\n")
    assert (await job(sam, job_id))["verdict"] == "confirmed"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("loss 0.5 a", "loss 0.50000001 b"),
        ("1 " * (PRINTED_MAX // 2 + 1) + "0.5", "1 " * (PRINTED_MAX // 2 + 1) + "0.50000001"),
    ],
    ids=["words", "too long"],
)
async def test_other_printed_text_is_compared_exactly(hub: HubDouble, first: str, second: str) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, **NEAR)
    node = await prints(hub, nodes, first) if len(first) < 99 else await long(nodes, first)
    rest = others(nodes, node)
    await (prints(hub, rest, second) if len(first) < 99 else long(rest, second))
    assert (await job(sam, job_id))["state"] == "queued"


async def long(nodes: list[NodeDouble], text: str) -> NodeDouble:
    node, attempt_id = await placed(nodes)
    for start in range(0, len(text), 60_000):
        chunk = {"attempt_id": attempt_id, "stream": "stdout", "text": text[start : start + 60_000]}
        (await node.client.post("/logs", json={"chunks": [chunk]})).raise_for_status()
    assert await node.report(attempt_id, **printing(text)) == "accepted"
    return node


async def test_files_are_compared_exactly_whatever_the_numbers(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, **NEAR)
    first = await answer(hub, nodes, result="0.5")
    second, attempt_id = await placed(others(nodes, first))
    digest = await upload(second.client, b"a file")
    files = [{"name": "out.txt", "digest": digest, "size": 6}]
    assert await second.report(attempt_id, result="0.5", outputs=files) == "accepted"
    assert (await job(sam, job_id))["state"] == "queued"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"compare": "near"}, "tolerance:1e-6"),
    ({"compare": "tolerance:2"}, "tolerance:1e-6"),
    (NEAR | {"verify": "none"}, "--verify"),
    (BY_FUNCTION | {"verify": "none"}, "--verify"),
    (NEAR | BY_FUNCTION, "not by both"),
    ({"compare_function": {}}, "function or function_artifact"),
    ({"compare_function": {"function_artifact": "a" * 64}}, "upload it first"),
]


async def test_what_cannot_be_compared_so_is_refused(hub: HubDouble) -> None:
    sam, _ = await crowd(hub, 0)
    for wanted, says in REFUSED:
        reply = await sam.post("/jobs", json=body(spec=HOUR) | {"verify": "quorum:2"} | wanted)
        assert reply.status_code in (400, 422)
        assert says in reply.text


async def test_a_node_is_not_told_how_results_are_compared(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 1)
    await submit(sam, **BY_FUNCTION)
    await placed(nodes)
    assert nodes[0].last is not None
    told = nodes[0].last.model_dump_json()
    assert "quorum" not in told
    assert "compare" not in told
    assert FUNCTION["function"] not in told


# a function


async def two_results(hub: HubDouble, *, owners: int, **wanted: Any) -> tuple[Any, list[NodeDouble], str]:
    """Sam's job with two results that differ; the two who reported them come first."""
    sam, nodes = await crowd(hub, owners)
    job_id = await submit(sam, **BY_FUNCTION | wanted)
    first = await answer(hub, nodes, result='"a"')
    second = await answer(hub, others(nodes, first), result='"b"')
    return sam, [first, second, *others(nodes, first, second)], job_id


async def says(
    hub: HubDouble, nodes: list[NodeDouble], result: str | None = None, **said: Any
) -> tuple[list[Any], NodeDouble]:
    """The next comparison is answered so. What was compared, and by whom."""
    node, attempt_id = await placed(nodes)
    values = json.loads(b64decode(node.holding[attempt_id].payload or ""))
    hub.hub.clock.advance(10_000)  # type: ignore[attr-defined]
    assert await node.report(attempt_id, result=result, ran_ms=6_000, **said) == "accepted"
    return values, node


async def test_a_function_that_says_the_same_confirms_both(any_hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(any_hub, owners=3)
    waiting = await job(sam, job_id)
    assert (waiting["state"], waiting["reason"]) == ("queued", "verifying")
    assert "your function" in waiting["status"]
    assert "your function" in (await sam.get(f"/jobs/{job_id}/why")).json()["sentence"]
    assert not [node for node in nodes[:2] if (await node.poll(wait_ms=0)).grants], "nobody judges himself"
    values, third = await says(any_hub, nodes[2:], "true")
    assert values == ["a", "b"]
    assert third.last is not None
    [spec] = [json.loads(text) for text in third.last.specs.values()]
    assert (spec["function"], spec["timeout_s"]) == (FUNCTION["function"], 60)
    done = await job(sam, job_id)
    assert (done["state"], done["verdict"], done["charge"]) == ("succeeded", "confirmed", 2 * CHARGE)
    assert (await sam.get(f"/jobs/{job_id}/result")).json()["result"] == '"a"'
    assert await violation_count(sam, nodes) == [0, 0, 0]
    assert [one["id"] for one in (await sam.get("/jobs")).json()["jobs"]] == [job_id]
    left, held, _ = await purses(any_hub, sam)
    assert held == 0
    assert 0 < GRANT - 2 * CHARGE - left < CHARGE // 10, "the comparison is paid for, and costs little"


@pytest.mark.soak
async def test_a_function_that_says_different_asks_for_another_run(any_hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(any_hub, owners=4)
    await says(any_hub, nodes[2:], "false")
    third, attempt_id = await placed(nodes[2:])
    assert attempt_id == f"{job_id}-3"
    assert await third.report(attempt_id, result='"c"', ran_ms=RAN_MS) == "accepted"
    fourth = others(nodes[2:], third)
    assert (await says(any_hub, fourth, "false"))[0] == ["a", "c"]
    numpys_true = '{"$scalar":{"dtype":"|b1","data":"AQ=="}}'
    assert (await says(any_hub, fourth, numpys_true))[0] == ["b", "c"]
    done = await job(sam, job_id)
    assert [try_["state"] for try_ in done["tries"]] == ["refuted", "succeeded", "succeeded"]
    assert await violation_count(sam, [*nodes[:2], third]) == [1, 0, 0]


FAILED = {"outcome": "failed", "reason": "exception", "error": "TypeError"}


@pytest.mark.parametrize("said", [FAILED, {"result": "1"}, {"result": None}], ids=["fails", "one", "nothing"])
async def test_a_function_that_gives_no_answer_says_different(hub: HubDouble, said: dict[str, Any]) -> None:
    sam, nodes, job_id = await two_results(hub, owners=3)
    await says(hub, nodes[2:], **said)
    third, attempt_id = await placed(nodes[2:])
    assert attempt_id == f"{job_id}-3", "the job itself goes on"
    assert await third.report(attempt_id, result='"b"', ran_ms=RAN_MS) == "accepted"
    done = await job(sam, job_id)
    assert done["verdict"] == "confirmed", "nothing is asked twice: a and b were different"
    assert [try_["state"] for try_ in done["tries"]] == ["refuted", "succeeded", "succeeded"]


async def test_a_comparison_that_nobody_makes_says_different(any_hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(any_hub, owners=2)
    any_hub.hub.clock.advance(round(any_hub.hub.settings.verify_wait_s * 1000) + 1)  # type: ignore[attr-defined]
    await unconfirmed.accept(any_hub.hub)
    await leases.expire_overdue(any_hub.hub)
    owner = await any_hub.account("late", "provider")
    third, attempt_id = await placed([await any_hub.node(owner, name="late")])
    assert attempt_id == f"{job_id}-3"
    assert await third.report(attempt_id, result='"a"', ran_ms=RAN_MS) == "accepted"
    assert (await job(sam, job_id))["verdict"] == "confirmed"
    assert await violation_count(sam, nodes) == [0, 1]


async def test_a_comparison_that_cannot_be_paid_says_different(any_hub: HubDouble) -> None:
    """A thousandth of a credit is left, and the owner of the third node is free to try."""
    sam, nodes = await crowd(any_hub, 3)
    job_id = await submit(sam, **BY_FUNCTION)
    left, _, _ = await purses(any_hub, sam)
    wanted = body(spec=HOUR, needs={"tags": ["nobody"]}) | {
        "verify": "none",
        "max_price": left - CREDIT // 1000,
    }
    assert (await sam.post("/jobs", json=wanted)).status_code == 201
    first = await answer(any_hub, nodes, result='"a"')
    second = await answer(any_hub, others(nodes, first), result='"b"')
    third, attempt_id = await placed(others(nodes, first, second))
    assert attempt_id == f"{job_id}-3"
    assert await third.report(attempt_id, result='"b"', ran_ms=RAN_MS) == "accepted"
    assert (await job(sam, job_id))["verdict"] == "confirmed"


@pytest.mark.soak
async def test_who_insists_gets_no_result_when_all_were_said_to_differ(hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(hub, owners=6)
    used = nodes[:2]
    for number in range(2, 6):
        for _ in range(number - 1):
            await says(hub, others(nodes, *used), "false")
        if number == 5:
            break
        used.append(await answer(hub, others(nodes, *used), result=str(number)))
    failed = await job(sam, job_id)
    assert (failed["state"], failed["reason"], failed["charge"]) == ("failed", "results_differ", 0)
    assert await violation_count(sam, nodes) == [0] * 6


async def test_a_job_cancelled_while_it_is_compared_stays_so(hub: HubDouble) -> None:
    sam, nodes, job_id = await two_results(hub, owners=3)
    [third] = nodes[2:]
    _, attempt_id = await placed([third])
    assert (await sam.post(f"/jobs/{job_id}/cancel")).json()["state"] == "cancelled"
    assert await purses(hub, sam) == (GRANT, 0, 0), "nor does the comparison cost anything"
    assert (await third.poll(wait_ms=0)).cancel == [attempt_id]
    assert await third.report(attempt_id, result="true") == "cancelled"
    assert (await job(sam, job_id))["state"] == "cancelled"


async def test_what_varies_bit_by_bit_is_checked_where_a_tolerance_is_named(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, verify="adaptive", **NEAR)
    hub.hub.settlement.varying |= {
        (row.account_id, row.spec_digest) for row in await hub.hub.store.read(all_jobs)
    }
    await answer(hub, nodes, result="0.5")
    assert (await job(sam, job_id))["reason"] in ("verifying", "placed")
    await sam.post(f"/jobs/{job_id}/cancel")
    job_id = await submit(sam, verify="adaptive")
    await answer(hub, nodes, result="0.5")
    assert (await job(sam, job_id))["verdict"] == "unchecked"


def all_jobs(connection: Connection) -> Any:
    return connection.execute(select(job_table)).all()


async def test_values_too_long_to_be_sent_are_compared_exactly(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    job_id = await submit(sam, **BY_FUNCTION)
    first = await answer(hub, nodes, result=encode("a" * 150_000))
    await answer(hub, others(nodes, first), result=encode("b" * 150_000))
    assert (await job(sam, job_id))["state"] == "queued"
    owner = await hub.account("third", "provider")
    _, attempt_id = await placed([await hub.node(owner, name="third")])
    assert attempt_id == f"{job_id}-3"


async def test_a_comparison_survives_the_hub(url: str, tmp_path: Path) -> None:
    clock = FakeClock()
    async with start(url, tmp_path, clock) as hub:
        sam, nodes, job_id = await two_results(hub, owners=3)
        again = [(node.key, node.node_id) for node in nodes]
        key = sam.headers["Authorization"]
    async with start(url, tmp_path, clock) as hub:
        sam = hub.client(key.removeprefix("Bearer "))
        assert (await job(sam, job_id))["state"] == "queued"
        back = []
        for private, node_id in again:
            node = NodeDouble(hub.client(), hub.hub.clock)
            node.key, node.node_id = private, node_id
            back.append(node)
        values, _ = await says(hub, back, "true")
        assert values == ["a", "b"]
        assert (await job(sam, job_id))["verdict"] == "confirmed"
