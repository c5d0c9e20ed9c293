"""A node replaces its own key, and a revoked node is shut out at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from computepool.testing.waiting import eventually
from tests.hub.submitting import state, submit
from tests.hub.untouched import untouched


async def beat(node: NodeDouble) -> int:
    return (await node.client.post("/heartbeat", json={"boot_id": node.boot_id})).status_code


def with_key(node: NodeDouble, key: Ed25519PrivateKey, hub: HubDouble) -> NodeDouble:
    other = NodeDouble(hub.client(), node.clock)
    other.node_id, other.key, other.boot_id, other.holding = node.node_id, key, node.boot_id, node.holding
    other._introduced = True
    other.sign_in()
    return other


async def test_both_keys_are_accepted_for_a_while_and_then_only_the_new_one(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, node_key_overlap_s=3600, lease_min_s=10**6) as hub:
        node = await hub.node()
        [first, second] = await submit(hub.admin), await submit(hub.admin)
        grants = await node.take(2)
        old_key = node.key
        answer = await node.rekey()
        assert answer.json()["old_accepted_until_ms"] == clock.now_ms() + 3600_000
        old = with_key(node, old_key, hub)
        assert (await beat(old), await beat(node)) == (200, 200)
        assert await old.report(grants[0].attempt_id) == "accepted", "a report from before the change"
        clock.advance(3600_000)
        old.sign_in()
        node.sign_in()
        assert (await beat(old), await beat(node)) == (401, 200)
        assert (await old.complete([old.make_report(grants[1].attempt_id)])).status_code == 401
        await node.report(grants[1].attempt_id)
        assert [await state(hub.admin, job) for job in (*first, *second)] == ["succeeded"] * 2


async def test_only_the_newest_key_names_its_successor(hub: HubDouble) -> None:
    node, other = await hub.node(), await hub.node(name="other", cores=0.001)
    old_key = node.key
    async with untouched(hub):
        for signer in (other.key, Ed25519PrivateKey.generate()):
            answer = await node.rekey(signer=signer)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await node.rekey()).status_code == 200
    stolen = with_key(node, old_key, hub)
    async with untouched(hub):
        answer = await stolen.rekey()
        assert answer.status_code == 403, "whoever has the old key cannot take the node over in the overlap"
    assert (await node.rekey()).status_code == 200


async def test_a_node_cannot_take_another_nodes_key(hub: HubDouble) -> None:
    node, other = await hub.node(), await hub.node(name="other", cores=0.001)
    from computepool.protocol.hub_keys import rekey_text
    from computepool.protocol.tokens import b64, public_text

    text = rekey_text(node.node_id, public_text(other.key))
    sent = {
        "public_key": public_text(other.key),
        "proof": b64(other.key.sign(text)),
        "endorsement": b64(node.key.sign(text)),
    }
    assert (await node.client.post("/nodes/rekey", json=sent)).status_code == 409


async def test_a_lost_rekey_answer_can_be_requested_again(hub: HubDouble) -> None:
    node = await hub.node()
    old_key = node.key
    first = await node.rekey()
    repeated = with_key(node, old_key, hub)
    async with untouched(hub):
        again = await repeated.client.post(
            "/nodes/rekey", content=first.request.content, headers={"Content-Type": "application/json"}
        )
    assert again.json() == first.json()


@pytest.mark.soak
async def test_revoking_a_node_ends_its_parked_poll_at_another_hub(migrated_url: str, tmp_path: Path) -> None:
    async with (
        running_hub(tmp_path / "a", database_url=migrated_url) as here,
        running_hub(tmp_path / "b", database_url=migrated_url) as there,
    ):
        node = await here.node(here.client(there.admin_key))
        parked = asyncio.create_task(node.client.post("/next", json={"boot_id": node.boot_id, "wait_ms": 30_000}))
        session = here.hub.nodes.registry.get(node.node_id)
        assert session is not None
        await eventually(lambda: session.waiter is not None)
        revoked = await there.client(there.admin_key).post(f"/nodes/{node.node_id}/revoke")
        assert revoked.json()["state"] == "revoked"
        answer = await asyncio.wait_for(parked, 29)
        assert (answer.status_code, "revoked" in answer.text) == (401, True)
        assert await beat(node) == 401
        assert (await node.rekey()).status_code == 401
