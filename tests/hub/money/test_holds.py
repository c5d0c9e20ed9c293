"""A job's money through the API: held, split when its result is accepted, returned otherwise, never more than agreed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx2
import pytest

from computepool.core.money import ledger
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import charge_of
from computepool.hub.db.session import Tx
from computepool.hub.money import credits as credits_service
from computepool.hub.scheduling import dispatch
from computepool.protocol.nodes.nodes import CompleteRequest, Grant, signed_text
from computepool.protocol.tokens import b64
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import body, job, submit
from tests.hub.untouched import untouched
from tests.hub.working import CEILING, HOUR, PRICE, balance, balances_of, me

T = TypeVar("T")
hub = hub_fixture(on=BOTH, signup_grant=100 * CREDIT, tick_s=10_000)


async def test_an_accepted_result_splits_the_hold(hub: HubDouble) -> None:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    node = await hub.node(pia)
    answer = (await sam.post("/jobs", json=body(spec=HOUR))).json()
    assert (answer["max_price"], answer["hold"]) == (CEILING, CEILING)
    assert await balances_of(hub, sam) == (100 * CREDIT - CEILING, CEILING, 0)
    [grant] = await node.take()
    assert (grant.price, grant.paid_ms) == (PRICE, 2 * 3_600_000)
    hub.hub.clock.advance(600_000)  # type: ignore[attr-defined]
    await node.report(grant.attempt_id, ran_ms=540_001)
    charge = charge_of(PRICE, 540_001)
    pay = charge * 8 // 10
    assert await balances_of(hub, sam) == (100 * CREDIT - charge, 0, 0)
    assert await balances_of(hub, pia) == (100 * CREDIT, 0, pay)
    assert await balance(hub, ledger.FEES) == charge - pay
    seen = await job(sam, grant.job_id)
    assert (seen["charge"], seen["hold"], seen["tries"][0]["billed_ms"]) == (charge, CEILING, 540_001)


async def test_a_run_time_that_was_changed_on_the_way_is_refused(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    node = await hub.node(await hub.account("pia", "provider"))
    await submit(sam, spec=HOUR)
    [grant] = await node.take()
    report = node.make_report(grant.attempt_id, ran_ms=1)
    changed = report.model_copy(update={"ran_ms": 3_000_000})
    request = CompleteRequest(reports=[changed], signature=b64(node.key.sign(signed_text([report]))))
    async with untouched(hub):
        answer = await node.client.post("/complete", content=request.model_dump_json())
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert await node.report(grant.attempt_id, ran_ms=1) == "accepted"


async def lane(hub: HubDouble, sam: httpx2.AsyncClient) -> tuple[NodeDouble, list[Grant]]:
    """A node with five attempts that share a lane."""
    node = await hub.node(await hub.account("pia", "provider"), cores=1)
    await submit(sam, spec={"timeout_s": 60})
    [first] = await node.take()
    await node.report(first.attempt_id, ran_ms=0)  # so short that the next ones come together
    await submit(sam, items=5, spec={"timeout_s": 60})
    grants = await node.take(5)
    assert len({grant.lane for grant in grants}) == 1
    return node, grants


async def billed(sam: httpx2.AsyncClient, grants: list[Grant]) -> list[int]:
    return sorted([(await job(sam, grant.job_id))["tries"][0]["billed_ms"] for grant in grants])


async def test_attempts_of_one_lane_are_not_paid_for_the_same_time(
    hub: HubDouble, sam: httpx2.AsyncClient, clock: FakeClock
) -> None:
    node, grants = await lane(hub, sam)
    clock.advance(10_000)
    await node.report_all([node.make_report(grant.attempt_id, ran_ms=9_000) for grant in grants])
    assert await billed(sam, grants) == [0, 0, 0, 1_000, 9_000]


async def test_attempts_of_one_lane_reported_one_by_one_are_not_paid_for_the_same_time(
    hub: HubDouble, sam: httpx2.AsyncClient, clock: FakeClock
) -> None:
    node, grants = await lane(hub, sam)
    clock.advance(10_000)
    await asyncio.gather(*(node.report(grant.attempt_id, ran_ms=9_000) for grant in grants[:3]))
    clock.advance(500)
    for grant in grants[3:]:
        await node.report(grant.attempt_id, ran_ms=400)
    assert await billed(sam, grants) == [0, 100, 400, 1_000, 9_000]


async def test_an_owner_is_paid_although_the_node_was_gone_when_it_was_leased(hub: HubDouble) -> None:
    """The node leaves before its lease is written, and comes back before the lease ends."""
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    node = await hub.node(pia)
    write, gone = hub.hub.store.write, asyncio.Event()

    async def leave_first(unit: Callable[[Tx], T]) -> T:
        if getattr(unit, "func", None) is dispatch._insert_and_lease and not gone.is_set():
            gone.set()
            hub.hub.nodes.registry.on_node_lost(node.node_id)
        return await write(unit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(hub.hub.store), "write", lambda _store, unit: leave_first(unit))
        [job_id] = await submit(sam, spec=HOUR)
        async with asyncio.timeout(60):
            await gone.wait()
    [grant] = await node.take()
    hub.hub.clock.advance(60_000)  # type: ignore[attr-defined]
    await node.report(grant.attempt_id, ran_ms=60_000)
    assert (await job(sam, job_id))["state"] == "succeeded"
    assert (await balances_of(hub, pia))[2] == charge_of(PRICE, 60_000) * 8 // 10


@pytest.mark.parametrize("too_long_ms", [0, 1, 5_000])
async def test_a_result_that_took_longer_than_its_money_lasts_is_none(hub: HubDouble, too_long_ms: int) -> None:
    """Only the billed time counts, whatever the node's clock says."""
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    node = await hub.node(pia)
    await submit(sam, spec=HOUR, budget=charge_of(PRICE, 1_000))
    [grant] = await node.take()
    assert grant.paid_ms == 1_000
    hub.hub.clock.advance(10_000)  # type: ignore[attr-defined]
    await node.report(grant.attempt_id, ran_ms=1_000 + too_long_ms)
    seen = await job(sam, grant.job_id)
    if too_long_ms:
        assert (seen["state"], seen["reason"], seen["charge"]) == ("failed", "budget_spent", 0)
        assert seen.get("result") is None
        assert await balances_of(hub, sam) == (100 * CREDIT, 0, 0)
    else:
        assert (seen["state"], seen["charge"]) == ("succeeded", charge_of(PRICE, 1_000))


