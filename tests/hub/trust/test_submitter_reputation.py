"""Submitters' reputations follow from their jobs on others' nodes, in the transaction that records them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from computepool.hub.trust import submitter_reputation, submitter_reputation_rows
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import submit
from tests.hub.working import got

TIMEOUT = {"outcome": "failed", "reason": "timeout", "exit_code": None}


async def mine(client: httpx2.AsyncClient) -> dict[str, Any]:
    return (await got(client, "/me"))["submitter_reputation"]


async def test_jobs_on_nodes_of_others_count_and_those_on_ones_own_do_not(any_hub: HubDouble) -> None:
    sam = await any_hub.account("sam", "submitter", "provider")
    pia = await any_hub.account("pia", "provider")
    theirs = await any_hub.node(pia, name="theirs")
    await submit(sam, retries=0, needs={"host": "theirs"})
    [grant] = await theirs.take()
    await theirs.report(grant.attempt_id)
    good = await mine(sam)
    assert (good["completed"], good["harmful"]) == (1, 0)
    await submit(sam, retries=0, needs={"host": "theirs"})
    [grant] = await theirs.take()
    await theirs.report(grant.attempt_id, **TIMEOUT)
    [job_id] = await submit(sam, retries=0, needs={"host": "theirs"})
    await theirs.take()
    assert (await sam.post(f"/jobs/{job_id}/cancel")).status_code == 200
    bad = await mine(sam)
    assert (bad["completed"], bad["harmful"], bad["cancelled"]) == (1, 1, 1)
    assert bad["score"] < good["score"]
    own = await any_hub.node(sam, name="own")
    await submit(sam, retries=0, needs={"host": "own"})
    [grant] = await own.take()
    await own.report(grant.attempt_id, **TIMEOUT)
    assert await mine(sam) == bad
    listed = await got(any_hub.admin, "/accounts")
    shown = {account["name"]: account["submitter_reputation"] for account in listed["accounts"]}
    assert shown["sam"] == bad
    assert shown["pia"]["changed_at_ms"] is None
    assert await any_hub.hub.store.read(submitter_reputation_rows.differing_accounts) == []


async def test_placements_know_it_at_once_after_a_restart_and_from_other_hubs(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
        account_id = (await got(sam, "/me"))["id"]
        fresh = hub.hub.nodes.registry.fleet.submitter_score(account_id)
        node = await hub.node(pia)
        for _ in range(3):
            await submit(sam, retries=0)
            [grant] = await node.take()
            await node.report(grant.attempt_id, **TIMEOUT)
        seen = hub.hub.nodes.registry.fleet.submitter_score(account_id)
        assert seen < fresh
        stored = await hub.hub.store.read(lambda c: submitter_reputation_rows.list_changed_since(c, 0))
    async with running_hub(tmp_path, clock=clock) as hub:
        assert hub.hub.nodes.registry.fleet.submitter_score(account_id) == seen
        assert hub.hub.trust.submitters == stored
        hub.hub.trust.submitters.clear()  # as if a notification was lost
        await submitter_reputation.refresh(hub.hub)
        assert hub.hub.nodes.registry.fleet.submitter_score(account_id) == seen
