"""What is sent again counts from now on, also where the hub has the bytes: only the last word is said, and nothing sent."""

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
    """As agents, the SDK and the dashboard do: ask, and send what is missing. Returns how many bytes that were."""
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


async def test_a_node_that_sends_an_old_output_again_has_all_the_time_to_report_it(
    hub: HubDouble, clock: FakeClock
) -> None:
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


async def test_a_file_that_is_put_again_is_kept_from_then_on(hub: HubDouble, clock: FakeClock) -> None:
    sam = await hub.account("sam", "submitter")
    assert [await sent(sam, "a"), await sent(sam, "a")] == [len(DATA), 0]
    clock.advance(KEEP_S * 1000 - DAY_MS)
    assert await sent(sam, "a") == 0
    found = (await sam.get(f"/artifacts/{DIGEST}/info")).json()
    assert found["kept_until_ms"] == clock.now_ms() + KEEP_S * 1000
    clock.advance(2 * DAY_MS)
    await garbage_collection.collect(hub.hub)
    assert stored(hub) == {DIGEST}


async def test_what_came_of_a_job_can_be_put_in_ones_own_name(hub: HubDouble) -> None:
    """It is not sent again, and has the time of an upload."""
    sam, node = await hub.account("sam", "submitter"), await hub.node()
    await submit(sam)
    [grant] = await node.take()
    await upload(node.client, DATA, name="out")
    await node.report(grant.attempt_id, outputs=[{"name": "out", "digest": DIGEST, "size": len(DATA)}])
    assert await sent(sam, "mine") == 0
    refs = (await sam.get(f"/artifacts/{DIGEST}/info")).json()["refs"]
    assert {(ref["role"], ref["name"]) for ref in refs} == {("output", "out"), ("upload", "mine")}