@pytest.mark.parametrize("money", [{}, {"budget": charge_of(PRICE, 1_000)}], ids=["ceiling", "budget"])
async def test_a_node_is_not_paid_for_longer_than_the_hub_saw(hub: HubDouble, money: dict[str, int]) -> None:
    """A longer claimed run time does not spend a budget, either."""
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    node = await hub.node(pia)
    await submit(sam, spec=HOUR, **money)
    [grant] = await node.take()
    hub.hub.clock.advance(900)  # type: ignore[attr-defined]
    await node.report(grant.attempt_id, ran_ms=3_000_000)
    assert (await job(sam, grant.job_id))["charge"] == charge_of(PRICE, 900)


@pytest.mark.parametrize(
    "said",
    [{"outcome": "failed", "reason": "exit_nonzero", "exit_code": 3}, {"outcome": "failed", "reason": "budget_spent"}],
    ids=str,
)
async def test_a_job_that_fails_costs_nothing(hub: HubDouble, said: dict[str, object]) -> None:
    sam = await hub.account("sam", "submitter")
    node = await hub.node(await hub.account("pia", "provider"))
    await submit(sam, spec=HOUR)
    [grant] = await node.take()
    hub.hub.clock.advance(60_000)  # type: ignore[attr-defined]
    await node.report(grant.attempt_id, ran_ms=60_000, **said)
    assert await balances_of(hub, sam) == (100 * CREDIT, 0, 0)
    assert (await job(sam, grant.job_id))["charge"] == 0


