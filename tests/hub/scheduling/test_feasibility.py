"""Jobs that no node could ever run say so when they are submitted, and wait, or are refused where that is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import body

HUGE = {"ram_mb": 10**6}


async def sent(client: httpx2.AsyncClient, *, key: str = "", **fields: Any) -> httpx2.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return await client.post("/jobs", json=body(**fields), headers=headers)


async def count(client: httpx2.AsyncClient) -> int:
    return len((await client.get("/jobs")).json()["jobs"])


async def test_an_impossible_job_says_so_at_once_and_waits(hub: HubDouble) -> None:
    ann = await hub.account("ann", "submitter")
    await hub.node(name="studio", ram_mb=16_000)
    reply = (await sent(ann, needs=HUGE)).json()
    assert reply["warning"].startswith("No node can run this: the only node has less than 1000 GB of RAM")
    why = (await ann.get(f"/jobs/{reply['job_ids'][0]}/why")).json()
    assert (why["sentence"], why["unsatisfiable"]) == (reply["warning"], True)
    assert (await ann.post(f"/jobs/{reply['job_ids'][0]}/resubmit")).json()["warning"] == reply["warning"]
    easy = (await sent(ann)).json()
    assert easy["warning"] == ""
    listed = {item["id"]: item["status"] for item in (await ann.get("/jobs")).json()["jobs"]}
    assert listed[reply["job_ids"][0]] == "no connected node can run it"
    assert listed[easy["job_ids"][0]] != "no connected node can run it"  # it waits, or has been leased already
    shown = (await ann.get(f"/jobs/{reply['job_ids'][0]}")).json()
    assert shown["status"] == "no connected node can run it"


async def test_it_is_refused_where_its_submitter_wants_that(hub: HubDouble) -> None:
    ann = await hub.account("ann", "submitter")
    await hub.node(name="studio", python="3.11")
    refused = await sent(ann, needs={"python": "3.9"}, impossible="refuse")
    assert (refused.status_code, refused.json()["field"]) == (409, "impossible")
    assert "does not have Python 3.9" in refused.json()["detail"]
    assert await count(ann) == 0
    assert (await sent(ann, needs={"python": "3.11"}, impossible="refuse")).status_code == 201


async def test_what_only_waits_is_not_refused(tmp_path: Path) -> None:
    """Nobody is here, or the one that could run it is away for a while."""
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        ann = await hub.account("ann", "submitter")
        reply = await sent(ann, needs=HUGE, impossible="refuse")
        assert (reply.status_code, reply.json()["warning"]) == (201, "Waiting: no node is connected.")
        assert (await ann.get("/jobs")).json()["jobs"][0]["status"] == "waiting for a node"
        large = await hub.node(name="large", ram_mb=2 * 10**6)
        clock.advance(3_600_000)
        hub.hub.nodes.registry.on_node_lost(large.node_id)
        await hub.node(name="small", ram_mb=16_000)
        reply = await sent(ann, needs=HUGE, impossible="refuse")
        assert reply.status_code == 201
        assert reply.json()["warning"].startswith("Waiting: large, which could run it, is offline since")
        pinned = (await sent(ann, needs=HUGE | {"host": large.node_id})).json()["warning"]
        assert pinned == f"{reply.json()['warning'].partition('; ')[0]}."


async def test_the_same_request_gets_its_answer_after_the_nodes_left(hub: HubDouble) -> None:
    ann = await hub.account("ann", "submitter")
    large = await hub.node(name="large", ram_mb=2 * 10**6)
    await hub.node(name="small", ram_mb=16_000)
    first = await sent(ann, key="k", needs=HUGE, impossible="refuse")
    await hub.admin.post(f"/nodes/{large.node_id}/revoke")
    hub.hub.nodes.registry.on_node_lost(large.node_id)
    second = await sent(ann, key="k", needs=HUGE, impossible="refuse")
    assert second.json()["job_ids"] == first.json()["job_ids"]
    assert await count(ann) == 1


async def test_a_quote_says_why_and_which_python_is_needed(hub: HubDouble) -> None:
    ann = await hub.account("ann", "submitter")
    await hub.node(name="one", python="3.11")
    await hub.node(name="two", python="3.12")
    await hub.node(name="three", python="3.11", fetches_python=["3.12", "3.13"])
    quote = (await ann.post("/quotes", json={"needs": {"python": "3.12"}})).json()
    assert (quote["nodes_python"], quote["reason"]) == (2, "")
    assert "2 of 3 nodes have Python 3.12, which it needs." in quote["sentences"]
    quote = (await ann.post("/quotes", json={"needs": {"python": "3.9"}})).json()
    assert quote["sentences"][0] == quote["reason"]
    assert quote["reason"].startswith("No node can run this: no node has Python 3.9; with Python 3.12 it could")
    assert (await ann.post("/quotes", json={"needs": {}})).json()["nodes_python"] is None
    quote = (await ann.post("/quotes", json={"needs": {"python": ">=3.12"}})).json()
    assert "2 of 3 nodes have Python 3.12 or newer, which it needs." in quote["sentences"]
    wrong = await ann.post("/quotes", json={"needs": {"python": ">=4"}})
    assert (wrong.status_code, wrong.json()["detail"]) == (422, "needs.python: no version of Python 3 satisfies >=4")


async def test_a_script_runs_where_its_python_is(hub: HubDouble) -> None:
    """It says so in its PEP 723 block."""
    ann = await hub.account("ann", "submitter")
    await hub.node(name="old", python="3.11")
    script = '# /// script\n# requires-python = ">=3.12"\n# ///\nprint(1)\n'
    spec = {"kind": "script", "name": "new.py", "source": script}
    reply = (await ann.post("/jobs", json={"spec": spec})).json()
    assert reply["warning"].startswith(
        "No node can run this: the only node does not have Python 3.12 or newer; with Python 3.11 it could"
    )
    new = await hub.node(name="new", python="3.11", fetches_python=["3.12"])
    [grant] = await new.take()
    assert grant.job_id == reply["job_ids"][0]
    own = {**spec, "needs": {"python": "3.11"}}
    found = (await ann.get(f"/jobs/{(await ann.post('/jobs', json={'spec': own})).json()['job_ids'][0]}")).json()
    assert found["spec"]["needs"]["python"] == "3.11", "what the submitter names wins"
