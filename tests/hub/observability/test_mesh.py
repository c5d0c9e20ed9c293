"""A hub with a mesh version: which nodes may join, and which version jobs have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble


def job(**needs: Any) -> dict[str, Any]:
    return {"spec": {"kind": "command", "name": "x", "argv": ["true"], "needs": needs}}


async def registration(hub: HubDouble, version: str, code: str) -> Any:
    node = NodeDouble(hub.client(), hub.hub.clock)
    try:
        await node.register(code, mesh_version=version)
    except Exception as error:  # noqa: BLE001 - whatever it is, the answer tells
        return error.response  # type: ignore[attr-defined]
    return node


async def test_a_node_of_another_version_is_refused_and_uses_no_code(tmp_path: Path) -> None:
    async with running_hub(tmp_path, mesh_version="analysis") as hub:
        code = (await hub.admin.post("/nodes/codes")).json()["code"]
        for other in ("", "analysis-2"):
            answer = await registration(hub, other, code)
            assert (answer.status_code, answer.json()["field"]) == (409, "profile.mesh_version")
            assert "mesh version analysis" in answer.json()["detail"]
        assert isinstance(await registration(hub, "analysis", code), NodeDouble)


async def test_a_node_that_returns_with_another_version_is_refused(tmp_path: Path) -> None:
    async with running_hub(tmp_path, mesh_version="analysis") as hub:
        node = await hub.node(mesh_version="analysis")
        await hub.admin.post("/jobs", json=job())
        node.profile = node.profile.model_copy(update={"mesh_version": "other"})
        answer = await node.client.post(
            "/next", json={"boot_id": "second", "profile": node.profile.model_dump(mode="json")}
        )
        assert (answer.status_code, answer.json()["field"]) == (409, "profile.mesh_version")
        assert "mesh version other" in answer.json()["detail"]


async def test_jobs_have_the_hubs_version_by_default(tmp_path: Path) -> None:
    async with running_hub(tmp_path, mesh_version="analysis") as hub:
        node = await hub.node(mesh_version="analysis")
        [plain] = (await hub.admin.post("/jobs", json=job())).json()["job_ids"]
        [foreign] = (await hub.admin.post("/jobs", json=job(mesh_version="other"))).json()["job_ids"]
        assert [grant.job_id for grant in await node.take()] == [plain]
        detail = (await hub.admin.get(f"/jobs/{plain}")).json()
        assert detail["spec"]["needs"]["mesh_version"] == "analysis"
        why = (await hub.admin.get(f"/jobs/{foreign}/why")).json()
        assert why["unsatisfiable"]
        assert "mesh version other" in why["sentence"]
        preview = (await hub.admin.post("/jobs/preview", json={"needs": {}})).json()
        assert [host["ok"] for host in preview["hosts"]] == [True]


async def test_jobs_queued_for_one_version_do_not_run_on_the_next(tmp_path: Path) -> None:
    async with running_hub(tmp_path, mesh_version="one") as hub:
        await hub.admin.post("/jobs", json=job())
    async with running_hub(tmp_path, mesh_version="two") as hub:
        node = await hub.node(mesh_version="two")
        [fresh] = (await hub.admin.post("/jobs", json=job())).json()["job_ids"]
        assert [grant.job_id for grant in await node.take()] == [fresh]


@pytest.mark.parametrize("version", ["", "analysis", "other"])
async def test_a_hub_without_a_version_accepts_every_node(hub: HubDouble, version: str) -> None:
    node = await hub.node(mesh_version=version)
    [named] = (await hub.admin.post("/jobs", json=job(mesh_version="analysis"))).json()["job_ids"]
    [plain] = (await hub.admin.post("/jobs", json=job())).json()["job_ids"]
    expected = {plain, named} if version == "analysis" else {plain}
    got: set[str] = set()
    while fresh := {grant.job_id for grant in await node.take()} - got:
        got |= fresh
        if got == expected:
            break
    assert got == expected


async def test_the_command_of_a_code_names_the_mesh_version(tmp_path: Path) -> None:
    async with running_hub(tmp_path, mesh_version="analysis") as hub:
        made = (await hub.admin.post("/nodes/codes", json={"hosts": 5})).json()
        assert f"--mesh-version analysis --code {made['code']}" in made["command"]


@pytest.mark.soak
async def test_the_name_of_an_online_host_cannot_be_taken(tmp_path: Path) -> None:
    """The code still works with another name."""
    async with running_hub(tmp_path) as hub:
        await (await hub.node(name="linux-a", url="http://linux-a:8765")).poll()
        code = (await hub.admin.post("/nodes/codes")).json()["code"]
        second = NodeDouble(hub.client(), hub.hub.clock)
        with pytest.raises(Exception, match="409") as refused:
            await second.register(code, name="linux-a", url="http://linux-a:8765")
        assert "choose another --name" in refused.value.response.json()["detail"]  # type: ignore[attr-defined]
        await second.register(code, name="linux-b", url="http://linux-b:8765")
