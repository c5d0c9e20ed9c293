"""Volumes at the hub, through the real API: versions are published once, conflicts are kept, and nothing needed goes."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from computepool.core.jobs.lifecycle import Reason
from computepool.hub.artifacts import garbage_collection
from computepool.hub.scheduling import leases
from computepool.hub.settlement import follow_ups
from computepool.hub.volumes import volumes
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.cast import upload
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import job, submit
from tests.hub.volumes.changing import MOUNTS, READS, change, opened, put, sent, versions

hub = hub_fixture(on=BOTH, volume_versions_max=3, volumes_max=2, volume_files_max=100, volume_max_bytes=1_000)


@pytest.fixture
async def sam(hub: HubDouble) -> httpx2.AsyncClient:
    sam = await hub.account("sam", "submitter")
    assert (await sam.post("/volumes", json={"name": "data"})).status_code == 201
    return sam


@pytest.fixture
async def node(hub: HubDouble) -> NodeDouble:
    return await hub.node(await hub.account("pia", "provider"))


async def run(node: NodeDouble, sam: httpx2.AsyncClient, text: str, **report: Any) -> str:
    """A job of sam's that leaves this in the volume."""
    await submit(sam, spec=MOUNTS)
    [grant] = await node.take()
    await opened(node, grant.attempt_id)
    return await node.report(grant.attempt_id, volumes=await change(node, text), **report)


