"""The shortcuts and their documented twins give the same answers."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.testing.hub import HubDouble
from tests.hub.submitting import body

#: Enough to be left to the twin.
SLOWLY = {"Content-Type": "application/json; charset=utf-8"}
FAST = {"Content-Type": "application/json"}


@pytest.fixture
def twins(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was answered by FastAPI, as it comes."""
    seen: list[str] = []
    parent = type(hub.app).__mro__[1]
    real = parent.__call__

    async def told(self: Any, scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        await real(self, scope, receive, send)

    monkeypatch.setattr(parent, "__call__", told)
    return seen


async def submit(hub: HubDouble, headers: dict[str, str], **fields: Any) -> httpx2.Response:
    request = hub.admin.build_request("POST", "/jobs", json=body(**fields))
    return await hub.admin.post("/jobs", content=request.content, headers=headers)


def likeness(answer: httpx2.Response) -> tuple[Any, ...]:
    unlike = ("content-length", "date")
    named = {name: value for name, value in answer.headers.items() if name not in unlike}
    return answer.status_code, named, sorted(answer.json())


async def test_a_submission_is_answered_alike(hub: HubDouble, twins: list[str]) -> None:
    fast = await submit(hub, FAST)
    assert not twins
    slow = await submit(hub, SLOWLY)
    assert twins
    assert fast.status_code == 201
    assert likeness(fast) == likeness(slow)


async def test_a_key_is_remembered_on_both_ways(hub: HubDouble, twins: list[str]) -> None:
    key = {"Idempotency-Key": "once"}
    fast = await submit(hub, FAST | key)
    assert not twins
    slow = await submit(hub, SLOWLY | key)
    assert twins
    assert fast.json() == slow.json()
    assert (await submit(hub, FAST | key, priority=3)).status_code == 409


@pytest.mark.parametrize("headers", [FAST, SLOWLY])
@pytest.mark.parametrize("key", ["", "Bearer cp_x", "Bearer cp_0123456789abcdef_nobody", "Bearer x.y.z"])
async def test_a_stranger_submits_nothing(hub: HubDouble, headers: dict[str, str], key: str) -> None:
    said = headers | {"Authorization": key}
    assert (await submit(hub, said)).status_code == 401
    assert (await hub.admin.get("/groups/grp_x/results", headers=said)).status_code == 401


async def test_a_submission_that_cannot_be_read_is_left_to_the_twin(hub: HubDouble, twins: list[str]) -> None:
    answer = await hub.admin.post("/jobs", content=b"[]", headers=FAST)
    assert twins
    assert answer.status_code == 422
    assert "valid dictionary" in answer.json()["detail"]


@pytest.mark.parametrize("key", ["x" * 201, "caf\xe9"])
async def test_a_key_that_is_none_is_refused(hub: HubDouble, key: str) -> None:
    answer = await submit(hub, FAST | {"Idempotency-Key": key.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.status_code == 422


async def test_results_are_answered_alike(hub: HubDouble, twins: list[str]) -> None:
    node = await hub.node()
    group = (await hub.admin.post("/groups", json={"name": "some"})).json()["id"]
    await submit(hub, FAST, group_id=group)
    (grant,) = await node.take()
    await node.report(grant.attempt_id)
    twins.clear()
    fast = await hub.admin.get(f"/groups/{group}/results?after=0&limit=10&wait_ms=5000")
    assert not twins
    slow = await hub.admin.get(f"/groups/{group}/results?after=0&limit=10&wait_ms=5000&other=1")
    assert twins
    assert [result["job_id"] for result in fast.json()["results"]] == [grant.job_id]
    assert fast.json() == slow.json()
    assert likeness(fast) == likeness(slow)
    after = fast.json()["cursor"]
    assert (await hub.admin.get(f"/groups/{group}/results?after={after}")).json()["results"] == []


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=0", "limit=501", "wait_ms=60001", "after=²"])
async def test_results_that_cannot_be_meant_are_refused(hub: HubDouble, query: str) -> None:
    group = (await hub.admin.post("/groups", json={"name": "some"})).json()["id"]
    assert (await hub.admin.get(f"/groups/{group}/results?{query}")).status_code == 422


async def test_results_of_others_are_not_shown(hub: HubDouble, twins: list[str]) -> None:
    group = (await hub.admin.post("/groups", json={"name": "some"})).json()["id"]
    stranger = await hub.account("stranger", "submitter")
    twins.clear()
    assert (await stranger.get(f"/groups/{group}/results")).status_code == 404
    assert not twins


async def test_who_may_not_submit_does_not(hub: HubDouble, twins: list[str]) -> None:
    lender = await hub.account("lender", "provider")
    twins.clear()
    answer = await lender.post("/jobs", json=body(), headers=FAST)
    assert not twins
    assert answer.status_code == 403
