"""The collector: registered keys, reports from outside, duplicates, completion exactly once, on both databases."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx2
import pytest
from sqlalchemy import event

from computepool.testing.hub import HubDouble
from tests.hub.groups.test_groups import make_group
from tests.hub.submitting import COMMAND, submit


async def register(client: httpx2.AsyncClient, group: str, *keys: str) -> dict[str, Any]:
    answer = await client.post(f"/groups/{group}/keys", json={"keys": [{"key": key} for key in keys]})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def submit_keys(client: httpx2.AsyncClient, group: str, *keys: str) -> list[str]:
    sent = {"spec": COMMAND, "items": [{"key": key} for key in keys], "group_id": group}
    answer = await client.post("/jobs", json=sent)
    assert answer.status_code == 201, answer.text
    return answer.json()["job_ids"]


async def report(client: httpx2.AsyncClient, group: str, *said: tuple[str, str]) -> list[str]:
    reports = [{"key": key, "outcome": outcome, "result": '"x"'} for key, outcome in said]
    answer = await client.post(f"/groups/{group}/reports", json={"reports": reports})
    assert answer.status_code == 200, answer.text
    return [verdict["verdict"] for verdict in answer.json()["verdicts"]]


async def summary(client: httpx2.AsyncClient, group: str) -> dict[str, Any]:
    answer = await client.get(f"/groups/{group}/summary")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def completions(hub: HubDouble, group: str) -> int:
    events = (await hub.admin.get("/events", params={"limit": 500})).json()["events"]
    return sum(1 for event in events if event["action"] == "group.complete" and event["group_id"] == group)


async def test_jobs_and_reports_from_outside_complete_a_group_once(any_hub: HubDouble) -> None:
    """Registered first, then one by a job and one from outside; the last of them completes it, in whatever order."""
    hub = any_hub
    node = await hub.node(cores=4)
    group = await make_group(hub.admin)
    assert (await register(hub.admin, group, "a", "b", "c")) == {"added": 3, "updated": 0, "expected": 3}
    assert (await register(hub.admin, group, "c"))["updated"] == 1
    waiting = await summary(hub.admin, group)
    assert (waiting["pending"], waiting["complete"], waiting["counts"]) == (3, False, {"expected": 3})
    assert [item["key"] for item in waiting["waiting"]["items"]] == ["a", "b", "c"]

    await submit_keys(hub.admin, group, "a")
    assert await report(hub.admin, group, ("b", "succeeded"), ("b", "failed"), ("a", "succeeded")) == [
        "accepted",
        "duplicate",
        "has_job",
    ]
    assert await report(hub.admin, group, ("c", "failed"), ("z", "failed")) == ["accepted", "unknown"]
    drained = asyncio.create_task(hub.admin.get(f"/groups/{group}/drain", params={"wait_ms": 20_000}))
    assert await completions(hub, group) == 0
    [grant] = await node.take()
    await node.report(grant.attempt_id, result='"from the job"')
    found = (await asyncio.wait_for(drained, 19)).json()
    assert (found["complete"], found["succeeded"], found["failed"], found["pending"]) == (True, 2, 1, 0)
    assert found["duplicates"] == 2
    assert await completions(hub, group) == 1

    whole = await summary(hub.admin, group)
    assert {item["key"]: item["result"] for item in whole["results"]["items"]} == {"a": '"from the job"', "b": '"x"'}
    assert [item["key"] for item in whole["failures"]["items"]] == ["c"]
    assert whole["location"]["hub_id"] == hub.hub.process.hub_id
    page = (await hub.admin.get(f"/groups/{group}/results")).json()
    assert [(result["key"], result["state"]) for result in page["results"]] == [
        ("b", "succeeded"),
        ("c", "failed"),
        ("a", "succeeded"),
    ]
    assert page["results"][0]["job_id"] == ""


@pytest.mark.parametrize("late", [False, True])
async def test_only_a_group_that_somebody_asked_about_is_noted(hub: HubDouble, *, late: bool) -> None:
    """A plain group writes nothing when its last job ends. Asked later, it is complete at once."""
    node = await hub.node(cores=2)
    group = await make_group(hub.admin)
    await submit(hub.admin, items=2, group_id=group)
    grants = await node.take(2)
    await node.report(grants[0].attempt_id)
    if not late:
        await hub.admin.post(f"/groups/{group}/return-home", json={})
    await node.report(grants[1].attempt_id)
    assert await completions(hub, group) == (0 if late else 1)
    view = (await hub.admin.get(f"/groups/{group}/drain")).json()
    assert view["complete"]
    await hub.admin.post(f"/groups/{group}/return-home", json={})
    assert await completions(hub, group) == 1


@pytest.mark.parametrize("watched", [False, True])
async def test_the_end_of_a_job_of_a_plain_group_asks_nothing_about_it(hub: HubDouble, *, watched: bool) -> None:
    """Counted in statements, because times are noisy: thousands of jobs end in a second."""
    node = await hub.node(cores=2)
    group = await make_group(hub.admin)
    if watched:
        await register(hub.admin, group, "never reported")
    await submit(hub.admin, items=2, group_id=group)
    grants = await node.take(2)
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if re.search(r"\b(groups|expected_jobs)\b", statement):
            asked.append(statement)

    event.listen(hub.hub.store._writer, "before_cursor_execute", note)
    await node.report(grants[0].attempt_id)
    event.remove(hub.hub.store._writer, "before_cursor_execute", note)
    assert len(asked) == (2 if watched else 0), asked


async def test_what_comes_later_opens_a_complete_group_again(hub: HubDouble) -> None:
    node = await hub.node(cores=2)
    group = await make_group(hub.admin)
    await register(hub.admin, group, "a")
    await report(hub.admin, group, ("a", "succeeded"))
    assert (await summary(hub.admin, group))["complete"]
    refused = await hub.admin.post("/jobs", json={"spec": COMMAND, "items": [{"key": "a"}], "group_id": group})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    await submit_keys(hub.admin, group, "b")
    assert not (await summary(hub.admin, group))["complete"]
    [grant] = await node.take()
    await node.report(grant.attempt_id)
    again = await summary(hub.admin, group)
    assert (again["complete"], again["total"]) == (True, 2)
    assert await completions(hub, group) == 2


async def test_cancelling_fails_the_keys_that_nobody_reported(hub: HubDouble) -> None:
    group = await make_group(hub.admin)
    await register(hub.admin, group, *(f"k{number}" for number in range(600)))
    await submit_keys(hub.admin, group, "k7")
    view = (await hub.admin.post(f"/groups/{group}/cancel")).json()
    assert view["counts"] == {"failed": 599, "cancelled": 1}
    assert view["complete"]
    keys = set()
    after = None
    while True:
        params = {"which": "failures", "limit": 100} | ({} if after is None else {"after": after})
        page = (await hub.admin.get(f"/groups/{group}/items", params=params)).json()
        keys |= {item["key"] for item in page["items"]}
        after = page["next"]
        if after is None:
            break
    assert keys == {f"k{number}" for number in range(600)}


async def test_a_late_report_of_another_attempt_is_counted(hub: HubDouble) -> None:
    """The job went on without its first node, and ended elsewhere; what that node says at last is a duplicate."""
    first = await hub.node(cores=1)
    group = await make_group(hub.admin)
    await register(hub.admin, group, "a")
    await submit_keys(hub.admin, group, "a")
    [lost] = await first.take()
    first.restart()
    await first.poll(wait_ms=0, claim=False)
    second = await hub.node(cores=1)
    [grant] = await second.take()
    assert await second.report(grant.attempt_id) == "accepted"
    assert await first.report(lost.attempt_id) == "superseded"
    found = await summary(hub.admin, group)
    assert (found["complete"], found["duplicates"], found["counts"]) == (True, 1, {"succeeded": 1})
    assert await completions(hub, group) == 1


async def test_a_group_has_a_bounded_number_of_keys_and_of_metadata(hub: HubDouble) -> None:
    hub.hub.settings.group_keys_max = 3
    group = await make_group(hub.admin)
    await register(hub.admin, group, "a", "b")
    answer = await hub.admin.post(f"/groups/{group}/keys", json={"keys": [{"key": "c"}, {"key": "d"}]})
    assert answer.status_code == 413
    big = {"key": "a", "meta": {f"m{number}": "x" * 900 for number in range(6)}}
    assert (await hub.admin.post(f"/groups/{group}/keys", json={"keys": [big]})).status_code == 422
    good = {"key": "a", "meta": {"seed": 7, "note": "<b>"}}
    assert (await hub.admin.post(f"/groups/{group}/keys", json={"keys": [good]})).status_code == 200
    assert (await summary(hub.admin, group))["waiting"]["items"][0]["meta"] == {"seed": 7, "note": "<b>"}


async def test_the_same_report_sent_twice_is_one(hub: HubDouble) -> None:
    """A reply that was lost: the same idempotency key gets the same verdict, and nothing is counted."""
    group = await make_group(hub.admin)
    await register(hub.admin, group, "a")
    body = {"reports": [{"key": "a", "outcome": "succeeded"}]}
    for _ in range(2):
        answer = await hub.admin.post(f"/groups/{group}/reports", json=body, headers={"Idempotency-Key": "one"})
        assert answer.json()["verdicts"] == [{"key": "a", "verdict": "accepted"}]
    assert (await summary(hub.admin, group))["duplicates"] == 0
