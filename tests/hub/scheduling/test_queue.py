"""The queue as people look at it: what nodes say of their attempts, who sees it, and what waits in vain."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble


def job(*items: str, **needs: Any) -> dict[str, Any]:
    spec = {"kind": "command", "name": "x", "argv": ["true"], "needs": needs}
    return {"spec": spec, "items": [{"key": key} for key in items] or [{}]}


async def tell(node: NodeDouble, *running: dict[str, Any]) -> None:
    answer = await node.client.post(
        "/heartbeat",
        json={"boot_id": node.boot_id, "holding": list(node.holding), "running": list(running), "claim": False},
    )
    answer.raise_for_status()


async def test_leases_with_cpus_and_load(hub: HubDouble) -> None:
    group = (await hub.admin.post("/groups", json={"name": "g"})).json()["id"]
    node = await hub.node(name="linux-a", tags=["linux"], url="http://linux-a:8765", mesh_version="v1")
    await hub.admin.post("/jobs", json=job("bundle-a", cores=2) | {"group_id": group})
    [grant] = await node.take()
    load = {"cpu_percent": 187, "rss_mb": 300, "processes": 3}
    await tell(node, {"attempt_id": grant.attempt_id, "cpu_ids": [0, 3], "load": load, "progress": 0.5})
    view = (await hub.admin.get("/queue")).json()
    [row] = view["nodes"]
    assert (row["name"], row["tags"], row["mesh_version"], row["running"]) == ("linux-a", ["linux"], "v1", 1)
    assert (row["load"], row["hidden"], row["cores_free"]) == (load, 0, 2)
    [lease] = row["leases"]
    assert (lease["job_id"], lease["key"], lease["group_id"]) == (grant.job_id, "bundle-a", group)
    assert (lease["state"], lease["cpu_ids"], lease["cores"], lease["progress"]) == ("running", [0, 3], 2, 0.5)
    assert lease["load"] == load
    assert lease["age_ms"] >= 0


async def test_others_see_numbers_only(hub: HubDouble) -> None:
    node = await hub.node()
    await hub.admin.post("/jobs", json=job("secret"))
    [grant] = await node.take()
    await tell(node, {"attempt_id": grant.attempt_id, "load": {"cpu_percent": 5, "rss_mb": 7, "processes": 1}})
    await hub.admin.post("/jobs", json=job(tags=["secret-tag"]))
    other = await hub.account("sam", "submitter")
    answer = await other.get("/queue")
    [row] = answer.json()["nodes"]
    assert (row["leases"], row["jobs"], row["hidden"], row["running"]) == ([], [], 1, 1)
    assert row["load"]["rss_mb"] == 7
    assert answer.json()["waiting"] == []
    assert "secret" not in answer.text


async def test_what_fits_no_node_comes_first(hub: HubDouble) -> None:
    node = await hub.node(cores=1)
    await hub.admin.post("/jobs", json=job(cores=1))
    await node.take()
    await hub.admin.post("/jobs", json=job("a", "b", cores=1))
    await hub.admin.post("/jobs", json=job(tags=["gpu"]))
    view = (await hub.admin.get("/queue")).json()
    assert view["queued"] == 3
    never, later = view["waiting"]
    assert (never["queued"], never["able"]) == (1, 0)
    assert "tag gpu" in never["sentence"]
    assert (later["queued"], later["able"]) == (2, 1)


async def test_a_preview_says_who_would_do_when_it_is_free(hub: HubDouble) -> None:
    await hub.node(name="free", cores=4, tags=["linux", "gpu"])
    busy = await hub.node(name="busy", cores=1, tags=["linux"])
    await hub.admin.post("/jobs", json=job(cores=1, host="busy"))
    await busy.take()
    await hub.node(name="laptop", cores=4)
    asked = {"needs": {"tags": ["linux"], "prefer_tags": ["gpu"], "cores": 1}}
    hosts = (await hub.admin.post("/jobs/preview", json=asked)).json()["hosts"]
    assert [(host["name"], host["ok"], host["busy"]) for host in hosts] == [
        ("free", True, False),
        ("busy", False, True),
        ("laptop", False, False),
    ]
    assert hosts[0]["tags"] == ["gpu", "linux"]


async def test_nonsense_from_a_node_is_refused(hub: HubDouble) -> None:
    node = await hub.node()
    for running in (
        {"attempt_id": "a", "cpu_ids": [-1]},
        {"attempt_id": "a", "cpu_ids": list(range(5000))},
        {"attempt_id": "a", "load": {"cpu_percent": -1, "rss_mb": 0, "processes": 0}},
        {"attempt_id": "a", "load": {"cpu_percent": 10**9, "rss_mb": 0, "processes": 0}},
    ):
        answer = await node.client.post("/heartbeat", json={"boot_id": node.boot_id, "running": [running]})
        assert answer.status_code == 422


async def test_an_idle_nodes_row_follows_what_it_says(hub: HubDouble) -> None:
    node = await hub.node(name='50 % "seen_ms":1', tags=["a"])

    async def row() -> Any:
        [found] = (await hub.admin.get("/queue")).json()["nodes"]
        return found

    first = await row()
    assert (first["name"], first["status"], first["tags"]) == ('50 % "seen_ms":1', "ready", ["a"])
    session = hub.hub.nodes.registry.get(node.node_id)
    assert session is not None
    session.seen_ms += 1
    assert await row() == first | {"seen_ms": session.seen_ms}
    await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
    assert (await row())["status"] == "paused"


async def test_long_lists_let_polls_pass(hub: HubDouble) -> None:
    node = await hub.node()
    registry, count = hub.hub.nodes.registry, 1_000
    first = registry.get(node.node_id)
    assert first is not None
    for number in range(count):
        profile = replace(first.profile, node_id=f"n{number}")
        now_ms = hub.hub.now_ms()
        registry.on_node_seen(profile, boot_id="b", state=first.state, cool_off_until_ms=0, now_ms=now_ms).polls = 1
    passed = 0

    async def passing() -> None:
        nonlocal passed
        while True:
            await asyncio.sleep(0)
            passed += 1

    other = asyncio.create_task(passing())
    for path, at_once in (("/queue", 50), ("/mesh/nodes", 250)):
        passed = 0
        assert len((await hub.admin.get(path)).json()["nodes"]) == count + 1
        assert passed >= count // at_once
    other.cancel()
