"""Keys with scopes: what each scope allows, what a key may pass on, rotation and revocation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import Forbidden
from computepool.hub.app import create_api
from computepool.hub.http.policy import RoutePolicy, policies
from computepool.hub.identity.access import (
    Action,
    Principal,
    Role,
    Scope,
    check_action,
    check_scopes_within,
    usable_roles,
)
from computepool.hub.main import signin_link
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import submit
from tests.hub.untouched import untouched

ROUTES = [route for route in policies(create_api().routes) if route.scope is not None]
SCOPES = [scope.value for scope in Scope]
ENDS = {("POST", "/signout"), ("GET", "/events/stream"), ("GET", "/events/news"), ("DELETE", "/keys")}
_IDS = {"{digest}": "0" * 64, "{version}": "1"}


def address(route: RoutePolicy) -> str:
    path = route.path
    for name, value in _IDS.items():
        path = path.replace(name, value)
    return "/".join("none" if part.startswith("{") else part for part in path.split("/"))


@pytest.fixture(scope="module")
async def scoped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[HubDouble, dict[str, str]]]:
    async with running_hub(tmp_path_factory.mktemp("hub")) as hub:
        made = {
            scope: (await hub.admin.post("/keys", json={"name": scope, "scopes": [scope]})).json() for scope in SCOPES
        }
        yield hub, {scope: key["key"] for scope, key in made.items()}


async def made(client: Any, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/keys", json={"name": "k", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_a_route_opens_to_its_scope_alone(scoped: tuple[HubDouble, dict[str, str]], route: RoutePolicy) -> None:
    hub, keys = scoped
    refused = set()
    for scope, key in keys.items():
        if (route.method, route.path) in ENDS and route.scope in (scope, Scope.READ):
            continue  # it would be let in, and never end, or end what the others need
        answer = await hub.client(key).request(route.method, address(route), params={"code": "x"})
        words = "" if route.method == "HEAD" else answer.text
        if answer.status_code == 403 and (route.method == "HEAD" or "This key is for" in words):
            refused.add(scope)
    allowed = set(SCOPES) if route.scope is Scope.READ else {route.scope}
    assert refused == set(SCOPES) - allowed


def test_every_change_says_what_it_is_for() -> None:
    """Only routes about the account itself may rely on the default scope."""
    unsaid = {
        route.path.split("/")[1]
        for route in ROUTES
        if route.method not in ("GET", "HEAD") and route.scope is Scope.ACCOUNT
    }
    assert unsaid <= {"keys", "payouts", "accounts", "approvals", "webhooks", "secrets"}


async def test_the_scopes_of_a_key_are_stored_and_shown(any_hub: HubDouble) -> None:
    key = await made(any_hub.admin, scopes=["submit"], expires_in_s=60)
    assert key["scopes"] == ["read", "submit"]
    await any_hub.client(key["key"]).get("/me")
    [listed] = [found for found in (await any_hub.admin.get("/keys")).json()["keys"] if found["id"] == key["id"]]
    assert listed["scopes"] == ["read", "submit"]
    assert (await made(any_hub.admin))["scopes"] is None


async def test_an_administrators_key_for_less_sees_only_what_is_his(hub: HubDouble) -> None:
    ann = await hub.account("ann", "submitter")
    [job_id] = await submit(ann, needs={"cores": 1000})
    reader = hub.client((await made(hub.admin, scopes=["read", "account"]))["key"])
    assert (await hub.admin.get(f"/jobs/{job_id}")).status_code == 200
    assert (await reader.get(f"/jobs/{job_id}")).status_code == 404
    assert (await reader.get("/accounts")).status_code == 403
    me = (await ann.get("/me")).json()["id"]
    assert (await reader.post("/keys", json={"name": "k", "account_id": me})).status_code == 404
    assert (await reader.get("/payouts", params={"all": True})).status_code == 403


async def test_a_key_hands_on_at_most_what_it_has(hub: HubDouble) -> None:
    parent = hub.client((await made(hub.admin, scopes=["account", "submit"]))["key"])
    assert (await made(parent))["scopes"] == ["account", "read", "submit"]
    assert (await made(parent, scopes=["submit"]))["scopes"] == ["read", "submit"]
    async with untouched(hub):
        for wanted in (["admin"], ["provide"], ["submit", "admin"], SCOPES):
            answer = await parent.post("/keys", json={"name": "k", "scopes": wanted})
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        stronger = (await hub.admin.get("/keys")).json()["keys"][0]
        everything = [key for key in (await hub.admin.get("/keys")).json()["keys"] if key["scopes"] is None]
        assert everything, stronger
        answer = await parent.post(f"/keys/{everything[0]['id']}/rotate", json={})
        assert answer.status_code == 403, "it would have got a key for everything"


@given(have=st.none() | st.frozensets(st.sampled_from(SCOPES)), want=st.none() | st.frozensets(st.sampled_from(SCOPES)))
def test_no_handing_on_ever_opens_more(have: frozenset[str] | None, want: frozenset[str] | None) -> None:
    parent = Principal(account_id="a", name="a", roles=usable_roles(frozenset(Role), have), scopes=have)
    try:
        check_scopes_within(parent, want)
    except Forbidden:
        return
    child = Principal(account_id="a", name="a", roles=usable_roles(frozenset(Role), want), scopes=want)
    for action in (Action.SIGNED_IN, Action.SUBMIT, Action.PROVIDE, Action.ADMIN):
        for scope in Scope:
            try:
                check_action(child, action, scope=scope)
            except Forbidden:
                continue
            check_action(parent, action, scope=scope)


async def test_no_key_outlives_the_one_that_made_it(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        ann = await hub.account("ann", "submitter")
        short = await made(ann, expires_in_s=3600)
        maker, ends_ms = hub.client(short["key"]), short["expires_at_ms"]
        clock.advance(60_000)
        assert (await made(maker))["expires_at_ms"] == ends_ms
        assert (await made(maker, expires_in_s=60))["expires_at_ms"] == clock.now_ms() + 60_000
        forever = await made(ann)
        async with untouched(hub):
            for path in ("/keys", f"/keys/{forever['id']}/rotate", f"/keys/{short['id']}/rotate"):
                fields = {"name": "k"} if path == "/keys" else {}
                answer = await maker.post(path, json={**fields, "expires_in_s": 3600})
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
                assert "cannot create one that lives longer" in answer.text
        for replaced in (forever, short):
            answer = await maker.post(f"/keys/{replaced['id']}/rotate", json={})
            assert (answer.status_code, answer.json()["expires_at_ms"]) == (201, ends_ms)
        assert (await made(ann))["expires_at_ms"] is None, "a key without an end makes any"


async def test_a_person_in_a_browser_makes_keys_of_any_length(hub: HubDouble) -> None:
    link = await asyncio.to_thread(signin_link, hub.hub.settings)
    code = link.partition("code=")[2]
    browser = hub.client()
    assert (await browser.post("/signin", json={"code": code, "kind": "cookie"})).status_code == 200
    answer = await browser.post("/keys", json={"name": "k"}, headers={"Sec-Fetch-Site": "same-origin"})
    assert (answer.status_code, answer.json()["expires_at_ms"]) == (201, None)


async def test_other_words_are_refused(hub: HubDouble, subtests: pytest.Subtests) -> None:
    words: list[Any] = [[], ["root"], ["READ"], "submit", [""], ["read"] * 6]
    for bad in words:
        with subtests.test(bad=bad):
            assert (await hub.admin.post("/keys", json={"name": "k", "scopes": bad})).status_code == 422


async def test_a_replaced_key_ends_after_the_overlap_and_its_successor_goes_on(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        old = await made(hub.admin, scopes=["submit"], expires_in_s=30 * 86400)
        clock.advance(86400_000)
        answer = await hub.admin.post(f"/keys/{old['id']}/rotate", json={"overlap_s": 3600})
        new = answer.json()
        assert (new["name"], new["scopes"]) == (old["name"], old["scopes"])
        assert new["expires_at_ms"] == clock.now_ms() + 30 * 86400_000, "as long a life as the old one had"
        for key, status in ((old, 200), (new, 200)):
            assert (await hub.client(key["key"]).get("/me")).status_code == status
        clock.advance(3600_000)
        for key, status in ((old, 401), (new, 200)):
            assert (await hub.client(key["key"]).get("/me")).status_code == status
        again = await hub.admin.post(f"/keys/{old['id']}/rotate", json={})
        assert (again.status_code, again.json()["code"]) == (409, "conflict")


async def test_an_overlap_of_nothing_ends_the_old_key_at_once(any_hub: HubDouble) -> None:
    old = await made(any_hub.admin)
    client = any_hub.client(old["key"])
    assert (await client.get("/me")).status_code == 200  # and is remembered
    assert (await any_hub.admin.post(f"/keys/{old['id']}/rotate", json={"overlap_s": 0})).status_code == 201
    assert (await client.get("/me")).status_code == 401


async def test_signing_out_ends_this_credential_and_no_other(any_hub: HubDouble) -> None:
    ann = await any_hub.account("ann", "submitter")
    other = any_hub.client((await made(ann, scopes=["read"]))["key"])
    assert (await other.post("/signout")).status_code == 204
    assert (await other.get("/me")).status_code == 401
    assert (await ann.get("/me")).status_code == 200


async def test_signing_out_everywhere_leaves_one_key_or_none(any_hub: HubDouble) -> None:
    ann = await any_hub.account("ann", "submitter")
    others = [any_hub.client((await made(ann))["key"]) for _ in range(3)]
    for client in others:
        assert (await client.get("/me")).status_code == 200
    assert (await ann.delete("/keys")).json() == {"revoked": 3}
    assert [(await client.get("/me")).status_code for client in others] == [401] * 3
    assert (await ann.get("/me")).status_code == 200
    assert (await any_hub.admin.get("/me")).status_code == 200, "another account's keys are not concerned"
    assert (await ann.delete("/keys", params={"keep_this": False})).json() == {"revoked": 1}
    assert (await ann.get("/me")).status_code == 401


async def test_an_administrator_signs_an_account_out_and_nobody_else_does(hub: HubDouble) -> None:
    ann, bob = await hub.account("ann", "submitter"), await hub.account("bob", "submitter")
    me = (await ann.get("/me")).json()["id"]
    async with untouched(hub):
        assert (await bob.delete("/keys", params={"account_id": me})).status_code == 404
    assert (await hub.admin.delete("/keys", params={"account_id": me})).json() == {"revoked": 1}
    assert (await ann.get("/me")).status_code == 401


@pytest.mark.parametrize("name", ["god", "root", "administrator", "Admin"])
async def test_no_name_of_an_account_gives_rights(hub: HubDouble, name: str) -> None:
    them = await hub.account(name, "submitter", "provider")
    assert (await them.post("/credits/top-ups", json={"account": name, "amount": 1})).status_code == 403
    assert (await them.get("/accounts")).status_code == 403
