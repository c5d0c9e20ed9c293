"""A node's status is the same wherever it is shown."""

from __future__ import annotations

import httpx2
import pytest

from computepool.core.money.money import CREDIT
from computepool.hub.scheduling import departures, housekeeping
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import hub_fixture
from tests.hub.submitting import submit
from tests.hub.working import got

POLL_MS = 10_000
SUSPECT_MS = 2 * POLL_MS + 10_000
LEASE_MS = 60_000


pool = hub_fixture(tick_s=1_000)


def pass_time(hub: HubDouble, ms: int) -> None:
    assert isinstance(hub.hub.clock, FakeClock)
    hub.hub.clock.advance(ms)
    hub.hub.nodes.registry.suspect_silent(hub.hub.now_ms())


async def status(hub: HubDouble, client: httpx2.AsyncClient, node: NodeDouble) -> str:
    """The node's status in every view, which must agree with each other and with placement."""
    pass_time(hub, 3_000)  # the map is cached for a moment
    [listed] = [one for one in (await got(client, "/nodes"))["nodes"] if one["id"] == node.node_id]
    whole = await got(client, f"/nodes/{node.node_id}")
    lines = [
        *[one for one in (await got(client, "/mesh/nodes"))["nodes"] if one["id"] == node.node_id],
        *[one for one in (await got(client, "/queue"))["nodes"] if one["node_id"] == node.node_id],
    ]
    found = {one["status"] for one in (listed, whole, *lines)}
    assert len(found) == 1, found
    [word] = found
    online = word not in ("offline", "revoked", "left")
    assert {listed["online"], whole["online"], bool(lines)} == {online}
    takes = word in ("ready", "working")
    assert [one["takes_work"] for one in lines if "takes_work" in one] == [takes] * online
    placed = word in ("ready", "working", "floor_above_price", "owner_only")
    assert hub.hub.nodes.registry.fleet.is_available(node.node_id) == placed
    return str(word)


@pytest.mark.soak
async def test_every_view_says_the_same(pool: HubDouble) -> None:
    pia, sam = await pool.account("pia", "provider"), await pool.account("sam", "submitter")
    node = await pool.node(pia, name="attic", region="in")
    path = f"/nodes/{node.node_id}"
    assert await status(pool, sam, node) == "ready"

    await pia.post(f"{path}/state", json={"state": "paused"})
    assert await status(pool, sam, node) == "paused"
    await node.poll(wait_ms=0, claim=False)  # like an agent that was told so
    await pia.post(f"{path}/state", json={"state": "draining"})
    assert await status(pool, sam, node) == "draining"
    resumed = await pia.post(f"{path}/state", json={"state": "active"})
    assert resumed.json()["status"] == await status(pool, sam, node) == "ready", "not only after its next poll"

    await node.poll(wait_ms=0, claim=False)
    assert await status(pool, sam, node) == "paused", "its owner paused it on the machine itself"
    assert (await node.poll(wait_ms=0)).status == "ready"

    await pia.put(f"{path}/floor", json={"floor": 1_000 * CREDIT})
    assert await status(pool, sam, node) == "floor_above_price"
    assert (await node.poll(wait_ms=0)).status == "floor_above_price"
    mine, others = (await got(pia, path))["sentence"], (await got(sam, path))["sentence"]
    assert "1,000.00" in mine
    assert "1,000" not in others
    assert "takes jobs" not in f"{mine} {others}"
    await pia.put(f"{path}/floor", json={"floor": None})

    await submit(sam)
    await node.take()
    assert await status(pool, sam, node) == "working"

    await pia.post(f"{path}/revoke")
    assert await status(pool, sam, node) == "revoked"


async def test_a_node_that_only_sends_heartbeats_gets_no_jobs(pool: HubDouble) -> None:
    """A node that never polled, and one that stopped polling, are online and get no jobs."""
    pia = await pool.account("pia", "provider")
    never = NodeDouble(pool.client(), pool.hub.clock)
    await never.register((await pia.post("/nodes/codes")).json()["code"], name="never")
    await never.poll(wait_ms=0, path="/heartbeat")
    once = await pool.node(pia, name="once")
    for _ in range(SUSPECT_MS // POLL_MS + 1):
        pass_time(pool, POLL_MS)
        for node in (never, once):
            await node.poll(wait_ms=0, path="/heartbeat")
    for node in (never, once):
        assert await status(pool, pia, node) == "not_polling"
        why = await got(pia, f"/nodes/{node.node_id}/why")
        assert why["sentence"] == "The node is online but does not ask this hub for jobs."
    await once.poll(wait_ms=0)
    assert await status(pool, pia, once) == "ready"


@pytest.mark.parametrize("wanted", ["active", "paused", "draining"])
async def test_a_stopped_node_is_offline_at_once(pool: HubDouble, wanted: str) -> None:
    pia = await pool.account("pia", "provider")
    node = await pool.node(pia)
    await pia.post(f"/nodes/{node.node_id}/state", json={"state": wanted})
    await node.poll(wait_ms=0, claim=False)
    await node.poll(wait_ms=0, claim=False, stopping=True)
    assert await status(pool, pia, node) == "offline"
    *_, newest = (await got(pia, "/events", node_id=node.node_id))["events"]
    assert (newest["action"], newest["reason"]) == ("node.offline", "stopped")
    await node.poll(wait_ms=0, path="/heartbeat")  # it was already on its way
    assert await status(pool, pia, node) == "offline"
    node.restart()
    await node.poll(wait_ms=0)
    assert await status(pool, pia, node) == {"active": "ready"}.get(wanted, wanted)


async def test_a_late_stop_does_not_end_the_next_start(pool: HubDouble) -> None:
    pia = await pool.account("pia", "provider")
    node = await pool.node(pia)
    session = pool.hub.nodes.registry.get(node.node_id)
    assert session is not None
    node.restart()
    await node.poll(wait_ms=0)
    await departures.stop(pool.hub, session)
    assert await status(pool, pia, node) == "ready"


async def test_a_node_that_left_is_shown_as_such_everywhere(pool: HubDouble) -> None:
    pia = await pool.account("pia", "provider")
    node = await pool.node(pia)
    await node.client.post("/nodes/leave")
    assert await status(pool, pia, node) == "left"


async def test_a_killed_node_soon_becomes_unresponsive_and_then_offline(pool: HubDouble) -> None:
    pia = await pool.account("pia", "provider")
    node = await pool.node(pia)
    assert (await got(pia, "/hub"))["nodes_online"] == 1
    seen_ms = (await got(pia, f"/nodes/{node.node_id}"))["last_seen_ms"]
    pass_time(pool, SUSPECT_MS)
    assert await status(pool, pia, node) == "unresponsive"
    assert [(await got(pia, path))["nodes_online"] for path in ("/hub", "/mesh")] == [0, 0]
    pass_time(pool, LEASE_MS - SUSPECT_MS)
    await housekeeping.drop_silent(pool.hub)
    assert await status(pool, pia, node) == "offline"
    assert (await got(pia, f"/nodes/{node.node_id}"))["last_seen_ms"] == seen_ms
    await pia.post(f"/nodes/{node.node_id}/revoke")
    assert await status(pool, pia, node) == "revoked"
