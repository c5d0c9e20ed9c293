"""The mesh as people watch it: counters, the list of nodes, what happened, and what attempts use."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.submitting import submit
from tests.hub.working import HOUR, got, run_job


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubDouble]:
    async with running_hub(tmp_path, clock=FakeClock(), mesh_age_s=0) as running:
        yield running


async def test_counters(hub: HubDouble) -> None:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    empty = await got(sam, "/mesh")
    assert empty["nodes_online"] == 0
    await run_job(hub, sam, pia)
    seen = await got(sam, "/mesh")
    assert seen["nodes_online"] == 1
    assert seen["settled_hour"] > 0
    nodes = await got(sam, "/mesh/nodes")
    assert nodes["version"] == seen["version"]
    assert nodes["nodes"][0]["place"] == "India"
    print(seen, nodes, (await got(sam, "/mesh/activity")))
