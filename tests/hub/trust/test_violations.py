"""Notices to the owner of a node that was wrong, and the pool's own account, which nobody can use."""

from __future__ import annotations

from typing import Any

import pytest

from computepool.core.money.money import CREDIT
from computepool.hub.identity.access import POOL_ACCOUNT
from tests.hub.settlement import test_rechecks as rechecks
from tests.hub.settlement.test_rechecks import Pool
from tests.hub.untouched import untouched

database, hub, pool = rechecks.database, rechecks.hub, rechecks.pool


async def test_a_nodes_owner_is_told_of_each_violation_of_the_probation_and_of_the_pardon(pool: Pool) -> None:
    caught = [await pool.penalise() for _ in range(2)]
    pool.sam = await pool.hub.account("eve", "submitter")
    caught.append(await pool.penalise())
    owner, node_id = await pool.owner(pool.sleeper), pool.sleeper.node_id
    assert (await pool.hub.admin.post(f"/nodes/{node_id}/pardon")).status_code == 200
    key = await pool.hub.admin.post("/keys", json={"name": "k", "account_id": owner})
    mine = pool.hub.client(key.json()["key"])
    told = (await mine.get("/events", params={"node_id": node_id, "limit": 500})).json()["events"]
    mattering = [one for one in told if one["action"] in ("node.penalised", "node.probation", "node.pardoned")]
    assert [one["action"] for one in mattering] == ["node.penalised"] * 2 + ["node.probation", "node.pardoned"]
    assert [one["data"]["job_id"] for one in mattering[:3]] == caught
    sentences = [one["data"]["sentence"] for one in mattering[:3]]
    for sentence, words in zip(sentences, ("3 within 30 days", "3 within 30 days", "on probation"), strict=True):
        assert words in sentence
    theirs = (await pool.sam.get("/events", params={"limit": 500})).json()["events"]
    assert not {"node.penalised", "node.probation"} & {one["action"] for one in theirs}


@pytest.mark.soak
async def test_nobody_gets_at_the_pools_own_account(pool: Pool) -> None:
    await pool.believed('"right"')
    await pool.penalise()
    await pool.run(pool.nodes[1:])
    assert POOL_ACCOUNT != "hub", "who acts in events and who pays are two"
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/keys", {"name": "k", "account_id": POOL_ACCOUNT}),
        ("PUT", f"/accounts/{POOL_ACCOUNT}/roles", {"roles": ["admin"]}),
        ("PUT", f"/accounts/{POOL_ACCOUNT}/quotas", {"jobs_open_max": 1}),
        ("POST", "/credits/top-ups", {"account": POOL_ACCOUNT, "amount": CREDIT}),
        ("POST", "/credits/top-ups", {"account": "(pool)", "amount": CREDIT}),
    ]
    for two_person in ("", "roles,top-ups"):
        pool.hub.hub.settings.two_person = two_person
        async with untouched(pool.hub):
            for method, path, fields in asked:
                answer = await pool.hub.admin.request(method, path, json=fields)
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
                assert "the pool's own account" in answer.text
