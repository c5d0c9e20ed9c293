"""Why a job waits and why a node has no work, through the real API."""

from __future__ import annotations

from pathlib import Path

from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import submit


async def why(hub: HubDouble, job_id: str) -> dict[str, object]:
    answer = await hub.admin.get(f"/jobs/{job_id}/why")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_job_that_no_node_can_run_says_so_and_what_would_help(hub: HubDouble) -> None:
    await hub.node(name="small", cores=2)
    await hub.node(name="large", cores=8)
    [job_id] = await submit(hub.admin, needs={"cores": 16})
    said = await why(hub, job_id)
    assert said["unsatisfiable"] is True
    assert said["nodes"] == 2
    cores = next(gate for gate in said["gates"] if gate["gate"] == "cores")  # type: ignore[attr-defined]
    assert (cores["failing"], cores["failing_even_if_idle"]) == (2, 2)
    assert any("8" in change["change"] for change in said["changes"])  # type: ignore[attr-defined]
    assert "8" in str(said["sentence"])


async def test_a_job_on_a_busy_pool_waits_for_capacity_not_for_ever(hub: HubDouble) -> None:
    node = await hub.node(cores=2)
    await submit(hub.admin, needs={"cores": 2})
    await node.take()
    [waiting] = await submit(hub.admin, needs={"cores": 2})
    said = await why(hub, waiting)
    assert said["unsatisfiable"] is False
    assert said["eligible_now"] == 0


async def test_a_job_without_nodes_or_with_dependencies_says_that(hub: HubDouble) -> None:
    [first] = await submit(hub.admin)
    assert (await why(hub, first))["nodes"] == 0
    [second] = await submit(hub.admin, after=[first])
    assert first in str((await why(hub, second))["sentence"])


async def test_a_stranger_needs_a_sandbox_and_the_owner_does_not(hub: HubDouble) -> None:
    node = await hub.node(isolation="process")
    stranger = await hub.account("stranger", "submitter")
    [foreign] = await submit(stranger)
    said = (await stranger.get(f"/jobs/{foreign}/why")).json()
    assert said["eligible_now"] == 0
    assert any(gate["gate"] == "trust" and gate["failing"] == 1 for gate in said["gates"])
    [own] = await submit(hub.admin)
    assert [grant.job_id for grant in await node.take()] == [own]


async def test_the_placement_preview_ranks_and_explains(hub: HubDouble) -> None:
    await hub.node(name="plain")
    await hub.node(name="tagged", tags=["gpu-lab"])
    answer = await hub.admin.post("/jobs/preview", json={"needs": {"tags": ["gpu-lab"]}})
    hosts = {host["name"]: host for host in answer.json()["hosts"]}
    assert hosts["tagged"]["ok"] is True
    assert hosts["tagged"]["terms"]
    assert hosts["plain"]["ok"] is False
    assert hosts["plain"]["failed"]


async def test_a_node_is_told_why_it_has_no_work(hub: HubDouble) -> None:
    node = await hub.node(cores=2)
    path = f"/nodes/{node.node_id}/why"
    assert "empty" in (await hub.admin.get(path)).json()["sentence"]
    await submit(hub.admin, needs={"cores": 4})
    said = (await hub.admin.get(path)).json()
    assert said["rows"][0]["queued"] == 1
    await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
    assert "paused" in (await hub.admin.get(path)).json()["sentence"]


async def test_a_node_that_is_offline_is_named_with_since_when(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, tick_s=10_000) as hub:
        gone = await hub.node(name="gpu-a", tags=["gpu"])
        made = {"name": "sweep", "home": "gpu-a", "return_home": True}
        group = (await hub.admin.post("/groups", json=made)).json()["id"]
        clock.advance(3_600_000)
        hub.hub.nodes.registry.on_node_lost(gone.node_id)
        await hub.node(name="plain")
        [job_id] = await submit(hub.admin, needs={"tags": ["gpu"]}, group_id=group)
        said = await why(hub, job_id)
        assert "gpu-a, which could run it, is offline since" in str(said["sentence"])
        assert said["unsatisfiable"] is False
        home = (await hub.admin.get(f"/groups/{group}")).json()["home"]
        assert "goes to gpu-a when it is complete (offline since" in home["sentence"]
        pending = (await hub.admin.get(f"/groups/{group}/summary")).json()["waiting"]["items"]
        assert "lacks tag gpu" in pending[0]["sentence"], "in a list only what costs nothing to say"
        [other] = await submit(hub.admin, needs={"tags": ["tpu"]})
        assert (await why(hub, other))["unsatisfiable"] is True
