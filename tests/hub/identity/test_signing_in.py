"""Signing in by link, by code and by key; cookies and other sites; keys that stop working at once."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx2
import pytest

from computepool.hub.identity import keys, sign_in
from computepool.hub.snapshot import take
from computepool.testing.clock import FakeClock
from computepool.testing.hub import ORIGIN, HubDouble, running_hub
from tests.hub.submitting import COMMAND
from tests.hub.untouched import untouched

COOKIE = "computepool_session"
SAME = {"Sec-Fetch-Site": "same-origin"}


async def code_for(hub: HubDouble, client: httpx2.AsyncClient, *, lifetime_s: float = 60) -> str:
    account = (await client.get("/me")).json()["id"]
    code, _ = await hub.hub.store.write(
        lambda tx: sign_in.issue_code(tx, take(hub.hub), purpose="signin", account_id=account, lifetime_s=lifetime_s)
    )
    return code


async def browser(hub: HubDouble) -> httpx2.AsyncClient:
    """A client that signed in on the page, as a browser does."""
    client = hub.client()
    code = await code_for(hub, hub.admin)
    answer = await client.post(f"{ORIGIN}/signin", data={"code": code}, headers=SAME)
    assert answer.status_code == 303
    return client


# the page


async def test_the_link_shows_a_button_and_the_button_signs_in_once(any_hub: HubDouble) -> None:
    code = await code_for(any_hub, any_hub.admin)
    client = any_hub.client()
    async with untouched(any_hub):
        for _ in range(3):  # programs that preview links, and impatient people
            page = await client.get(f"{ORIGIN}/signin", params={"code": code})
            assert page.status_code == 200
            assert "set-cookie" not in page.headers
    assert re.search(r'<form method="post" action="/signin">', page.text)
    assert f'value="{code}"' in page.text
    answer = await client.post(f"{ORIGIN}/signin", data={"code": code}, headers=SAME)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=cp_")
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
    assert (await client.get("/me")).json()["name"] == "admin"
    assert "Signed in as" in (await client.get(f"{ORIGIN}/")).text
    again = await any_hub.client().post(f"{ORIGIN}/signin", data={"code": code}, headers=SAME)
    assert again.status_code == 422
    assert "no longer works" in again.text
    assert "set-cookie" not in again.headers


@pytest.mark.soak
async def test_one_code_signs_in_one_of_many_that_come_at_once(any_hub: HubDouble) -> None:
    code = await code_for(any_hub, any_hub.admin)
    answers = await asyncio.gather(*(any_hub.client().post("/signin", json={"code": code}) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] + [422] * 19


async def test_an_expired_code_does_not_sign_in(hub: HubDouble) -> None:
    code = await code_for(hub, hub.admin, lifetime_s=-1)
    assert (await hub.client().post("/signin", json={"code": code})).status_code == 422


@pytest.mark.parametrize("code", ["", "x", "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "é" * 40])
async def test_a_page_never_shows_markup_of_the_link(hub: HubDouble, code: str) -> None:
    for page in (
        await hub.client().get(f"{ORIGIN}/signin", params={"code": code}),
        await hub.client().post(f"{ORIGIN}/signin", data={"code": code}, headers=SAME),
    ):
        assert page.status_code in (200, 422)
        assert "<script" not in page.text
        assert "<img" not in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["referrer-policy"] == "no-referrer"


async def test_names_cannot_bring_markup_to_the_first_page(tmp_path: Path) -> None:
    async with running_hub(tmp_path, name="<b>pool</b>") as hub:
        page = (await hub.client().get(f"{ORIGIN}/")).text
        assert "<b>pool" not in page
        assert "&lt;b&gt;pool" in page


async def test_over_https_the_cookie_is_secure_and_bound_to_the_host(tmp_path: Path) -> None:
    async with running_hub(tmp_path, public_url="https://pool.test") as hub:
        code = await code_for(hub, hub.admin)
        answer = await hub.client().post("/signin", json={"code": code, "kind": "cookie"})
        assert answer.json()["key"] is None, "a script must not read it"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"__Host-{COOKIE}=")
        assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
        value = cookie.partition("=")[2].partition(";")[0]
        me = await hub.client().get("/me", headers={"Cookie": f"__Host-{COOKIE}={value}"})
        assert me.json()["name"] == "admin"


# cookies and other sites


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "none"}, 201),
        ({"Origin": ORIGIN}, 201),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": ORIGIN}, 403),
        ({"Origin": "https://evil.test"}, 403),
        ({"Origin": "http://hub.test.evil.test"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),
    ],
)
async def test_a_cookie_counts_only_on_requests_of_this_site(
    hub: HubDouble, headers: dict[str, str], status: int
) -> None:
    client = await browser(hub)
    if status == 201:
        assert (await client.post("/jobs", json={"spec": COMMAND}, headers=headers)).status_code == 201
        return
    async with untouched(hub):
        for method, path, sent in (
            ("POST", "/jobs", {"spec": COMMAND}),
            ("POST", "/keys", {"name": "k"}),
            ("POST", "/nodes/codes", None),
            ("DELETE", f"/artifacts/{'0' * 64}", None),
        ):
            answer = await client.request(method, path, json=sent, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await client.get("/me", headers=headers)).status_code == 200, "reading is the browser's own guard"


async def test_a_key_in_the_header_is_good_from_anywhere(hub: HubDouble) -> None:
    answer = await hub.admin.post("/groups", json={"name": "g"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 201


async def test_another_site_cannot_sign_a_visitor_in(hub: HubDouble) -> None:
    code = await code_for(hub, hub.admin)
    async with untouched(hub):
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.test"}):
            answer = await hub.client().post(f"{ORIGIN}/signin", data={"code": code}, headers=headers)
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers


# signing out


async def test_signing_out_ends_the_session_wherever_its_cookie_was_copied_to(any_hub: HubDouble) -> None:
    client = await browser(any_hub)
    copied = any_hub.client()
    copied.cookies.set(COOKIE, client.cookies[COOKIE])
    assert (await copied.get("/me")).status_code == 200  # and is remembered
    assert "Sign out" in (await client.get(f"{ORIGIN}/")).text
    async with untouched(any_hub):
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.test"}, {}):
            assert (await client.post(f"{ORIGIN}/signout", headers=headers)).status_code == 403
    answer = await client.post(f"{ORIGIN}/signout", headers=SAME)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert (await copied.get("/me")).status_code == 401
    assert "You are not signed in" in (await client.get(f"{ORIGIN}/")).text
    assert (await any_hub.admin.get("/me")).status_code == 200, "keys go on"


async def test_a_session_ends_by_itself(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, cookie_lifetime_s=3600) as hub:
        client = await browser(hub)
        kept = hub.client()  # one that ignores how long the cookie says it lives
        kept.cookies.set(COOKIE, client.cookies[COOKIE])
        clock.advance(3600_000 - 1)
        assert (await kept.get("/me")).status_code == 200
        clock.advance(1)
        assert (await kept.get("/me")).status_code == 401


# keys


async def test_a_revoked_key_stops_at_once_and_the_others_go_on(any_hub: HubDouble) -> None:
    made = [(await any_hub.admin.post("/keys", json={"name": f"k{n}"})).json() for n in range(2)]
    gone, kept = (any_hub.client(key["key"]) for key in made)
    assert (await gone.get("/me")).status_code == 200  # and is remembered
    assert (await any_hub.admin.delete(f"/keys/{made[0]['id']}")).status_code == 204
    assert (await gone.get("/me")).status_code == 401
    assert (await kept.get("/me")).status_code == 200
    assert (await any_hub.admin.delete(f"/keys/{made[0]['id']}")).status_code == 204, "once more is the same"
    listed = {key["id"]: key for key in (await any_hub.admin.get("/keys")).json()["keys"]}
    assert listed[made[0]["id"]]["revoked_at_ms"] is not None
    assert "key" not in listed[made[1]["id"]]


async def test_a_key_revoked_while_it_is_looked_up_is_not_remembered(hub: HubDouble) -> None:
    """The look-up reads the key before its revocation and ends after it."""
    made = (await hub.admin.post("/keys", json={"name": "k"})).json()
    authenticator = hub.hub.identity.authenticator
    store, read = hub.hub.store, hub.hub.store.read

    async def slow_read(unit, *args):  # type: ignore[no-untyped-def]
        store.read = read  # type: ignore[method-assign]
        found = await read(unit, *args)
        await keys.revoke(hub.hub, await authenticator.person(hub.admin_key), made["id"])
        return found

    await authenticator.person(hub.admin_key)
    store.read = slow_read  # type: ignore[method-assign]
    await authenticator.person(made["key"])  # it began before the revocation, so it may pass
    assert (await hub.client(made["key"]).get("/me")).status_code == 401


async def test_only_hashes_of_keys_and_codes_are_kept(any_hub: HubDouble) -> None:
    from tests.hub.untouched import everything

    headers = {"Idempotency-Key": "one key"}
    key = (await any_hub.admin.post("/keys", json={"name": "k"}, headers=headers)).json()["key"]
    code = await code_for(any_hub, any_hub.admin)
    enrol = (await any_hub.admin.post("/nodes/codes")).json()["code"]
    kept = str(await everything(any_hub))
    for secret in (key.split("_")[2], code, enrol):
        assert secret not in kept


async def test_making_a_key_twice_with_one_idempotency_key_gives_one_key(any_hub: HubDouble) -> None:
    headers = {"Idempotency-Key": "one key"}
    first = await any_hub.admin.post("/keys", json={"name": "k"}, headers=headers)
    async with untouched(any_hub):
        again = await any_hub.admin.post("/keys", json={"name": "k"}, headers=headers)
        assert again.json() == first.json()
        # The secret is shown to the credential that made it, and to no other key of the account.
        other = any_hub.client(first.json()["key"])
        answer = await other.post("/keys", json={"name": "k"}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert first.json()["key"] not in answer.text


# the rest outside the API


async def test_health_and_metrics_are_public_and_describe_every_value(any_hub: HubDouble) -> None:
    assert (await any_hub.client().get(f"{ORIGIN}/healthz")).json() == {"status": "ok"}
    await any_hub.node()
    await any_hub.admin.post("/jobs", json={"spec": COMMAND | {"needs": {"cores": 1000}}})
    answer = await any_hub.client().get(f"{ORIGIN}/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    values = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert float(values["computepool_nodes_online"]) == 1
    assert float(values["computepool_jobs_queued"]) == 1
    assert float(values["computepool_events_last"]) > 0
    described = {line.split()[2] for line in answer.text.splitlines() if line.startswith("# HELP")}
    assert described == set(values)


async def test_health_fails_with_a_problem_when_the_store_is_away(hub: HubDouble) -> None:
    hub.hub.store._stopped = True
    try:
        answer = await hub.client().get(f"{ORIGIN}/healthz")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    finally:
        hub.hub.store._stopped = False
