"""Sign-in links for other accounts, and all accounts' keys: for administrators, within what their own key may do."""

from __future__ import annotations

from pathlib import Path

from computepool.hub.main import signin_link
from computepool.hub.settings import Settings
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.untouched import untouched
from tests.hub.working import got, me


async def test_a_link_signs_its_account_in_once(any_hub: HubDouble) -> None:
    sam = await any_hub.account("sam", "submitter")
    sams = await me(sam)
    made = (await any_hub.admin.post(f"/accounts/{sams}/link")).json()
    assert made["link"] == f"{any_hub.hub.settings.address}/signin?code={made['code']}"
    browser = any_hub.client()
    answer = await browser.post("/signin", json={"code": made["code"], "kind": "cookie"})
    assert answer.json()["account"]["id"] == sams
    assert (await any_hub.client().post("/signin", json={"code": made["code"]})).status_code == 422
    told = [event["action"] for event in (await got(sam, "/events", action="account."))["events"]]
    assert told[-2:] == ["account.link_issued", "account.signed_in"]
    assert made["code"] not in (await any_hub.admin.get("/events", params={"newest": "true"})).text


async def test_a_limited_key_creates_no_sign_in_link(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        sam = await hub.account("sam", "submitter")
        sams = await me(sam)
        weak = [
            (await hub.admin.post("/keys", json={"name": "k", **fields})).json()["key"]
            for fields in ({"scopes": ["admin"]}, {"scopes": ["admin", "account"]}, {"expires_in_s": 3600})
        ]
        async with untouched(hub):
            for key in weak:
                answer = await hub.client(key).post(f"/accounts/{sams}/link")
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
            assert (await sam.post(f"/accounts/{sams}/link")).status_code == 403
            assert (await hub.admin.post("/accounts/acc_none/link")).status_code == 404
            assert (await hub.admin.post("/accounts/acc_pool/link")).status_code == 403
        boss = await me(await hub.account("boss", "admin"))
        assert (await hub.admin.post(f"/accounts/{boss}/link")).status_code == 201
        hub.hub.settings.two_person = "payouts"
        assert (await hub.admin.post(f"/accounts/{boss}/link")).status_code == 403, "two persons must be two"
        assert (await hub.admin.post(f"/accounts/{sams}/link")).status_code == 201


async def test_administrators_see_and_end_everybodys_keys(any_hub: HubDouble) -> None:
    sam, olga = await any_hub.account("sam", "submitter"), await any_hub.account("olga", "submitter")
    sams = await me(sam)
    code = (await any_hub.admin.post(f"/accounts/{sams}/link")).json()["code"]
    await any_hub.client().post("/signin", json={"code": code, "kind": "cookie", "name": "browser"})
    [own] = (await got(sam, "/keys"))["keys"]
    assert (own["this"], own["state"], own["can_revoke"], own["kind"]) == (True, "good", True, "key")
    kinds = {key["kind"] for key in (await got(sam, "/keys", sessions="true"))["keys"]}
    assert kinds == {"key", "cookie"}
    assert (await olga.get("/keys", params={"account_id": sams})).status_code == 404
    assert {key["account_name"] for key in (await got(olga, "/keys", all="true"))["keys"]} == {"olga"}
    every = (await got(any_hub.admin, "/keys", all="true", sessions="true"))["keys"]
    assert {key["account_name"] for key in every} == {"admin", "sam", "olga"}
    [found] = (await got(any_hub.admin, "/keys", account_id=sams))["keys"]
    assert (found["id"], found["this"]) == (own["id"], False)
    assert "hash" not in str(every)
    assert (await any_hub.admin.delete(f"/keys/{own['id']}")).status_code == 204
    assert (await sam.get("/me")).status_code == 401
    [ended] = (await got(any_hub.admin, "/keys", account_id=sams))["keys"]
    assert (ended["state"], ended["can_revoke"]) == ("revoked", False)


async def test_a_key_that_may_only_read_is_offered_nothing(hub: HubDouble) -> None:
    key = (await hub.admin.post("/keys", json={"name": "k", "scopes": ["read"]})).json()["key"]
    reader = hub.client(key)
    assert {found["can_revoke"] for found in (await got(reader, "/keys"))["keys"]} == {False}
    assert {found["account_name"] for found in (await got(reader, "/keys", all="true"))["keys"]} == {"admin"}


async def test_the_link_names_the_hub_that_serves_and_works_once(tmp_path: Path) -> None:
    async with running_hub(tmp_path, port=8401) as hub:
        link = signin_link(Settings(data_dir=tmp_path))
        address, code = link.split("/signin?code=")
        assert address == "http://127.0.0.1:8401"
        assert (await hub.admin.get("/me")).status_code == 200  # the key that `pool up` made still works
        answers = [await hub.client().post("/signin", json={"code": code}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 422]


def test_without_a_hub_the_link_names_the_settings_address(tmp_path: Path) -> None:
    assert signin_link(Settings(data_dir=tmp_path, port=9000)).startswith("http://127.0.0.1:9000/signin?code=")