async def test_a_cancelled_job_and_what_waited_for_it_give_everything_back(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    [first] = await submit(sam, spec=HOUR)
    await submit(sam, spec=HOUR, after=[first])
    assert (await balances_of(hub, sam))[1] == 2 * CEILING
    await sam.post(f"/jobs/{first}/cancel")
    await sam.post(f"/jobs/{first}/cancel")
    assert await balances_of(hub, sam) == (100 * CREDIT, 0, 0)


async def test_what_cannot_be_held_is_refused_with_what_is_missing(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    async with untouched(hub):
        answer = await sam.post("/jobs", json=body(items=7, spec=HOUR))
    assert (answer.status_code, answer.json()["code"]) == (402, "insufficient_credits")
    assert "112.00 in all; 12.00 are missing" in answer.json()["detail"]
    assert (await sam.post("/jobs", json=body(items=6, spec=HOUR))).status_code == 201


async def test_a_budget_is_shared_and_ends_the_job(hub: HubDouble) -> None:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    node = await hub.node(pia)
    answer = (await sam.post("/jobs", json=body(items=2, spec=HOUR, budget=4 * CREDIT + 1))).json()
    assert answer["hold"] == 4 * CREDIT
    grant = (await node.take())[0]
    assert grant.paid_ms is not None
    assert charge_of(grant.price, grant.paid_ms) == 2 * CREDIT < charge_of(grant.price, grant.paid_ms + 1)
    hub.hub.clock.advance(3_000_000)  # type: ignore[attr-defined]
    node.sign_in()
    await node.report(grant.attempt_id, ran_ms=grant.paid_ms)
    assert (await job(sam, grant.job_id))["charge"] == 2 * CREDIT


async def test_my_own_node_costs_nothing(hub: HubDouble) -> None:
    ann = await hub.account("ann", "submitter", "provider")
    node, stranger = await hub.node(ann), await hub.node(name="stranger")
    answer = (await ann.post("/jobs", json=body(items=3, spec=HOUR, max_price=0))).json()
    assert (answer["hold"], answer["max_price"]) == (0, 0)
    grants = await node.take(3)
    assert [grant.price for grant in grants] == [0, 0, 0]
    assert not (await stranger.poll(wait_ms=0)).grants
    hub.hub.clock.advance(50_000)  # type: ignore[attr-defined]
    assert await node.report(grants[0].attempt_id, ran_ms=50_000) == "accepted"
    assert await balances_of(hub, ann) == (100 * CREDIT, 0, 0)


async def earn(hub: HubDouble, owner: httpx2.AsyncClient, *, hours: int) -> int:
    """By a real job for another account; then time passes until the earnings mature."""
    sam, node = await hub.account("sam", "submitter"), await hub.node(owner)
    await submit(sam, spec={"timeout_s": hours * 3600}, max_price=PRICE)
    [grant] = await node.take()
    hub.hub.clock.advance(hours * 3_600_000)  # type: ignore[attr-defined]
    node.sign_in()
    await node.report(grant.attempt_id, ran_ms=hours * 3_600_000)
    hub.hub.clock.advance(round(hub.hub.settings.holdback_s * 1000) + 1)  # type: ignore[attr-defined]
    assert await credits_service.mature(hub.hub) == 1
    return hours * PRICE * 8 // 10


async def test_earnings_are_spent_last_and_come_back_first(hub: HubDouble) -> None:
    ann = await hub.account("ann", "submitter", "provider")
    account, earned = await me(ann), await earn(hub, ann, hours=7)
    assert earned == 44_800_000
    jobs = await submit(ann, items=9, spec=HOUR, needs={"tags": ["nowhere"]}, max_price=CEILING)  # 144
    assert await balance(hub, ledger.owner(account)) == earned - 44 * CREDIT
    assert await balance(hub, ledger.user(account)) == 0
    for job_id in reversed(jobs):
        await ann.post(f"/jobs/{job_id}/cancel")
    assert await balance(hub, ledger.owner(account)) == earned
    assert await balance(hub, ledger.user(account)) == 100 * CREDIT


async def test_an_account_has_a_limit_for_a_day(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    quota = {"jobs_open_max": None, "spend_per_day_max": 40 * CREDIT}
    assert (await hub.admin.put(f"/accounts/{await me(sam)}/quotas", json=quota)).status_code == 200
    [first, _] = await submit(sam, items=2, spec=HOUR)
    async with untouched(hub):
        refused = await sam.post("/jobs", json=body(spec=HOUR))
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) >= 1
    assert "40.00 credits a day" in refused.json()["detail"]
    async with untouched(hub):
        never = await sam.post("/jobs", json=body(items=3, spec=HOUR))
    assert (never.status_code, never.json()["field"]) == (422, "max_price"), "no waiting would help"
    await sam.post(f"/jobs/{first}/cancel")
    assert (await sam.post("/jobs", json=body(spec=HOUR))).status_code == 201


async def test_neither_refused_jobs_nor_those_of_other_days_count_for_the_limit(
    hub: HubDouble, sam: httpx2.AsyncClient, clock: FakeClock
) -> None:
    await hub.admin.put(f"/accounts/{await me(sam)}/quotas", json={"spend_per_day_max": 5 * CEILING})
    for _ in range(3):
        poor = await sam.post("/jobs", json=body(items=7, spec=HOUR, max_price=PRICE * 4))
        assert (poor.status_code, poor.json()["code"]) in ((402, "insufficient_credits"), (422, "bad_request"))
    await submit(sam, items=5, spec=HOUR)
    assert (await sam.post("/jobs", json=body(spec=HOUR))).status_code == 429
    clock.advance(25 * 3_600_000)
    assert (await sam.post("/jobs", json=body(spec=HOUR))).status_code == 201


async def test_an_amount_is_a_whole_number(hub: HubDouble, subtests: pytest.Subtests) -> None:
    bad = [-1, 1.5, "8", True, 9_000_000_000_000_001, float("1e30")]
    for field, amount in itertools.product(["max_price", "budget"], bad):
        with subtests.test(field=field, amount=amount):
            async with untouched(hub):
                answer = await hub.admin.post("/jobs", json=body(**{field: amount}))
            assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_a_job_without_a_card_pays_the_price_of_a_core_whatever_cards_the_node_has(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    await hub.node(pia, gpus=[{"name": "NVIDIA GeForce RTX 4090", "tier": "rtx-4090", "vram_mb": 24_000}])
    [job_id] = await submit(sam, spec=HOUR, needs={"cores": 1})
    assert (await job(sam, job_id))["tries"][0]["price"] == PRICE


async def test_a_ceiling_below_every_price_waits_and_says_so(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    node = await hub.node(await hub.account("pia", "provider"))
    [job_id] = await submit(sam, max_price=1)
    assert not (await node.poll(wait_ms=50)).grants
    why = (await sam.get(f"/jobs/{job_id}/why")).json()
    assert any(gate["gate"] == "price" and gate["failing"] == 1 for gate in why["gates"]), why
    assert not why["unsatisfiable"]


async def test_requests_of_one_account_do_not_take_the_hub_from_others(tmp_path: Path) -> None:
    async with running_hub(tmp_path, clock=FakeClock(), requests_per_s=5, submits_per_s=2) as hub:
        sam, ann = await hub.account("sam", "submitter"), await hub.account("ann", "submitter")
        answers = [await sam.post("/jobs", json=body()) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [201, 201, 429]
        assert "submit 2 times a second" in answers[-1].json()["detail"]
        more = [(await sam.get("/me")).status_code for _ in range(3)]
        assert more == [200, 200, 429]
        assert (await ann.get("/me")).status_code == 200
        hub.hub.clock.advance(1_000)  # type: ignore[attr-defined]
        assert (await sam.post("/jobs", json=body())).status_code == 201
