"""Silence: nodes that go away, hubs that come back, leases that end. The clock is ours."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from computepool.core.errors import Unavailable
from computepool.core.jobs.leases import LeaseRules
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import attempts
from computepool.hub.identity import rows as account_rows
from computepool.hub.loops.housekeeping import Sweep
from computepool.hub.nodes import nodes, rows as node_rows
from computepool.hub.scheduling import housekeeping, leases
from computepool.hub.settings import Settings
from computepool.protocol.nodes.nodes import OutputRef
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.fixtures import two_hubs
from tests.hub.submitting import job, state, submit
from tests.hub.writer_gate import Gate

LEASE_MS = 60_000


async def sweep(hub: HubDouble) -> None:
    """What the upkeep loop does, now instead of at its interval."""
    await housekeeping.drop_silent(hub.hub)
    await leases.expire_overdue(hub.hub)


async def tries(hub: HubDouble, job_id: str) -> list[str]:
    return [one["state"] for one in (await job(hub.admin, job_id))["tries"]]


async def test_a_node_that_speaks_while_its_silence_is_recorded_is_online(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock, sweep_s=10_000) as hub:
        node = await hub.node()
        clock.advance(61_000)
        async with Gate(hub.hub.store) as gate:
            dropping = asyncio.create_task(housekeeping.drop_silent(hub.hub))
            await gate.all_wait(dropping)
            await node.poll(wait_ms=0)
        await dropping
        assert hub.hub.nodes.registry.get(node.node_id) is not None
        page = (await hub.admin.get("/events", params={"node_id": node.node_id, "limit": 500})).json()
        states = [event["action"] for event in page["events"] if event["action"] in ("node.offline", "node.online")]
        assert states[-2:] == ["node.offline", "node.online"]


async def test_jobs_of_expired_leases_wait_again_even_if_the_round_fails_later(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise Unavailable("The database went away.", retry_after_s=1)

    async with running_hub(tmp_path, clock=clock, sweep_s=10_000) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        await node.take()
        clock.advance(61_000)
        await housekeeping.drop_silent(hub.hub)
        monkeypatch.setattr("computepool.hub.jobs.rows.overdue_jobs", fail)
        with pytest.raises(Unavailable):
            await leases.expire_overdue(hub.hub)
        assert await state(hub.admin, job_id) == "queued"
        assert job_id in hub.hub.jobs.queue.backlog


async def test_a_silent_node_goes_offline_and_its_job_runs_elsewhere(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        silent = await hub.node(name="silent")
        [job_id] = await submit(hub.admin)
        [grant] = await silent.take()
        other = await hub.node(name="other")

        clock.advance(59_000)
        await other.poll(wait_ms=0)
        await sweep(hub)
        assert await state(hub.admin, job_id) == "leased"

        clock.advance(2_000)
        await other.poll(wait_ms=0)
        await sweep(hub)
        nodes = {node["name"]: node["online"] for node in (await hub.admin.get("/nodes")).json()["nodes"]}
        assert nodes == {"silent": False, "other": True}
        [again] = await other.take()
        assert again.attempt_id == f"{job_id}-2"

        assert await silent.report(grant.attempt_id, result="1") == "accepted_late"
        assert await other.report(again.attempt_id, result="2") == "superseded"
        assert (await hub.admin.get(f"/jobs/{job_id}/result")).json()["result"] == "1"


MADE = b"what it made"
MADE_DIGEST = hashlib.sha256(MADE).hexdigest()


@pytest.mark.parametrize("uploads", [False, True])
@pytest.mark.parametrize(
    "said",
    [{"outputs": [OutputRef(name="made", digest=MADE_DIGEST, size=len(MADE))]}, {"result_artifact": MADE_DIGEST}],
    ids=["output", "result"],
)
async def test_a_late_success_counts_only_with_the_files_that_it_names(
    tmp_path: Path, clock: FakeClock, uploads: bool, said: dict[str, Any]
) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        [grant] = await node.take()
        clock.advance(LEASE_MS + 1_000)
        await sweep(hub)
        if uploads:
            path = f"/artifacts/{MADE_DIGEST}?offset=0&size={len(MADE)}&name=made"
            (await node.client.put(path, content=MADE)).raise_for_status()
        verdict = await node.report(grant.attempt_id, **said)
        expected = ("accepted_late", "succeeded") if uploads else ("superseded", "queued")
        assert (verdict, await state(hub.admin, job_id)) == expected


async def test_a_node_is_revoked_whatever_becomes_of_its_state_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_hub(tmp_path) as hub:
        node = await hub.node()

        def pause(tx: Tx, **_: object) -> None:
            """As another hub may, between our look at the node and our word about it."""
            node_rows.set_state(tx, node_id=node.node_id, before="active", after="paused")

        monkeypatch.setattr(account_rows, "end_join_codes", pause)
        answer = await hub.admin.post(f"/nodes/{node.node_id}/revoke")
        assert (answer.status_code, answer.json()["state"]) == (200, "revoked")


@pytest.mark.soak
async def test_heartbeats_keep_a_lease_alive_as_long_as_they_come(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin, spec={"timeout_s": 7200})
        await node.take()
        for _ in range(100):
            clock.advance(20_000)
            node.sign_in()
            await node.poll(wait_ms=0)
            await leases.renew(hub.hub)
            await sweep(hub)
        assert await state(hub.admin, job_id) == "leased"


async def test_a_node_that_speaks_loses_nothing_because_the_store_is_slow(tmp_path: Path, clock: FakeClock) -> None:
    """Its renewals wait to be written; what it was told in answer to its polls holds."""
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        await node.take()
        for _ in range(5):
            clock.advance(20_000)
            await node.poll(wait_ms=0)
            await sweep(hub)
        assert await tries(hub, job_id) == ["leased"]
        clock.advance(LEASE_MS + 1)
        await sweep(hub)
        assert (await tries(hub, job_id))[0] == "expired"


async def test_a_lease_is_never_shorter_than_the_node_was_told(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        await submit(hub.admin)
        await node.take()
        clock.advance(20_999)
        await node.poll(wait_ms=0)
        await leases.renew(hub.hub)
        [until_ms] = await hub.hub.store.read(
            lambda connection: list(connection.scalars(select(attempts.c.lease_until_ms)))
        )
        assert clock.now_ms() + LEASE_MS <= until_ms < clock.now_ms() + LEASE_MS + 1_000


@pytest.mark.soak
async def test_after_an_outage_of_the_store_other_hubs_may_renew_first(
    tmp_path: Path, clock: FakeClock, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_hubs(tmp_path, migrated_url, clock=clock) as (a, b):
        node = await a.node()
        [job_id] = await submit(a.admin)
        await node.take()
        b.hub.settings.sweep_s = 10
        swept = Sweep(b.hub)
        with monkeypatch.context() as outage:
            outage.setattr(b.hub.store, "read", _away)
            outage.setattr(b.hub.store, "write", _away)
            for _ in range(2):
                with pytest.raises(Unavailable):
                    await swept()
        clock.advance(LEASE_MS + 1)
        node.sign_in()
        await node.poll(wait_ms=0)
        for _ in range(2):  # two times as long as a hub takes to renew
            await swept()
            assert await tries(a, job_id) == ["leased"]
        await leases.renew(a.hub)
        await swept()
        assert await tries(a, job_id) == ["leased"]
        clock.advance(LEASE_MS + 1_001)
        await swept()
        assert (await tries(a, job_id))[0] == "expired"


async def _away(*_unit: Any, **_arguments: Any) -> Any:
    raise Unavailable("The store is away.")


async def test_a_node_that_ignores_the_time_limit_loses_the_job(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin, spec={"timeout_s": 60})
        [grant] = await node.take()
        for _ in range(20):
            clock.advance(20_000)
            await node.poll(wait_ms=0)
            await leases.renew(hub.hub)
            await sweep(hub)
        found = await job(hub.admin, job_id)
        assert found["tries"][0]["state"] == "expired"
        assert grant.attempt_id not in node.holding


async def test_a_restarted_hub_takes_nothing_back_at_once(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        await node.take()
    clock.advance(3_600_000)  # the hub was away for an hour; the node went on working
    async with running_hub(tmp_path, clock=clock) as hub:
        await sweep(hub)
        assert await state(hub.admin, job_id) == "leased"
        clock.advance(121_000)
        await sweep(hub)
        assert await state(hub.admin, job_id) == "queued"


async def test_nobody_is_blamed_for_what_ended_while_the_hub_was_away(tmp_path: Path, clock: FakeClock) -> None:
    """A node stops what it could not renew. Were that its fault, one outage of the hub would rest every node."""
    lost = {"outcome": "failed", "reason": "lease_lost", "exit_code": None}
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node(cores=8)
        await submit(hub.admin, items=4)
        grants = await node.take()
        assert len(grants) == 4
    clock.advance(600_000)
    async with running_hub(tmp_path, clock=clock) as hub:
        node.client = hub.client()
        node.sign_in()
        await node.poll(wait_ms=0)
        for grant in grants:
            assert await node.report(grant.attempt_id, **lost) == "accepted"
        seen = (await hub.admin.get(f"/nodes/{node.node_id}")).json()
        assert (seen["consecutive_faults"], seen["reputation"]["failures"]) == (0, 0)
        for grant in await node.take():
            await node.report(grant.attempt_id, **lost)
        seen = (await hub.admin.get(f"/nodes/{node.node_id}")).json()
        assert seen["consecutive_faults"] == 4, "now the hub was there"


async def test_a_job_nobody_can_run_expires_after_its_time_to_live(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        [job_id] = await submit(hub.admin, ttl_s=60)
        clock.advance(61_000)
        await sweep(hub)
        ended = await job(hub.admin, job_id)
        assert (ended["state"], ended["reason"]) == ("expired", "queued_too_long")


async def test_the_hubs_clock_jumping_an_hour_loses_and_doubles_nothing(tmp_path: Path, clock: FakeClock) -> None:
    async with running_hub(tmp_path, clock=clock) as hub:
        node = await hub.node()
        [job_id] = await submit(hub.admin)
        [grant] = await node.take()
        clock.advance(-3_600_000)
        await node.poll(wait_ms=0)
        await leases.renew(hub.hub)
        await sweep(hub)
        clock.advance(7_200_000)
        node.sign_in()
        await node.poll(wait_ms=0)
        await leases.renew(hub.hub)
        await sweep(hub)
        assert await state(hub.admin, job_id) == "leased"
        assert await node.report(grant.attempt_id) == "accepted"


@pytest.mark.soak
async def test_what_other_hubs_did_is_followed_also_after_a_failure(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is away for a moment, just when this hub looks at what it heard."""
    clock = FakeClock()
    async with two_hubs(tmp_path, migrated_url, clock=clock) as (a, b):
        node = await a.node()
        failures = []
        true_reconcile = nodes.reconcile

        async def fails_once(hub: Hub, node_id: str) -> None:
            if hub is a.hub and not failures:
                failures.append(node_id)
                raise Unavailable("The store is away.")
            await true_reconcile(hub, node_id)

        monkeypatch.setattr(nodes, "reconcile", fails_once)
        answer = await b.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})
        assert answer.is_success, answer.text
        session = a.hub.nodes.registry.get(node.node_id)
        assert session is not None
        async with asyncio.timeout(60):
            while session.state is not NodeState.PAUSED:  # noqa: ASYNC110 - it is soft state
                await asyncio.sleep(0.01)
        assert failures == [node.node_id]


def test_the_settings_shipped_give_the_rules_in_the_core() -> None:
    assert Settings().lease_rules() == LeaseRules()
