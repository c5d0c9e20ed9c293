"""Storage quotas of accounts and nodes: for uploads, for results of jobs, and for groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2

from computepool.hub.db.tables import artifact_refs
from computepool.hub.scheduling import leases
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub import storing
from tests.hub.cast import upload
from tests.hub.storing import KEEP_S, digest_of, put, set_quota, some, stored
from tests.hub.submitting import body, submit

clock, hub = storing.clock, storing.hub


async def test_an_account_keeps_no_more_than_its_quota(hub: HubDouble) -> None:
    sam, olga = await hub.account("sam", "submitter"), await hub.account("olga", "submitter")
    await upload(sam, some(6_000, 1))
    refused = await put(sam, some(4_001, 2))
    assert (refused.status_code, refused.json()["code"]) == (507, "quota_exceeded")
    assert (
        "stores 6 kB of files and job data and may store 10 kB. There is no room for another 4 kB"
        in refused.json()["detail"]
    )
    assert stored(hub) == {digest_of(some(6_000, 1))}
    await upload(sam, some(4_000, 3))
    await upload(sam, some(6_000, 1))  # what it has already is nothing more
    found = (await sam.get("/storage")).json()
    assert found == {"bytes": 10_000, "artifacts": 2, "bytes_max": 10_000, "keep_s": KEEP_S, "uploading_bytes": 0}
    await upload(olga, some(6_000, 1))  # kept once, but each account answers for what it keeps
    assert (await olga.get("/storage")).json()["bytes"] == 6_000
    assert (await sam.delete(f"/artifacts/{digest_of(some(4_000, 3))}")).status_code == 204
    await upload(sam, some(4_000, 4))


async def test_what_groups_keep_counts_as_files_do(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    group = (await sam.post("/groups", json={"name": "g", "kind": "group"})).json()["id"]
    keys = [{"key": f"k{number}", "meta": {"about": "x" * 988}} for number in range(3)]
    assert (await sam.post(f"/groups/{group}/keys", json={"keys": keys})).status_code == 200
    before = (await sam.get("/storage")).json()["bytes"]
    assert 3_000 <= before <= 3_050
    report = {"key": "k0", "outcome": "succeeded", "result": "y" * 7_001}
    refused = await sam.post(f"/groups/{group}/reports", json={"reports": [report]})
    assert (refused.status_code, refused.json()["code"]) == (507, "quota_exceeded")
    report["result"] = "y" * 6_000
    assert (await sam.post(f"/groups/{group}/reports", json={"reports": [report]})).status_code == 200
    assert (await sam.get("/storage")).json()["bytes"] == before + 6_000
    assert (await sam.post(f"/groups/{group}/keys", json={"keys": [{"key": "z" * 1_000}]})).status_code >= 400
    hub.hub.settings.groups_max = 1
    assert (await sam.post("/groups", json={"name": "h", "kind": "group"})).status_code == 507


async def test_a_quota_of_ones_own_counts_at_once(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    await set_quota(hub, sam, artifact_bytes_max=50, artifact_keep_s=60)
    assert (await put(sam, some(51))).status_code == 507
    await set_quota(hub, sam, artifact_bytes_max=20_000)
    await upload(sam, some(15_000))
    await set_quota(hub, sam, artifact_bytes_max=0)
    refused = await sam.post("/jobs", json=body())
    assert (refused.status_code, refused.json()["code"]) == (507, "quota_exceeded")
    assert "Delete some artifacts before you submit" in refused.json()["detail"]
    assert (await sam.delete(f"/artifacts/{digest_of(some(15_000))}")).status_code == 204
    assert (await sam.post("/jobs", json=body())).status_code == 201


async def test_uploads_that_are_not_whole_count_too(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    """Otherwise an account could fill the disk with unfinished uploads."""
    for number in range(4):
        assert (await put(sam, some(2_500, number), part=some(2_500, number)[:2_000])).status_code == 200
    assert (await sam.get("/storage")).json()["uploading_bytes"] == 8_000
    assert (await put(sam, some(2_500, 9), part=b"")).status_code == 507
    digest = digest_of(some(2_500, 0))
    assert (await sam.delete(f"/artifacts/{digest}")).status_code == 204, "giving one up makes room"
    assert (await sam.delete(f"/artifacts/{digest}")).status_code == 404
    assert (await put(sam, some(2_500, 9), part=b"")).status_code == 200


async def test_uploads_at_the_same_time_keep_no_more_than_the_quota_together(hub: HubDouble) -> None:
    sam, arrived, all_here = await hub.account("sam", "submitter"), 0, asyncio.Event()

    async def send(number: int) -> int:
        data = some(4_000, number)

        async def body() -> AsyncIterator[bytes]:
            nonlocal arrived
            arrived += 1
            if arrived == 2:  # as many as fit: the others must not even begin
                all_here.set()
            await all_here.wait()
            yield data

        answer = await sam.put(f"/artifacts/{digest_of(data)}", params={"size": len(data)}, content=body())
        return answer.status_code

    answers = await asyncio.wait_for(asyncio.gather(*(send(number) for number in range(8))), 60)
    assert sorted(answers) == [200] * 2 + [507] * 6
    assert (await sam.get("/storage")).json()["bytes"] == 8_000
    await upload(sam, some(2_000, 99))  # nothing stays reserved
    assert not hub.hub.artifacts.arriving


async def test_what_another_hub_kept_meanwhile_counts_when_it_is_kept(hub: HubDouble) -> None:
    sam, olga = await hub.account("sam", "submitter"), await hub.account("olga", "submitter")
    account = (await sam.get("/me")).json()["id"]
    await upload(olga, some(9_000, 1))
    data = some(6_000, 2)

    async def body() -> AsyncIterator[bytes]:
        yield data[:1_000]
        row = {"digest": digest_of(some(9_000, 1)), "account_id": account, "job_id": "", "role": "upload"}
        await hub.hub.store.write(
            lambda tx: tx.connection.execute(artifact_refs.insert().values(name="", created_at_ms=tx.now_ms, **row))
        )
        yield data[1_000:]

    hub.hub.artifacts.usage.clear()
    answer = await sam.put(f"/artifacts/{digest_of(data)}", params={"size": 6_000}, content=body())
    assert (answer.status_code, answer.json()["code"]) == (507, "quota_exceeded")
    assert stored(hub) == {digest_of(some(9_000, 1))}, "nothing of it stays"


async def test_a_full_account_gets_the_results_of_its_jobs_and_submits_no_more(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    node = await hub.node()
    await upload(sam, some(9_000, 1))
    [job_id] = await submit(sam)
    [grant] = await node.take()
    output = some(5_000, 2)
    await upload(node.client, output)
    outputs = [{"name": "o", "digest": digest_of(output), "size": len(output)}]
    assert await node.report(grant.attempt_id, outputs=outputs) == "accepted"
    assert (await sam.get(f"/artifacts/{digest_of(output)}")).content == output
    assert (await sam.get(f"/jobs/{job_id}")).json()["state"] == "succeeded"
    assert (await sam.post("/jobs", json=body())).json()["code"] == "quota_exceeded"
    assert 14_000 < (await sam.get("/storage")).json()["bytes"] < 14_100, "the program counts, too"


async def test_beyond_the_reserve_a_node_is_refused_and_told_why(hub: HubDouble) -> None:
    sam, olga = await hub.account("sam", "submitter"), await hub.account("olga", "submitter")
    node = await hub.node(cores=8)
    await upload(sam, some(9_000, 1))
    await submit(sam, needs={"cores": 1})
    await node.take()
    refused = await put(node.client, some(6_000, 2))
    assert (refused.status_code, refused.json()["code"]) == (507, "quota_exceeded")
    assert "The submitter's account stores 9.1 kB" in refused.json()["detail"]
    assert (await put(node.client, some(5_900, 3))).status_code == 200, "half of the quota is its reserve"
    await submit(olga, needs={"cores": 1})
    await node.take()
    assert (await put(node.client, some(6_000, 2))).status_code == 200, "it may be for olga's job"


async def test_the_reserve_is_not_for_what_failed(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    node = await hub.node(cores=8)
    await upload(sam, some(9_000, 1))
    jobs = []
    for said in ({"outcome": "failed", "reason": "exit_nonzero", "exit_code": 1}, {}):
        jobs += await submit(sam, needs={"cores": 1}, retries=0)
        [grant] = await node.take()
        file = await upload(node.client, some(5_000, len(jobs)))
        outputs = [{"name": "o", "digest": file, "size": 5_000}]
        assert await node.report(grant.attempt_id, outputs=outputs, **said) == "accepted"
    failed, done = jobs
    assert (await sam.get(f"/jobs/{failed}")).json()["outputs"] == []
    kept = (await sam.get(f"/jobs/{done}")).json()
    assert (kept["state"], len(kept["outputs"])) == ("succeeded", 1)


async def test_what_is_handed_over_meets_the_quota_whenever_it_was_sent(hub: HubDouble) -> None:
    """A node uploads bytes under the job of an account with room, and reports them for another account's job."""
    sam, olga = await hub.account("sam", "submitter"), await hub.account("olga", "submitter")
    node = await hub.node(cores=8)
    await set_quota(hub, olga, artifact_bytes_max=1_000_000)
    await submit(olga, needs={"cores": 1})
    await node.take()
    junk = [await upload(node.client, some(4_000, number)) for number in range(4)]
    files = [{"name": f"f{number}", "digest": digest, "size": 4_000} for number, digest in enumerate(junk)]
    [job_id] = await submit(sam, needs={"cores": 1}, retries=0, spec={"checkpoints": True})
    [grant] = await node.take()
    said = (await node.checkpoint(grant.attempt_id, files=files)).json()
    assert not said["kept"]
    assert "may store 10 kB; there is no room for 16 kB" in said["reason"]
    assert (await node.checkpoint(grant.attempt_id, files=files[:3])).json()["kept"], "the reserve has room"
    assert await node.report(grant.attempt_id, outputs=files) == "accepted"
    job = (await sam.get(f"/jobs/{job_id}")).json()
    assert (job["state"], job["reason"]) == ("failed", "output_limit")
    assert "there is no room for 4 kB of results" in job["error"], "what it has already is nothing more"
    assert (await sam.get("/storage")).json()["bytes"] < 100


