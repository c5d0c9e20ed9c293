"""Owners' rules and network at the hub: stored, audited, enforced by placement, sent to agents, and explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.placement.rules import Demand, Rules
from computepool.hub.nodes import nodes
from computepool.hub.scheduling import arrivals
from computepool.protocol.jobs.jobs import Needs, requirements_of
from computepool.protocol.nodes.rules import NO_RULES, NodeRules, rules_digest
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.submitting import submit


async def people(hub: HubDouble, **profile: Any) -> tuple[httpx2.AsyncClient, httpx2.AsyncClient, NodeDouble]:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "submitter", "provider")
    return sam, pia, await hub.node(pia, **profile)


async def put(client: httpx2.AsyncClient, node: NodeDouble, **rules: Any) -> dict[str, Any]:
    answer = await client.put(f"/nodes/{node.node_id}/rules", json=rules)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def why(client: httpx2.AsyncClient, job_id: str) -> dict[str, Any]:
    return (await client.get(f"/jobs/{job_id}/why")).json()


async def starts(hub: HubDouble, node: NodeDouble) -> list[str]:
    """The jobs that the node gets."""
    hub.hub.jobs.queue.wake()
    grants = await node.take()
    for grant in grants:
        await node.report(grant.attempt_id)
    return [grant.job_id for grant in grants]


async def stays_idle(hub: HubDouble, node: NodeDouble) -> bool:
    hub.hub.jobs.queue.wake()
    return not any([(await node.poll(wait_ms=50)).grants for _ in range(3)])


@pytest.mark.soak
async def test_jobs_with_network_run_only_where_the_owner_allows_it(hub: HubDouble) -> None:
    sam, pia, node = await people(hub, name="shut")
    [job_id] = await submit(sam, spec={"net": ["Files.Example.org:443", "*.example.com:443"]})
    assert await stays_idle(hub, node)
    said = await why(sam, job_id)
    assert said["unsatisfiable"] is True
    assert said["sentence"] == (
        "No node can run this: the only node does not take jobs with network; without network it could start "
        "now on 1 node."
    )
    assert [change["change"] for change in said["changes"]] == ["drop --net"]
    told = (await pia.get(f"/nodes/{node.node_id}/why")).json()
    assert "needs network for jobs (no network for jobs)" in told["rows"][0]["reason"]
    quote = (await sam.post("/quotes", json={"net": ["files.example.org:443"]})).json()
    assert quote["nodes_network"] == 0
    assert "0 nodes of 1 take jobs with network (--net)." in quote["sentences"]
    open_node = await hub.node(pia, name="open", network=True)
    assert await starts(hub, open_node) == [job_id]
    shown = (await sam.get(f"/jobs/{job_id}")).json()
    assert shown["spec"]["net"] == ["files.example.org:443", "*.example.com:443"]
    view = (await sam.post("/jobs/preview", json={"needs": {}, "net": ["files.example.org:443"]})).json()
    assert {host["name"]: host["ok"] for host in view["hosts"]} == {"open": True, "shut": False}


async def test_an_invalid_list_of_hosts_is_refused_with_advice(hub: HubDouble) -> None:
    for net, words in (
        (["files.example.org"], "has no port from 1 to 65535; write host:port"),
        (["http://files.example.org:443"], "write host:port"),
        (["*.com:443"], "too broad"),
        ([f"h{number}.test:443" for number in range(33)], "the maximum is 32"),
    ):
        body = {"spec": {"kind": "command", "name": "x", "argv": ["true"], "net": net}}
        answer = await hub.admin.post("/jobs", json=body)
        assert answer.status_code == 422
        assert words in answer.text


@pytest.mark.soak
async def test_network_traffic_reported_by_the_node_is_shown(hub: HubDouble) -> None:
    node = await hub.node(network=True)
    [job_id] = await submit(hub.admin, spec={"net": ["files.example.org:443"]})
    [grant] = await node.take()
    await node.report(grant.attempt_id, usage={"wall_ms": 5, "net_in_bytes": 80_000, "net_out_bytes": 700})
    [tried] = (await hub.admin.get(f"/jobs/{job_id}")).json()["tries"]
    assert (tried["usage"]["net_in_bytes"], tried["usage"]["net_out_bytes"]) == (80_000, 700)


@pytest.mark.soak
async def test_rules_keep_jobs_away_and_are_explained(hub: HubDouble) -> None:
    sam, pia, node = await people(hub, network=True)
    sams_id = (await sam.get("/me")).json()["id"]
    said = await put(pia, node, deny_submitters=["sam"])
    assert said["rules"]["deny_submitters"] == [sams_id], "kept by id: names change hands"
    assert said["sentences"] == [f"No jobs of {sams_id}."]
    [job_id] = await submit(sam)
    assert await stays_idle(hub, node)
    assert (await why(sam, job_id))["sentence"] == (
        "No node can run this: the owner's rules refuse this account's jobs."
    )
    told = (await pia.get(f"/nodes/{node.node_id}/why")).json()
    assert f"its owner takes no jobs of {sams_id}" in told["rows"][0]["reason"]
    [own] = await submit(pia, spec={"timeout_s": 7200, "labels": ["mining"]})
    assert await starts(hub, node) == [own], "an owner's own jobs run"
    await put(pia, node)
    assert await starts(hub, node) == [job_id], "and others' again when the rule is gone"
    await put(pia, node, minutes_max=60, deny_labels=["mining"], network=False, disk_mb_max=1000)
    waiting = [
        (await submit(sam, spec={"timeout_s": 3601}))[0],
        (await submit(sam, spec={"labels": ["MINING", "x"]}))[0],
        (await submit(sam, spec={"net": ["a.test:443"]}))[0],
        (await submit(sam, needs={"disk_mb": 1001}))[0],
    ]
    [fits] = await submit(sam, spec={"timeout_s": 3600, "labels": ["x"]})
    assert await starts(hub, node) == [fits]
    assert await stays_idle(hub, node)
    changes = [[change["change"] for change in (await why(sam, job))["changes"]] for job in waiting]
    assert changes == [["timeout 61m → 60m"], ["drop label mining, x"], ["drop --net"], ["disk 1.1 GB → 1 GB"]]


@pytest.mark.soak
async def test_a_rule_may_require_a_submitters_score(hub: HubDouble) -> None:
    sam, pia, node = await people(hub)
    await put(pia, node, score_min=0.9)
    [job_id] = await submit(sam)
    assert await stays_idle(hub, node)
    said = await why(sam, job_id)
    assert "the owner's rules refuse submitters" in said["sentence"]
    hub.hub.nodes.registry.fleet.set_submitter((await sam.get("/me")).json()["id"], 0.95)
    assert await starts(hub, node) == [job_id]


@pytest.mark.soak
async def test_only_the_owner_changes_rules_and_changes_are_events(hub: HubDouble) -> None:
    sam, pia, node = await people(hub)
    path = f"/nodes/{node.node_id}/rules"
    assert (await sam.get(path)).status_code == 404
    assert (await sam.put(path, json={"network": False})).status_code == 404
    assert (await pia.get(path)).json()["rules"]["network"] is True
    await put(pia, node, network=False, gpus=False, ram_mb_max=2000, score_min=0.5, allow_labels=["ml", "a", "ml"])
    view = (await pia.get(path)).json()
    assert view["rules"]["allow_labels"] == ["a", "ml"]
    assert view["sentences"] == [
        "Only jobs labelled a or ml.", "No jobs with network.", "No jobs with a GPU.", "Jobs of at most 2 GB RAM.",
        "Submitters with a score of at least 0.5.",
    ]  # fmt: skip
    await put(pia, node, network=False)
    events = [event for event in (await hub.admin.get("/events")).json()["events"] if event["action"] == "node.rules"]
    assert len(events) == 2
    refused = await pia.put(path, json={"deny_submitters": ["nobody"]})
    assert (refused.status_code, refused.json()["field"]) == (404, "deny_submitters")
    for wrong in ({"minutes_max": 0}, {"score_min": 2}, {"unknown": 1}, {"deny_labels": ["no good"]}):
        assert (await pia.put(path, json=wrong)).status_code == 422


@pytest.mark.soak
async def test_agents_receive_changed_rules_once_with_the_next_reply(hub: HubDouble) -> None:
    _, pia, node = await people(hub)
    assert (await node.poll(wait_ms=0)).rules is None
    await put(pia, node, network=False)
    body = (await node.poll(wait_ms=0)).rules
    assert body is not None
    assert NodeRules.model_validate_json(body).rules() == Rules(network=False)
    assert (await node.poll(wait_ms=0, rules=rules_digest(body))).rules is None
    assert (await node.poll(wait_ms=0, path="/heartbeat")).rules == body, "a lost reply is said again"
    node.restart()
    assert (await node.poll(wait_ms=0)).rules == body
    await put(pia, node)
    assert (await node.poll(wait_ms=0, rules=rules_digest(body))).rules == NO_RULES


@pytest.mark.soak
async def test_rules_outlive_the_hubs_memory_and_reach_other_hubs(hub: HubDouble) -> None:
    sam, pia, node = await people(hub)
    await put(pia, node, deny_submitters=["sam"])
    fleet = hub.hub.nodes.registry.fleet
    hub.hub.nodes.registry.on_node_lost(node.node_id)
    assert fleet.rulebook.empty
    node.restart()
    await node.poll(wait_ms=0)
    assert not fleet.rulebook.empty
    await submit(sam)
    assert await stays_idle(hub, node)
    # As if this hub had missed the rule of another hub: the store still has it.
    fleet.set_rules(node.node_id, Rules())
    await nodes.reconcile(hub.hub, node.node_id)
    assert not fleet.rulebook.empty
    session = hub.hub.nodes.registry.get(node.node_id)
    assert session is not None
    await arrivals.refresh(hub.hub, [session])
    assert await stays_idle(hub, node)


@pytest.mark.soak
async def test_a_new_rule_also_stops_the_refilling_of_a_lane(tmp_path: Path) -> None:
    """Short jobs share a reservation that is refilled without a new placement, where rules must apply as well."""
    async with running_hub(tmp_path, newcomer_jobs=0, lane_depth_max=4) as hub:
        sam, pia, node = await people(hub, cores=1)
        await submit(sam, items=60)
        held: dict[str, None] = {}
        for _ in range(20):  # until the hub knows how short they are, and grants several at once
            held |= dict.fromkeys(grant.attempt_id for grant in await node.take())
            if len(held) > 2:
                break
            await node.report_all([node.make_report(attempt, ran_ms=1) for attempt in held])
            held.clear()
        assert len(held) > 2
        await put(pia, node, deny_submitters=["sam"])
        first, *rest = held
        await node.report_all([node.make_report(attempt, ran_ms=1) for attempt in rest])
        more = [grant for _ in range(3) for grant in (await node.poll(wait_ms=50)).grants]
        assert [grant for grant in more if grant.attempt_id not in held] == []
        assert hub.hub.nodes.registry.get(node.node_id).attempts.keys() == {first}  # type: ignore[union-attr]


@pytest.mark.parametrize(("denied", "label"), [("mining", "MINING"), ("Mining", "mining"), ("mining", "mining")])
def test_labels_are_compared_without_case(denied: str, label: str) -> None:
    wanted = requirements_of(Needs(), net=[], labels=[label], timeout_s=60)
    demand = Demand(account="a", labels=wanted.labels)
    assert not NodeRules(deny_labels=[denied]).rules().admits("label", demand)
    assert NodeRules(allow_labels=[denied]).rules().admits("label", demand)
