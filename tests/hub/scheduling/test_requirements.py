"""Requirement expressions, measured network speed and preferences, through the real API."""

from __future__ import annotations

from typing import Any

import pytest

from computepool.testing.hub import HubDouble
from tests.hub.submitting import body, submit


async def why(hub: HubDouble, job_id: str) -> dict[str, Any]:
    answer = await hub.admin.get(f"/jobs/{job_id}/why")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_job_runs_only_where_its_expression_holds(hub: HubDouble) -> None:
    laptop = await hub.node(name="laptop", tags=["laptop", "ssd"], properties={"site": "lab-1"})
    [job_id] = await submit(hub.admin, needs={"require": 'tag.ssd and (site == "lab-3" or not tag.laptop)'})
    said = await why(hub, job_id)
    [gate] = [gate for gate in said["gates"] if gate["gate"] == "require"]
    assert (gate["failing"], gate["failing_even_if_idle"]) == (1, 1)
    assert 'tag.ssd and (site == "lab-3" or not tag.laptop)' in said["sentence"]
    assert said["changes"][0]["change"] == "drop --require"
    assert (await laptop.poll(wait_ms=0)).grants == []
    desk = await hub.node(name="desk", tags=["ssd"])
    assert [grant.job_id for grant in await desk.take()] == [job_id]


async def test_an_unknown_speed_is_not_enough(hub: HubDouble) -> None:
    unknown = await hub.node(name="unknown")
    slow = await hub.node(name="slow", down_mbps=40, up_mbps=100)
    [job_id] = await submit(hub.admin, needs={"down_mbps": 50, "up_mbps": 20})
    said = await why(hub, job_id)
    [gate] = [gate for gate in said["gates"] if gate["gate"] == "bandwidth"]
    assert gate["failing_even_if_idle"] == 2
    assert gate["need"] == "a measured network speed of 50 Mb/s down and 20 Mb/s up"
    hosts = (await hub.admin.post("/jobs/preview", json={"needs": {"down_mbps": 50}})).json()["hosts"]
    failed = {host["name"]: " ".join(host["failed"]) for host in hosts}
    assert "no measured network speed" in failed["unknown"]
    assert "40 Mb/s down and 100 Mb/s up" in failed["slow"]
    for node in (unknown, slow):
        assert (await node.poll(wait_ms=0)).grants == []
    faster = slow.profile.model_copy(update={"down_mbps": 60}).model_dump(mode="json")
    assert [grant.job_id for grant in (await slow.poll(profile=faster)).grants] == [job_id]


@pytest.mark.parametrize(
    "needs", [{"require": "ssd"}, {"require": "a" * 501}, {"prefer": "greenest"}, {"down_mbps": -1}]
)
async def test_what_cannot_be_met_by_any_node_is_refused(hub: HubDouble, needs: dict[str, Any]) -> None:
    answer = await hub.admin.post("/jobs", json=body(needs=needs))
    assert answer.status_code == 422
    assert answer.json()["field"].startswith("spec.needs.")


async def test_the_fastest_node_is_preferred(hub: HubDouble) -> None:
    cards = [{"name": "NVIDIA GeForce RTX 3060", "tier": "rtx-3060", "vram_mb": 12_000}]
    await hub.node(name="slow", cores=1, gpus=cards)
    best = [{"name": "NVIDIA H100", "tier": "h100", "vram_mb": 80_000}]
    fast = await hub.node(name="fast", cores=32, gpus=best)
    [job_id] = await submit(hub.admin, needs={"gpus": 1, "vram_mb": 4_000, "prefer": "fastest"})
    assert [grant.job_id for grant in await fast.take()] == [job_id]


async def test_a_node_gets_back_what_it_sends_to_measure_its_connection(hub: HubDouble) -> None:
    node = await hub.node()
    answer = await node.client.post("/nodes/self/speed", content=b"0" * 300_000)
    assert (answer.status_code, len(answer.content)) == (200, 300_000)
    assert (await node.client.post("/nodes/self/speed", content=b"0" * 2_000_000)).status_code == 413
