"""The number of unfinished jobs that an account may have, whatever else it submits at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from computepool.testing.hub import HubDouble
from tests.hub.fixtures import hub_fixture
from tests.hub.submitting import body, submit
from tests.hub.working import me
from tests.hub.writer_gate import Gate

hub = hub_fixture()
MISSING = {"spec": {"inputs": [{"name": "x", "digest": "0" * 64, "size": 1}]}}


@pytest.fixture
async def sam(hub: HubDouble) -> httpx2.AsyncClient:
    sam = await hub.account("sam", "submitter")
    await hub.admin.put(f"/accounts/{await me(sam)}/quotas", json={"jobs_open_max": 150})
    return sam


async def code(sam: httpx2.AsyncClient, **fields: Any) -> int:
    return (await sam.post("/jobs", json=body(**fields))).status_code


async def test_refused_submissions_that_come_together_leave_the_count_as_it_was(
    hub: HubDouble, sam: httpx2.AsyncClient
) -> None:
    async with Gate(hub.hub.store) as gate:
        together = [asyncio.create_task(code(sam, items=100, **MISSING)) for _ in range(3)]
        await gate.all_wait(*together)
    assert sorted(await asyncio.gather(*together)) == [422, 429, 429]
    await submit(sam, items=100)
    assert await code(sam, items=51) == 429
    await submit(sam, items=50)


async def test_submissions_whose_callers_leave_count(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    await submit(sam)
    async with Gate(hub.hub.store) as gate:
        leaving = asyncio.create_task(code(sam, items=140))
        await gate.all_wait(leaving)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert await code(sam, items=10) == 429
    await submit(sam, items=9)
