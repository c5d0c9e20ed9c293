"""Jobs that come after others: their conditions, and the results that are their arguments."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from computepool.core.trust.verification import VerificationVerdict
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.settlement import follow_ups, hub_jobs
from computepool.hub.settlement.verification import recheck_rows
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import two_hubs
from tests.hub.submitting import body, job, submit

FAILED = {"outcome": "failed", "reason": "exit_nonzero", "exit_code": 1}
CODE = base64.b64encode(b"a function").decode()
FUNCTION = {"kind": "function", "name": "f", "argv": [], "function": CODE}
TAKES = FUNCTION | {"takes_results": True}


async def how(client: httpx2.AsyncClient, job_id: str) -> tuple[str, str]:
    seen = await job(client, job_id)
    return seen["state"], seen["reason"]


async def run(node: NodeDouble, **outcome: Any) -> str:
    [grant] = await node.take()
    await node.report(grant.attempt_id, **outcome)
    return grant.job_id


async def test_each_condition_after_a_failure(any_hub: HubDouble) -> None:
    node, admin = await any_hub.node(), any_hub.admin
    [first] = await submit(admin)
    after = {when: (await submit(admin, after=[first], when=when))[0] for when in ("success", "failure", "always")}
    [later] = await submit(admin, after=[after["success"]], when="failure")
    await run(node, **FAILED)
    assert await how(admin, after["success"]) == ("cancelled", "dependency_failed")
    assert {grant.job_id for grant in await node.take(3)} == {after["failure"], after["always"], later}


async def test_each_condition_after_a_success(any_hub: HubDouble) -> None:
    node, admin = await any_hub.node(), any_hub.admin
    [first] = await submit(admin)
    after = {when: (await submit(admin, after=[first], when=when))[0] for when in ("success", "failure", "always")}
    # What comes after a job that was not needed is not needed either, and was no failure.
    [needs] = await submit(admin, after=[after["failure"]])
    [alarm] = await submit(admin, after=[needs], when="failure")
    await run(node)
    for skipped in (after["failure"], needs, alarm):
        assert await how(admin, skipped) == ("cancelled", "skipped")
    assert (await job(admin, alarm))["status"] == "skipped: it runs only if a job before it fails, and none did"
    assert {grant.job_id for grant in await node.take(2)} == {after["success"], after["always"]}


async def test_conditions_on_jobs_that_have_ended(hub: HubDouble) -> None:
    node, admin = await hub.node(), hub.admin
    [good, bad] = await submit(admin, items=2)
    for grant in await node.take(2):
        await node.report(grant.attempt_id, **({} if grant.job_id == good else FAILED))
    for after, when in (([good, bad], "failure"), ([good, bad], "always"), ([good], "success")):
        [last] = await submit(admin, after=after, when=when)
        assert await run(node) == last
        assert (await job(admin, last))["when"] == when
    refused = await admin.post("/jobs", json=body(after=[good], when="failure"))
    assert (refused.status_code, refused.json()["field"]) == (409, "after")
    assert "could never start" in refused.json()["detail"]
    assert (await admin.post("/jobs", json=body(after=[bad]))).status_code == 409


@pytest.mark.parametrize(
    "wrong",
    [
        {"when": "failure"},
        {"when": "sometimes", "after": ["job_x"]},
        {"after": ["job_x"]},
        {"spec": FUNCTION, "items": [{"uses": ["job_x"]}]},
        {"spec": TAKES, "items": [{"uses": ["job_x"]}], "when": "always", "after": ["job_x"]},
    ],
)
async def test_what_makes_no_sense_is_refused(hub: HubDouble, wrong: dict[str, Any]) -> None:
    sent = body() | wrong
    answer = await hub.admin.post("/jobs", json=sent)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["detail"].count(".") <= 2


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)])
async def test_any_graph_ends_as_its_conditions_say(hub: HubDouble, seed: int) -> None:
    """Jobs end in any order and in any number at once; some are cancelled, and some submitted after others have ended."""
    random, node, admin = Random(seed), await hub.node(cores=64, ram_mb=64_000), hub.admin
    before: dict[str, tuple[str, list[str]]] = {}
    ends: dict[str, tuple[str, str]] = {}
    ran: list[str] = []

    async def refresh() -> None:
        ends.update({id_: await how(admin, id_) for id_ in before if id_ not in ends or ends[id_][0] == "queued"})

    for _ in range(12):
        for _ in range(random.randrange(1, 5)):
            after = random.sample(sorted(before), min(len(before), random.randrange(4)))
            when = random.choice(["success", "failure", "always"]) if after else "success"
            answer = await admin.post("/jobs", json=body(after=after, when=when))
            if answer.status_code == 201:
                before[answer.json()["job_ids"][0]] = (when, after)
            else:
                await refresh()
                assert answer.status_code == 409
                assert not _may_run(when, after, ends)
        await _end_some(node, random, ran)
        if random.random() < 0.3:
            await admin.post(f"/jobs/{random.choice(sorted(before))}/cancel")
    while await _end_some(node, random, ran):
        pass
    ends.clear()
    await refresh()
    assert max(Counter(ran).values()) == 1
    for id_, (when, after) in before.items():
        if ends[id_][1] != "cancelled_by_user":
            assert (id_ in ran) == _may_run(when, after, ends), (when, after, ends)
            if id_ not in ran:
                lost = {"skipped" if ends[each][1] == "skipped" else "dependency_failed" for each in after}
                assert ends[id_][1] in (lost if when == "success" else {"skipped"})


def _may_run(when: str, after: list[str], ends: dict[str, tuple[str, str]]) -> bool:
    found = [ends[id_] for id_ in after]
    if when == "success":
        return all(state == "succeeded" for state, _ in found)
    return when == "always" or any(state != "succeeded" and reason != "skipped" for state, reason in found)


async def _end_some(node: NodeDouble, random: Random, ran: list[str]) -> int:
    ran += [grant.job_id for grant in (await node.poll(wait_ms=0)).grants]
    if not node.holding and not (await node.poll(wait_ms=50)).grants:
        return 0
    chosen = [id_ for id_ in sorted(node.holding) if random.random() < 0.6]
    ran += [id_.rpartition("-")[0] for id_ in node.holding if id_.rpartition("-")[0] not in ran]
    if chosen:
        await node.report_all([node.make_report(id_, **(FAILED if random.random() < 0.4 else {})) for id_ in chosen])
    return 1


async def test_two_hubs_that_end_the_jobs_before_at_once_start_each_dependent_once(
    tmp_path: Path, migrated_url: str
) -> None:
    async with two_hubs(tmp_path, migrated_url) as hubs:
        nodes = [await hub.node(cores=64, ram_mb=64_000, name=f"node-{place}") for place, hub in enumerate(hubs)]
        admin = hubs[0].admin
        firsts = [(await submit(admin, needs={"host": node.node_id}))[0] for node in nodes]
        dependents = {when: await submit(admin, items=10, after=firsts, when=when) for when in ("success", "always")}
        dependents["failure"] = await submit(admin, items=10, after=firsts, when="failure")
        grants = [(await node.take())[0] for node in nodes]
        await asyncio.gather(*(node.report(grant.attempt_id) for node, grant in zip(nodes, grants, strict=True)))
        taken: list[str] = []
        async with asyncio.timeout(30):
            while len(taken) < 20:
                for node in nodes:
                    taken += [grant.job_id for grant in (await node.poll(wait_ms=100)).grants]
        assert sorted(taken) == sorted([*dependents["success"], *dependents["always"]])
        for job_id in dependents["failure"]:
            assert await how(admin, job_id) == ("cancelled", "skipped")


# results as arguments


async def finished(hub: HubDouble, node: NodeDouble, spec: dict[str, Any] | None = None, **said: Any) -> str:
    [job_id] = await submit(hub.admin, spec=FUNCTION if spec is None else spec)
    assert await run(node, **({"result": "42", "exit_code": None} | said)) == job_id
    return job_id


async def taking(hub: HubDouble, *uses: str) -> httpx2.Response:
    return await hub.admin.post("/jobs", json={"spec": TAKES, "items": [{"uses": list(uses)}]})


async def test_the_node_of_a_job_gets_the_results_that_are_its_arguments(any_hub: HubDouble) -> None:
    hub = any_hub
    node = await hub.node()
    used = sorted([await finished(hub, node, result=f'"{number}"') for number in range(20)])
    assert (await taking(hub, *used)).status_code == 201
    [grant] = await node.take()
    path, start, found = f"/attempts/{grant.attempt_id}/arguments", 0, []
    while start is not None:
        page = (await node.client.get(path, params={"after": start})).json()
        found += page["arguments"]
        start = page["next"]
    assert [each["job_id"] for each in found] == used
    assert {each["result"] for each in found} == {f'"{number}"' for number in range(20)}
    other = await hub.node(name="other")
    assert (await other.client.get(path)).status_code == 404
    await node.report(grant.attempt_id, result="1", exit_code=None)
    assert (await node.client.get(path)).status_code == 409


async def test_only_results_of_ones_own_can_be_arguments(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    node = await hub.node()
    used = await finished(hub, node)
    refused = await sam.post("/jobs", json={"spec": TAKES, "items": [{"uses": [used]}]})
    assert (refused.status_code, refused.json()["detail"]) == (422, f"There is no job {used} of yours to wait for.")


async def test_results_that_no_node_could_use_are_refused(hub: HubDouble) -> None:
    node = await hub.node()
    command = await finished(hub, node, {}, result=None, exit_code=0)
    sealed = await finished(hub, node, FUNCTION | {"seal_to": "A" * 43 + "="}, result="1")
    dropped, wrong = await finished(hub, node), await finished(hub, node)
    [bundle] = (
        await hub.admin.post("/jobs", json={"spec": FUNCTION, "items": [{"bundled": 2, "payload": "Kg=="}]})
    ).json()["job_ids"]
    await drop(hub, dropped)
    await refute(hub, wrong)
    for job_id, why in (
        (command, "a command returns no value"),
        (sealed, "it is sealed"),
        (dropped, "it is no longer kept"),
        (wrong, "it was proven wrong"),
        (bundle, "it ran several items"),
    ):
        answer = await taking(hub, job_id)
        assert answer.status_code == 409
        assert f"The result of job {job_id} cannot be an argument: {why}" in answer.json()["detail"]


async def drop(hub: HubDouble, job_id: str) -> None:
    await hub.hub.store.write(lambda tx: artifact_rows.drop_inline(tx, [job_id]))


async def refute(hub: HubDouble, job_id: str) -> None:
    before, after = [each.value for each in VerificationVerdict], VerificationVerdict.REFUTED.value
    assert await hub.hub.store.write(lambda tx: recheck_rows.change_verdict(tx, job_id, before=before, after=after))


@pytest.mark.parametrize(("lose", "why"), [(drop, "is no longer kept"), (refute, "was proven wrong")])
async def test_a_result_that_is_lost_or_wrong_by_then_is_not_handed_out(hub: HubDouble, lose: Any, why: str) -> None:
    node = await hub.node()
    used = await finished(hub, node)
    assert (await taking(hub, used)).status_code == 201
    [grant] = await node.take()
    await lose(hub, used)
    answer = await node.client.get(f"/attempts/{grant.attempt_id}/arguments")
    assert answer.status_code == 409
    assert f"The result of job {used} is one of the arguments, and it {why}" in answer.json()["detail"]


async def test_a_check_of_a_job_takes_the_same_results(hub: HubDouble) -> None:
    node = await hub.node()
    used = await finished(hub, node)
    [first] = (await taking(hub, used)).json()["job_ids"]
    await run(node, result="1", exit_code=None)

    async def check(number: int) -> str | None:
        def start(tx: JobTx) -> str | None:
            row, about = job_rows.lock_jobs(tx, [first])[first], {"kind": recheck_rows.KIND, "number": number}
            return hub_jobs.start(tx, row, **about, payer=hub_jobs.POOL_ACCOUNT, avoid_owners=(), ttl_ms=60_000)

        return await follow_ups.commit(hub.hub, start)

    assert await check(1)
    [grant] = await node.take()
    page = (await node.client.get(f"/attempts/{grant.attempt_id}/arguments")).json()
    assert [each["job_id"] for each in page["arguments"]] == [used]
    await node.report(grant.attempt_id, result="1", exit_code=None)
    await drop(hub, used)
    assert await check(2) is None


async def test_a_job_submitted_again_takes_the_same_results(hub: HubDouble) -> None:
    node = await hub.node()
    used = await finished(hub, node)
    [first] = (await taking(hub, used)).json()["job_ids"]
    [again] = (await hub.admin.post(f"/jobs/{first}/resubmit")).json()["job_ids"]
    assert (await job(hub.admin, again))["uses"] == [used]


async def test_a_running_job_takes_only_results_of_jobs_that_it_submitted(hub: HubDouble) -> None:
    node = await hub.node()
    used = await finished(hub, node)
    await submit(hub.admin, spec={"children": 3})
    [grant] = await node.take()
    request = {"spec": TAKES, "items": [{"uses": [used]}]}
    answer = await node.client.post(f"/attempts/{grant.attempt_id}/jobs", json={"seq": 1, "request": request})
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "A job may name only jobs and groups that it created itself.",
    )


# graphs


async def test_a_graph_has_the_jobs_that_are_connected_with_one(any_hub: HubDouble, tmp_path: Path) -> None:
    admin = any_hub.admin
    group = (await admin.post("/groups", json={"name": "pipeline"})).json()["id"]
    [first] = await submit(admin, group_id=group)
    middle = await submit(admin, items=2, after=[first])
    [last] = await submit(admin, after=middle, when="failure", group_id=group)
    await submit(admin, group_id=group)  # connected with nothing
    seen = (await admin.get(f"/jobs/{middle[0]}/graph")).json()
    assert [each["id"] for each in seen["jobs"]] == [first, *middle, last]
    assert [each["when"] for each in seen["jobs"]] == ["success", "success", "success", "failure"]
    edges = {(each["after_id"], each["job_id"]) for each in seen["edges"]}
    assert edges == {(first, middle[0]), (first, middle[1]), (middle[0], last), (middle[1], last)}
    assert (await admin.get(f"/groups/{group}/graph")).json() == seen
    assert not seen["more"]


async def test_a_graph_is_bounded_and_shows_nobody_elses_jobs(tmp_path: Path) -> None:
    async with running_hub(tmp_path, graph_jobs_max=10) as hub:
        sam = await hub.account("sam", "submitter")
        [theirs] = await submit(sam)
        await submit(hub.admin, items=30, after=[theirs])
        assert [each["id"] for each in (await sam.get(f"/jobs/{theirs}/graph")).json()["jobs"]] == [theirs]
        seen = (await hub.admin.get(f"/jobs/{theirs}/graph")).json()
        assert (len(seen["jobs"]), len(seen["edges"]), seen["more"]) == (10, 9, True)
