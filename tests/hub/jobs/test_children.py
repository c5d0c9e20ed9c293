"""Jobs that a running job submits through its node: how many, how deep, for how much, and what they may touch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from computepool.core.money.money import CREDIT
from computepool.hub.jobs.running import child_rows
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.cast import upload
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import COMMAND, body, job, submit

HOUR = {"timeout_s": 3600.0}


hub = hub_fixture(on=BOTH, signup_grant=1_000 * CREDIT, tick_s=10_000)


class Parent:
    """A job that runs on a node, which speaks for it."""

    def __init__(self, sam: httpx2.AsyncClient, node: NodeDouble, job_id: str, attempt_id: str) -> None:
        self.sam, self.node, self.job_id, self.attempt_id = sam, node, job_id, attempt_id
        self.seq = 0

    async def call(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        self.seq += 1
        return await self.node.client.post(f"/attempts/{self.attempt_id}/{path}", json={"seq": self.seq, **body})

    async def submit(self, *, items: int = 1, spec: dict[str, Any] | None = None, **rest: Any) -> httpx2.Response:
        request = {"spec": COMMAND | HOUR | (spec or {}), "items": [{} for _ in range(items)], **rest}
        detached = request.pop("detached", False)
        return await self.call("jobs", {"request": request, "detached": detached})

    async def submit_one(self, **rest: Any) -> str:
        answer = await self.submit(**rest)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job_ids"][0])


async def start(
    sam: httpx2.AsyncClient, node: NodeDouble, *, spec: dict[str, Any] | None = None, **rest: Any
) -> Parent:
    needs = {"host": node.node_id}
    [job_id] = await submit(sam, spec=HOUR | {"children": 5} | (spec or {}), needs=needs, **rest)
    [grant] = await node.take()
    assert grant.job_id == job_id
    return Parent(sam, node, job_id, grant.attempt_id)


async def people(hub: HubDouble) -> tuple[httpx2.AsyncClient, NodeDouble]:
    sam = await hub.account("sam", "submitter")
    return sam, await hub.node(await hub.account("pia", "provider"), name="pias", cores=64, ram_mb=65_536)


async def test_a_running_job_submits_others_and_reads_their_results(hub: HubDouble) -> None:
    sam, node = await people(hub)
    parent = await start(sam, node)
    child = await parent.submit_one()
    seen = await job(sam, child)
    assert (seen["parent_id"], seen["account_id"]) == (parent.job_id, (await job(sam, parent.job_id))["account_id"])
    assert (await job(sam, parent.job_id))["children"] == [child]
    listed = {one["id"]: one["parent_id"] for one in (await sam.get("/jobs")).json()["jobs"]}
    assert listed == {child: parent.job_id, parent.job_id: None}
    assert (await sam.get("/find", params={"kind": "job", "word": "last"})).json()["id"] == parent.job_id
    [grant] = await node.take()
    await node.report(grant.attempt_id, result='"done"')
    path = f"/attempts/{parent.attempt_id}/jobs/{child}/result"
    assert (await node.client.get(path)).json()["result"] == '"done"'
    group = (await parent.call("groups", {"name": "parts"})).json()["id"]
    answer = await parent.submit(items=2, group_id=group)
    assert answer.status_code == 201, answer.text
    for each in await node.take(2):
        await node.report(each.attempt_id, result='"part"')
    results = (await node.client.get(f"/attempts/{parent.attempt_id}/groups/{group}/results")).json()
    assert [one["result"] for one in results["results"]] == ['"part"', '"part"']


async def test_the_same_call_of_another_attempt_finds_the_jobs_of_the_first(hub: HubDouble) -> None:
    sam, node = await people(hub)
    parent = await start(sam, node, retries=1)
    child = await parent.submit_one()
    await node.report(parent.attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1)
    assert (await job(sam, child))["state"] != "cancelled", "the job is tried again, and its children wait"
    hub.hub.clock.advance(120_000)  # type: ignore[attr-defined]
    node.sign_in()
    hub.hub.jobs.queue.wake()
    grants = {grant.job_id: grant for grant in await node.take(2)}
    again = Parent(sam, node, parent.job_id, grants[parent.job_id].attempt_id)
    assert await again.submit_one() == child
    assert await again.submit_one() != child, "the second call is another one"


async def test_a_job_that_declared_nothing_submits_nothing(hub: HubDouble) -> None:
    sam, node = await people(hub)
    parent = await start(sam, node, spec={"children": 0})
    answer = await parent.submit()
    assert (answer.status_code, "children=N" in answer.json()["detail"]) == (403, True)


async def test_only_the_node_that_runs_it_speaks_for_it_and_only_while_it_runs(hub: HubDouble) -> None:
    sam, node = await people(hub)
    other = await hub.node(await hub.account("otto", "provider"), name="ottos")
    parent = await start(sam, node)
    stranger = Parent(sam, other, parent.job_id, parent.attempt_id)
    assert (await stranger.submit()).status_code == 404
    await node.report(parent.attempt_id)
    answer = await parent.submit()
    assert (answer.status_code, answer.json()["detail"]) == (409, "This attempt has ended.")


async def test_number_depth_and_budget_are_those_of_the_whole_tree(hub: HubDouble) -> None:
    sam, node = await people(hub)
    hub.hub.settings.children_depth_max = 2
    parent = await start(sam, node, spec={"children": 3})
    child_id = await parent.submit_one(spec={"children": 9})
    [grant] = await node.take()
    child = Parent(sam, node, child_id, grant.attempt_id)
    grandchild_id = await child.submit_one(spec={"children": 9})
    [grant] = await node.take()
    grandchild = Parent(sam, node, grandchild_id, grant.attempt_id)
    answer = await grandchild.submit()
    assert (answer.status_code, "2 levels" in answer.json()["detail"]) == (403, True)
    assert (await child.submit(items=2)).status_code == 409, "two were submitted, and three are all"
    assert (await child.submit()).status_code == 201
    assert (await parent.submit()).status_code == 409


async def test_children_may_cost_as_much_as_was_agreed_and_no_more(hub: HubDouble) -> None:
    sam, node = await people(hub)
    hold = (await sam.post("/jobs", json={"spec": COMMAND | HOUR})).json()["hold"]
    [first] = await node.take()
    await node.report(first.attempt_id)
    parent = await start(sam, node, spec={"children_budget": 2 * hold})
    ids = [await parent.submit_one(budget=hold) for _ in range(2)]
    answer = await parent.submit(budget=hold)
    assert (answer.status_code, "0.00 are left" in answer.json()["detail"]) == (402, True)
    assert (await parent.submit(max_price=0)).status_code == 201, "own nodes cost nothing"
    assert (await sam.post(f"/jobs/{ids[0]}/cancel")).status_code == 200
    assert (await parent.submit(budget=hold)).status_code == 201, "what a finished one did not cost is there again"


async def test_what_a_strangers_node_submits_runs_in_a_sandbox_also_at_home(hub: HubDouble) -> None:
    """An owner's own jobs need none, and a stranger's node speaks for the submitter here."""
    sam = await hub.account("sam", "submitter", "provider")
    home = await hub.node(sam, name="home", isolation="process")
    away = await hub.node(await hub.account("pia", "provider"), name="away")
    parent = await start(sam, away)
    child = await parent.submit_one(spec={"needs": {"host": home.node_id}})
    assert (await home.poll(wait_ms=0)).grants == []
    assert (await job(sam, child))["spec"]["needs"]["isolation"] == "namespace"
    own = await start(sam, home)
    child = await own.submit_one(spec={"needs": {"host": home.node_id}})
    [grant] = await home.take()
    assert grant.job_id == child


async def test_a_node_takes_no_key_of_its_jobs_group(hub: HubDouble) -> None:
    sam, node = await people(hub)
    group = (await sam.post("/groups", json={"name": "sweep"})).json()["id"]
    parent = await start(sam, node, group_id=group)
    answer = await parent.submit(group_id=group)
    assert answer.status_code == 201
    request = {"spec": COMMAND | HOUR, "items": [{"key": "b"}], "group_id": group}
    assert (await parent.call("jobs", {"request": request})).status_code == 403


async def test_children_that_name_no_budget_share_the_trees(hub: HubDouble) -> None:
    """A parent that only waits is small; what it submits may be larger."""
    sam, node = await people(hub)
    parent = await start(sam, node, spec={"children": 4, "children_budget": 4 * CREDIT})
    ids = [*(await parent.submit(items=3)).json()["job_ids"], await parent.submit_one()]
    assert [(await job(sam, id_))["hold"] for id_ in ids] == [CREDIT] * 4
    await sam.post(f"/jobs/{parent.job_id}/cancel")
    free = await start(sam, node, spec={"children_budget": 0})
    assert (await job(sam, await free.submit_one()))["hold"] == 0


async def test_the_operator_limits_how_many_jobs_a_job_may_submit(tmp_path: Path) -> None:
    """Also those that were accepted when the limit was higher."""
    async with running_hub(tmp_path, signup_grant=1_000 * CREDIT) as hub:
        sam, node = await people(hub)
        parent = await start(sam, node)
        hub.hub.settings.children_max = 2
        refused = await sam.post("/jobs", json=body(spec=HOUR | {"children": 3}))
        assert (refused.status_code, refused.json()["field"]) == (422, "spec.children")
        assert "2 jobs at most" in refused.json()["detail"]
        assert (await parent.submit(items=3)).status_code == 409
        assert (await parent.submit(items=2)).status_code == 201
        assert (await parent.submit()).status_code == 409


async def test_a_node_cannot_use_it_to_reach_what_the_job_could_not(hub: HubDouble, subtests: pytest.Subtests) -> None:
    sam, node = await people(hub)
    secret = await upload(sam, b"the submitter's other file")
    group = (await sam.post("/groups", json={"name": "other"})).json()["id"]
    [other] = await submit(sam, spec=HOUR, needs={"tags": ["nowhere"]})
    parent = await start(sam, node)
    wishes: list[tuple[int, dict[str, Any]]] = [
        (403, {"spec": {"inputs": [{"name": "a", "digest": secret, "size": 26}]}}),
        (403, {"spec": {"net": ["example.org:443"]}}),
        (403, {"spec": {"allow_pickle": True}}),
        (404, {"group_id": group}),
        (404, {"after": [other]}),
    ]
    for status, wanted in wishes:
        with subtests.test(wanted=wanted):
            assert (await parent.submit(**wanted)).status_code == status
    for path in (f"jobs/{other}/result", f"groups/{group}/results"):
        with subtests.test(path=path):
            answer = await node.client.get(f"/attempts/{parent.attempt_id}/{path}")
            assert answer.status_code == 404
    assert (await node.client.post(f"/attempts/{parent.attempt_id}/jobs/{other}/cancel")).status_code == 404


async def test_children_end_with_a_parent_that_did_not_succeed_unless_detached(hub: HubDouble) -> None:
    sam, node = await people(hub)
    parent = await start(sam, node)
    tied, free = await parent.submit_one(), await parent.submit_one(detached=True)
    grants = await node.take(2)
    by_job = {grant.job_id: grant.attempt_id for grant in grants}
    grandchild_parent = Parent(sam, node, tied, by_job[tied])
    assert (await grandchild_parent.submit()).status_code == 403, "it declared none itself"
    assert (await sam.post(f"/jobs/{parent.job_id}/cancel")).json()["state"] == "cancelled"
    ended = await job(sam, tied)
    assert (ended["state"], ended["reason"]) == ("cancelled", "parent_ended")
    assert (await job(sam, free))["state"] in ("leased", "running")
    assert by_job[tied] in (await node.poll(wait_ms=0)).cancel


async def test_children_of_a_parent_that_succeeded_go_on(hub: HubDouble) -> None:
    sam, node = await people(hub)
    parent = await start(sam, node)
    child = await parent.submit_one(spec={"needs": {"tags": ["nowhere"]}})
    await node.report(parent.attempt_id)
    assert (await job(sam, parent.job_id))["state"] == "succeeded"
    assert (await job(sam, child))["state"] == "queued"


STEPS = st.lists(
    st.tuples(st.sampled_from(["submit", "submit_two", "finish", "cancel"]), st.floats(min_value=60, max_value=7_200)),
    max_size=12,
)


@pytest.mark.soak
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, share=st.floats(min_value=0.2, max_value=4))
async def test_whatever_it_does_a_tree_stays_within_its_budget(
    steps: list[tuple[str, float]], share: float, budget_hub: HubDouble
) -> None:
    sam, node = budget_hub.sam, budget_hub.pias  # type: ignore[attr-defined]
    budget = int(share * 20 * CREDIT)
    parent = await start(sam, node, spec={"children": 6, "children_budget": budget})
    root = parent.job_id
    known: list[str] = []
    for word, timeout_s in steps:
        if word.startswith("submit"):
            answer = await parent.submit(items=2 if word == "submit_two" else 1, spec={"timeout_s": timeout_s})
            assert answer.status_code in (201, 402, 409), answer.text
            known += answer.json().get("job_ids", [])
        elif word == "finish" and (grants := (await node.poll(wait_ms=0)).grants):
            budget_hub.hub.clock.advance(30_000)  # type: ignore[attr-defined]
            node.sign_in()
            await node.report(grants[0].attempt_id, ran_ms=30_000)
        elif word == "cancel" and known:
            await sam.post(f"/jobs/{known[0]}/cancel")
        count, cost = await budget_hub.hub.store.read(lambda connection: child_rows.tree_usage(connection, root))
        assert count <= 6
        assert cost <= budget
    await sam.post(f"/jobs/{root}/cancel")
    await node.poll(wait_ms=0)


@pytest.fixture
async def budget_hub(hub: HubDouble) -> HubDouble:
    hub.sam, hub.pias = await people(hub)  # type: ignore[attr-defined]
    return hub
