"""Nodes' reputations follow from outcomes in the transaction that records them, on both databases and all hubs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import create_engine, text

from computepool.core.fleet.fleet import RELIABILITY_STEPS
from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import NEWCOMER_SCORE, Evidence, ReputationEvent
from computepool.hub.db import dialect, schema
from computepool.hub.scheduling import housekeeping, leases
from computepool.hub.trust import reputation, reputation_rows
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.core.trust.histories import recompute
from tests.hub.db import schemas
from tests.hub.fixtures import two_hubs
from tests.hub.submitting import submit
from tests.hub.working import got

NODE = "VALUES ('node_1', 'n', 'acc_1', 'k', 'active', '{}', 1)"
#: One that counts at once: of another kind nobody knows whose fault it is (test_blame.py).
FAULT = {"outcome": "failed", "reason": "node_restarted", "exit_code": None}


class People:
    """Sam submits, Pia lends."""

    def __init__(self, hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient) -> None:
        self.hub, self.sam, self.pia = hub, sam, pia

    async def work(self, node: NodeDouble, *, of: httpx2.AsyncClient | None = None, **report: Any) -> None:
        await submit(of or self.sam, retries=0)
        [grant] = await node.take()
        assert await node.report(grant.attempt_id, **report) == "accepted"

    async def trust(self, node: NodeDouble) -> dict[str, Any]:
        view = await got(self.hub.admin, f"/nodes/{node.node_id}")
        found: dict[str, Any] = view["reputation"]
        assert view["reliability"] == found["score"]
        return found

    def placed_by(self, node: NodeDouble) -> float:
        fleet = self.hub.hub.nodes.registry.fleet
        row = fleet[node.node_id].row
        assert row is not None
        return float(fleet.table.reliability[row])


async def people(hub: HubDouble) -> People:
    return People(hub, await hub.account("sam", "submitter"), await hub.account("pia", "provider"))


def close(score: float, stepped: float) -> bool:
    return abs(score - stepped) <= 0.51 / RELIABILITY_STEPS


async def test_a_success_lifts_and_a_fault_lowers(any_hub: HubDouble) -> None:
    cast = await people(any_hub)
    node = await any_hub.node(cast.pia)
    new = await cast.trust(node)
    assert (new["score"], new["changed_at_ms"]) == (round(NEWCOMER_SCORE, 4), None)
    await cast.work(node)
    lifted = await cast.trust(node)
    assert lifted["score"] > new["score"]
    assert (lifted["successes"], lifted["failures"], lifted["success_weight"]) == (1, 0, 0.2548)
    assert close(lifted["score"], cast.placed_by(node))
    await cast.work(node, **FAULT)
    lowered = await cast.trust(node)
    assert lowered["score"] < new["score"]
    assert (lowered["successes"], lowered["failures"]) == (1, 1)
    assert close(lowered["score"], cast.placed_by(node))
    said = await got(any_hub.admin, "/events", node_id=node.node_id, limit=100)
    assert [event["reason"] for event in said["events"] if event["action"] == "attempt.failed"] == ["node_restarted"]


async def test_what_is_not_the_nodes_fault_says_nothing(any_hub: HubDouble) -> None:
    cast = await people(any_hub)
    node = await any_hub.node(cast.pia)
    await cast.work(node, outcome="failed", reason="exit_nonzero", exit_code=1)
    [job_id] = await submit(cast.sam)
    await node.take()
    assert (await cast.sam.post(f"/jobs/{job_id}/cancel")).status_code == 200
    await node.poll(wait_ms=0)
    assert (await cast.trust(node))["changed_at_ms"] is None


async def test_leases_lost_at_once_are_one_failure_and_a_late_result_still_counts(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        cast = await people(hub)
        node = await hub.node(cast.pia)
        await submit(cast.sam, items=3)
        grants = await node.take(3)
        clock.advance(61_000)
        await housekeeping.drop_silent(hub.hub)
        await leases.expire_overdue(hub.hub)
        lost = await cast.trust(node)
        assert (lost["successes"], lost["failures"], lost["failure_weight"]) == (0, 1, 1.0)
        assert await node.report(grants[0].attempt_id) == "accepted_late"
        assert (await cast.trust(node))["successes"] == 1


async def test_a_restarted_agent_loses_what_it_held(any_hub: HubDouble) -> None:
    cast = await people(any_hub)
    node = await any_hub.node(cast.pia)
    await submit(cast.sam)
    await node.take()
    node.restart()
    await node.poll(wait_ms=0)
    assert (await cast.trust(node))["failures"] == 1
    assert close((await cast.trust(node))["score"], cast.placed_by(node))


async def test_a_batch_counts_as_its_reports_would_one_by_one(any_hub: HubDouble) -> None:
    cast = await people(any_hub)
    node = await any_hub.node(cast.pia, cores=8)
    await submit(cast.sam, items=8, needs={"cores": 1})
    grants = await node.take(8)
    reports = [
        node.make_report(grant.attempt_id, **(FAULT if number == 3 else {})) for number, grant in enumerate(grants)
    ]
    await node.report_all(reports)
    found = await any_hub.hub.store.read(lambda c: reputation_rows.load(c, [node.node_id]))
    stored = found[node.node_id]
    assert (stored.successes, stored.failures, stored.successes_for_others) == (7, 1, 7)
    at_ms = stored.changed_at_ms
    # By the order of the events: a job's success is told while reports are read, and so is the node's fault.
    kinds = [Evidence.NODE_FAULT if number == 3 else Evidence.UNVERIFIED for number in range(8)]
    assert stored == recompute([ReputationEvent("n", kind, at_ms) for kind in kinds])


async def test_a_reputation_survives_a_restart_and_fades_with_silence(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        cast = await people(hub)
        node = await hub.node(cast.pia)
        for _ in range(4):
            await cast.work(node)
        before = await cast.trust(node)
    async with running_hub(tmp_path, clock=clock) as hub:
        cast.hub = hub
        node.client = hub.client()
        node.sign_in()
        for _ in range(2):  # the first time it is asked to describe itself
            await node.poll(wait_ms=0)
        assert (await cast.trust(node))["score"] == before["score"]
        assert close(before["score"], cast.placed_by(node))
        clock.advance(90 * DAY_MS)
        faded = await cast.trust(node)
        assert NEWCOMER_SCORE < faded["score"] < before["score"]
        await reputation.refresh_all(hub.hub)
        assert close(faded["score"], cast.placed_by(node))


@pytest.mark.soak
async def test_two_hubs_agree_on_a_reputation(tmp_path: Path, migrated_url: str) -> None:
    clock = FakeClock()
    async with two_hubs(tmp_path, migrated_url, clock=clock) as (a, b):
        cast = await people(a)
        node = await a.node(cast.pia)
        await cast.work(node)
        await submit(cast.sam)
        await node.take()
        clock.advance(61_000)
        await leases.expire_overdue(b.hub)
        seen = [await got(hub.admin, f"/nodes/{node.node_id}") for hub in (a, b)]
        assert seen[0]["reputation"] == seen[1]["reputation"]
        assert (seen[0]["reputation"]["successes"], seen[0]["reputation"]["failures"]) == (1, 1)
        async with asyncio.timeout(60):  # the other hub's word travels by notification
            while not close(seen[0]["reliability"], cast.placed_by(node)):  # noqa: ASYNC110 - it is soft state
                await asyncio.sleep(0.01)


@pytest.mark.soak
async def test_newcomers_have_one_job_of_others_at_a_time(tmp_path: Path) -> None:
    async with running_hub(tmp_path, newcomer_jobs=1) as hub:
        cast = await people(hub)
        both = await hub.account("bo", "submitter", "provider")
        node = await hub.node(both, cores=8)
        await submit(both, items=2, needs={"cores": 1})
        for grant in await node.take(2):  # its owner's jobs are not limited, and do not count
            await node.report(grant.attempt_id)
        jobs = await submit(cast.sam, items=6, needs={"cores": 1})
        for _ in range(4):  # nobody checks them: four count as one
            [grant] = await node.take()
            assert (await node.poll(wait_ms=50)).grants == []
            view = await cast.trust(node)
            assert (view["newcomer"], view["newcomer_jobs_done"], view["newcomer_jobs"]) == (True, 0, 1)
            why = await got(cast.sam, f"/jobs/{jobs[5]}/why")
            assert "too new" in why["sentence"]
            assert "(0 so far" in (await got(both, f"/nodes/{node.node_id}/why"))["reputation"]
            await node.report(grant.attempt_id)
        assert len(await node.take(2)) == 2
        assert not (await cast.trust(node))["newcomer"]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_pool_from_before_counts_what_its_events_say(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if database == "postgresql" else f"sqlite:///{tmp_path}/old.db"
    schemas.create_old(url)
    engine = create_engine(dialect.postgres_url(url))
    told = "INSERT INTO events (at_ms, actor, action, account_id, node_id, reason, final) VALUES "
    statements = [
        "INSERT INTO accounts (id, name, roles, created_at_ms) VALUES ('acc_1', 'ann', 'provider', 1)",
        f"INSERT INTO nodes (id, name, account_id, public_key, state, profile, enrolled_at_ms) {NODE}",
        f"{told} (5, 'node_1', 'job.succeeded', 'acc_2', NULL, 'completed', TRUE)",
        f"{told} (6, 'hub', 'attempt.expired', 'acc_2', 'node_1', 'lease_lost', FALSE)",
        f"{told} (7, 'gone', 'job.succeeded', 'acc_2', 'gone', 'completed', TRUE)",
    ]
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    schema.migrate(url, rebuild=[reputation_rows.rebuild])
    with engine.connect() as connection:
        outcomes = [
            ReputationEvent("node_1", Evidence.UNVERIFIED, 5),
            ReputationEvent("node_1", Evidence.LEASE_LOST, 6),
        ]
        assert reputation_rows.load(connection, ["node_1", "gone"]) == {"node_1": recompute(outcomes)}
        assert reputation_rows.differing_nodes(connection) == []
    engine.dispose()
