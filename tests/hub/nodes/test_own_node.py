"""Requests of a node about itself: its owner, its earnings, and leaving."""

from __future__ import annotations

import pytest

from computepool.testing.hub import HubDouble
from tests.hub.submitting import submit
from tests.hub.working import got


async def test_a_node_can_read_its_owner_and_earnings(any_hub: HubDouble) -> None:
    pia = await any_hub.account("pia", "provider")
    node = await any_hub.node(owner=pia)
    await submit(any_hub.admin)
    [grant] = await node.take()
    await node.report(grant.attempt_id)
    known = await got(node.client, "/nodes/self")
    assert known["owner_name"] == "pia"
    earned = await got(pia, f"/nodes/{node.node_id}/earnings")
    assert known["earnings"] == earned


@pytest.mark.soak
async def test_a_node_leaves(any_hub: HubDouble) -> None:
    pia = await any_hub.account("pia", "provider")
    node, other = await any_hub.node(owner=pia), await any_hub.node(owner=pia)
    code = (await pia.post("/nodes/codes", json={"hosts": 3})).json()
    [job_id] = await submit(any_hub.admin, needs={"host": node.node_id})
    assert len(await node.take()) == 1
    answer = await node.client.post("/nodes/leave")
    assert answer.status_code == 200
    assert answer.json()["earnings"]["node_id"] == node.node_id

    assert (await node.client.get("/nodes/self")).status_code == 401
    assert (await node.client.post("/nodes/leave")).status_code == 401
    view = await got(pia, f"/nodes/{node.node_id}")
    assert (view["state"], view["status"]) == ("revoked", "left")
    assert view["online"] is False
    assert (await got(any_hub.admin, f"/jobs/{job_id}"))["state"] == "queued", "what it held runs elsewhere"
    events = [one for one in (await got(pia, "/events"))["events"] if one["action"] == "node.left"]
    assert [(event["node_id"], event["actor"]) for event in events] == [(node.node_id, node.node_id)]
    assert (await got(pia, "/nodes/codes"))["codes"][0]["id"] == code["id"], "others may still join with it"
    await other.poll(wait_ms=0)
    assert (await got(pia, f"/nodes/{other.node_id}"))["status"] == "ready"
