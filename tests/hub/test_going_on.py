"""What a job needs to go on is still there: files of its neighbours, time to wait in, and the host that it named."""

from __future__ import annotations

from typing import Any

import pytest

from computepool.hub.services import leases, upkeep
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub import test_checkpoints
from tests.hub.cast import upload
from tests.hub.storing import digest_of
from tests.hub.submitting import job, submit
from tests.hub.test_checkpoints import MINUTE, SAVES, crowd, lost, others, placed, saved, wait

hub = test_checkpoints.hub
NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


# files


async def saved_as(node: NodeDouble, attempt_id: str, *, seq: int, **files: bytes) -> dict[str, Any]:
    """As agents do: sent under the names that they have in the checkpoint."""
    listed = [
        {"name": name, "digest": await upload(node.client, data, name=name), "size": len(data)}
        for name, data in files.items()
    ]
    answer = await node.checkpoint(attempt_id, seq=seq, files=listed)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("sent", ["before", "between"])
async def test_a_checkpoint_that_is_replaced_takes_no_other_jobs_output_along(
    hub: HubDouble, sent: str
) -> None:
    """Many files are alike, such as all that are empty. What the checkpoint alone needed goes."""
    sam, [node] = await crowd(hub, 1)
    await submit(sam, spec=SAVES)
    [saving] = await node.take()
    [beside] = await submit(sam)
    [grant] = await node.take()
    if sent == "before":
        assert await upload(node.client, b"", name="out") == NOTHING
    wait(hub, MINUTE, node)
    assert (await saved_as(node, saving.attempt_id, seq=1, printed=b"", state=b"one"))["kept"]
    wait(hub, MINUTE, node)
    if sent == "between":
        await upload(node.client, b"", name="printed")  # also where it has the same name
    assert (await saved_as(node, saving.attempt_id, seq=2, printed=b"hello", state=b"two"))["kept"]
    outputs = [{"name": "out", "digest": NOTHING, "size": 0}]
    assert await node.report(grant.attempt_id, outputs=outputs) == "accepted"
    done = await job(sam, beside)
    assert (done["state"], done["error"]) == ("succeeded", None)
    one = [{"name": "state", "digest": digest_of(b"one"), "size": 3}]
    wait(hub, MINUTE, node)
    answer = await node.checkpoint(saving.attempt_id, seq=3, files=one)
    assert answer.json()["reason"] == "Not uploaded: state.", "the first one's own file is not kept for days"


# time


async def look(hub: HubDouble) -> None:
    await upkeep.drop_silent(hub.hub)
    await hub.dispatcher.follow(await leases.expire_overdue(hub.hub))


async def test_a_job_that_ran_has_its_whole_time_to_wait_again(hub: HubDouble) -> None:
    """The time to live is one in the queue: what ran for longer than that goes on where it was."""
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES, ttl_s=600)
    node, grant = await placed(nodes)
    await node.poll(wait_ms=0, running=[{"attempt_id": grant.attempt_id}])
    wait(hub, 30 * MINUTE, node)
    assert (await saved(node, grant.attempt_id, b"half", progress=0.5, ran_ms=29 * MINUTE))["kept"]
    await look(hub)  # nobody was heard of
    wait(hub, 9 * MINUTE)
    await look(hub)
    waits = await job(sam, job_id)
    assert (waits["state"], waits["checkpoint"]["progress"]) == ("queued", 0.5)
    wait(hub, 2 * MINUTE)
    await look(hub)
    ended = await job(sam, job_id)
    assert (ended["state"], ended["reason"]) == ("expired", "queued_too_long")


async def test_a_job_that_is_only_given_back_does_not_wait_for_ever(hub: HubDouble) -> None:
    """It has not begun, so it has not stopped waiting."""
    sam, [node] = await crowd(hub, 1)
    [job_id] = await submit(sam, spec=SAVES, ttl_s=600)
    given_back = {"outcome": "returned", "reason": "given_back", "exit_code": None}
    for _ in range(3):
        assert (await job(sam, job_id))["state"] in ("queued", "leased")
        _, grant = await placed([node])
        assert await node.report(grant.attempt_id, **given_back) == "accepted"
        wait(hub, 4 * MINUTE, node)
        await look(hub)
    assert (await job(sam, job_id))["reason"] == "queued_too_long"


async def test_a_job_that_moves_waits_for_its_host_and_not_by_its_time_to_live(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES, ttl_s=600)
    node, grant = await placed(nodes)
    [target] = others(nodes, node)
    wait(hub, 5 * MINUTE, node)
    assert (await saved(node, grant.attempt_id, b"state", last=True))["kept"]
    moved = {"outcome": "moved", "reason": "moved", "exit_code": None, "move_to": target.node_id}
    await upkeep.drop_silent(hub.hub)
    assert await node.report(grant.attempt_id, **moved) == "accepted"
    wait(hub, round(hub.hub.settings.move_wait_s * 1000) - MINUTE)
    await look(hub)
    assert (await job(sam, job_id))["state"] == "queued"
    wait(hub, 2 * MINUTE)
    await look(hub)
    assert (await job(sam, job_id))["reason"] == "host_not_reached"


async def test_a_result_has_a_whole_time_to_live_to_be_confirmed_in(hub: HubDouble) -> None:
    """Also where it took longer than that to come to it."""
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES, ttl_s=600, verify="quorum:2")
    node, grant = await placed(nodes)
    await node.poll(wait_ms=0, running=[{"attempt_id": grant.attempt_id}])
    wait(hub, 30 * MINUTE, node)
    await upkeep.drop_silent(hub.hub)
    assert await node.report(grant.attempt_id, ran_ms=29 * MINUTE, result='"r"') == "accepted"
    wait(hub, 9 * MINUTE)
    await look(hub)
    assert (await job(sam, job_id))["state"] == "queued"
    wait(hub, 2 * MINUTE)
    await look(hub)
    ended = await job(sam, job_id)
    assert (ended["state"], ended["reason"], ended["charge"]) == ("expired", "not_confirmed", 0)
