"""Uploading again what the hub already has sends no bytes, and renews its retention."""

from __future__ import annotations

import httpx2

from computepool.hub.artifacts import garbage_collection
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from tests.hub import storing
from tests.hub.cast import upload
from tests.hub.storing import DAY_MS, KEEP_S, digest_of, some, stored
from tests.hub.submitting import job, submit

clock, hub = storing.clock, storing.hub
DATA = some(1000)
DIGEST = digest_of(DATA)


async def sent(client: httpx2.AsyncClient, name: str) -> int:
    """Upload like agents, the SDK and the dashboard: ask, and send what is missing. Returns the number of bytes sent."""
    state = (await client.get(f"/artifacts/{DIGEST}/upload")).json()
    count = 0
    while not state["complete"]:
        rest = DATA[state["offset"] :]
        count += len(rest)
        query = {"size": len(DATA), "offset": state["offset"], "name": name}
        answer = await client.put(f"/artifacts/{DIGEST}", params=query, content=rest)
        assert answer.status_code == 200, answer.text
        state = answer.json()
    return count


async def test_an_output_offered_again_is_kept_for_the_full_reporting_time(hub: HubDouble, clock: FakeClock) -> None:
    sam, node = await hub.account("sam", "submitter"), await hub.node()
    [job_id] = await submit(sam)
    [grant] = await node.take()
    assert await sent(node.client, "out") == len(DATA)
    clock.advance(3 * DAY_MS - 1000)
    node.sign_in()
    assert await sent(node.client, "out") == 0, "the hub has it"
    clock.advance(DAY_MS)
    await garbage_collection.collect(hub.hub)
    node.sign_in()
    outputs = [{"name": "out", "digest": DIGEST, "size": len(DATA)}]
    await node.report(grant.attempt_id, outputs=outputs)
    done = await job(sam, job_id)
    assert (done["state"], len(done["outputs"])) == ("succeeded", 1)


async def test_uploading_a_file_again_extends_its_retention(hub: HubDouble, clock: FakeClock) -> None:
    sam = await hub.account("sam", "submitter")
    assert [await sent(sam, "a"), await sent(sam, "a")] == [len(DATA), 0]
    clock.advance(KEEP_S * 1000 - DAY_MS)
    assert await sent(sam, "a") == 0
    found = (await sam.get(f"/artifacts/{DIGEST}/info")).json()
    assert found["kept_until_ms"] == clock.now_ms() + KEEP_S * 1000
    clock.advance(2 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {DIGEST}


async def test_an_output_can_be_uploaded_under_ones_own_name_without_sending_it(hub: HubDouble) -> None:
    """It is kept as long as an upload."""
    sam, node = await hub.account("sam", "submitter"), await hub.node()
    await submit(sam)
    [grant] = await node.take()
    await upload(node.client, DATA, name="out")
    await node.report(grant.attempt_id, outputs=[{"name": "out", "digest": DIGEST, "size": len(DATA)}])
    assert await sent(sam, "mine") == 0
    refs = (await sam.get(f"/artifacts/{DIGEST}/info")).json()["refs"]
    assert {(ref["role"], ref["name"]) for ref in refs} == {("output", "out"), ("upload", "mine")}
