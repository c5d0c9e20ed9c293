"""Quotes: what a submission would cost, which nodes would take it, when it would end, and that submitting agrees with it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.hub.submission import quote_messages
from computepool.protocol.jobs.jobs import JobSpec, spec_digest
from computepool.protocol.money.credits import Estimate, QuoteRequest, QuoteView
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from tests.hub.fixtures import hub_fixture
from tests.hub.submitting import COMMAND, body, submit
from tests.hub.untouched import untouched

GPU = {"name": "RTX 4090", "tier": "rtx-4090", "vram_mb": 24_000}


hub = hub_fixture(signup_grant=100 * CREDIT, tick_s=10_000)


async def quoted(client: httpx2.AsyncClient, **request: Any) -> dict[str, Any]:
    answer = await client.post("/quotes", json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_quote_names_prices_the_hold_and_the_balance(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    await hub.node(pia, name="in-node", region="in")
    await hub.node(pia, name="us-node", region="us")
    seen = await quoted(sam, items=3)
    assert (seen["price_low"], seen["price_high"]) == (5_600_000, 8 * CREDIT)
    assert (seen["max_price"], seen["hold_each"], seen["hold_total"]) == (16 * CREDIT, 16 * CREDIT, 48 * CREDIT)
    assert (seen["available"], seen["affordable"], seen["missing"]) == (100 * CREDIT, True, 0)
    assert (seen["nodes"], seen["nodes_now"], seen["nodes_able"], seen["nodes_too_expensive"]) == (2, 2, 2, 0)
    assert (seen["earns_low"], seen["earns_high"], seen["earns_run"]) == (4_480_000, 6_400_000, None)
    assert [(z["region"], z["price"], z["nodes_now"]) for z in seen["zones"]] == [
        ("in", 5_600_000, 1),
        ("us", 8 * CREDIT, 1),
    ]
    assert seen["lasts_ms"] == 3_600_000
    assert seen["sentences"] == [
        "2 nodes would take it now, and 2 nodes of 2 could run it.",
        "The current price is 5.60 to 8.00 credits per hour for each job; it is fixed once a job is placed.",
        (
            "It pays at most 16.00 per hour (about twice the highest price it could meet now). 16.00 credits for"
            " each of 3 jobs, 48.00 in all, are put on hold for a run of 60 min; what is not used is refunded."
        ),
        "You have 100.00 credits to spend, which is enough.",
        "Expected start of the first: at once.",
        "Expected finish of the first: unknown (you have not run a similar job yet).",
        "The node's owner would earn 4.48 to 6.40 credits per hour, after the fee.",
    ]


async def test_what_is_quoted_is_what_submitting_holds(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    await hub.node(pia, region="in", gpus=[GPU])
    cases: list[tuple[dict[str, Any], dict[str, Any], int]] = [
        ({}, {}, 1),
        ({"cores": 2.5}, {"max_price": 3 * CREDIT}, 2),
        ({"gpus": 1, "vram_mb": 6_000}, {"budget": 7 * CREDIT}, 3),
        ({}, {"max_price": 0}, 1),
    ]
    for needs, money, items in cases:
        seen = await quoted(sam, needs=needs, timeout_s=1800, items=items, **money)
        answer = await sam.post("/jobs", json=body(needs=needs, spec={"timeout_s": 1800}, items=items, **money))
        assert answer.status_code == 201, answer.text
        assert (answer.json()["hold"], answer.json()["max_price"]) == (seen["hold_total"], seen["max_price"])


async def test_what_is_missing_is_what_submitting_says(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    await hub.node(pia)
    seen = await quoted(sam, items=10)
    assert (seen["affordable"], seen["missing"]) == (False, 60 * CREDIT)
    assert seen["sentences"][3] == (
        "You have 100.00 credits to spend; 60.00 are missing."
        " Shorten --timeout, lower --max-price, set a --budget, or top up."
    )
    async with untouched(hub):
        refused = await sam.post("/jobs", json=body(items=10))
    assert refused.status_code == 402
    assert "60.00 are missing" in refused.json()["detail"]


async def test_a_card_is_paid_by_its_share(hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient) -> None:
    await hub.node(pia, region="us", gpus=[GPU])
    whole = await quoted(sam, needs={"gpus": 1})
    part = await quoted(sam, needs={"vram_mb": 6_000})
    assert (whole["price_high"], part["price_high"]) == (30 * CREDIT, 7_500_000)
    assert [(zone["tier"], zone["units"]) for zone in part["zones"]] == [("rtx-4090", 250)]


async def test_a_quote_names_a_ceiling_below_the_price(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    await hub.node(pia)
    seen = await quoted(sam, max_price=7 * CREDIT)
    assert (seen["nodes_now"], seen["nodes_able"], seen["nodes_too_expensive"]) == (0, 1, 1)
    assert (seen["price_low"], seen["max_price"], seen["start"]["p50_ms"]) == (8 * CREDIT, 7 * CREDIT, None)
    assert (
        seen["sentences"][0] == "No node would take it now, and 1 node of 1 could run it; 1 of them not at this price."
    )
    assert seen["start"]["text"] == "Unknown: no node that could run it accepts the price."
    exact = await quoted(sam, max_price=8 * CREDIT)
    assert exact["nodes_now"] == 1


async def test_ones_own_node_costs_nothing(hub: HubDouble) -> None:
    both = await hub.account("bob", "submitter", "provider")
    node = await hub.node(both)
    seen = await quoted(both, max_price=0)
    assert (seen["price_low"], seen["price_high"], seen["hold_total"], seen["nodes_now"]) == (0, 0, 0, 1)
    assert seen["earns_high"] is None
    assert {"Free on your own node.", "Nothing is put on hold."} <= set(seen["sentences"])
    seen = await quoted(both)
    assert seen["hold_total"] == 16 * CREDIT
    assert "Free on your own node (at most 16.00 reserved if others run it)." in seen["sentences"]
    seen = await quoted(both, needs={"host": node.node_id})
    assert (seen["hold_total"], seen["max_price"]) == (0, 0)


async def test_without_a_node_everything_unknown_is_called_so(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    nobody = await quoted(sam, needs={"gpus": 1, "tiers": ["h100"], "regions": ["in"]})
    assert (nobody["price_low"], nobody["nodes"], nobody["start"]["p50_ms"]) == (None, 0, None)
    assert nobody["max_price"] == 84 * CREDIT  # 2 × 10 × 6.0 × 0.7
    assert nobody["sentences"][0] == "No node is connected now."
    await hub.node()
    unable = await quoted(sam, needs={"cores": 64})
    assert (unable["nodes"], unable["nodes_able"]) == (1, 0)
    assert unable["start"]["text"] == "Unknown: no connected node can run it."


async def test_a_quote_estimates_the_run_time_from_history(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    node = await hub.node(pia)
    spec = {"name": "train", "timeout_s": 60}
    for ran_ms in [10_000] * 8 + [20_000, 50_000]:
        await submit(sam, spec=spec, budget=CREDIT)
        [grant] = await node.take()
        clock.advance(ran_ms)
        await node.report(grant.attempt_id, ran_ms=ran_ms)
    digest = spec_digest(JobSpec.model_validate(COMMAND | spec).body())
    by_digest = await quoted(sam, spec_digest=digest, timeout_s=60)
    assert (by_digest["run"]["p50_ms"], by_digest["run"]["p90_ms"], by_digest["run"]["samples"]) == (10_000, 20_000, 10)
    assert (by_digest["cost_p50"], by_digest["cost_p90"]) == (22_222, 44_444)
    assert by_digest["earns_run"] == 17_777
    assert (by_digest["finish"]["p50_ms"], by_digest["finish"]["p90_ms"]) == (10_000, 20_000)
    assert (
        "Such jobs ran 10 s (half of them) or up to 20 s (nine of ten): that would cost 0.022222 to 0.044444 credits."
        in by_digest["sentences"]
    )
    by_name = await quoted(sam, name="train", spec_digest="0" * 64)
    assert by_name["run"]["samples"] == 10
    assert (await quoted(sam, name="other"))["run"]["p50_ms"] is None
    stranger = await hub.account("eve", "submitter")
    assert (await quoted(stranger, name="train"))["run"]["p50_ms"] is None


async def test_a_quote_estimates_the_wait_from_recent_leases(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, clock: FakeClock
) -> None:
    node = await hub.node(pia, cores=1)
    await submit(sam, spec={"timeout_s": 60}, items=2)
    [first] = await node.take()
    busy = await quoted(sam)
    assert (busy["nodes_now"], busy["nodes_able"]) == (0, 1)
    assert busy["start"]["p50_ms"] is not None
    clock.advance(30_000)
    await node.report(first.attempt_id, ran_ms=30_000)
    await node.take()
    seen = await quoted(sam)
    assert seen["nodes_now"] == 0
    assert seen["start"]["samples"] == 2
    assert seen["start"]["p90_ms"] >= seen["start"]["p50_ms"] >= 0
    clock.advance(2 * 24 * 3600 * 1000)
    assert (await quoted(sam))["start"]["p50_ms"] is None


BAD: list[tuple[dict[str, Any], str]] = [
    *(({"max_price": bad}, "max_price") for bad in (-1, 1.5, 1.0, "1", True, AMOUNT_MAX + 1, "NaN")),
    *(({"budget": bad}, "budget") for bad in (-1, 0, 1.5, "1", True, AMOUNT_MAX + 1)),
    *(({"items": bad}, "items") for bad in (0, -1, 1.5, "3", 1_000_001, True)),
    *(({"timeout_s": bad}, "timeout_s") for bad in (0, -1, 10**9, "x")),
    ({"needs": {"cores": -1}}, "needs.cores"),
    ({"needs": {"colour": 1}}, "needs.colour"),
    ({"spec_digest": "xyz"}, "spec_digest"),
    ({"prise": 1}, "prise"),
    ({"budget": 2, "items": 3}, "budget"),
    ({"max_price": AMOUNT_MAX, "items": 2}, "max_price"),
]


@pytest.mark.soak
async def test_bad_questions_are_refused_precisely(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    async with untouched(hub):
        for request, field in BAD:
            answer = await sam.post("/quotes", json=request)
            assert (answer.status_code, answer.json()["code"]) == (422, "bad_request"), (request, answer.text)
            assert answer.json()["field"] == field, (request, answer.text)


async def test_the_same_money_is_refused_in_a_submission(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    async with untouched(hub):
        for request, field in BAD:
            if field in ("max_price", "budget"):
                items = request.get("items", 1)
                money = {name: value for name, value in request.items() if name != "items"}
                answer = await sam.post("/jobs", json=body(items=items, **money))
                assert (answer.status_code, answer.json()["field"]) == (422, field), (request, answer.text)


async def test_a_quote_does_not_promise_a_start_where_every_node_rests(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    node = await hub.node(pia)
    [job_id] = await submit(sam)
    [grant] = (await node.poll(wait_ms=5_000)).grants
    assert await node.report(grant.attempt_id, result="1") == "accepted"
    await node.poll(wait_ms=0)
    assert (await quoted(sam))["start"]["p50_ms"] == 0, job_id
    paused = await pia.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
    assert paused.status_code == 200, paused.text
    seen = await quoted(sam)
    assert (seen["nodes_now"], seen["nodes_able"]) == (0, 1)
    assert seen["start"]["p50_ms"] is None
    assert "every node that would run it is paused" in seen["start"]["text"]


async def test_verify_and_confidence_exclude_each_other(sam: httpx2.AsyncClient) -> None:
    both = {"verify": "quorum:3", "confidence": 0.9}
    wrong = {"verify": "quorum:9"}
    for path, asked in (("/jobs", body()), ("/quotes", {})):
        answer = await sam.post(path, json=asked | both)
        assert answer.status_code == 422
        assert "use either verify or confidence, not both" in answer.text
        answer = await sam.post(path, json=asked | wrong)
        assert answer.status_code == 422
        assert "none, adaptive, quorum:K with K from 2 to 5, or confidence:P" in answer.text
        assert "[2-5]" not in answer.text


async def test_a_quorum_cannot_be_had_from_one_host(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    """Such a job would wait for days and end without a result."""
    node = await hub.node(pia, name="studio")
    needs = {"host": node.node_id}
    for path, asked in (("/jobs", body(spec=COMMAND | {"needs": needs})), ("/quotes", {"needs": needs})):
        answer = await sam.post(path, json=asked | {"verify": "quorum:2"})
        assert (answer.status_code, answer.json()["field"]) == (422, "verify"), answer.text
        assert "quorum:2 needs nodes of 2 owners" in answer.json()["detail"]
        assert (await sam.post(path, json=asked | {"verify": "adaptive"})).is_success


async def test_a_quorum_of_more_owners_than_are_connected_comes_with_a_warning(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    await hub.node(pia, name="studio")
    await hub.node(pia, name="attic")
    warning = "quorum:2 needs nodes of 2 owners, but those that could run it now belong to 1 owner: its result waits for more."
    assert warning in (await quoted(sam, verify="quorum:2"))["sentences"]
    assert (await sam.post("/jobs", json=body(verify="quorum:2"))).json()["warning"] == warning
    await hub.node(await hub.account("pat", "provider"))
    assert warning not in (await quoted(sam, verify="quorum:2"))["sentences"]
    assert not (await sam.post("/jobs", json=body(verify="quorum:2"))).json().get("warning")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (1, "for a run of 60 min;"),
        (2, "for the run and one check of its result, 60 min each;"),
        (4, "for the run and 3 checks of its result, 60 min each;"),
    ],
)
def test_a_quote_says_for_how_many_runs_the_hold_is(runs: int, said: str) -> None:
    unknown = Estimate(text="Unknown.")
    view = QuoteView(
        economy="market", price_version=1, items=1, max_price=CREDIT, hold_each=CREDIT, hold_total=CREDIT, runs=runs,
        available=0, affordable=False, lasts_ms=1, nodes=1, nodes_now=1, nodes_able=1, start=unknown, run=unknown,
        finish=unknown, sentences=[],
    )  # fmt: skip
    assert any(said in sentence for sentence in quote_messages.sentences(view, QuoteRequest(timeout_s=3600)))
