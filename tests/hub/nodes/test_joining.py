"""The progress of an enrolment code, shown step by step to its creator and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.protocol.local_address import is_loopback, outgoing_address, url_of
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.submitting import submit
from tests.hub.working import got

STEPS = ["code", "poll", "sandbox", "hardware", "ready", "job"]


async def code_of(client: httpx2.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/nodes/codes", json=fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def states(status: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["state"] for step in status["steps"]}


async def test_the_progress_of_a_code_follows_the_machine(any_hub: HubDouble) -> None:
    pia = await any_hub.account("pia", "provider")
    made = await code_of(pia)
    path = f"/nodes/codes/{made['id']}"
    status = await got(pia, path)
    assert (status["state"], status["open"], status["nodes"]) == ("waiting", True, [])
    assert states(status) == dict.fromkeys(STEPS, "waiting")

    node = NodeDouble(any_hub.client(), any_hub.hub.clock)
    await node.register(made["code"], name="attic; rm -rf /")
    status = await got(pia, path)
    assert (status["state"], status["open"], status["used"]) == ("used", False, 1)
    assert states(status) == {**dict.fromkeys(STEPS, "waiting"), "code": "done"}

    await node.poll(wait_ms=0)
    status = await got(pia, path)
    assert states(status) == {**dict.fromkeys(STEPS, "done"), "hardware": "waiting", "job": "waiting"}
    assert status["nodes"][0]["node_id"] == node.node_id
    job = next(step for step in status["steps"] if step["name"] == "job")
    assert "rm -rf" not in job["detail"], "what is typed into a shell never has a stranger's words in it"
    assert node.node_id in job["detail"]

    [job_id] = await submit(any_hub.admin)
    [grant] = await node.take()
    await node.report(grant.attempt_id)
    status = await got(pia, path)
    done = {step["name"]: step["at_ms"] for step in status["steps"] if step["state"] == "done"}
    assert set(done) == set(STEPS) - {"hardware"}
    assert all(at_ms > 0 for at_ms in done.values())
    assert job_id not in str(status), "whose job it was is nobody's business"


async def test_each_step_explains_why_it_is_not_done(tmp_path: Any) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, measure_every_s=0) as hub:
        made = await code_of(hub.admin)
        node = NodeDouble(hub.client(), clock)
        await node.register(made["code"], isolation="process")
        await node.poll(wait_ms=0)
        await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
        status = await got(hub.admin, f"/nodes/codes/{made['id']}")
        found = {step["name"]: step for step in status["steps"]}
        assert (found["sandbox"]["state"], found["hardware"]["state"]) == ("warning", "skipped")
        assert "pool node doctor" in found["sandbox"]["detail"]
        assert (found["ready"]["state"], "paused" in found["ready"]["detail"]) == ("waiting", True)
        assert not status["nodes"][0]["complete"]


async def test_a_join_code_lists_its_hosts_and_says_when_it_has_expired(tmp_path: Any) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        many, unused = await code_of(hub.admin, hosts=3), await code_of(hub.admin)
        for name in ("one", "two"):
            clock.advance(1)  # Within a millisecond, ids are in no order.
            node = NodeDouble(hub.client(), clock)
            await node.register(many["code"], name=name)
        status = await got(hub.admin, f"/nodes/codes/{many['id']}")
        assert [node["name"] for node in status["nodes"]] == ["two", "one"]
        assert (status["used"], status["hosts"], status["open"]) == (2, 3, True)
        clock.advance(1_000 * 1_000)
        status = await got(hub.admin, f"/nodes/codes/{unused['id']}")
        assert (status["state"], status["open"]) == ("expired", False)
        assert "create a new one" in status["steps"][0]["detail"]


async def test_a_code_is_visible_only_to_its_creator_and_sign_in_codes_are_not_listed(hub: HubDouble) -> None:
    pia, otto = await hub.account("pia", "provider"), await hub.account("otto", "provider")
    made = await code_of(pia)
    assert (await otto.get(f"/nodes/codes/{made['id']}")).status_code == 404
    assert (await otto.delete(f"/nodes/codes/{made['id']}")).status_code == 404
    assert (await hub.admin.get(f"/nodes/codes/{made['id']}")).status_code == 200
    assert made["code"] not in str(await got(pia, f"/nodes/codes/{made['id']}"))
    me = (await pia.get("/me")).json()["id"]
    link = (await hub.admin.post(f"/accounts/{me}/link")).json()
    name = hub.hub.identity.secrets.digest(link["code"])[:12]
    for known in (name, name[:11], made["id"][:11], "0" * 12):
        for client in (pia, hub.admin):
            assert (await client.get(f"/nodes/codes/{known}")).status_code == 404
            assert (await client.delete(f"/nodes/codes/{known}")).status_code == 404
    assert (await hub.client().post("/signin", json={"code": link["code"]})).status_code == 200


async def test_a_revoked_code_enrols_nobody(hub: HubDouble) -> None:
    made = await code_of(hub.admin)
    assert (await hub.admin.delete(f"/nodes/codes/{made['id']}")).status_code == 204
    assert (await hub.admin.delete(f"/nodes/codes/{made['id']}")).status_code == 404
    node = NodeDouble(hub.client(), hub.hub.clock)
    with pytest.raises(httpx2.HTTPStatusError, match="422"):
        await node.register(made["code"])
    assert (await got(hub.admin, f"/nodes/codes/{made['id']}"))["state"] == "expired"


async def test_the_commands_are_for_this_hub(hub: HubDouble) -> None:
    made = await code_of(hub.admin)
    typed = [command["command"] for command in made["commands"]]
    assert made["command"] in typed
    assert made["command"] == f"pool node start --hub {hub.hub.settings.address} --code {made['code']}"


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, "pool up --host 0.0.0.0"),
        ({"public_url": "http://localhost:8000"}, "--public-url"),
        ({"public_url": "https://pool.example"}, ""),
        ({"host": "192.168.7.3"}, ""),
        ({"host": "0.0.0.0"}, ""),
    ],
)
async def test_a_code_that_no_other_machine_can_use_comes_with_a_warning(
    tmp_path: Path, settings: dict[str, Any], warned: str
) -> None:
    async with running_hub(tmp_path, **settings) as hub:
        made = await code_of(hub.admin)
    if settings.get("host") == "0.0.0.0":
        here = outgoing_address()
        warned = "" if here else "--public-url"
        assert f"--hub http://{here or '127.0.0.1'}:8000 " in made["command"]
    assert bool(made["warning"]) is bool(warned)
    assert warned in made["warning"]


def test_loopback_addresses_are_recognised() -> None:
    own = ["http://127.0.0.1:8000", "http://127.9.9.9", "http://localhost:1", "http://[::1]:8000", "http://a.localhost"]
    others = ["http://192.168.7.3:8000", "https://pool.example", "http://[2001:db8::1]:8000", "http://127.example"]
    assert [url for url in (*own, *others) if is_loopback(url)] == own
    assert url_of("::1", 8000) == "http://[::1]:8000"
