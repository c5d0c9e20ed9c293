"""Requests for payouts and decisions about them, through the API and on both databases."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from computepool.core.money import ledger
from computepool.core.money.money import CREDIT
from computepool.hub.app import build_hub, create_app
from computepool.hub.money import booking
from computepool.hub.money.payouts import payout_rounds
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.money.payouts.bank import Conduct, MisbehavingBank
from tests.hub.money.payouts.conftest import BANK, UPI, Scene
from tests.hub.money.payouts.earning import LEAST, earn
from tests.hub.untouched import untouched
from tests.hub.working import pages

BAD_AMOUNTS: list[tuple[str, int, str]] = [
    ("0", 422, "bad_request"),
    ("-1", 422, "bad_request"),
    (f"-{LEAST}", 422, "bad_request"),
    (str(LEAST - 10_000), 422, "bad_request"),  # below the least
    (str(LEAST + 1), 422, "bad_request"),  # not whole paise
    (str(LEAST + 9_999), 422, "bad_request"),
    ("500000000.0", 422, "bad_request"),
    ("500000000.5", 422, "bad_request"),
    ("5e8", 422, "bad_request"),
    ("NaN", 422, "bad_request"),
    ("Infinity", 422, "bad_request"),
    ("-Infinity", 422, "bad_request"),
    ('"500000000"', 422, "bad_request"),
    ("true", 422, "bad_request"),
    ("null", 422, "bad_request"),
    ("[500000000]", 422, "bad_request"),
    ("{}", 422, "bad_request"),
    ("9000000000000001", 422, "bad_request"),
    ("9" * 100, 422, "bad_request"),
    ("9000000000000000", 402, "insufficient_credits"),
    (str(2 * LEAST + 10_000), 402, "insufficient_credits"),
]


@pytest.mark.soak
async def test_a_bad_amount_of_a_payout_changes_nothing(scene: Scene, subtests: pytest.Subtests) -> None:
    await scene.earn(2 * LEAST)
    for number, (amount, status, code) in enumerate(BAD_AMOUNTS):
        with subtests.test(amount=amount):
            async with untouched(scene.hub):
                answer = await scene.pia.post(
                    "/payouts",
                    content=f'{{"amount": {amount}, "upi": "asha@okaxis"}}'.encode(),
                    headers={"Content-Type": "application/json", "Idempotency-Key": f"k{number}"},
                )
                problem = answer.json()
                assert (answer.status_code, problem["code"]) == (status, code), answer.text
                assert problem.get("field", "amount") == "amount"


BAD_TARGETS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({**UPI, **BANK}, None),
    ({"upi": None}, None),
    ({"upi": ""}, "upi"),
    ({"upi": "asha"}, "upi"),
    ({"upi": "asha@ok axis"}, "upi"),
    ({"upi": "x" * 1000}, "upi"),
    ({"upi": 7}, "upi"),
    ({"upi": "a\x00b@okaxis"}, "upi"),
    ({"bank": {}}, "bank.account_number"),
    ({"bank": BANK["bank"] | {"ifsc": "HDFC1000123"}}, "bank.ifsc"),
    ({"bank": BANK["bank"] | {"account_number": "12345678"}}, "bank.account_number"),
    ({"bank": BANK["bank"] | {"account_number": 50100123456789}}, "bank.account_number"),
    ({"bank": BANK["bank"] | {"name": "=HYPERLINK()"}}, "bank.name"),
    ({"bank": BANK["bank"] | {"swift": "X"}}, "bank.swift"),
    ({**UPI, "currency": "USD"}, "currency"),
]


async def test_a_bad_target_of_a_payout_changes_nothing(any_scene: Scene) -> None:
    scene = any_scene
    await scene.earn(2 * LEAST)
    async with untouched(scene.hub):
        for target, field in BAD_TARGETS:
            answer = await scene.pia.post("/payouts", json={"amount": LEAST, **target})
            assert (answer.status_code, answer.json()["code"]) == (422, "bad_request"), target
            assert answer.json().get("field") == field, answer.text


async def test_asking_sets_the_money_aside_and_says_what_is_missing(any_scene: Scene) -> None:
    scene = any_scene
    await scene.earn(2 * LEAST)
    payout_id = await scene.ask(LEAST + 250 * CREDIT)
    assert await scene.available() == 250 * CREDIT
    assert await scene.balance(f"payout:{payout_id}") == 750 * CREDIT
    async with untouched(scene.hub):
        refused = await scene.pia.post("/payouts", json={"amount": LEAST, **UPI})
        assert refused.status_code == 402
        assert "250.00 are missing" in refused.json()["detail"]
    page = (await scene.pia.get("/payouts")).json()
    assert (page["available"], page["minimum"]) == (250 * CREDIT, LEAST)
    assert [payout["id"] for payout in page["payouts"]] == [payout_id]


async def test_only_matured_earnings_can_be_paid_out(scene: Scene) -> None:
    """Neither granted nor bought credits leave the pool."""
    rich = (await scene.hub.admin.get("/me")).json()["id"]
    await scene.hub.hub.store.write(
        lambda tx: booking.post(tx, "test:gift", ledger.top_up(rich, 10_000 * CREDIT, source=ledger.PROMO))
    )
    refused = await scene.hub.admin.post("/payouts", json={"amount": LEAST, **UPI})
    assert (refused.status_code, refused.json()["code"]) == (402, "insufficient_credits")
    assert "500.00 are missing" in refused.json()["detail"]


async def test_of_a_hundred_requests_for_the_whole_balance_one_succeeds(any_scene: Scene) -> None:
    scene = any_scene
    await scene.earn(2 * LEAST)
    body = {"amount": 2 * LEAST, **UPI}
    answers = await asyncio.gather(*(scene.pia.post("/payouts", json=body) for _ in range(100)))
    assert sorted(answer.status_code for answer in answers) == [201] + [402] * 99
    assert await scene.available() == 0
    await scene.round()
    assert len(scene.bank.books.payouts) == 1


async def test_the_same_key_is_one_payout(any_scene: Scene) -> None:
    scene = any_scene
    await scene.earn(4 * LEAST)
    body, key = {"amount": LEAST, **UPI}, {"Idempotency-Key": "the same"}
    first, *others = await asyncio.gather(*(scene.pia.post("/payouts", json=body, headers=key) for _ in range(20)))
    assert {answer.status_code for answer in (first, *others)} == {201}
    assert {answer.text for answer in others} == {first.text}
    assert await scene.available() == 3 * LEAST
    async with untouched(scene.hub):
        for other in (
            {"amount": 2 * LEAST, **UPI},
            {"amount": LEAST, "upi": "other@okaxis"},
            {"amount": LEAST, **BANK},
        ):
            refused = await scene.pia.post("/payouts", json=other, headers=key)
            assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


async def test_an_account_may_have_only_so_many_payouts_under_way(scene: Scene) -> None:
    scene.hub.hub.settings.payouts_open_max = 2
    await scene.earn(4 * LEAST)
    first, _ = await scene.ask(), await scene.ask()
    async with untouched(scene.hub):
        refused = await scene.pia.post("/payouts", json={"amount": LEAST, **UPI})
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert (await scene.pia.post(f"/payouts/{first}/cancel")).status_code == 200
    await scene.ask()


@pytest.mark.parametrize("economy", ["time-bank", "none"])
async def test_no_payouts_where_credits_are_not_money(tmp_path: Path, economy: str) -> None:
    async with running_hub(tmp_path, economy=economy) as hub:
        answer = await hub.admin.post("/payouts", json={"amount": LEAST, **UPI})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert (await hub.admin.get("/payouts")).json()["payouts"] == []


# approval


@pytest.mark.parametrize("scene", [{"payout_approve_first": True}], indirect=True)
async def test_first_and_large_payouts_wait_for_an_administrator(scene: Scene) -> None:
    await scene.earn(40_000 * CREDIT)
    first = await scene.ask()
    assert (await scene.get(first))["reason"] == "first_payout"
    await scene.round()
    assert await scene.state(first) == "requested"
    assert scene.bank.orders == 0
    second = await scene.ask()
    assert await scene.state(second) == "requested", "nothing has arrived yet"
    assert (await scene.pia.post(f"/payouts/{first}/approve")).status_code == 403
    approved = await scene.hub.admin.post(f"/payouts/{first}/approve")
    assert approved.json()["state"] == "reserved"
    assert approved.json()["approved_by"] == (await scene.hub.admin.get("/me")).json()["id"]
    assert (await scene.hub.admin.post(f"/payouts/{first}/approve")).status_code == 409
    await scene.round()
    assert await scene.state(first) == "paid"
    third, large = await scene.ask(10_000 * CREDIT), await scene.ask(10_000 * CREDIT + 10_000)
    assert await scene.state(third) == "reserved"
    assert (await scene.get(large))["reason"] == "large_payout"
    assert await scene.history(first) == ["requested", "reserved", "submitted", "paid"]


@pytest.mark.parametrize("scene", [{"payout_approve_first": True, "payout_two_persons": True}], indirect=True)
async def test_another_administrator_approves_an_administrators_own_payout(scene: Scene) -> None:
    admin_id = (await scene.hub.admin.get("/me")).json()["id"]
    await earn(scene.hub, admin_id, LEAST)
    asked = (await scene.hub.admin.post("/payouts", json={"amount": LEAST, **UPI})).json()
    [listed] = (await scene.hub.admin.get("/approvals")).json()["approvals"]
    assert (asked["can_approve"], listed["can_approve"]) == (False, False)
    async with untouched(scene.hub):
        refused = await scene.hub.admin.post(f"/payouts/{asked['id']}/approve")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    other = await scene.hub.account("second", "admin")
    assert (await other.get(f"/payouts/{asked['id']}")).json()["can_approve"] is True
    assert (await other.post(f"/payouts/{asked['id']}/approve")).json()["state"] == "reserved"


@pytest.mark.parametrize("scene", [{"payout_approve_first": True}], indirect=True)
async def test_rejecting_returns_the_money_once(scene: Scene) -> None:
    payout_id = await scene.ask_earned()
    body = {"reason": "The holder is somebody else."}
    assert (await scene.hub.admin.post(f"/payouts/{payout_id}/reject", json={})).status_code == 422
    key = {"Idempotency-Key": "once"}
    answers = [await scene.hub.admin.post(f"/payouts/{payout_id}/reject", json=body, headers=key) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {200}
    rejected = answers[0].json()
    assert (rejected["state"], rejected["reason"]) == ("rejected", "rejected")
    assert "somebody else" in rejected["status"]
    assert await scene.available() == LEAST
    for word, sent in (("approve", None), ("reject", body), ("paid", {"reference": "utr1"}), ("failed", body)):
        assert (await scene.hub.admin.post(f"/payouts/{payout_id}/{word}", json=sent)).status_code == 409
    assert (await scene.pia.post(f"/payouts/{payout_id}/cancel")).status_code == 409
    assert await scene.available() == LEAST


# cancelling


async def test_a_payout_can_be_cancelled_once_before_the_bank_has_it(any_scene: Scene) -> None:
    scene = any_scene
    payout_id = await scene.ask_earned()
    answers = await asyncio.gather(*(scene.pia.post(f"/payouts/{payout_id}/cancel") for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 19
    found = await scene.get(payout_id)
    assert (found["state"], found["reason"], found["can_cancel"]) == ("rejected", "cancelled", False)
    assert await scene.available() == LEAST
    await scene.round()
    assert scene.bank.orders == 0


async def test_a_payout_that_the_bank_may_have_cannot_be_cancelled(scene: Scene) -> None:
    await scene.earn(2 * LEAST)
    on_its_way, paid = await scene.ask(), await scene.ask()
    scene.bank.conduct.extend([Conduct.HANG, Conduct.HANG])
    await scene.round()
    for payout_id in (on_its_way, paid):
        async with untouched(scene.hub):
            refused = await scene.pia.post(f"/payouts/{payout_id}/cancel")
            assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


@pytest.mark.soak
async def test_a_payout_that_races_with_its_cancelling_is_sent_or_returned(any_scene: Scene) -> None:
    """Whichever comes first, a payout is never both sent and returned."""
    scene = any_scene
    await scene.earn(40 * LEAST)
    payouts = [await scene.ask() for _ in range(40)]
    _, *answers = await asyncio.gather(
        scene.round(), *(scene.pia.post(f"/payouts/{payout_id}/cancel") for payout_id in payouts)
    )
    cancelled = sum(1 for answer in answers if answer.status_code == 200)
    states = await scene.settle(*payouts)
    assert sorted(states.values()) == ["paid"] * (40 - cancelled) + ["rejected"] * cancelled
    assert len(scene.bank.books.payouts) == 40 - cancelled


# several hubs


async def test_two_hubs_send_each_order_once(bank: MisbehavingBank, tmp_path: Path, migrated_url: str) -> None:
    """Both run their rounds repeatedly at the same time."""
    settings = {"payout_round_s": 3600, "payout_approve_first": False, "payouts_open_max": 1_000, **bank.settings()}
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, database_url=migrated_url, **settings) as first:
        pia = await first.account("pia", "provider")
        await earn(first, (await pia.get("/me")).json()["id"], 40 * LEAST)
        second = build_hub(first.hub.settings, first.hub.clock)
        second.store.start()
        try:
            for _ in range(40):
                assert (await pia.post("/payouts", json={"amount": LEAST, **UPI})).status_code == 201
            bank.conduct.extend([Conduct.ERROR_PAID] * 20)
            for _ in range(4):
                await asyncio.gather(*(payout_rounds.run(hub) for hub in (first.hub, second) * 2))
            assert bank.orders == 40
            assert bank.questions == 0
            clock.advance(60_000)
            await asyncio.gather(*(payout_rounds.run(hub) for hub in (first.hub, second) * 2))
        finally:
            await second.store.stop()
        found = (await pia.get("/payouts")).json()["payouts"]
        assert [payout["state"] for payout in found] == ["paid"] * 40
        assert (bank.orders, bank.questions) == (40, 20)


@pytest.mark.soak
async def test_two_hubs_never_reserve_the_same_money(tmp_path: Path, migrated_url: str) -> None:
    async with running_hub(tmp_path, database_url=migrated_url, payout_round_s=3600) as first:
        pia = await first.account("pia", "provider")
        await earn(first, (await pia.get("/me")).json()["id"], 2 * LEAST)
        settings = first.hub.settings
        app = create_app(settings)
        async with app.router.lifespan_context(app):
            second = HubDouble(app, first.admin_key)
            key = pia.headers["Authorization"].removeprefix("Bearer ")
            clients = [pia, second.client(key)]
            body = {"amount": 2 * LEAST, **UPI}
            answers = await asyncio.gather(*(client.post("/payouts", json=body) for client in clients * 25))
            assert sorted(answer.status_code for answer in answers) == [201] + [402] * 49
            await second.close()


# looking


async def test_only_owners_and_administrators_see_a_payout(scene: Scene) -> None:
    await scene.earn(2 * LEAST)
    payout_id, _ = await scene.ask(**BANK), await scene.ask(**UPI)
    own, by_admin = await scene.get(payout_id), (await scene.hub.admin.get(f"/payouts/{payout_id}")).json()
    for seen in (own, by_admin):
        assert seen["bank"] == BANK["bank"]
        assert seen["masked"] == "***6789 at HDFC0000123"
    stranger = await scene.hub.account("otto", "provider")
    assert (await stranger.get(f"/payouts/{payout_id}")).status_code == 404
    assert (await stranger.post(f"/payouts/{payout_id}/cancel")).status_code == 404
    assert (await stranger.get("/payouts")).json()["payouts"] == []
    refused = await stranger.get("/payouts", params={"all": True})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert (await scene.hub.admin.get("/payouts")).json()["payouts"] == []
    everybody = (await scene.hub.admin.get("/payouts", params={"all": True})).json()["payouts"]
    assert len(everybody) == 2
    assert everybody[0]["account_name"] == "pia"


async def test_payouts_are_listed_in_pages_and_by_state(scene: Scene) -> None:
    await scene.earn(5 * LEAST)
    payouts = [await scene.ask() for _ in range(5)]
    await scene.pia.post(f"/payouts/{payouts[0]}/cancel")
    seen = [payout["id"] for payout in await pages(scene.pia, "/payouts", "payouts", limit=2)]
    assert sorted(seen) == sorted(payouts)
    assert seen == sorted(seen, reverse=True)
    rejected = (await scene.pia.get("/payouts", params={"state": "rejected"})).json()["payouts"]
    assert [payout["id"] for payout in rejected] == payouts[:1]
    assert (await scene.pia.get("/payouts", params={"state": "lost"})).status_code == 422


# by hand


@pytest.mark.parametrize("scene", [{"payout_provider": "manual"}], indirect=True)
async def test_the_operator_pays_by_hand(scene: Scene) -> None:
    await scene.earn(4 * LEAST)
    upi, account, third = await scene.ask(**UPI), await scene.ask(**BANK), await scene.ask(**UPI)
    early = await scene.hub.admin.post(f"/payouts/{upi}/paid", json={"reference": "UTR000"})
    assert early.status_code == 409, "not on the list yet; its owner may still cancel it"
    await scene.round()
    assert await scene.round(after_s=10_000_000) == 0, "nobody is asked about these"
    exported = await scene.hub.admin.get("/payouts/export.csv")
    assert exported.headers["content-type"].startswith("text/csv")
    assert exported.headers["cache-control"] == "no-store"
    rows = {row.pop("reference"): row for row in csv.DictReader(io.StringIO(exported.text))}
    assert rows.keys() == {upi, account, third}
    paid_to = {"amount_inr": "500.00", "method": "bank", "upi": "", "account": "pia", **BANK["bank"]}
    assert {name: rows[account][name] for name in paid_to} == paid_to
    assert (rows[upi]["method"], rows[upi]["upi"], rows[upi]["ifsc"]) == ("upi", "asha@okaxis", "")
    assert (await scene.hub.admin.get("/payouts/export.csv")).text == exported.text

    paid = await scene.hub.admin.post(f"/payouts/{upi}/paid", json={"reference": "UTR001"})
    assert (paid.json()["state"], paid.json()["provider_ref"]) == ("paid", "UTR001")
    again = await scene.hub.admin.post(f"/payouts/{account}/paid", json={"reference": "UTR001"})
    assert (again.status_code, again.json()["field"]) == (409, "reference")
    failed = await scene.hub.admin.post(f"/payouts/{account}/failed", json={"reason": "account closed"})
    assert failed.json()["state"] == "failed"
    assert await scene.available() == 2 * LEAST
    for word, sent in (("paid", {"reference": "UTR9"}), ("failed", {"reason": "x"})):
        for payout_id in (upi, account):
            assert (await scene.hub.admin.post(f"/payouts/{payout_id}/{word}", json=sent)).status_code == 409
    left = list(csv.DictReader(io.StringIO((await scene.hub.admin.get("/payouts/export.csv")).text)))
    assert [row["reference"] for row in left] == [third]


@pytest.mark.parametrize("scene", [{"payout_provider": "manual"}], indirect=True)
async def test_marking_in_a_race_happens_once(scene: Scene) -> None:
    payout_id = await scene.ask_earned()
    await scene.round()
    answers = await asyncio.gather(
        *(
            scene.hub.admin.post(f"/payouts/{payout_id}/{word}", json=sent)
            for word, sent in [("paid", {"reference": "UTR001"}), ("failed", {"reason": "x"})] * 10
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 19


async def test_a_bank_that_answers_is_not_contradicted_by_hand(scene: Scene) -> None:
    await scene.earn(2 * LEAST)
    payout_id, lost = await scene.ask(), await scene.ask()
    scene.bank.conduct.extend([Conduct.PROCESS, Conduct.PROCESS])
    await scene.round()
    refused = await scene.hub.admin.post(f"/payouts/{payout_id}/failed", json={"reason": "I think so"})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert set((await scene.settle(payout_id, lost)).values()) == {"paid"}


async def test_an_unknown_payout_can_be_decided_by_hand(scene: Scene) -> None:
    """The operator has looked at the bank's own list: it was never there."""
    payout_id = await scene.ask_earned()
    scene.bank.conduct.append(Conduct.ERROR)
    await scene.round()
    found = (await scene.hub.admin.get(f"/payouts/{payout_id}")).json()
    assert (found["state"], found["can_mark"]) == ("unknown", True)
    failed = await scene.hub.admin.post(f"/payouts/{payout_id}/failed", json={"reason": "not at the bank"})
    assert failed.json()["state"] == "failed"
    assert await scene.available() == LEAST
    assert await scene.round(after_s=1_000_000) == 0


