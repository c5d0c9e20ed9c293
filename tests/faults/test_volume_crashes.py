"""The hub dies around the commit that publishes a version: it is published once, or the report is sent again and does it."""

from __future__ import annotations

import pytest

from tests.faults.conftest import MakePool
from tests.faults.test_crash_points import BEFORE_REPLY, BODY, QUIET, Repeater, trade
from tests.hub.volumes.changing import MOUNTS, change, opened, put, versions

pytestmark = pytest.mark.process


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_a_version_is_published_once_wherever_the_hub_dies(make_pool: MakePool, database: str) -> None:
    async with trade(make_pool(database, **QUIET)) as it:
        repeat = Repeater(it.hub)
        await it.post(it.sam, "/volumes", name="data")
        await put(it.sam, "start", parent=0)
        [job_id] = (await it.post(it.sam, "/jobs", spec={**BODY["spec"], **MOUNTS}))["job_ids"]
        [grant] = await it.node.take()
        assert (await opened(it.node, grant.attempt_id))["version"] == 1
        report = it.node.make_report(grant.attempt_id, volumes=await change(it.node, "new"))
        verdicts = await repeat.insist(lambda: it.node.report_all([report]), points=BEFORE_REPLY)
        assert verdicts == ["replay"]
        assert await versions(it.sam) == [(2, 1, True, None), (1, 0, False, None)]
        assert (await it.sam.get("/volumes/data/versions/2")).json()["job_id"] == job_id
