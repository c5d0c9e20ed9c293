"""Guessing keys and codes is slow and locks nobody else out; an account enrols a few nodes a day."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import RateLimited
from computepool.hub.http.rate_limit import SignInLimits
from computepool.hub.identity.signing.secrets import make_key
from computepool.testing.clock import FakeClock
from computepool.testing.hub import ORIGIN, HubDouble, running_hub
from tests.hub.cast import Cast
from tests.hub.identity.test_signing_in import SAME, code_for
from tests.hub.untouched import untouched

BURST = 5


def wrong_key(number: int, key_id: str | None = None) -> str:
    return make_key(key_id or f"{number:016x}", number.to_bytes(32, "big"))


def from_address(hub: HubDouble, key: str | None, address: str) -> httpx2.AsyncClient:
    client = hub.client(key)
    client._transport = httpx2.ASGITransport(hub.app, raise_app_exceptions=False, client=(address, 1))
    return client


async def test_guessing_at_keys_is_answered_with_a_time_to_come_back(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, failed_signins_burst=BURST) as hub:
        assert (await hub.admin.get("/me")).status_code == 200
        answers = [await hub.client(wrong_key(n)).get("/me") for n in range(BURST + 3)]
        assert [answer.status_code for answer in answers] == [401] * BURST + [429] * 3
        wait_s = int(answers[-1].headers["retry-after"])
        assert 1 <= wait_s <= 3
        assert (await hub.admin.get("/me")).status_code == 200, "who was let in before stays in"
        clock.advance(60_000)  # the authenticator has forgotten the key by now, and looks again
        for n in range(BURST + 1):
            await hub.client(wrong_key(n)).get("/me")
        assert (await hub.admin.get("/me")).status_code == 200
        clock.advance(wait_s * 1000)
        assert (await hub.client(wrong_key(99)).get("/me")).status_code == 401, "a guess after the wait"


async def test_guessing_at_codes_is_slow_on_every_door(tmp_path: Path) -> None:
    async with running_hub(tmp_path, clock=FakeClock(), failed_signins_burst=BURST) as hub:
        code = await code_for(hub, hub.admin)
        cast = Cast(hub, {"provider": hub.admin})
        registration = await cast.registration()
        for n in range(BURST):
            assert (await hub.client().post("/signin", json={"code": f"{n:032x}"})).status_code == 422
        async with untouched(hub):
            doors = [
                await hub.client().post("/signin", json={"code": code}),
                await hub.client().post(f"{ORIGIN}/signin", data={"code": code}, headers=SAME),
                await hub.client().post("/nodes/register", json=registration),
            ]
            assert [door.status_code for door in doors] == [429] * 3
            assert all(int(door.headers["retry-after"]) >= 1 for door in doors)
        elsewhere = from_address(hub, None, "192.0.2.7")
        assert (await elsewhere.post("/signin", json={"code": code})).status_code == 200


async def test_what_has_ended_or_is_no_key_at_all_is_not_a_guess(tmp_path: Path) -> None:
    async with running_hub(tmp_path, clock=FakeClock(), failed_signins_burst=2) as hub:
        made = (await hub.admin.post("/keys", json={"name": "k"})).json()
        await hub.admin.delete(f"/keys/{made['id']}")
        for bad in (made["key"], "garbage", "cp_1_2_3"):
            answers = [await hub.client(bad).get("/me") for _ in range(5)]
            assert [answer.status_code for answer in answers] == [401] * 5


async def test_a_neighbours_guesses_at_a_key_do_not_lock_its_owner_out(tmp_path: Path) -> None:
    async with running_hub(tmp_path, clock=FakeClock(), failed_signins_burst=BURST) as hub:
        made = (await hub.admin.post("/keys", json={"name": "k"})).json()
        for n in range(3 * BURST):
            attacker = from_address(hub, wrong_key(n, made["id"]), f"198.51.100.{n}")
            assert (await attacker.get("/me")).status_code == 401, "one guess from each of many addresses"
        again = from_address(hub, wrong_key(77, made["id"]), "198.51.100.1")
        assert (await again.get("/me")).status_code == 429, "and no second one, from any of them"
        owner = from_address(hub, made["key"], "203.0.113.5")
        assert (await owner.get("/me")).status_code == 200


ADDRESSES = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(ADDRESSES, st.integers(0, 5), st.integers(0, 5_000)), max_size=80))
def test_guesses_are_few_and_honest_people_are_never_kept_waiting(attacks: list[tuple[str, int, int]]) -> None:
    clock = FakeClock()
    limits = SignInLimits(clock, per_min=20, burst=BURST)
    limits.record_success("honest")
    waits: list[float] = []
    began, tried = clock.now_ms(), dict.fromkeys("abc", 0)
    for address, secret, wait_ms in attacks:
        clock.advance(wait_ms)
        try:
            limits.check(address, wrong_key(secret))
        except RateLimited as error:
            waits.append(error.retry_after_s or 0)
        else:
            limits.record_failure(address, wrong_key(secret))
            tried[address] += 1
        limits.check(address, "honest")
        limits.check("elsewhere", wrong_key(secret))
    assert all(1 <= wait_s <= 3 for wait_s in waits)
    most = BURST + 1 + (clock.now_ms() - began) * 20 / 60_000
    assert all(count <= most for count in tried.values())


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("computepool.hub.http.rate_limit._BUCKETS_MAX", 10)
    limits = SignInLimits(FakeClock(), per_min=20, burst=BURST)
    for n in range(100):
        limits.record_failure(f"address {n}", wrong_key(n))
        limits.record_success(wrong_key(n))
    assert max(len(limits._buckets), len(limits._accepted)) <= 10


async def test_an_account_enrols_a_few_nodes_a_day(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, enrolments_per_day=2) as hub:
        pia = await hub.account("pia", "provider")
        cast = Cast(hub, {"provider": pia})
        node = await hub.node(pia)
        await pia.post(f"/nodes/{node.node_id}/revoke")  # leaving the name behind does not help
        clock.advance(3600_000)
        await hub.node(pia)
        third = await cast.registration()
        async with untouched(hub):
            refused = await hub.client().post("/nodes/register", json=third)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) == 23 * 3600
        for _ in range(4):
            await hub.node(hub.admin)
        clock.advance(23 * 3600_000)
        fourth = await cast.registration()
        assert (await hub.client().post("/nodes/register", json=fourth)).status_code == 201
