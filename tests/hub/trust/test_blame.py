"""Blame for a job that a node could not run: nobody's, until others have tried it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.core.trust.reputation import NEWCOMER_SCORE
from computepool.hub.nodes import nodes
from computepool.hub.trust import reputation_rows, submitter_reputation_rows
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.submitting import job, submit
from tests.hub.working import got

UNABLE = {"outcome": "failed", "reason": "node_error", "exit_code": None, "error": "the sandbox failed"}
NOT_STAGED = UNABLE | {"reason": "staging_failed"}


class Pool:
    """Sam submits; Pia and Per lend, each with a name for every node."""

    def __init__(self, hub: HubDouble, sam: httpx2.AsyncClient, nodes: dict[str, NodeDouble]) -> None:
        self.hub, self.sam, self.nodes = hub, sam, nodes

    async def tried(self, job_id: str, name: str, **report: Any) -> None:
        """The job is at that node next: the others are paused."""
        await self.set_state(name, "active")
        [grant] = await self.nodes[name].take()
        assert grant.job_id == job_id
        await self.set_state(name, "paused")
        assert await self.nodes[name].report(grant.attempt_id, **report) == "accepted"

    async def set_state(self, name: str, state: str) -> None:
        node = self.nodes[name]
        answer = await self.hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": state})
        assert answer.status_code == 200, answer.text

    async def faults(self, name: str) -> tuple[int, float, int, bool]:
        """A node's counted failures, its score, consecutive faults, and whether it rests."""
        view = await got(self.hub.admin, f"/nodes/{self.nodes[name].node_id}")
        known = view["reputation"]
        return known["failures"], known["score"], view["consecutive_faults"], bool(view["cool_off_until_ms"])

    async def submitter_reputation(self) -> dict[str, Any]:
        return (await got(self.sam, "/me"))["submitter_reputation"]


NEW = (0, round(NEWCOMER_SCORE, 4), 0, False)


@pytest.fixture
async def pool(any_hub: HubDouble) -> Pool:
    any_hub.hub.settings.backoff_base_s = 0
    any_hub.hub.settings.newcomer_jobs = 0
    any_hub.hub.settings.breaker_faults = 1
    sam = await any_hub.account("sam", "submitter", "provider")
    pia, per = await any_hub.account("pia", "provider"), await any_hub.account("per", "provider")
    lent = {"pia1": await any_hub.node(pia, name="pia1"), "pia2": await any_hub.node(pia, name="pia2")}
    lent |= {"per": await any_hub.node(per, name="per"), "sam": await any_hub.node(sam, name="sam")}
    pool = Pool(any_hub, sam, lent)
    for name in pool.nodes:
        await pool.set_state(name, "paused")
    return pool


@pytest.mark.soak
async def test_two_owners_nodes_that_cannot_run_it_blame_the_job(pool: Pool) -> None:
    [job_id] = await submit(pool.sam)
    await pool.tried(job_id, "pia1", **UNABLE)
    assert await pool.faults("pia1") == NEW, "nobody has done the job, so nobody is to blame"
    await pool.tried(job_id, "per", **NOT_STAGED)
    ended = await job(pool.sam, job_id)
    assert (ended["state"], ended["reason"]) == ("failed", "unrunnable")
    assert "different owners" in ended["status"]
    assert [await pool.faults(name) for name in pool.nodes] == [NEW] * 4
    assert (await pool.submitter_reputation())["failed"] == 1
    await _consistent(pool)
    [again] = await submit(pool.sam)
    await pool.tried(again, "pia1")
    assert (await job(pool.sam, again))["state"] == "succeeded", "nobody rests for it"


@pytest.mark.soak
async def test_a_node_is_at_fault_once_others_have_done_the_job(pool: Pool) -> None:
    [job_id] = await submit(pool.sam, verify="quorum:2")
    await pool.tried(job_id, "pia1", **UNABLE)
    await pool.tried(job_id, "per")
    await pool.tried(job_id, "pia2")
    assert (await job(pool.sam, job_id))["state"] == "succeeded"
    failures, score, _, resting = await pool.faults("pia1")
    assert (failures, resting) == (1, True)
    assert score < NEW[1]
    told = await got(pool.hub.admin, "/events", node_id=pool.nodes["pia1"].node_id, limit=100)
    assert [event["reason"] for event in told["events"] if event["action"] == "attempt.failed"] == ["node_error"]
    assert (await pool.submitter_reputation())["failed"] == 0
    await _consistent(pool)


