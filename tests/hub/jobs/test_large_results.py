"""Results are loaded into memory by who reads them: what is larger than the limit comes back as files, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from computepool.testing.hub import HubDouble, running_hub
from tests.hub.cast import upload
from tests.hub.submitting import job, submit

MOST = 1_000


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubDouble]:
    async with running_hub(tmp_path, result_max_bytes=MOST) as running:
        yield running


async def test_a_result_beyond_the_limit_is_the_jobs_failure(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    node = await hub.node()
    for size, ended in ((MOST, "succeeded"), (MOST + 1, "failed")):
        [job_id] = await submit(sam)
        [grant] = await node.take()
        digest = await upload(node.client, b"x" * size)
        assert await node.report(grant.attempt_id, result_artifact=digest) == "accepted"
        found = await job(sam, job_id)
        assert found["state"] == ended
        readable = (await sam.get(f"/artifacts/{digest}")).status_code
        assert readable == (200 if ended == "succeeded" else 404)
    assert found["reason"] == "output_limit"
    assert f"{MOST + 1} bytes" in found["error"]
    assert "outputs/" in found["error"]
    assert (await sam.get(f"/nodes/{node.node_id}")).json()["consecutive_faults"] == 0


async def test_files_may_be_larger(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    node = await hub.node()
    [job_id] = await submit(sam)
    [grant] = await node.take()
    digest = await upload(node.client, b"x" * 5 * MOST)
    files = [{"name": "large", "digest": digest, "size": 5 * MOST}]
    assert await node.report(grant.attempt_id, outputs=files) == "accepted"
    assert (await job(sam, job_id))["state"] == "succeeded"
