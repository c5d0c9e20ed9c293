"""Rate limits and quotas tell when to come back, and a refused request changes nothing."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.cast import Cast, assemble
from tests.hub.submitting import body, submit
from tests.hub.untouched import untouched


async def test_registrations_are_rate_limited_and_refused_ones_use_no_code(tmp_path: Path) -> None:
    async with running_hub(tmp_path, registrations_per_s=0.001) as hub:
        cast = Cast(hub, {"provider": hub.admin})
        first, second = await cast.registration(), await cast.registration()
        assert (await hub.client().post("/nodes/register", json=first)).status_code == 201
        async with untouched(hub):
            refused = await hub.client().post("/nodes/register", json=second)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert int(refused.headers["retry-after"]) >= 1
        hub.app.state.limits.registrations._tokens = 1
        assert (await hub.client().post("/nodes/register", json=second)).status_code == 201


async def test_unfinished_jobs_are_limited_per_account(tmp_path: Path) -> None:
    async with running_hub(tmp_path, jobs_open_max=4) as hub:
        jobs = await submit(hub.admin, items=3, needs={"cores": 1000})
        async with untouched(hub):
            refused = await hub.admin.post("/jobs", json=body(items=2))
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) >= 1
        await hub.admin.post(f"/jobs/{jobs[0]}/cancel")
        assert len(await submit(hub.admin, items=2, needs={"cores": 1000})) == 2


async def test_a_repeated_submission_does_not_requeue_finished_jobs(any_hub: HubDouble) -> None:
    sent, headers = body(needs={"cores": 1000}), {"Idempotency-Key": "once"}
    first = (await any_hub.admin.post("/jobs", json=sent, headers=headers)).json()
    [job_id] = first["job_ids"]
    await any_hub.admin.post(f"/jobs/{job_id}/cancel")
    async with untouched(any_hub):
        assert (await any_hub.admin.post("/jobs", json=sent, headers=headers)).json() == first
    assert (await any_hub.admin.get("/queue")).json()["queued"] == 0
    assert job_id not in any_hub.hub.jobs.queue.backlog


async def test_the_queue_shows_job_ids_only_to_their_accounts(hub: HubDouble) -> None:
    cast = await assemble(hub)
    for caller, seen in (("submitter", [cast.held_job]), ("other_submitter", []), ("admin", [cast.held_job])):
        rows = (await cast.callers[caller].get("/queue")).json()["nodes"]
        [row] = [row for row in rows if row["node_id"] == cast.pias_node]
        assert row["jobs"] == seen
        assert row["leased"] + row["running"] == 1


@pytest.mark.parametrize("path", ["/next", "/heartbeat"])
async def test_a_node_that_restarts_repeatedly_is_rate_limited(tmp_path: Path, path: str) -> None:
    async with running_hub(tmp_path, clock=FakeClock(), arrivals_burst=3) as hub:
        node = await hub.node()
        for _ in range(2):
            node.restart()
            await node.poll(wait_ms=0, path=path)
        node.restart()
        async with untouched(hub):
            for _ in range(50):
                with pytest.raises(httpx2.HTTPStatusError, match="429"):
                    await node.poll(wait_ms=0, path=path)
        hub.hub.clock.advance(10_000)  # type: ignore[attr-defined]
        await node.poll(wait_ms=0, path=path)
        assert (await node.poll(wait_ms=0)).reregister is False, "whoever is here may poll as often as it likes"
        hub.hub.clock.advance(10_000)  # type: ignore[attr-defined]
        await node.poll(wait_ms=0, stopping=True)
        with pytest.raises(httpx2.HTTPStatusError, match="429"):
            await node.poll(wait_ms=0, stopping=True)
        assert (await node.rekey()).status_code == 429
