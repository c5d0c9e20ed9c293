"""The live view: key figures, the list of nodes, recent activity, and prices of all zones over time."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import insert

from computepool.core.resources import Capacity, Gpu, NodeProfile, NodeState
from computepool.hub.db.money_tables import spots
from computepool.hub.http import compression
from computepool.hub.money.market import spot_prices
from computepool.protocol.nodes.mesh import MeshNodes
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from computepool.testing.waiting import eventually
from tests.hub.fixtures import hub_fixture
from tests.hub.submitting import submit
from tests.hub.working import got

HOUR_MS = 3_600_000


hub = hub_fixture(mesh_age_s=0)


def clock_of(hub: HubDouble) -> FakeClock:
    assert isinstance(hub.hub.clock, FakeClock)
    return hub.hub.clock


async def started(client: httpx2.AsyncClient, node: NodeDouble, **fields: Any) -> str:
    """The attempt of a new job that runs on this node."""
    await submit(client, **fields)
    [grant] = await node.take()
    await node.poll(wait_ms=0, running=[{"attempt_id": grant.attempt_id}])
    return grant.attempt_id


# counters


async def test_an_empty_pool_shows_zeros(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    seen = await got(sam, "/mesh")
    del seen["version"], seen["at_ms"]
    assert set(seen.values()) == {0}
    assert (await got(sam, "/mesh/nodes"))["nodes"] == []
    assert (await got(sam, "/mesh/activity"))["activity"] == []


async def test_counters_follow_nodes_and_jobs(hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient) -> None:
    cards = [{"name": "RTX 4090", "tier": "rtx-4090", "vram_mb": 24_000}] * 2
    node = await hub.node(pia, region="in", cores=8, gpus=cards)
    await hub.node(pia, region="de", cores=4)
    attempt = await started(sam, node, needs={"cores": 2, "gpus": 1, "tiers": ["rtx-4090"]})
    await submit(sam, needs={"cores": 1000})
    seen = await got(sam, "/mesh")
    assert (seen["nodes_online"], seen["nodes"], seen["running"], seen["queued"]) == (2, 2, 1, 1)
    assert (seen["cores"], seen["cores_busy"]) == (12, 2)
    assert (seen["gpus"], seen["gpus_busy"], seen["vram_mb"]) == (2, 1, 48_000)
    assert seen["settled_hour"] == 0
    clock_of(hub).advance(60_000)
    await node.poll(wait_ms=0, holding=[attempt])
    assert await node.report(attempt, ran_ms=50_000) == "accepted"
    after = await got(sam, "/mesh")
    assert (after["running"], after["cores_busy"], after["gpus_busy"]) == (0, 0, 0)
    assert after["jobs_hour"] == 1


async def test_payments_of_the_last_hour_agree_with_the_ledger(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    costs = []
    node = await hub.node(pia, region="in")
    for _ in range(3):
        attempt = await started(sam, node)
        clock_of(hub).advance(600_000)
        node.sign_in()
        assert await node.report(attempt, ran_ms=500_001) == "accepted"
        job_id = attempt.rpartition("-")[0]
        costs.append((await got(sam, f"/jobs/{job_id}"))["charge"])
        seen = await got(sam, "/mesh")
        assert (seen["settled_hour"], seen["jobs_hour"]) == (sum(costs), len(costs))
    assert min(costs) > 0
    hub.hub.observability.mesh.settled.upto = None  # as after a start: it is read from the store again
    hub.hub.observability.mesh.settled.minutes.clear()
    assert (await got(sam, "/mesh"))["settled_hour"] == sum(costs)
    clock_of(hub).advance(HOUR_MS - 500_000)
    assert (await got(sam, "/mesh"))["jobs_hour"] == 1
    clock_of(hub).advance(700_000)
    assert (await got(sam, "/mesh"))["settled_hour"] == 0


async def test_concurrent_viewers_share_one_refresh(tmp_path: Path) -> None:
    async with running_hub(tmp_path, clock=FakeClock(), mesh_age_s=1) as hub:
        first = await got(hub.admin, "/mesh")
        await hub.node(region="in")
        assert await got(hub.admin, "/mesh") == first
        clock_of(hub).advance(1_000)
        assert (await got(hub.admin, "/mesh"))["nodes_online"] == 1


# the list


async def test_the_list_shows_places_and_owners(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    india = await hub.node(pia, name="attic", region="in")
    stated = await hub.node(pia, region="de", place={"lat": 52.5163, "lon": 13.3777})
    nowhere = await hub.node(region="")
    found = MeshNodes.model_validate(await got(pia, "/mesh/nodes"))
    nodes = {node.id: node for node in found.nodes}
    assert found.placed == 2
    assert [nodes[node.node_id].mine for node in (india, stated, nowhere)] == [True, True, False]
    assert not any(node["mine"] for node in (await got(sam, "/mesh/nodes"))["nodes"])
    first = nodes[india.node_id]
    assert (first.name, first.owner_name, first.tier, first.place) == ("attic", "pia", "cpu", "India")
    assert (first.cores, first.cores_free, first.capacity, first.running) == (4, 4, 4000, 0)
    berlin = nodes[stated.node_id]
    assert berlin.lat == pytest.approx(52.5, abs=0.1)
    assert berlin.region == "eu"
    assert (nodes[nowhere.node_id].lat, nodes[nowhere.node_id].place) == (None, "place not stated")
    kept = (await got(pia, f"/nodes/{stated.node_id}"))["profile"]["place"]
    assert kept == {"lat": 52.5, "lon": 13.4}, "more than a tenth of a degree is not even kept"


async def test_an_unchanged_list_is_not_sent_again(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    node = await hub.node(pia, region="in")
    first = await pia.get("/mesh/nodes")
    assert first.headers["cache-control"] == "private, no-cache"
    tag = {"If-None-Match": first.headers["etag"]}
    clock_of(hub).advance(5_000)
    again = await pia.get("/mesh/nodes", headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    assert (await got(pia, "/mesh"))["version"] == first.json()["version"]
    assert (await sam.get("/mesh/nodes", headers=tag)).status_code == 200, "another account has another list"
    await started(sam, node)
    changed = await pia.get("/mesh/nodes", headers=tag)
    assert changed.status_code == 200
    assert changed.json()["nodes"][0]["running"] == 1
    assert (await got(pia, "/mesh"))["version"] == changed.json()["version"] != first.json()["version"]


async def test_paused_nodes_are_listed_and_revoked_ones_are_not(hub: HubDouble, pia: httpx2.AsyncClient) -> None:
    node = await hub.node(pia, region="in")
    await pia.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
    [line] = (await got(pia, "/mesh/nodes"))["nodes"]
    assert (line["state"], line["takes_work"]) == ("paused", False)
    await pia.post(f"/nodes/{node.node_id}/revoke")
    assert (await got(pia, "/mesh/nodes"))["nodes"] == []


async def test_the_compressed_list_equals_the_plain_one(
    hub: HubDouble, pia: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "_LEAST_BYTES", 0)
    await hub.node(pia, region="in", name='<img src=x onerror="alert(1)">')
    plain = await pia.get("/mesh/nodes", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = await pia.get("/mesh/nodes", headers={"Accept-Encoding": "gzip, br"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    MeshNodes.model_validate_json(plain.content)


@pytest.mark.soak
async def test_five_thousand_nodes_are_listed_quickly_and_compactly(hub: HubDouble) -> None:
    """The list is made quickly, faster if little changed, and is small when compressed."""
    registry, now_ms = hub.hub.nodes.registry, hub.hub.now_ms()
    cards = Capacity(cpu_milli=16_000, ram_mb=64_000, disk_mb=1, gpus=(Gpu(name="x", tier="a100", vram_mb=80_000),))
    for number in range(5_000):
        profile = NodeProfile(node_id=f"node_{number}", name=f"n{number}", owner="acc_x", capacity=cards)
        registry.on_node_seen(profile, boot_id="b", state=NodeState.ACTIVE, cool_off_until_ms=0, now_ms=now_ms)

    async def spent() -> float:
        began = time.process_time()
        assert (await hub.admin.get("/mesh/nodes")).status_code == 200
        return time.process_time() - began

    first, again = await spent(), await spent()
    print(f"5000 nodes: {first * 1000:.0f} ms, again {again * 1000:.0f} ms")
    assert first < 3
    assert again < 1
    answer = await hub.admin.get("/mesh/nodes", headers={"Accept-Encoding": "gzip"})
    assert int(answer.headers["content-length"]) < 400_000
    for number in range(5_000):
        registry.on_node_lost(f"node_{number}")


# activity


async def test_activity_reveals_nothing_private(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient
) -> None:
    node = await hub.node(pia, region="in", name="pias-attic")
    secret = {"name": "secret-name", "kind": "command", "argv": ["/bin/secret"], "labels": ["hidden"]}
    attempt = await started(sam, node, spec=secret)
    await node.report(attempt)
    answer = await hub.admin.get("/mesh/activity")
    page = answer.json()
    told = [(item["what"], item["kind"], item["tier"], item["region"]) for item in page["activity"]]
    assert told == [
        ("succeeded", "command", "cpu", "in"),
        ("started", "command", "cpu", "in"),
        ("submitted", "command", None, None),
        ("joined", None, "cpu", "in"),
    ]
    assert page["activity"][0]["sentence"] == "A command finished on cpu, India"
    assert page["activity"][0]["price_level"] == "usual"
    for word in ("secret", "sam", "pia", "attic", node.node_id, attempt, attempt.rpartition("-")[0], "hidden"):
        assert word not in answer.text, word
    assert page["cursor"] == page["activity"][0]["seq"]


async def test_similar_activity_shares_a_line(hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient) -> None:
    await hub.node(pia, region="in")
    cursor = (await got(sam, "/mesh/activity"))["cursor"]
    await submit(sam, items=25, needs={"cores": 1000})
    [line] = (await got(sam, "/mesh/activity", after=cursor))["activity"]
    assert (line["count"], line["sentence"]) == (25, "25 commands were submitted")
    assert (await got(sam, "/mesh/activity", after=line["seq"]))["activity"] == []
    assert len((await got(sam, "/mesh/activity", limit=1))["activity"]) == 1


async def test_activity_shows_free_own_work_and_failures(hub: HubDouble) -> None:
    node = await hub.node(region="us")
    attempt = await started(hub.admin, node, retries=0)
    await node.report(attempt, outcome="failed", reason="exit_nonzero", exit_code=3)
    [line] = [item for item in (await got(hub.admin, "/mesh/activity"))["activity"] if item["what"] == "failed"]
    assert (line["price_level"], line["sentence"]) == ("free", "A command failed on cpu, United States")


async def test_an_event_ends_a_wait_for_activity(tmp_path: Path) -> None:
    async with running_hub(tmp_path, mesh_age_s=0.01) as hub:
        cursor = (await got(hub.admin, "/mesh/activity"))["cursor"]
        waiting = asyncio.create_task(got(hub.admin, "/mesh/activity", after=cursor, wait_ms=20_000))
        await eventually(lambda: "events" in hub.hub.signals._waiting)
        await submit(hub.admin)
        async with asyncio.timeout(60):
            assert [item["what"] for item in (await waiting)["activity"]] == ["submitted"]


async def test_activity_just_after_the_last_refresh_is_reported(tmp_path: Path) -> None:
    """Nothing else happens that would end the wait."""
    async with running_hub(tmp_path, mesh_age_s=0.5) as hub:
        cursor = (await got(hub.admin, "/mesh/activity"))["cursor"]
        await submit(hub.admin)
        async with asyncio.timeout(60):
            page = await got(hub.admin, "/mesh/activity", after=cursor, wait_ms=20_000)
        assert [item["what"] for item in page["activity"]] == ["submitted"]


async def test_a_flood_of_activity_is_not_read_in_full(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    for _ in range(3):
        await submit(sam, items=1_000, needs={"cores": 1000})
    [line] = (await got(sam, "/mesh/activity"))["activity"]
    assert line["count"] <= 2_000


# prices


def _price(zone: tuple[str, str], tick: int, price: int) -> dict[str, Any]:
    tier, region = zone
    return {
        "tier": tier, "region": region, "tick": tick, "price": price, "capacity": 4_000, "demand": 3_000,
        "price_version": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("span", "length"), [("1h", 1), ("24h", 24), ("7d", 168), ("30d", 720)])
async def test_every_zone_in_one_chart(hub: HubDouble, span: str, length: int) -> None:
    now_ms = hub.hub.now_ms()
    cpu, card = ("cpu", "in"), ("rtx-4090", "eu")
    rows = [
        _price(cpu, now_ms - 2 * length * HOUR_MS, 100),
        _price(cpu, now_ms - length * HOUR_MS // 2, 250),
        _price(card, now_ms - length * HOUR_MS // 4, 700),
    ]
    await hub.hub.store.write(lambda tx: tx.connection.execute(insert(spots), rows))
    await spot_prices.load(hub.hub)
    found = await got(hub.admin, "/market/chart", span=span)
    count = len(found["at_ms"])
    assert 200 <= count <= 241
    steps = {later - earlier for earlier, later in zip(found["at_ms"], found["at_ms"][1:], strict=False)}
    assert steps == {found["step_ms"]}
    assert found["at_ms"][-1] <= now_ms < found["at_ms"][-1] + found["step_ms"]
    first, second = found["zones"]
    assert [(zone["tier"], zone["region"]) for zone in (first, second)] == [cpu, card]
    assert (first["price"][0], first["price"][-1]) == (100, 250)
    assert set(first["price"]) == {100, 250}
    assert (second["price"][0], second["price"][-1]) == (None, 700)
    assert second["utilisation_ppm"][-1] == 750_000
    for zone in (first, second):
        assert {len(column) for column in zone.values() if isinstance(column, list)} == {count}
    history = await got(
        hub.admin, "/market/history", tier="cpu", region="in", since_ms=found["at_ms"][0], step_ms=found["step_ms"]
    )
    prices = [point["price"] for point in history["points"]]
    assert prices == first["price"][: len(prices)]


async def test_a_chart_is_shared_for_a_while(hub: HubDouble) -> None:
    await hub.node(region="in")
    await spot_prices.tick(hub.hub)
    first = await got(hub.admin, "/market/chart", span="7d")
    clock_of(hub).advance(30_000)
    assert await got(hub.admin, "/market/chart", span="7d") == first
    assert (await hub.admin.get("/market/chart", params={"span": "9y"})).status_code == 422
    assert json.dumps(first) != json.dumps(await got(hub.admin, "/market/chart", span="1h"))


async def test_an_empty_chart_is_not_kept(hub: HubDouble) -> None:
    assert (await got(hub.admin, "/market/chart", span="24h"))["zones"] == []
    await hub.node(region="in")
    await spot_prices.tick(hub.hub)
    [zone] = (await got(hub.admin, "/market/chart", span="24h"))["zones"]
    assert zone["region"] == "in"


# two hubs


@pytest.mark.soak
async def test_nodes_of_other_hubs_are_shown_from_the_store(tmp_path: Path, migrated_url: str) -> None:
    options: dict[str, Any] = {"database_url": migrated_url, "mesh_age_s": 0}
    async with running_hub(tmp_path / "a", **options) as one, running_hub(tmp_path / "b", **options) as two:
        admin = one.client(two.admin_key)  # a second start ends the first one's key
        away = await two.node(region="in", name="away")
        here = await one.node(admin, region="de", name="here")
        seen = await got(admin, "/mesh")
        assert (seen["nodes_online"], seen["cores"]) == (2, 8)
        lines = {line["id"]: line for line in (await got(admin, "/mesh/nodes"))["nodes"]}
        assert lines[away.node_id]["cores_free"] is None
        assert lines[away.node_id]["place"] == "India"
        assert lines[here.node_id]["cores_free"] == 4
