"""A job that is done and settled, and a short way to look, for tests about money."""

from __future__ import annotations

from typing import Any

import httpx2

from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from tests.hub.submitting import submit

HOUR = {"timeout_s": 3600}


async def got(client: httpx2.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def run_job(
    hub: HubDouble, sam: httpx2.AsyncClient, pia: httpx2.AsyncClient, *, ran_ms: int = 540_001
) -> str:
    """A job of sam's on a node of pia's, settled after ten minutes."""
    node = await hub.node(pia, region="in")
    [job_id] = await submit(sam, spec=HOUR)
    [grant] = await node.take()
    assert isinstance(hub.hub.clock, FakeClock)
    hub.hub.clock.advance(600_000)
    assert await node.report(grant.attempt_id, ran_ms=ran_ms) == "accepted"
    return job_id
