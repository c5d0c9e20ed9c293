"""Enrolment of nodes: a code works once, and a lost answer can be requested again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble


async def code_for(hub: HubDouble, hosts: int = 1) -> str:
    return str((await hub.admin.post("/nodes/codes", json={"hosts": hosts})).json()["code"])


async def joining(hub: HubDouble, code: str) -> int | str:
    """The status of a refusal, or the id of a new node."""
    node = NodeDouble(hub.client(), hub.hub.clock)
    try:
        await node.register(code)
    except httpx2.HTTPStatusError as error:
        return error.response.status_code
    return node.node_id


@pytest.mark.parametrize("hosts", [1, 2])
async def test_a_lost_answer_uses_a_code_once_and_enrols_one_node(any_hub: HubDouble, hosts: int) -> None:
    node = NodeDouble(any_hub.client(), any_hub.hub.clock)
    code = await code_for(any_hub, hosts)
    await node.register(code)
    first = node.node_id
    await node.register(code)
    assert node.node_id == first
    assert len((await any_hub.admin.get("/nodes")).json()["nodes"]) == 1
    if hosts > 1:
        [listed] = (await any_hub.admin.get("/nodes/codes")).json()["codes"]
        assert (listed["used"], listed["hosts"]) == (1, hosts)


async def test_a_used_code_enrols_no_other_key(hub: HubDouble) -> None:
    code = await code_for(hub)
    assert isinstance(await joining(hub, code), str)
    assert await joining(hub, code) == 422


async def test_a_revoked_node_does_not_come_back_with_its_old_code(hub: HubDouble) -> None:
    node, code = NodeDouble(hub.client(), hub.hub.clock), await code_for(hub)
    await node.register(code)
    await hub.admin.post(f"/nodes/{node.node_id}/revoke")
    with pytest.raises(httpx2.HTTPStatusError, match="422"):
        await node.register(code)


async def test_logs_of_a_repeated_report_are_kept_once(hub: HubDouble) -> None:
    node = await hub.node()
    answer = await hub.admin.post("/jobs", json={"spec": {"kind": "command", "name": "x", "argv": ["true"]}})
    [job_id] = answer.json()["job_ids"]
    [grant] = await node.take()
    said = {"logs": [{"attempt_id": grant.attempt_id, "stream": "stdout", "text": "once\n"}]}
    report = node.make_report(grant.attempt_id)
    assert await node.report_all([report], **said) == ["accepted"]
    assert await node.report_all([report], **said) == ["replay"]
    chunks = (await hub.admin.get(f"/jobs/{job_id}/logs")).json()["chunks"]
    assert [chunk["text"] for chunk in chunks] == ["once\n"]


# codes for several hosts


async def test_a_join_code_admits_exactly_its_number_of_hosts(any_hub: HubDouble) -> None:
    made = (await any_hub.admin.post("/nodes/codes", json={"hosts": 3})).json()
    found = await asyncio.gather(*(joining(any_hub, made["code"]) for _ in range(6)))
    assert sum(isinstance(node, str) for node in found) == 3
    assert [node for node in found if node == 422] == [422] * 3
    assert (await any_hub.admin.get("/nodes/codes")).json()["codes"] == []  # it is used up


async def test_a_join_code_ends_by_its_time_by_its_owner_and_with_a_revoked_node(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, join_code_lifetime_s=100, join_code_hosts=5) as hub:
        late = (await hub.admin.post("/nodes/codes", json={"hosts": 5, "lifetime_s": 10_000})).json()
        assert late["expires_at_ms"] <= clock.now_ms() + 100_000  # no longer than the hub allows
        clock.advance(100_001)
        assert await joining(hub, late["code"]) == 422
        ended = (await hub.admin.post("/nodes/codes", json={"hosts": None})).json()
        assert ended["hosts"] == 5
        [listed] = (await hub.admin.get("/nodes/codes")).json()["codes"]
        assert listed["id"] not in ended["code"]
        assert (await hub.admin.delete(f"/nodes/codes/{listed['id']}")).status_code == 204
        assert await joining(hub, ended["code"]) == 422
        assert (await hub.admin.delete(f"/nodes/codes/{listed['id']}")).status_code == 404
        known = (await hub.admin.post("/nodes/codes", json={"hosts": 2})).json()["code"]
        stolen = await joining(hub, known)
        await hub.admin.post(f"/nodes/{stolen}/revoke")
        assert await joining(hub, known) == 422
        assert (await hub.admin.post("/nodes/codes", json={"hosts": 6})).status_code == 422


async def test_a_join_code_is_for_nothing_else_and_kept_as_a_hash(hub: HubDouble) -> None:
    made = (await hub.admin.post("/nodes/codes", json={"hosts": 2})).json()["code"]
    assert (await hub.client().post("/signin", json={"code": made})).status_code == 422
    rows = await hub.hub.store.read(lambda c: c.exec_driver_sql("SELECT hash, purpose FROM codes").all())
    assert made not in repr(rows)
    assert "join" in {row.purpose for row in rows}
    for wrong in ("%", "_" * 12, "0" * 12):
        assert (await hub.admin.delete(f"/nodes/codes/{wrong}")).status_code in (404, 405, 422)
    assert await joining(hub, made) != 422


@pytest.mark.parametrize("address", ["198.51.100.7", "2001:db8::7"])
async def test_a_node_is_told_its_address_as_the_hub_sees_it(hub: HubDouble, address: str) -> None:
    """It needs it to keep its jobs from the owner's router. A caller without an address is told none."""
    node = await hub.node()
    for path in ("/next", "/heartbeat"):
        assert (await node.poll(wait_ms=0, path=path)).seen_from == "127.0.0.1"
    node.client._transport = httpx2.ASGITransport(hub.app, client=(address, 1))
    assert (await node.poll(wait_ms=0)).seen_from == address
    node.client._transport = httpx2.ASGITransport(hub.app, client=("testclient", 1))
    assert (await node.poll(wait_ms=0)).seen_from is None
