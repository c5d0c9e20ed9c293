"""A job once more: the same spec and terms as a new job, for its submitter alone, and only while its inputs are there."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx2
import pytest
from sqlalchemy import delete

from computepool.core.money.money import CREDIT
from computepool.hub.db.session import Connection, Tx
from computepool.hub.db.tables import artifact_refs
from computepool.hub.jobs import rows as job_rows
from computepool.testing.hub import HubDouble
from tests.hub.cast import upload
from tests.hub.submitting import job
from tests.hub.working import got

WAITS = {"cores": 1000}


async def submitted(client: httpx2.AsyncClient, **fields: Any) -> str:
    answer = await client.post("/jobs", json=fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_ids"][0])


@pytest.mark.soak
async def test_the_same_spec_and_terms_as_a_new_job(any_hub: HubDouble) -> None:
    sam = await any_hub.account("sam", "submitter")
    digest = await upload(sam, b"an input")
    spec = {
        "kind": "script", "name": "train", "source": "print(1)", "argv": ["--epochs", "3"], "env": {"SEED": "7"},
        "inputs": [{"name": "in", "digest": digest, "size": 8}], "needs": WAITS, "timeout_s": 60, "labels": ["ml"],
    }  # fmt: skip
    group = (await sam.post("/groups", json={"name": "g"})).json()["id"]
    first = await submitted(
        sam, spec=spec, group_id=group, items=[{"key": "k"}], priority=5, retries=2, max_price=40 * CREDIT,
        budget=CREDIT // 2, verify="quorum:2", compare="tolerance:1e-6", ttl_s=1234,
    )  # fmt: skip
    answer = await sam.post(f"/jobs/{first}/resubmit")
    assert answer.status_code == 201, answer.text
    [second] = answer.json()["job_ids"]
    before, after = await job(sam, first), await job(sam, second)
    assert second != first
    assert after["group_id"] is None, "a group's keys are there once"
    same = ("spec", "key", "priority", "retries", "max_price", "hold", "verify", "compare", "kind", "name")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    third = (await sam.post(f"/jobs/{first}/resubmit", json={"terms": "today"})).json()
    assert (third["max_price"], third["hold"]) != (before["max_price"], before["hold"])
    assert third["verify"] == "quorum:2"


async def test_the_same_request_twice_is_one_job(hub: HubDouble) -> None:
    first = await submitted(hub.admin, spec={"kind": "command", "name": "x", "argv": ["x"], "needs": WAITS})
    asked = [await hub.admin.post(f"/jobs/{first}/resubmit", headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert asked[0].json() == asked[1].json()
    assert len((await got(hub.admin, "/jobs"))["jobs"]) == 2


async def test_arguments_and_the_function_that_compares_come_along(hub: HubDouble) -> None:
    function = "gAWVEQAAAAAAAACMBm1hdGguY5SMBHNxcnSUk5Qu"
    spec = {"kind": "function", "name": "square", "function": function, "needs": WAITS}
    compare = {"function": function, "python": "3.11"}
    items = [{"payload": "W1syXSx7fV0=", "bundled": 3}]
    first = await submitted(hub.admin, spec=spec, items=items, verify="adaptive", compare_function=compare)
    [second] = (await hub.admin.post(f"/jobs/{first}/resubmit")).json()["job_ids"]
    rows = [await hub.hub.store.read(partial(_row, job_id=job_id)) for job_id in (first, second)]
    assert rows[0] == rows[1]
    assert rows[0][0] == "W1syXSx7fV0="


def _forget_files(tx: Tx) -> None:
    tx.connection.execute(delete(artifact_refs))


def _row(connection: Connection, job_id: str) -> tuple[Any, ...]:
    row = job_rows.get_job_full(connection, job_id)
    assert row is not None
    return row.payload, row.bundled, row.compare, row.spec_digest, row.hold


async def test_an_input_that_is_gone_is_named(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    digest = await upload(sam, b"an input")
    inputs = [{"name": "data.csv", "digest": digest, "size": 8}]
    spec = {"kind": "command", "name": "x", "argv": ["x"], "inputs": inputs, "needs": WAITS}
    first = await submitted(sam, spec=spec)
    await sam.post(f"/jobs/{first}/cancel")
    assert (await sam.delete(f"/artifacts/{digest}")).status_code == 204
    await hub.hub.store.write(_forget_files)
    answer = await sam.post(f"/jobs/{first}/resubmit")
    assert (answer.status_code, "data.csv" in answer.json()["detail"]) == (409, True)


async def test_a_job_is_run_again_by_its_submitter_alone(hub: HubDouble) -> None:
    """Who asks pays: an administrator who may look at it cannot spend its submitter's money, nor get at its inputs."""
    sam, olga = await hub.account("sam", "submitter"), await hub.account("olga", "submitter")
    first = await submitted(sam, spec={"kind": "command", "name": "x", "argv": ["x"], "needs": WAITS})
    assert (await olga.post(f"/jobs/{first}/resubmit")).status_code == 404
    assert (await hub.admin.post(f"/jobs/{first}/resubmit")).status_code == 409
    read = (await sam.post("/keys", json={"name": "r", "scopes": ["read"]})).json()["key"]
    reader = hub.client(read)
    assert (await reader.post(f"/jobs/{first}/resubmit")).status_code == 403
    seen = {name: (await job(client, first))["can_resubmit"] for name, client in
            (("sam", sam), ("admin", hub.admin), ("reader", reader))}  # fmt: skip
    assert seen == {"sam": True, "admin": False, "reader": False}


async def test_the_limits_of_any_submission_hold(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    me = (await sam.get("/me")).json()["id"]
    first = await submitted(sam, spec={"kind": "command", "name": "x", "argv": ["x"], "needs": WAITS})
    await hub.admin.put(f"/accounts/{me}/quotas", json={"jobs_open_max": 1})
    assert (await sam.post(f"/jobs/{first}/resubmit")).status_code == 429
