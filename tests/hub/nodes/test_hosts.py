"""Names of hosts become ids at submission, so that nobody gains from taking another node's name."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.submitting import body, job, submit

SECRET = {"env": {"PASSWORD": "hunter2"}}


async def impostor(hub: HubDouble, name: str = "studio", *, owner: str = "mal") -> NodeDouble:
    return await hub.node(await hub.account(owner, "provider"), name=name)


async def rename(node: NodeDouble, name: str) -> None:
    node.profile = node.profile.model_copy(update={"name": name})
    node._introduced = False
    await node.poll(wait_ms=0)


async def refusal(client: httpx2.AsyncClient, path: str = "/jobs", **needs: Any) -> dict[str, Any]:
    sent = body(needs=needs) if path == "/jobs" else {"needs": needs, "timeout_s": 60}
    answer = await client.post(path, json=sent)
    assert answer.status_code in (409, 422), answer.text
    return {"status": answer.status_code, **answer.json()}


async def pinned(client: httpx2.AsyncClient, host: str) -> str:
    [job_id] = await submit(client, needs={"host": host})
    return str((await job(client, job_id))["spec"]["needs"]["host"])


@pytest.mark.parametrize("when", ["before", "after", "renamed"])
async def test_a_node_with_the_same_name_gets_no_job_for_anothers_host(any_hub: HubDouble, when: str) -> None:
    """It takes the name before the job, after it, or by a later change, and it is idle while the right one is offline."""
    hub = any_hub
    sam = await hub.account("sam", "submitter", "provider")
    own = await hub.node(sam, name="studio", cores=16)
    own_id = own.node_id
    evil = await impostor(hub, "other" if when == "renamed" else "studio") if when != "after" else None
    hub.hub.nodes.registry.on_node_lost(own_id)  # it is offline for a moment
    jobs = [(await submit(sam, spec=SECRET, needs={"host": "studio"}))[0] for _ in range(8)]
    if evil is None:
        evil = await impostor(hub)
    if when == "renamed":
        await rename(evil, "studio")
    assert not (await evil.poll(wait_ms=0)).grants
    own.restart()
    granted = {grant.job_id for grant in await own.take(8)}
    assert granted == set(jobs)
    assert not (await evil.poll(wait_ms=0)).grants


async def test_a_name_means_the_accounts_own_host_first(any_hub: HubDouble) -> None:
    hub = any_hub
    sam = await hub.account("sam", "submitter", "provider")
    evil = await impostor(hub)
    assert await pinned(sam, "studio") == evil.node_id, "the only one of that name"
    own = await hub.node(sam, name="studio")
    for word in ("studio", "Studio", "STUDIO", "ｓｔｕｄｉｏ", own.node_id):
        assert await pinned(sam, word) == own.node_id
    assert await pinned(sam, evil.node_id) == evil.node_id
    hub.hub.nodes.registry.on_node_lost(own.node_id)
    assert await pinned(sam, "studio") == own.node_id, "also while it is off"


async def test_a_host_is_found_by_its_url_if_it_is_ones_own(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter", "provider")
    own = await hub.node(sam, name="studio", url="http://10.0.0.7:8765")
    evil = await hub.node(await hub.account("mal", "provider"), name="x", url="http://10.0.0.7:8765")
    for word in ("http://10.0.0.7:8765", "http://10.0.0.7:8765/", "http://studio:8765"):
        assert await pinned(sam, word) == own.node_id
    olga = await hub.account("olga", "submitter")
    assert (await refusal(olga, host="http://10.0.0.7:8765"))["status"] == 422, evil.node_id


@pytest.mark.parametrize("path", ["/jobs", "/jobs/preview", "/quotes"])
async def test_an_ambiguous_name_is_refused_with_all_candidates(hub: HubDouble, path: str) -> None:
    sam = await hub.account("sam", "submitter", "provider")
    first = await hub.node(await hub.account("olga", "provider"), name="studio", region="de")
    second = await hub.node(await hub.account("mal", "provider"), name="Studio")
    said = await refusal(sam, path, host="studio")
    assert said["status"] == 409
    assert said["field"].endswith("needs.host")
    for part in (first.node_id, "olga", "de", second.node_id, "mal"):
        assert part in said["detail"]
    mine = [await hub.node(sam, name="studio") for _ in range(2)]
    said = await refusal(sam, path, host="studio")
    assert said["status"] == 409
    assert all(node.node_id in said["detail"] for node in mine)
    assert first.node_id not in said["detail"]


@pytest.mark.parametrize("path", ["/jobs", "/jobs/preview", "/quotes"])
@pytest.mark.parametrize("needs", [{"host": "studoi"}, {"exclude_hosts": ["studoi"]}])
async def test_an_unknown_name_is_refused_with_the_closest_one(
    hub: HubDouble, path: str, needs: dict[str, Any]
) -> None:
    """Such a job would wait for ever, or for anybody who takes the name; excluding nobody would have no effect."""
    await hub.node(name="studio")
    said = await refusal(hub.admin, path, **needs)
    assert (said["status"], said["detail"]) == (422, "There is no node 'studoi'. Did you mean studio?")
    said = await refusal(hub.admin, path, host="node_" + "0" * 26)
    assert "There is no node" in said["detail"]


async def test_excluding_a_name_excludes_its_nodes_and_whoever_takes_it(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    evil = await impostor(hub, "evil")
    needs = {"exclude_hosts": ["Evil"]}
    [job_id] = await submit(sam, needs=needs)
    await rename(evil, "innocent")
    assert not (await evil.poll(wait_ms=0)).grants
    late = await impostor(hub, "Evil", owner="friend")
    assert not (await late.poll(wait_ms=0)).grants, "the name is left out, too, whoever takes it"
    good = await hub.node(await hub.account("olga", "provider"), name="good")
    [grant] = await good.take()
    assert grant.job_id == job_id
    (await hub.admin.post(f"/nodes/{evil.node_id}/revoke")).raise_for_status()
    await submit(sam, needs={"exclude_hosts": [evil.node_id, "innocent"]})


async def test_resubmitted_and_repeated_requests_mean_the_same_host(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter", "provider")
    theirs = await impostor(hub)
    sent, key = body(needs={"host": "studio"}), {"Idempotency-Key": "k"}
    first = await sam.post("/jobs", json=sent, headers=key)
    [job_id] = first.json()["job_ids"]
    await hub.node(sam, name="studio")
    again = (await sam.post(f"/jobs/{job_id}/resubmit")).json()["job_ids"][0]
    assert (await job(sam, again))["spec"]["needs"]["host"] == theirs.node_id
    (await hub.admin.post(f"/nodes/{theirs.node_id}/revoke")).raise_for_status()
    assert (await sam.post("/jobs", json=sent, headers=key)).json() == first.json()
    assert (await sam.post(f"/jobs/{job_id}/resubmit")).status_code == 422, "that host is gone"


async def test_a_repeated_request_is_answered_when_its_host_is_gone(hub: HubDouble) -> None:
    node = await hub.node(name="studio")
    sent, key = body(needs={"host": "studio"}), {"Idempotency-Key": "k"}
    first = await hub.admin.post("/jobs", json=sent, headers=key)
    (await hub.admin.post(f"/nodes/{node.node_id}/revoke")).raise_for_status()
    assert (await hub.admin.post("/jobs", json=sent)).status_code == 422
    assert (await hub.admin.post("/jobs", json=sent, headers=key)).json() == first.json()


async def test_explanations_show_a_hosts_name_and_id(hub: HubDouble) -> None:
    node = await hub.node(name="studio", cores=1)
    [job_id] = await submit(hub.admin, needs={"host": "studio", "cores": 1000})
    why = (await hub.admin.get(f"/jobs/{job_id}/why")).json()
    said = [gate["need"] for gate in why["gates"] if gate["gate"] == "node"]
    assert said == [f"node studio ({node.node_id})"]


@pytest.mark.parametrize("name", ["node_" + "0" * 26, "lap\u202etop", "lap\u200btop", "ｓｔｕｄｉｏ", " studio"])
async def test_deceptive_node_names_are_refused(hub: HubDouble, name: str) -> None:
    code = (await hub.admin.post("/nodes/codes")).json()["code"]
    node = NodeDouble(hub.client(), hub.hub.clock)
    with pytest.raises(httpx2.HTTPStatusError, match="422"):
        await node.register(code, name=name)
    await node.register(code, name="honest")
    await node.poll(wait_ms=0)
    with pytest.raises(httpx2.HTTPStatusError, match="422"):
        await rename(node, name)


async def test_a_shortened_id_does_not_reach_a_node_of_that_name(any_hub: HubDouble) -> None:
    sam = await any_hub.account("sam", "submitter", "provider")
    own = await any_hub.node(sam, name="studio")
    cut = own.node_id[:24]
    await impostor(any_hub, cut)
    refused = await refusal(sam, host=cut)
    assert refused["status"] == 409
    assert own.node_id in refused["detail"]
    assert await pinned(sam, own.node_id) == own.node_id