async def test_changing_the_provider_leaves_nothing_behind(scene: Scene) -> None:
    await scene.earn(2 * LEAST)
    payout_id = await scene.ask()
    scene.bank.conduct.append(Conduct.HANG_PAID)
    await scene.round()
    scene.hub.hub.settings.payout_provider = "manual"
    by_hand = await scene.ask()
    assert (await scene.settle(payout_id))[payout_id] == "paid"
    assert await scene.state(by_hand) == "submitted"
    exported = (await scene.hub.admin.get("/payouts/export.csv")).text
    assert by_hand in exported
    assert payout_id not in exported


async def test_events_tell_every_step_and_no_secret(scene: Scene) -> None:
    await scene.earn(LEAST)
    payout_id = await scene.ask(**BANK)
    scene.bank.conduct.append(Conduct.ERROR_PAID)
    await scene.round()
    await scene.settle(payout_id)
    events = (await scene.pia.get("/events", params={"limit": 500})).json()["events"]
    told = [event for event in events if event["action"].startswith("payout.")]
    assert [(event["before"], event["after"]) for event in told] == [
        (None, "requested"),
        ("requested", "reserved"),
        ("reserved", "submitted"),
        ("submitted", "unknown"),
        ("unknown", "paid"),
    ]
    assert "50100123456789" not in json.dumps(events)
