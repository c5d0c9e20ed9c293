"""The uptime of a node that comes, goes and returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from computepool.hub.nodes import uptime
from computepool.hub.scheduling import housekeeping
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.working import got

HOUR_MS = 3_600_000


async def stay(hub: HubDouble, node: NodeDouble, hours: int) -> None:
    """Keep the node online for so long, with frequent polls although the clock jumps."""
    clock = hub.hub.clock
    assert isinstance(clock, FakeClock)
    for _ in range(hours * 60):
        clock.advance(60_000)
        node.sign_in()
        if (await node.poll(wait_ms=0)).reregister:
            await node.poll(wait_ms=0)


async def leave(hub: HubDouble, hours: int) -> None:
    clock = hub.hub.clock
    assert isinstance(clock, FakeClock)
    clock.advance(HOUR_MS)
    await housekeeping.drop_silent(hub.hub)
    clock.advance((hours - 1) * HOUR_MS)


async def shown(hub: HubDouble, node: NodeDouble) -> dict[str, Any]:
    return (await got(hub.admin, f"/nodes/{node.node_id}"))["uptime"]


@pytest.mark.soak
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_node_that_was_away(tmp_path: Path, restarts: bool) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node(region="in")
        assert (await shown(hub, node))[
            "sentence"
        ] == "It has been known for less than an hour, too short for a figure."
        await stay(hub, node, 3)
        seen = await shown(hub, node)
        assert [span["share_ppm"] for span in seen["spans"]] == [1_000_000] * 3
        assert seen["sentence"] == "Online 100 % of the last 24 hours."
        left = clock.now_ms()
        await leave(hub, 2)
        gone = await shown(hub, node)
        assert gone["online_since_ms"] is None
        assert [span["share_ppm"] for span in gone["spans"]] == [600_000] * 3
        if restarts:
            node.restart()
        await stay(hub, node, 1)
        back = await shown(hub, node)
        assert back["online_since_ms"] == left + 2 * HOUR_MS + 60_000
        away_ms = 2 * HOUR_MS + 60_000
        [day, _, month] = back["spans"]
        assert day["known_ms"] == 6 * HOUR_MS
        assert day["online_ms"] == month["online_ms"] == 6 * HOUR_MS - away_ms
        listed = (await got(hub.admin, "/nodes"))["nodes"][0]["uptime"]
        assert listed == back


@pytest.mark.soak
async def test_a_hub_that_restarts_is_not_held_against_nodes(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node(region="in")
        await stay(hub, node, 1)
    clock.advance(100_000)
    async with running_hub(tmp_path, clock=clock) as hub:
        again = NodeDouble(hub.client(), clock)
        again.key, again.node_id, again.boot_id, again.profile = (node.key, node.node_id, node.boot_id, node.profile)
        again.sign_in()
        await again.poll(wait_ms=0)
        assert (await shown(hub, again))["spans"][0]["share_ppm"] == 1_000_000


async def test_old_periods_are_pruned(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node(region="in")
        await stay(hub, node, 1)
        await leave(hub, 31 * 24)
        await stay(hub, node, 1)
        await uptime.prune(hub.hub)
        month = (await shown(hub, node))["spans"][-1]
        assert month["known_ms"] == 720 * HOUR_MS
        assert month["online_ms"] == HOUR_MS - 60_000
