"""Approvals by a second administrator: one alone is not enough, nor one with two accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.money.money import CREDIT
from computepool.hub.settings import Settings
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.money.payouts.earning import LEAST, earn
from tests.hub.submitting import submit
from tests.hub.untouched import untouched

ALL = "payouts,top-ups,roles"


class Two:
    """A hub with two administrators, and ann."""

    def __init__(self, hub: HubDouble, second: httpx2.AsyncClient, ann: httpx2.AsyncClient) -> None:
        self.hub, self.first, self.second, self.ann = hub, hub.admin, second, ann

    async def credits(self) -> int:
        return int((await self.ann.get("/credits")).json()["available"])


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with running_hub(tmp_path, two_person="", payout_round_s=3600, payout_approve_above=0) as hub:
        made = Two(hub, await hub.account("bob", "admin"), await hub.account("ann", "submitter", "provider"))
        hub.hub.settings.two_person = ALL
        yield made


async def given(two: Two, **fields: Any) -> dict[str, Any]:
    answer = await two.first.post("/credits/top-ups", json={"account": "ann", "amount": 5 * CREDIT, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_top_up_happens_when_another_administrator_agrees(two: Two) -> None:
    before = await two.credits()
    asked = await given(two)
    assert asked["approval_id"]
    assert await two.credits() == before
    [listed] = (await two.second.get("/approvals")).json()["approvals"]
    assert (listed["id"], listed["kind"], listed["requested_by"]) == (asked["approval_id"], "top-up", "admin")
    assert "5.00 credits" in listed["summary"]
    assert listed["can_approve"]
    assert not (await two.first.get("/approvals")).json()["approvals"][0]["can_approve"]
    path = f"/approvals/{asked['approval_id']}"
    async with untouched(two.hub):
        assert (await two.first.post(f"{path}/approve")).status_code == 403, "not by who asked"
        assert (await two.ann.post(f"{path}/approve")).status_code == 403
    assert (await two.second.post(f"{path}/approve")).json()["state"] == "approved"
    assert await two.credits() == before + 5 * CREDIT
    async with untouched(two.hub):
        assert (await two.second.post(f"{path}/approve")).status_code == 409
    assert (await two.first.get("/approvals")).json()["approvals"] == []
    actions = [event["action"] for event in (await two.first.get("/events", params={"limit": 500})).json()["events"]]
    assert {"approval.requested", "approval.approved", "credits.given"} <= set(actions)


async def test_the_grant_of_a_new_account_needs_two_administrators_as_top_ups_do(two: Two) -> None:
    answer = await two.first.post("/accounts", json={"name": "eve", "roles": ["submitter"]})
    assert answer.status_code == 201
    made = answer.json()
    key = await two.first.post("/keys", json={"name": "k", "account_id": made["id"]})
    eve = two.hub.client(key.json()["key"])
    assert (await eve.get("/credits")).json()["available"] == 0
    [listed] = (await two.second.get("/approvals")).json()["approvals"]
    assert (listed["id"], listed["kind"], listed["requested_by"]) == (made["approval_id"], "sign-up grant", "admin")
    assert "new account eve" in listed["summary"]
    path = f"/approvals/{made['approval_id']}/approve"
    async with untouched(two.hub):
        assert (await two.first.post(path)).status_code == 403
    assert (await two.second.post(path)).status_code == 200
    assert (await eve.get("/credits")).json()["available"] == two.hub.hub.settings.signup_grant
    two.hub.hub.settings.two_person = "payouts"
    bea = await two.hub.account("bea", "submitter")
    assert (await bea.get("/credits")).json()["available"] == two.hub.hub.settings.signup_grant


async def test_twenty_approvals_at_once_take_effect_once(two: Two) -> None:
    before = await two.credits()
    approval = (await given(two))["approval_id"]
    answers = await asyncio.gather(*(two.second.post(f"/approvals/{approval}/approve") for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 19
    assert await two.credits() == before + 5 * CREDIT


async def test_a_rejected_request_has_no_effect(two: Two) -> None:
    before = await two.credits()
    for client in (two.second, two.first):  # by the other, or taken back
        approval = (await given(two))["approval_id"]
        answer = await client.post(f"/approvals/{approval}/reject", json={"reason": "no"})
        assert answer.json()["state"] == "rejected"
        assert (await two.second.post(f"/approvals/{approval}/approve")).status_code == 409
    assert await two.credits() == before


async def test_a_request_that_nobody_approves_expires(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        two = Two(hub, await hub.account("bob", "admin"), await hub.account("ann", "submitter"))
        hub.hub.settings.two_person = "top-ups"
        approval = (await given(two))["approval_id"]
        clock.advance(7 * 86400_000 + 1)
        assert (await two.second.get("/approvals")).json()["approvals"] == []
        assert (await two.second.post(f"/approvals/{approval}/approve")).status_code == 409


async def test_roles_change_when_another_administrator_agrees(two: Two) -> None:
    ann = (await two.ann.get("/me")).json()["id"]
    answer = (await two.first.put(f"/accounts/{ann}/roles", json={"roles": ["admin"]})).json()
    assert (answer["roles"], bool(answer["approval_id"])) == (["submitter", "provider"], True)
    assert (await two.ann.get("/accounts")).status_code == 403
    await two.second.post(f"/approvals/{answer['approval_id']}/approve")
    assert (await two.ann.get("/accounts")).status_code == 200, "with the key she has, at once"


async def test_one_administrator_does_not_become_two(two: Two) -> None:
    bob = (await two.second.get("/me")).json()["id"]
    key = (await two.second.post("/keys", json={"name": "k"})).json()["id"]
    async with untouched(two.hub):
        for method, path, sent in (
            ("POST", "/accounts", {"name": "puppet", "roles": ["admin"]}),
            ("POST", "/keys", {"name": "k", "account_id": bob}),
            ("POST", f"/keys/{key}/rotate", {}),
        ):
            answer = await two.first.request(method, path, json=sent)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
    assert (await two.first.post("/accounts", json={"name": "carl", "roles": ["submitter"]})).status_code == 201


async def test_a_payout_needs_two_of_whom_neither_is_its_owner(two: Two) -> None:
    third = await _third(two)
    owner = (await two.second.get("/me")).json()["id"]
    await earn(two.hub, owner, 10 * LEAST)
    payout = (await two.second.post("/payouts", json={"amount": LEAST, "upi": "bob@okaxis"})).json()["id"]
    path = f"/payouts/{payout}/approve"
    async with untouched(two.hub):
        assert (await two.second.post(path)).status_code == 403, "his own"
    once = (await two.first.post(path)).json()
    assert (once["state"], once["reason"]) == ("requested", "second_person")
    async with untouched(two.hub):
        assert (await two.first.post(path)).status_code == 403, "once more is not two"
        assert (await two.second.post(path)).status_code == 403
    [listed] = [one for one in (await third.get("/approvals")).json()["approvals"] if one["kind"] == "payout"]
    assert listed["can_approve"]
    twice = (await third.post(path)).json()
    assert (twice["state"], twice["reason"]) == ("reserved", "approved")
    assert len(twice["approved_by"].split(",")) == 2


async def _third(two: Two) -> httpx2.AsyncClient:
    carl = await two.hub.account("carl", "submitter")
    me = (await carl.get("/me")).json()["id"]
    asked = (await two.first.put(f"/accounts/{me}/roles", json={"roles": ["admin"]})).json()
    await two.second.post(f"/approvals/{asked['approval_id']}/approve")
    return carl


async def test_without_two_person_rules_one_administrator_is_enough(any_hub: HubDouble) -> None:
    ann = await any_hub.account("ann", "submitter")
    answer = await any_hub.admin.post("/credits/top-ups", json={"account": "ann", "amount": CREDIT})
    assert answer.json()["approval_id"] is None
    me = (await ann.get("/me")).json()["id"]
    changed = (await any_hub.admin.put(f"/accounts/{me}/roles", json={"roles": ["provider"]})).json()
    assert (changed["roles"], changed["approval_id"]) == (["provider"], None)
    assert (await ann.post("/jobs", json={})).status_code == 403
    await submit(any_hub.admin, needs={"cores": 1000})


async def test_there_is_always_an_administrator(any_hub: HubDouble) -> None:
    me = (await any_hub.admin.get("/me")).json()["id"]
    async with untouched(any_hub):
        answer = await any_hub.admin.put(f"/accounts/{me}/roles", json={"roles": ["submitter"]})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_the_setting_knows_its_words_and_always_guards_roles() -> None:
    assert Settings(two_person="").two_person_kinds() == frozenset()
    assert Settings(two_person="payouts, top-ups").two_person_kinds() == {"payouts", "top-ups", "roles"}
    with pytest.raises(ValueError, match="two_person"):
        Settings(two_person="everything")
