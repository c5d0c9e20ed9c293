"""Jobs for the submitter's own node alone need no hold and never cost anything."""

from __future__ import annotations

import pytest

from computepool.core.errors import InvariantViolation
from computepool.core.money.money import CREDIT
from computepool.hub.jobs import rows as job_rows
from computepool.testing.factories import acceptance_row
from computepool.testing.hub import HubDouble
from tests.hub.jobs.test_checkpoints import saved
from tests.hub.money import test_holds
from tests.hub.submitting import body, job, submit
from tests.hub.working import CEILING, HOUR, balances_of

hub = test_holds.hub


@pytest.mark.soak
async def test_a_job_on_an_own_host_needs_no_hold(hub: HubDouble) -> None:
    """Also if it sets a price limit, or its node is offline."""
    bob = await hub.account("bob", "submitter", "provider")
    node = await hub.node(bob, name="mine")
    for terms in ({}, {"max_price": CEILING}, {"max_price": CEILING, "budget": 50 * CREDIT}):
        sent = body(spec=HOUR, needs={"host": "mine"}, verify="adaptive", **terms)
        answer = (await bob.post("/jobs", json=sent)).json()
        assert (answer["hold"], answer["max_price"], answer["own_node"]) == (0, 0, True)
        [grant] = await node.take()
        assert (grant.price, await node.report(grant.attempt_id)) == (0, "accepted")
        assert (await job(bob, grant.job_id))["charge"] == 0
    assert await balances_of(hub, bob) == (100 * CREDIT, 0, 0)
    [_, waiting] = await submit(bob, items=2, needs={"host": "mine", "cores": 4})
    await node.take()
    why = (await bob.get(f"/jobs/{waiting}/why")).json()
    assert [gate["gate"] for gate in why["gates"] if gate["failing"]] == ["cores"], "no word of a price"
    hub.hub.nodes.registry.on_node_lost(node.node_id)
    away = (await bob.post("/jobs", json=body(spec=HOUR, needs={"host": node.node_id}))).json()
    assert (away["hold"], away["max_price"]) == (0, 0)


async def test_another_accounts_host_is_paid_for(hub: HubDouble) -> None:
    bob, pia = await hub.account("bob", "submitter", "provider"), await hub.account("pia", "provider")
    await hub.node(bob)
    theirs = await hub.node(pia, name="hers")
    for host in (theirs.node_id, None):
        answer = (await bob.post("/jobs", json=body(spec=HOUR, needs={"host": host}))).json()
        assert (answer["hold"], answer["own_node"]) == (CEILING, host is None)
    hub.hub.nodes.registry.on_node_lost(theirs.node_id)
    answer = (await bob.post("/jobs", json=body(spec=HOUR, needs={"host": theirs.node_id}))).json()
    assert answer["hold"] == CEILING


@pytest.mark.soak
async def test_a_job_on_an_own_host_never_costs_anything(hub: HubDouble) -> None:
    """It names another account's host to move to, its node leaves, and it is resubmitted."""
    bob, pia = await hub.account("bob", "submitter", "provider"), await hub.account("pia", "provider")
    mine, other = await hub.node(bob, name="mine"), await hub.node(bob, name="other")
    theirs = await hub.node(pia, name="hers")
    moving = HOUR | {"checkpoints": True, "moves": True}
    [job_id] = await submit(bob, spec=moving, needs={"host": "mine"}, retries=3)
    [grant] = await mine.take()
    hub.hub.clock.advance(60_000)  # type: ignore[attr-defined]
    assert (await saved(mine, grant.attempt_id, b"half", last=True))["kept"]
    to = {"outcome": "moved", "reason": "moved", "exit_code": None}
    assert await mine.report(grant.attempt_id, **to, move_to=theirs.node_id) == "accepted"
    assert (await job(bob, job_id))["reason"] == "host_not_reached"
    assert (await theirs.poll(wait_ms=0)).grants == []

    [again] = (await bob.post(f"/jobs/{job_id}/resubmit", json={"terms": "today"})).json()["job_ids"]
    [grant] = await mine.take()
    hub.hub.clock.advance(60_000)  # type: ignore[attr-defined]
    assert (await saved(mine, grant.attempt_id, b"half", last=True))["kept"]
    assert await mine.report(grant.attempt_id, **to, move_to="other") == "accepted"
    [grant] = await other.take()
    assert (grant.job_id, grant.price) == (again, 0)
    (await bob.post(f"/nodes/{other.node_id}/revoke")).raise_for_status()
    assert (await theirs.poll(wait_ms=0)).grants == []
    assert await balances_of(hub, bob) == (100 * CREDIT, 0, 0)
    assert await balances_of(hub, pia) == (100 * CREDIT, 0, 0)


@pytest.mark.soak
async def test_the_database_refuses_a_charge_beyond_the_hold(hub: HubDouble) -> None:
    bob = await hub.account("bob", "submitter", "provider")
    node = await hub.node(bob)
    [job_id] = await submit(bob, spec=HOUR, needs={"host": node.node_id})
    found = await hub.hub.store.read(lambda connection: job_rows.get_job(connection, job_id))
    assert found is not None
    row = acceptance_row(found, node_id=node.node_id, now_ms=2, new_charge=1)
    with pytest.raises(InvariantViolation, match="charged more than its hold"):
        await hub.hub.store.write(lambda tx: job_rows.accept(tx, [row]))
    assert (await job(bob, job_id))["state"] != "succeeded"