async def test_a_node_sends_only_what_a_job_of_its_could_bring(hub: HubDouble, clock: FakeClock) -> None:
    node = await hub.node()
    refused = await put(node.client, some(100))
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "runs no job" in refused.json()["detail"]
    await submit(hub.admin)
    await node.take()
    clock.advance(3_600_000)
    await leases.expire_overdue(hub.hub)
    node.sign_in()
    assert (await put(node.client, some(100))).status_code == 200


async def test_a_node_fills_nothing_with_what_no_report_names(tmp_path: Path) -> None:
    async with running_hub(tmp_path, unreported_max_bytes=1_000) as hub:
        node, other = await hub.node(name="one"), await hub.node(name="two")
        await submit(hub.admin)
        [grant] = await node.take()
        await submit(hub.admin)
        await other.take()
        await upload(node.client, some(900, 1))
        refused = await put(node.client, some(101, 2))
        assert (refused.status_code, refused.json()["code"]) == (507, "quota_exceeded")
        assert "no report has named" in refused.json()["detail"]
        assert (await put(other.client, some(101, 2))).status_code == 200
        outputs = [{"name": "o", "digest": digest_of(some(900, 1)), "size": 900}]
        assert await node.report(grant.attempt_id, outputs=outputs) == "accepted"
        await submit(hub.admin)
        await node.take()
        assert (await put(node.client, some(101, 2))).status_code == 200, "what was reported is the account's"
