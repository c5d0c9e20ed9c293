"""What a job needs to go on is still there: files of its neighbours, time to wait in, and the host that it named."""

from __future__ import annotations

from typing import Any

import pytest

from computepool.hub.scheduling import housekeeping, leases
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.cast import upload
from tests.hub.jobs import test_checkpoints
from tests.hub.jobs.test_checkpoints import MINUTE, SAVES, lost, saved, wait
from tests.hub.storing import digest_of
from tests.hub.submitting import job, submit
from tests.hub.working import crowd, granted as placed, others

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
async def test_a_checkpoint_that_is_replaced_takes_no_other_jobs_output_along(hub: HubDouble, sent: str) -> None:
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
    await housekeeping.drop_silent(hub.hub)
    await leases.expire_overdue(hub.hub)


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
    await housekeeping.drop_silent(hub.hub)
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
    await housekeeping.drop_silent(hub.hub)
    assert await node.report(grant.attempt_id, ran_ms=29 * MINUTE, result='"r"') == "accepted"
    wait(hub, 9 * MINUTE)
    await look(hub)
    assert (await job(sam, job_id))["state"] == "queued"
    wait(hub, 2 * MINUTE)
    await look(hub)
    ended = await job(sam, job_id)
    assert (ended["state"], ended["reason"], ended["charge"]) == ("expired", "not_confirmed", 0)


# the host


async def test_a_node_that_is_lost_in_the_middle_of_a_move_does_not_change_where_the_job_goes(hub: HubDouble) -> None:
    """Its last checkpoint says it, before the report that the job is on its way. Only the host it named runs the rest."""
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=SAVES)
    node, grant = await placed(nodes)
    target = others(nodes, node)[-1]
    wait(hub, 10 * MINUTE, node)
    said = {"last": True, "move_to": target.profile.name, "ran_ms": 9 * MINUTE, "progress": 0.5}
    assert (await saved(node, grant.attempt_id, b"state", **said))["kept"]
    await lost(hub, grant.attempt_id)
    waits = await job(sam, job_id)
    assert (waits["pinned"], waits["checkpoint"]["progress"]) == (target.node_id, 0.5)
    wait(hub, MINUTE, *nodes)
    for other in others(nodes, target):
        other.sign_in()
        assert not (await other.poll(wait_ms=0)).grants, "it is for one host alone"
    there, grant = await placed([target])
    assert len(grant.checkpoint or []) == 1
    assert await there.report(grant.attempt_id) == "accepted"
    assert (await job(sam, job_id))["state"] == "succeeded"


async def test_a_hub_that_comes_to_know_a_node_in_the_middle_of_a_move_gives_it_no_work_of_the_other_host(
    hub: HubDouble,
) -> None:
    sam, nodes = await crowd(hub, 2)
    await submit(sam, spec=SAVES)
    node, grant = await placed(nodes)
    [target] = others(nodes, node)
    wait(hub, 5 * MINUTE, node)
    assert (await saved(node, grant.attempt_id, b"s", last=True, move_to=target.node_id))["kept"]
    await housekeeping.drop_silent(hub.hub)  # as if it was started again
    assert hub.hub.nodes.registry.get(node.node_id) is None
    assert (await node.poll(wait_ms=0)).reregister
    await node.poll(wait_ms=0)
    session = hub.hub.nodes.registry.get(node.node_id)
    assert session is not None
    assert session.attempts[grant.attempt_id].lane.shape.requirements.node == ""


async def test_a_host_that_has_the_name_of_another_gets_nothing_meant_for_that(hub: HubDouble) -> None:
    """Anybody may give a host any name. The one that is meant is off."""
    sam = await hub.account("sam", "submitter", "provider")
    far = await hub.node(await hub.account("far", "provider"), name="far")
    home = await hub.node(sam, name="home")
    [job_id] = await submit(sam, spec=SAVES, needs={"exclude_hosts": ["home"]})
    node, grant = await placed([far])
    wait(hub, 5 * MINUTE, far)
    await housekeeping.drop_silent(hub.hub)
    evil = await hub.node(await hub.account("evil", "provider"), name="home")
    assert (await saved(node, grant.attempt_id, b"s"))["kept"]
    moved = {"outcome": "moved", "reason": "moved", "exit_code": None, "move_to": "home"}
    assert await node.report(grant.attempt_id, **moved) == "accepted"
    assert (await job(sam, job_id))["pinned"] == home.node_id
    assert not (await evil.poll(wait_ms=0)).grants
    home.sign_in()
    there, _ = await placed([evil, home])
    assert there is home


async def test_the_report_that_follows_has_the_last_word_about_the_host(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 3)
    [job_id] = await submit(sam, spec=SAVES)
    node, grant = await placed(nodes)
    near, far = others(nodes, node)
    wait(hub, MINUTE, node)
    assert (await saved(node, grant.attempt_id, b"s", last=True, move_to=near.node_id))["kept"]
    moved = {"outcome": "moved", "reason": "moved", "exit_code": None, "move_to": far.node_id}
    assert await node.report(grant.attempt_id, **moved) == "accepted"
    found = await job(sam, job_id)
    assert (found["pinned"], found["moves"]) == (far.node_id, 1)


async def test_a_checkpoint_cannot_send_a_job_away_that_does_not_move(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    [job_id] = await submit(sam, spec=SAVES | {"moves": False})
    node, grant = await placed(nodes)
    [friend] = others(nodes, node)
    wait(hub, MINUTE, node)
    refused = await saved(node, grant.attempt_id, b"s", last=True, move_to=friend.node_id)
    assert (refused["kept"], refused["reason"]) == (False, "This job did not declare that it moves.")
    seen = await job(sam, job_id)
    assert (seen["pinned"], seen["checkpoint"]) == ("", None)
    told = (await sam.get("/events", params={"job_id": job_id})).json()["events"]
    assert [event["action"] for event in told].count("attempt.failed") == 1, "that is the node's fault"
