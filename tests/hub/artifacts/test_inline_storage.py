"""Job data in the database counts for the quota, is refused and is deleted as files are."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx2
import pytest

from computepool.hub.artifacts import garbage_collection, inline_rows
from computepool.hub.main import check
from computepool.protocol.jobs.jobs import LINKS_MAX
from computepool.protocol.nodes.nodes import LOG_CHUNK_MAX, LOG_SENT_MIN
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from tests.hub import storing
from tests.hub.storing import DAY_MS, KEEP_S, digest_of, put, set_quota, some
from tests.hub.submitting import body, job, submit
from tests.hub.untouched import untouched

clock, hub = storing.clock, storing.hub

FUNCTION = "gAWVEQAAAAAAAACMBm1hdGguY5SMBHNxcnSUk5Qu"


def call(*sizes: int, name: str = "f") -> dict[str, Any]:
    """A function, called with arguments of these sizes."""
    payloads = [base64.b64encode(bytes(size * 3 // 4)).decode() for size in sizes]
    spec = {"kind": "function", "name": name, "function": FUNCTION}
    return body(spec=spec) | {"spec": spec, "items": [{"payload": payload} for payload in payloads]}


async def kept(client: httpx2.AsyncClient) -> int:
    return int((await client.get("/storage")).json()["bytes"])


def holds(hub: HubDouble) -> None:
    assert check(hub.hub.settings) == []


async def test_arguments_and_programs_count_for_the_quota(hub: HubDouble) -> None:
    sam, olga = await hub.account("sam", "submitter"), await hub.account("olga", "submitter")
    assert (await sam.post("/jobs", json=call(4_000, 4_000))).status_code == 201
    once = await kept(sam)
    assert 8_000 < once < 9_000
    refused = await sam.post("/jobs", json=call(6_000))
    assert (refused.status_code, refused.json()["code"]) == (507, "quota_exceeded")
    assert "There is no room for another" in refused.json()["detail"]
    assert await kept(sam) == once, "nothing of it stays"
    assert (await sam.post("/jobs", json=call(400))).status_code == 201
    assert await kept(sam) == once + 400, "a program is kept once"
    assert (await olga.post("/jobs", json=call(400))).status_code == 201
    assert await kept(olga) == 400, "and counted for who sent it first"
    holds(hub)


async def test_a_short_request_cannot_become_a_million_rows(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    await set_quota(hub, sam, artifact_bytes_max=1_000_000)
    data = some(32)
    assert (await put(sam, data)).is_success
    files = [{"name": f"f{number}", "digest": digest_of(data), "size": 32} for number in range(LINKS_MAX // 1_000 + 1)]
    jobs = await submit(sam, items=len(files))
    for links in ({"spec": {"inputs": files}}, {"after": jobs}):
        async with untouched(hub):
            refused = await sam.post("/jobs", json=body(items=1_000, **links))
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_request")
        assert f"these name {1_000 * len(files)}" in refused.json()["detail"]
        assert len(await submit(sam, items=2, **links)) == 2


async def test_submissions_at_the_same_time_keep_no_more_than_the_quota_together(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    answers = await asyncio.gather(*(sam.post("/jobs", json=call(5_000, name=f"f{number}")) for number in range(20)))
    assert sorted({answer.status_code for answer in answers}) == [201, 507]
    assert await kept(sam) <= 10_000
    assert len((await sam.get("/jobs")).json()["jobs"]) == 1
    holds(hub)


async def test_storage_that_another_hub_added_meanwhile_counts(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    assert await kept(sam) == 0
    assert (await sam.post("/jobs", json=call(400))).status_code == 201
    account = (await sam.get("/me")).json()["id"]
    hub.hub.artifacts.usage[account].bytes = 5_100  # more than half: it is looked at again
    await hub.hub.store.write(lambda tx: inline_rows.count(tx, account, 9_000))
    refused = await sam.post("/jobs", json=call(4_500))
    assert (refused.status_code, refused.json()["code"]) == (507, "quota_exceeded")
    await hub.hub.store.write(lambda tx: inline_rows.count(tx, account, -9_000))
    holds(hub)


@pytest.mark.parametrize(("size", "state"), [(3_000, "succeeded"), (16_000, "failed")])
async def test_a_result_meets_the_reserve_as_files_do(hub: HubDouble, size: int, state: str) -> None:
    sam, node = await hub.account("sam", "submitter"), await hub.node()
    [job_id] = (await sam.post("/jobs", json=call(400))).json()["job_ids"]
    [grant] = await node.take()
    before = await kept(sam)
    assert await node.report(grant.attempt_id, result="é" * (size // 2)) == "accepted"
    seen = await job(sam, job_id)
    assert seen["state"] == state
    if state == "failed":
        assert (seen["reason"], await kept(sam)) == ("output_limit", before)
    else:
        assert await kept(sam) == before + size
    holds(hub)


async def test_output_counts_and_is_kept_short_beyond_the_reserve(hub: HubDouble) -> None:
    sam, node = await hub.account("sam", "submitter"), await hub.node()
    [job_id] = await submit(sam)
    [grant] = await node.take()
    before = await kept(sam)
    odd = {"attempt_id": grant.attempt_id, "stream": "stdout", "text": "a\0é"}
    assert (await node.client.post("/logs", json={"chunks": [odd]})).status_code == 204
    assert await kept(sam) == before + 6
    chunks = [odd | {"text": "x" * LOG_CHUNK_MAX}] * 10
    for _ in range(4):
        assert (await node.client.post("/logs", json={"chunks": chunks})).status_code == 204
        # The hub looks at what there is when somebody wants more.
        assert (await sam.post("/jobs", json=call(9_000))).status_code == 507
    assert LOG_SENT_MIN <= await kept(sam) - before < LOG_SENT_MIN + LOG_CHUNK_MAX + 6
    seen = (await sam.get(f"/jobs/{job_id}/logs")).json()["chunks"]
    assert [chunk["text"] for chunk in seen[:1]] == ["a\ufffdé"]
    holds(hub)


async def test_what_a_finished_job_keeps_goes_when_its_files_would(hub: HubDouble, clock: FakeClock) -> None:
    sam, node = await hub.account("sam", "submitter"), await hub.node(cores=8)
    [done] = (await sam.post("/jobs", json=call(2_000))).json()["job_ids"]
    [grant] = await node.take()
    chunk = {"attempt_id": grant.attempt_id, "stream": "stdout", "text": "printed"}
    assert (await node.client.post("/logs", json={"chunks": [chunk]})).status_code == 204
    assert await node.report(grant.attempt_id, result="x" * 1_000) == "accepted"
    [waiting] = await submit(sam, needs={"cores": 1000}, ttl_s=80 * 24 * 3600)
    full = await kept(sam)

    await garbage_collection.collect(hub.hub)
    assert await kept(sam) == full, "not yet"
    clock.advance(KEEP_S * 1000 + DAY_MS)
    await garbage_collection.collect(hub.hub)

    assert await kept(sam) == full - 2_000 - 1_000 - len("printed")
    seen = await job(sam, done)
    assert (seen["state"], seen["dropped_at_ms"]) == ("succeeded", clock.now_ms())
    result = (await sam.get(f"/jobs/{done}/result")).json()
    assert (result.get("result"), result["dropped"]) == (None, True)
    assert (await sam.get(f"/jobs/{done}/logs")).json()["chunks"] == []
    again = await sam.post(f"/jobs/{done}/resubmit")
    assert (again.status_code, "its arguments are no longer stored" in again.json()["detail"]) == (409, True)
    assert (await job(sam, waiting)).get("dropped_at_ms") is None
    await garbage_collection.collect(hub.hub)
    holds(hub)


async def test_results_for_a_groups_home_are_kept_until_they_are_delivered(hub: HubDouble, clock: FakeClock) -> None:
    ann = await hub.account("ann", "submitter", "provider")
    node = await hub.node(ann)
    group = (await ann.post("/groups", json={"name": "g", "home": node.node_id, "return_home": True})).json()
    [done] = (await ann.post("/jobs", json=call(2_000) | {"group_id": group["id"]})).json()["job_ids"]
    [grant] = await node.take()
    assert await node.report(grant.attempt_id, result="x" * 1_000) == "accepted"
    clock.advance(KEEP_S * 1000 + DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert (await ann.get(f"/jobs/{done}/result")).json()["result"] == "x" * 1_000
    holds(hub)


async def test_a_wrong_count_is_found(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    account = (await sam.get("/me")).json()["id"]
    await set_quota(hub, sam, artifact_bytes_max=100_000)
    await sam.post("/jobs", json=call(9_000))
    assert await hub.hub.store.read(inline_rows.differing_accounts) == []
    await hub.hub.store.write(lambda tx: inline_rows.count(tx, account, 1))
    assert await hub.hub.store.read(inline_rows.differing_accounts) == [account]
    [broken] = check(hub.hub.settings)
    assert "counted for an account" in broken
    await hub.hub.store.write(lambda tx: inline_rows.count(tx, account, -1))