@pytest.mark.soak
async def test_a_run_on_the_submitters_own_node_blames_nobody(pool: Pool) -> None:
    """The submitter's own node may report anything about it."""
    for _ in range(3):
        [job_id] = await submit(pool.sam)
        await pool.tried(job_id, "pia1", **NOT_STAGED)
        await pool.tried(job_id, "sam")
        assert (await job(pool.sam, job_id))["state"] == "succeeded"
    assert await pool.faults("pia1") == NEW
    await _consistent(pool)


async def test_a_job_for_one_node_alone_does_not_make_it_rest(pool: Pool) -> None:
    node_id = pool.nodes["pia1"].node_id
    [job_id] = await submit(pool.sam, needs={"host": node_id})
    for _ in range(3):  # the same job comes back, as no other node may have it
        await pool.tried(job_id, "pia1", **NOT_STAGED)
        assert await pool.faults("pia1") == NEW
    await _consistent(pool)


async def test_the_owners_own_jobs_count_at_once(pool: Pool) -> None:
    [job_id] = await submit(pool.sam)
    await pool.tried(job_id, "sam", **UNABLE)
    assert (await pool.faults("sam"))[2:] == (1, True)


async def test_without_checks_a_node_rests_and_keeps_its_record(pool: Pool) -> None:
    """A friend's node may have claimed it."""
    [job_id] = await submit(pool.sam, verify="none")
    await pool.tried(job_id, "pia1", **UNABLE)
    await pool.tried(job_id, "per")
    failures, score, faults, resting = await pool.faults("pia1")
    assert (failures, score, faults, resting) == (0, NEW[1], 1, True)


async def test_one_owner_has_one_word(pool: Pool) -> None:
    [job_id] = await submit(pool.sam)
    await pool.tried(job_id, "pia1", **UNABLE)
    await pool.tried(job_id, "pia2", **UNABLE)
    assert (await job(pool.sam, job_id))["state"] == "queued"
    await pool.tried(job_id, "per")
    assert [(await pool.faults(name))[2] for name in pool.nodes] == [1, 1, 0, 0]
    await _consistent(pool)


async def test_a_lost_lease_says_nothing_about_the_job(pool: Pool) -> None:
    [job_id] = await submit(pool.sam)
    await pool.tried(job_id, "pia1", **(UNABLE | {"reason": "lease_lost"}))
    assert (await pool.faults("pia1"))[0] == 1, "that counts at once"
    await pool.tried(job_id, "per", **UNABLE)
    assert (await job(pool.sam, job_id))["state"] == "queued"


async def test_who_cancels_what_no_node_has_done_leaves_no_mark(pool: Pool) -> None:
    for _ in range(3):
        [job_id] = await submit(pool.sam)
        await pool.tried(job_id, "pia1", **UNABLE)
        assert (await pool.sam.post(f"/jobs/{job_id}/cancel")).status_code == 200
        assert await pool.faults("pia1") == NEW
    await _consistent(pool)


async def _consistent(pool: Pool) -> None:
    store = pool.hub.hub.store
    assert await store.read(reputation_rows.differing_nodes) == []
    assert await store.read(submitter_reputation_rows.differing_accounts) == []


async def test_another_hub_hears_that_a_node_need_not_rest(pool: Pool) -> None:
    """The node polls this hub; the job was settled at another one, which only stored the result."""
    hub, node_id = pool.hub.hub, pool.nodes["per"].node_id
    hub.nodes.registry.rest(node_id, hub.now_ms() + 1_000_000, now_ms=hub.now_ms())
    await nodes.reconcile(hub, node_id)
    session = hub.nodes.registry.get(node_id)
    assert session is not None
    assert session.cool_off_until_ms == 0
