"""The fast routes and their documented twins give the same answers."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from computepool.hub import fast_path, openapi
from computepool.hub.http.dependencies import KEY_MAX
from computepool.testing.hub import HubDouble
from tests.hub.submitting import body

#: Unusual enough to be left to the twin.
SLOWLY = {"Content-Type": "application/json; charset=utf-8"}
FAST = {"Content-Type": "application/json"}


@pytest.fixture
def twins(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of requests that FastAPI answered."""
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


async def test_both_paths_answer_a_submission_alike(hub: HubDouble, twins: list[str]) -> None:
    fast = await submit(hub, FAST)
    assert not twins
    slow = await submit(hub, SLOWLY)
    assert twins
    assert fast.status_code == 201
    assert likeness(fast) == likeness(slow)


async def test_an_idempotency_key_works_on_both_paths(hub: HubDouble, twins: list[str]) -> None:
    key = {"Idempotency-Key": "once"}
    fast = await submit(hub, FAST | key)
    assert not twins
    slow = await submit(hub, SLOWLY | key)
    assert twins
    assert fast.json() == slow.json()
    assert (await submit(hub, FAST | key, priority=3)).status_code == 409


@pytest.mark.parametrize("headers", [FAST, SLOWLY])
@pytest.mark.parametrize("key", ["", "Bearer cp_x", "Bearer cp_0123456789abcdef_nobody", "Bearer x.y.z"])
async def test_an_unknown_caller_is_refused_on_both_paths(hub: HubDouble, headers: dict[str, str], key: str) -> None:
    said = headers | {"Authorization": key}
    assert (await submit(hub, said)).status_code == 401
    assert (await hub.admin.get("/groups/grp_x/results", headers=said)).status_code == 401


async def test_the_fast_path_leaves_an_invalid_submission_to_its_twin(hub: HubDouble, twins: list[str]) -> None:
    answer = await hub.admin.post("/jobs", content=b"[]", headers=FAST)
    assert twins
    assert answer.status_code == 422
    assert "valid dictionary" in answer.json()["detail"]


async def test_both_paths_answer_results_alike(hub: HubDouble, twins: list[str]) -> None:
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


def test_the_fast_path_knows_the_parameters_of_its_twin() -> None:
    document = json.loads(openapi.text())
    results = document["paths"]["/groups/{group_id}/results"]["get"]["parameters"]
    bounds = {
        one["name"]: (one["schema"]["minimum"], one["schema"]["maximum"]) for one in results if one["in"] == "query"
    }
    assert bounds == fast_path._BOUNDS
    submit = document["paths"]["/jobs"]["post"]["parameters"]
    [key] = [one["schema"] for one in submit if one["name"].lower() == "idempotency-key"]
    assert key["maxLength"] == KEY_MAX
    assert [code for code in document["paths"]["/jobs"]["post"]["responses"] if code < "300"] == ["201"]