async def test_a_success_becomes_the_head_once(sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    [job_id] = await submit(sam, spec=MOUNTS)
    [grant] = await node.take()
    assert await opened(node, grant.attempt_id) == {
        "volume": "data", "version": 0, "manifest": None, "size": 0, "files": 0
    }  # fmt: skip
    report = node.make_report(grant.attempt_id, volumes=await change(node, "one"))
    assert await node.report_all([report]) == ["accepted"]
    assert await node.report_all([report]) == ["replay"]
    assert await versions(sam) == [(1, 0, True, None)]
    [view] = (await sam.get("/volumes")).json()["volumes"]
    assert (view["head"], view["size"], view["files"], view["versions"], view["jobs"]) == (1, 3, 1, 1, 0)
    version = (await sam.get("/volumes/data/versions/1")).json()
    assert version["job_id"] == job_id
    assert (await sam.get(f"/artifacts/{version['manifest']}")).content.startswith(b"manifest one")
    events = (await sam.get("/events", params={"job_id": job_id})).json()["events"]
    assert [event["data"] for event in events if event["action"] == "volume.published"] == [
        {"volume": "data", "version": 1, "parent": 0}
    ]


async def test_two_jobs_at_once_make_a_head_and_a_conflict(sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    await put(sam, "start", parent=0)
    await submit(sam, spec=MOUNTS, items=2)
    first, second = await node.take(2)
    for grant in (first, second):
        assert (await opened(node, grant.attempt_id))["version"] == 1
    for grant, text in ((first, "first"), (second, "second")):
        assert await node.report(grant.attempt_id, volumes=await change(node, text)) == "accepted"
    assert await versions(sam) == [
        (3, 1, False, "version 3 started from 1, but the head is 2"),
        (2, 1, True, None),
        (1, 0, False, None),
    ]
    for number, text in ((2, b"first"), (3, b"second")):
        found = (await sam.get(f"/volumes/data/versions/{number}")).json()
        assert (await sam.get(f"/artifacts/{found['manifest']}")).content.startswith(b"manifest " + text)
    taken = await sam.post("/volumes/data/head", json={"version": 3, "expected": 2})
    assert taken.json()["head"] == 3
    assert (await versions(sam))[0] == (3, 1, True, None)
    late = await sam.post("/volumes/data/head", json={"version": 1, "expected": 2})
    assert (late.status_code, late.json()["detail"]) == (
        409, "The head of data is version 3 now, not 2; look again."
    )  # fmt: skip


async def test_the_same_content_is_no_new_version(sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    assert (await put(sam, "same", parent=0))["outcome"] == "head"
    again = await put(sam, "same", parent=1)
    assert (again["outcome"], again["version"]["number"]) == ("unchanged", 1)
    assert await run(node, sam, "same") == "accepted"
    assert await versions(sam) == [(1, 0, True, None)]


async def test_a_failed_job_publishes_nothing(sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    await submit(sam, spec=MOUNTS)
    [grant] = await node.take()
    await opened(node, grant.attempt_id)
    with pytest.raises(ValueError, match="only a success changes volumes"):
        node.make_report(
            grant.attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1, volumes=await change(node, "x")
        )
    await node.report(grant.attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1)
    assert await versions(sam) == []


async def test_what_a_job_mounts_read_only_is_not_changed(sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    [job_id] = await submit(sam, spec=READS)
    [grant] = await node.take()
    await opened(node, grant.attempt_id)
    await node.report(grant.attempt_id, volumes=await change(node, "x"))
    assert await versions(sam) == []
    attempt = (await job(sam, job_id))["tries"][0]
    assert (attempt["reason"], "did not mount for writing" in attempt["error"]) == ("false_report", True)


@pytest.mark.parametrize("opens", [True, False])
async def test_a_node_cannot_hand_over_what_it_did_not_send(
    sam: httpx2.AsyncClient, node: NodeDouble, opens: bool
) -> None:
    """Not a file of the account's of which it knows the digest, and nothing at all for a volume that it never opened."""
    secret = await upload(sam, b"sam's own")
    [job_id] = await submit(sam, spec=MOUNTS)
    [grant] = await node.take()
    if opens:
        await opened(node, grant.attempt_id)
    await node.report(grant.attempt_id, volumes=await change(node, "x", also=(secret,) if opens else ()))
    attempt = (await job(sam, job_id))["tries"][0]
    assert attempt["reason"] == "false_report"
    assert await versions(sam) == []


async def test_only_a_node_that_runs_the_job_reads_the_version_that_it_opened(
    hub: HubDouble, sam: httpx2.AsyncClient, node: NodeDouble
) -> None:
    other = await hub.node(await hub.account("olga", "provider"), name="other", cores=0.001)
    made = (await put(sam, "one", parent=0))["version"]
    await submit(sam, spec=READS)
    [grant] = await node.take()
    path = f"/artifacts/{made['manifest']}"
    assert (await node.client.get(path)).status_code == 404
    assert (await other.client.post(f"/attempts/{grant.attempt_id}/volumes")).status_code == 404
    assert (await opened(node, grant.attempt_id))["manifest"] == made["manifest"]
    assert (await node.client.get(path)).status_code == 200
    assert (await other.client.get(path)).status_code == 404
    await put(sam, "two", parent=1)
    assert (await opened(node, grant.attempt_id))["version"] == 1, "an attempt keeps its version"
    await node.report(grant.attempt_id)
    assert (await node.client.get(path)).status_code == 404


async def test_a_late_report_publishes_once(hub: HubDouble, sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    await submit(sam, spec=MOUNTS)
    [grant] = await node.take()
    await opened(node, grant.attempt_id)
    late = await change(node, "late")
    await follow_ups.commit(
        hub.hub, lambda tx: leases.end_attempts(tx, attempt_ids=[grant.attempt_id], reason=Reason.NODE_RESTARTED)
    )
    answer = await node.client.post(f"/attempts/{grant.attempt_id}/volumes")
    assert (answer.status_code, answer.json()["detail"]) == (409, "This attempt no longer has the job.")
    await volumes.prune(hub.hub)
    report = node.make_report(grant.attempt_id, volumes=late)
    assert await node.report_all([report]) == ["accepted_late"]
    assert await node.report_all([report]) == ["replay"]
    assert await versions(sam) == [(1, 0, True, None)]


async def test_a_cancelled_job_publishes_nothing(sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    [job_id] = await submit(sam, spec=MOUNTS)
    [grant] = await node.take()
    await opened(node, grant.attempt_id)
    late = await change(node, "late")
    await sam.post(f"/jobs/{job_id}/cancel")
    assert await node.report(grant.attempt_id, volumes=late) == "cancelled"
    assert await versions(sam) == []


async def test_a_volume_in_use_is_not_removed(sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    await put(sam, "one", parent=0)
    [job_id] = await submit(sam, spec=READS)
    refused = await sam.delete("/volumes/data")
    assert refused.status_code == 409
    assert refused.json()["detail"] == f"Job {job_id} still uses data; wait for it or cancel it first."
    await sam.post(f"/jobs/{job_id}/cancel")
    assert (await sam.get("/storage")).json()["artifacts"] == 2
    assert (await sam.delete("/volumes/data")).status_code == 204
    assert (await sam.get("/storage")).json()["artifacts"] == 0
    gone = await sam.post("/jobs", json={"spec": {"kind": "command", "name": "x", "argv": ["true"], **READS}})
    assert (gone.status_code, gone.json()["detail"]) == (
        422, "You have no volume named data. Create it: pool volume create data"
    )  # fmt: skip


async def test_a_volume_belongs_to_its_account(hub: HubDouble, sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    await put(sam, "one", parent=0)
    olga = await hub.account("olga", "submitter")
    for client in (olga, hub.admin):
        for method, path in (("GET", ""), ("GET", "/versions"), ("GET", "/versions/1"), ("DELETE", "")):
            assert (await client.request(method, f"/volumes/data{path}")).status_code == 404
    answer = await olga.post("/jobs", json={"spec": {"kind": "command", "name": "x", "argv": ["true"], **READS}})
    assert answer.status_code == 422
    assert (await olga.post("/volumes", json={"name": "data"})).status_code == 201, "names are each account's own"


async def test_old_versions_go_and_needed_ones_stay(hub: HubDouble, sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    first = (await put(sam, "0", parent=0))["version"]
    await submit(sam, spec=MOUNTS)
    [grant] = await node.take()
    await opened(node, grant.attempt_id)
    for number in range(1, 8):
        await put(sam, str(number), parent=number)
    await sam.post("/volumes/data/head", json={"version": 3, "expected": 8})
    await volumes.prune(hub.hub)
    assert [number for number, *_ in await versions(sam)] == [8, 7, 6, 3, 1], (
        "three, the head, and what a job started from"
    )
    assert (await node.client.get(f"/artifacts/{first['manifest']}")).status_code == 200
    assert await node.report(grant.attempt_id, volumes=await change(node, "late")) == "accepted"
    await volumes.prune(hub.hub)
    assert [number for number, *_ in await versions(sam)] == [9, 8, 7, 6, 3]
    assert (await sam.get(f"/artifacts/{first['manifest']}")).status_code == 404
    assert (await sam.get("/storage")).json()["artifacts"] == 2 * 5, "what nothing needs is deleted at once"
    assert (await sam.get("/volumes/data/versions/1")).status_code == 404


async def test_versions_outlive_everything_else_that_is_stored(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    made = (await put(sam, "one", parent=0))["version"]
    path = f"/artifacts/{made['manifest']}"
    refused = await sam.delete(path)
    assert (refused.status_code, "volume still needs" in refused.json()["detail"]) == (409, True)
    assert isinstance(hub.hub.clock, FakeClock)
    hub.hub.clock.advance(400 * 24 * 3_600_000)
    await garbage_collection.collect(hub.hub)
    assert (await sam.get(path)).status_code == 200


@dataclass
class Story:
    """One random history of a volume, its jobs, and what the hub deletes."""

    hub: HubDouble
    sam: httpx2.AsyncClient
    node: NodeDouble
    chosen: random.Random
    held: list[str] = field(default_factory=list)  #: attempts that run
    step: int = 0

    async def versions(self) -> list[dict[str, Any]]:
        return list((await self.sam.get("/volumes/data/versions")).json()["versions"])

    async def put(self, numbers: list[int], head: int) -> None:
        packs = await packs_of(self.sam, self.chosen.choice([0, *numbers]))
        kept = tuple(self.chosen.sample(packs, k=min(len(packs), 2)))
        await put(self.sam, f"put {self.step}", parent=self.chosen.choice([head, *numbers]), also=kept)

    async def start(self, _numbers: list[int], _head: int) -> None:
        if len(self.held) < 3:
            await submit(self.sam, spec=MOUNTS)
            self.held += [grant.attempt_id for grant in await self.node.take()]
            await opened(self.node, self.held[-1])

    async def end(self, _numbers: list[int], _head: int) -> None:
        if self.held:
            attempt_id = self.held.pop(0)
            await self.node.report(attempt_id, volumes=await change(self.node, f"job {self.step}"))

    async def roll(self, numbers: list[int], head: int) -> None:
        if numbers:
            await self.sam.post("/volumes/data/head", json={"version": self.chosen.choice(numbers), "expected": head})

    async def prune(self, _numbers: list[int], _head: int) -> None:
        await volumes.prune(self.hub.hub)

    async def collect(self, _numbers: list[int], _head: int) -> None:
        await garbage_collection.collect(self.hub.hub)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
async def test_no_collection_takes_what_a_version_needs(
    hub: HubDouble, sam: httpx2.AsyncClient, node: NodeDouble, seed: int
) -> None:
    """Versions that share packs, jobs between, conflicts, going back, pruning and collection, in any order."""
    story = Story(hub, sam, node, random.Random(seed))
    actions = (story.put, story.put, story.start, story.end, story.roll, story.prune, story.collect)
    for story.step in range(40):
        known = await story.versions()
        head = next((one["number"] for one in known if one["is_head"]), 0)
        action = story.chosen.choice(actions)
        await action([one["number"] for one in known], head)
        for one in await story.versions():
            for digest in (one["manifest"], *await packs_of(sam, one["number"])):
                found = await sam.head(f"/artifacts/{digest}")
                assert found.status_code == 200, (story.step, action.__name__)
    while story.held:
        await story.end([], 0)
    await story.prune([], 0)
    assert len(await story.versions()) <= 7
    assert (await sam.delete("/volumes/data")).status_code == 204
    assert (await sam.get("/storage")).json()["artifacts"] == 0


async def packs_of(sam: httpx2.AsyncClient, number: int) -> list[str]:
    """The packs of a version, as the manifest names them in these tests."""
    if number == 0:
        return []
    found = (await sam.get(f"/volumes/data/versions/{number}")).json()
    text = (await sam.get(f"/artifacts/{found['manifest']}")).text
    return re.findall("[0-9a-f]{64}", text)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"files": 101}, "100 files at most"),
        ({"size": 1_001}, "1,000 bytes at most"),
        ({"parent": 7}, "no version 7"),
        ({"manifest": "0" * 64}, "upload it first"),
        ({"packs": ["0" * 64]}, "upload it first"),
        ({"packs": ["0" * 64] * 2}, "named twice"),
        ({"more": 1}, ""),
    ],
)
async def test_bad_versions_are_refused(sam: httpx2.AsyncClient, fields: dict[str, Any], said: str) -> None:
    answer = await sam.post("/volumes/data/versions", json={"parent": 0, **await sent(sam, "x"), **fields})
    assert 400 <= answer.status_code < 500
    assert said in answer.json()["detail"]
    assert await versions(sam) == []


async def test_a_job_whose_volume_outgrows_the_limit_fails_by_its_own_fault(
    sam: httpx2.AsyncClient, node: NodeDouble
) -> None:
    [job_id] = await submit(sam, spec=MOUNTS)
    [grant] = await node.take()
    await opened(node, grant.attempt_id)
    [made] = await change(node, "x")
    await node.report(grant.attempt_id, volumes=[made.model_copy(update={"size": 1_001})])
    attempt = (await job(sam, job_id))["tries"][0]
    assert (attempt["reason"], "1,000 bytes at most" in attempt["error"]) == ("output_limit", True)
    assert await versions(sam) == []


@pytest.mark.parametrize("name", ["Data", "a_b", "-a", "", "a" * 64, "a/b", "é"])
async def test_bad_names_are_refused(sam: httpx2.AsyncClient, name: str) -> None:
    assert (await sam.post("/volumes", json={"name": name})).status_code in (400, 422)


async def test_an_account_has_so_many_volumes(sam: httpx2.AsyncClient) -> None:
    assert (await sam.post("/volumes", json={"name": "data"})).status_code == 409
    assert (await sam.post("/volumes", json={"name": "other"})).status_code == 201
    assert (await sam.post("/volumes", json={"name": "third"})).status_code == 413


@pytest.mark.parametrize(
    "fields",
    [
        {"verify": "quorum:2"},
        {"verify": "adaptive"},
        {"confidence": 0.9},
        {"spec": {"seal_to": "A" * 43 + "="}},
        {"spec": {"moves": True}},
        {"spec": {"volumes": [*MOUNTS["volumes"], {"volume": "data", "path": "/more"}]}},
        {"spec": {"volumes": [{"volume": "data", "path": "/usr/lib"}]}},
        {"spec": {"volumes": [{"volume": "data", "path": "/data", "mode": "ro"}]}},
    ],
)
async def test_what_cannot_be_combined_is_refused(sam: httpx2.AsyncClient, fields: dict[str, Any]) -> None:
    rest = dict(fields)
    spec = {"kind": "command", "name": "x", "argv": ["true"], **MOUNTS, **rest.pop("spec", {})}
    assert (await sam.post("/jobs", json={"spec": spec, **rest})).status_code in (400, 422)
    assert (await sam.delete("/volumes/data")).status_code == 204, "nothing was left behind"


async def test_a_job_of_a_job_mounts_nothing(sam: httpx2.AsyncClient, node: NodeDouble) -> None:
    """A program on another's machine could otherwise read any volume of the account by its name."""
    await submit(sam, spec={"children": 1})
    [grant] = await node.take()
    request = {"spec": {"kind": "command", "name": "x", "argv": ["true"], **READS}}
    answer = await node.client.post(f"/attempts/{grant.attempt_id}/jobs", json={"seq": 1, "request": request})
    assert (answer.status_code, "cannot mount volumes" in answer.json()["detail"]) == (422, True)


async def test_jobs_with_volumes_are_not_verified(sam: httpx2.AsyncClient) -> None:
    [job_id] = await submit(sam, spec=MOUNTS)
    assert (await job(sam, job_id))["verify"] == "none"
