"""Enrolling a node: a code works once, yet a lost answer costs nothing."""

from __future__ import annotations

import httpx2
import pytest

from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble


async def code(hub: HubDouble) -> str:
    return str((await hub.admin.post("/nodes/codes")).json()["code"])


async def test_the_same_code_and_key_again_is_the_same_node(any_hub: HubDouble) -> None:
    node = NodeDouble(any_hub.client(), any_hub.hub.clock)
    words = await code(any_hub)
    await node.register(words)
    first = node.node_id
    await node.register(words)
    assert node.node_id == first
    assert len((await any_hub.admin.get("/nodes")).json()["nodes"]) == 1


async def test_a_used_code_does_not_enrol_another_key(hub: HubDouble) -> None:
    words = await code(hub)
    await NodeDouble(hub.client(), hub.hub.clock).register(words)
    with pytest.raises(httpx2.HTTPStatusError, match="422"):
        await NodeDouble(hub.client(), hub.hub.clock).register(words)


async def test_a_revoked_node_does_not_come_back_with_its_old_code(hub: HubDouble) -> None:
    node = NodeDouble(hub.client(), hub.hub.clock)
    words = await code(hub)
    await node.register(words)
    await hub.admin.post(f"/nodes/{node.node_id}/revoke")
    with pytest.raises(httpx2.HTTPStatusError, match="422"):
        await node.register(words)


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
