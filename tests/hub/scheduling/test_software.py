"""Software that nodes offer and have cached, through the real API: gates, lists, explanations and quotes."""

from __future__ import annotations

from typing import Any

import httpx2

from computepool.testing.hub import HubDouble
from tests.hub.submitting import body, submit

KEY = "packages:" + "0" * 32
OFFER = {"name": "ml", "python": "3.12", "cuda": "13.0", "packages": {"torch": "2.11.0+cu130", "numpy": "2.1.0"}}


def depending(*packages: str, **needs: Any) -> dict[str, Any]:
    return {"spec": {"dependencies": list(packages), "needs": needs}}


async def names(client: httpx2.AsyncClient, *software: str) -> list[str]:
    answer = await client.get("/nodes", params={"software": list(software)})
    assert answer.status_code == 200, answer.text
    return [node["name"] for node in answer.json()["nodes"]]


async def test_a_job_goes_where_its_packages_are(hub: HubDouble) -> None:
    plain, offers = await hub.node(name="plain"), await hub.node(name="offers", environments=[OFFER])
    [first] = await submit(hub.admin, **depending("torch>=2.4", "numpy<3"))
    assert [grant.job_id for grant in await offers.take()] == [first]
    [other] = await submit(hub.admin, **depending("torch<2"))
    assert [grant.job_id for grant in await plain.take()] == [other]
    [script] = await submit(
        hub.admin, spec={"kind": "script", "source": '# /// script\n# dependencies = ["torch"]\n# ///\n'}
    )
    assert [grant.job_id for grant in await offers.take()] == [script]


async def test_a_job_may_refuse_to_install(hub: HubDouble) -> None:
    plain = await hub.node(name="plain")
    [job_id] = await submit(hub.admin, **depending("torch>=2.4", offered_only=True))
    why = (await hub.admin.get(f"/jobs/{job_id}/why")).json()
    assert why["unsatisfiable"] is True
    assert "torch>=2.4" in why["sentence"]
    offers = await hub.node(name="offers", environments=[OFFER])
    assert [grant.job_id for grant in await offers.take()] == [job_id]
    assert not plain.holding


async def test_the_function_python_gate_holds_for_environments_too(hub: HubDouble) -> None:
    offers = await hub.node(name="offers", python="3.11", environments=[OFFER], installs=False)
    [fits] = await submit(hub.admin, **depending("torch", python="3.12"))
    assert [grant.job_id for grant in await offers.take()] == [fits]
    [waits] = await submit(hub.admin, **depending("torch", python="3.11"))
    why = (await hub.admin.get(f"/jobs/{waits}/why")).json()
    assert why["unsatisfiable"] is True, (
        "the node has Python 3.11, but neither torch for it nor the means to install it"
    )


async def test_nodes_are_found_by_their_software(hub: HubDouble) -> None:
    await hub.node(name="plain")
    await hub.node(name="offers", environments=[OFFER, {"name": "old", "python": "3.11", "packages": {"jax": "0.4"}}])
    assert await names(hub.admin) == ["plain", "offers"]
    assert await names(hub.admin, "torch") == ["offers"]
    assert await names(hub.admin, "torch>=2.4", "numpy") == ["offers"]
    assert await names(hub.admin, "Torch == 2.11.0") == ["offers"], "the local version does not matter"
    assert await names(hub.admin, "torch", "jax") == [], "one environment must have all"
    assert await names(hub.admin, "torch[opt]") == []
    bad = await hub.admin.get("/nodes", params={"software": "torch @ https://example.org/x.whl"})
    assert bad.status_code == 422


async def test_lists_leave_out_the_packages(hub: HubDouble) -> None:
    node = await hub.node(name="offers", environments=[OFFER])
    [listed] = (await hub.admin.get("/nodes")).json()["nodes"]
    [brief] = listed["profile"]["environments"]
    assert (brief["name"], brief["packages"], brief["packages_count"]) == ("ml", {}, 2)
    [full] = (await hub.admin.get(f"/nodes/{node.node_id}")).json()["profile"]["environments"]
    assert full["packages"] == OFFER["packages"]


async def test_nodes_that_have_something_cached_come_first_and_quotes_say_so(hub: HubDouble) -> None:
    from computepool.protocol.jobs.requirements import check_requirements, dependencies_key

    nodes = [await hub.node(name=f"n{number}") for number in range(3)]
    key = dependencies_key(check_requirements(["torch>=2.4"]))
    quote = {"dependencies": ["torch>=2.4"]}
    cold = (await hub.admin.post("/quotes", json=quote)).json()
    assert (cold["nodes_warm"], cold["cold_ms"], cold["start"]["p50_ms"]) == (0, None, None)
    await nodes[1].poll(wait_ms=0, cached={"items": [{"key": key, "took_ms": 85_000}]})
    warm = (await hub.admin.post("/quotes", json=quote)).json()
    assert (warm["nodes_warm"], warm["cold_ms"], warm["start"]["p50_ms"]) == (1, 85_000, 0)
    assert "Cold start about 85 s on 2 nodes, warm on 1." in warm["sentences"]
    [job_id] = await submit(hub.admin, **depending("torch>=2.4"))
    assert [grant.job_id for grant in await nodes[1].take()] == [job_id]
    assert (await hub.admin.post("/quotes", json={})).json()["nodes_warm"] is None
    await nodes[1].poll(wait_ms=0, cached={"items": []})
    assert (await hub.admin.post("/quotes", json=quote)).json()["nodes_warm"] == 0


async def test_what_is_cached_is_bounded(hub: HubDouble) -> None:
    node = await hub.node(name="node")
    poll = {"boot_id": node.boot_id, "holding": [], "wait_ms": 0}
    for items in ([{"key": "other:" + "0" * 32}], [{"key": KEY}] * 257, [{"key": KEY, "took_ms": -1}]):
        assert (await node.client.post("/next", json=poll | {"cached": {"items": items}})).status_code == 422


async def test_a_job_that_no_environment_could_ever_satisfy_is_refused(hub: HubDouble) -> None:
    for packages, sentence in (((), "needs dependencies"), (("torch[opt]",), "has extras")):
        answer = await hub.admin.post("/jobs", json=body(**depending(*packages, offered_only=True)))
        assert answer.status_code == 422
        assert sentence in answer.text
