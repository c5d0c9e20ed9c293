"""Probation: an accused node is tested with jobs of known results, then cleared or banned, and a review can be requested."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx2
import pytest
from sqlalchemy import select, update

from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.violations import PROBES_RIGHT, PROBES_WRONG
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import attempts as attempt_table, jobs as job_table
from computepool.hub.jobs.rows import FullJobRow
from computepool.hub.settlement import result_rows
from computepool.hub.settlement.verification import probes
from computepool.hub.settlement.verification.probe_rows import ProbeCandidate
from computepool.protocol.nodes.nodes import Grant
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import job, submit
from tests.hub.verifying import GRANT
from tests.hub.working import granted, others

#: Cheap enough to be used as tests.
SHORT = {"timeout_s": 60}
#: The victim first, and then its accusers.
FRAMED = {"prefer_tags": ["n0"], "exclude_tags": ["n3", "n4"]}


hub = hub_fixture(on=BOTH, signup_grant=GRANT, tick_s=10_000, mature_s=10_000, verify="adaptive", probe_round_s=10_000)


@dataclass
class Town:
    """Established accounts and nodes, and two new accounts that try to frame one of the nodes."""

    hub: HubDouble
    nodes: list[NodeDouble]
    people: list[httpx2.AsyncClient]
    framers: list[httpx2.AsyncClient]
    seen: list[Grant] = field(default_factory=list)

    @property
    def victim(self) -> NodeDouble:
        return self.nodes[0]

    async def run(self, client: httpx2.AsyncClient, nodes: list[NodeDouble], *, lies: Any = (), **said: Any) -> str:
        """Run a job until it is done. `lies`: nodes that answer wrongly."""
        [job_id] = await submit(client, spec=SHORT, **said)
        used: list[NodeDouble] = []
        while (await job(client, job_id))["state"] != "succeeded":
            node, grant = await self.take(others(nodes, *used))
            used.append(node)
            await self.answer(node, grant, '"wrong"' if node in lies else '"right"')
        return job_id

    async def take(self, nodes: list[NodeDouble]) -> tuple[NodeDouble, Grant]:
        node, grant = await granted(nodes)
        self.seen.append(grant)
        return node, grant

    async def answer(self, node: NodeDouble, grant: Grant, result: str) -> None:
        self.hub.hub.clock.advance(2_000)  # type: ignore[attr-defined]
        node.sign_in()
        assert await node.report(grant.attempt_id, ran_ms=1_000, result=result) == "accepted"

    async def frame(self) -> None:
        """Submit three jobs from two accounts that give another result on the victim's node."""
        for framer in (*self.framers, self.framers[0]):
            await self.run(framer, self.nodes[:3], lies=[self.victim], needs=FRAMED)

    async def known(self) -> dict[str, Any]:
        return (await self.hub.admin.get(f"/nodes/{self.victim.node_id}")).json()["reputation"]

    async def probe(self, result: str) -> Grant:
        await probes.send_due(self.hub.hub)
        _, grant = await self.take([self.victim])
        await self.answer(self.victim, grant, result)
        return grant


@pytest.fixture
async def town(hub: HubDouble) -> Town:
    nodes, people = [], [await hub.account(f"person{number}", "submitter") for number in range(4)]
    for number in range(5):
        owner = await hub.account(f"owner{number}", "provider")
        nodes.append(await hub.node(owner, name=f"node{number}", tags=[f"n{number}"]))
    hub.hub.clock.advance(30 * DAY_MS)  # type: ignore[attr-defined]
    framers = [await hub.account(f"framer{number}", "submitter") for number in range(2)]
    town = Town(hub, nodes, people, framers)
    for state in ("paused", "active"):
        for node in nodes[:3]:
            (await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": state})).raise_for_status()
        if state == "paused":  # what the tests are taken from: done by nodes that will not accuse anybody
            for person in people:
                await town.run(person, nodes[3:])
    return town


@pytest.mark.soak
async def test_a_node_wrongly_accused_is_tested_and_cleared(town: Town) -> None:
    await town.frame()
    known = await town.known()
    assert (known["violation_count"], known["banned_at_ms"], known["streak"]) == (3, None, 0)
    assert known["probation_at_ms"] is not None
    done = {grant.account_id for grant in [await town.probe('"right"') for _ in range(PROBES_RIGHT)]}
    assert len(done) == PROBES_RIGHT, "each test is of another submitter"
    framers = {(await framer.get("/me")).json()["id"] for framer in town.framers}
    assert not done & framers, "and of none who accused it"
    known = await town.known()
    assert (known["probation_at_ms"], known["banned_at_ms"], known["recent_violations"]) == (None, None, 0)
    told = (await town.hub.admin.get("/events", params={"node_id": town.victim.node_id})).json()["events"]
    assert {"node.probation", "node.cleared"} <= {event["action"] for event in told}


@pytest.mark.soak
async def test_no_node_can_tell_a_test_from_a_job(town: Town) -> None:
    await town.frame()
    grant = await town.probe('"right"')
    found = select(job_table).where(job_table.c.id == grant.job_id)
    [row] = await town.hub.hub.store.read(lambda connection: connection.execute(found).all())
    _, first_id, _ = row.hub_job.split(":")
    [first] = [each for each in town.seen if each.job_id == first_id][:1]
    hidden = {"job_id", "attempt_id", "lane"}
    assert grant.model_dump(exclude=hidden) == first.model_dump(exclude=hidden)
    assert grant.account_id != "acc_pool"


async def test_a_node_that_fails_its_tests_is_banned_and_its_owner_can_request_a_review(town: Town) -> None:
    await town.frame()
    for number in range(PROBES_WRONG):
        assert (await town.known())["banned_at_ms"] is None, number
        await town.probe('"wrong"')
    known = await town.known()
    assert (known["banned_at_ms"] is not None, known["probation_at_ms"]) == (True, None)
    path = f"/nodes/{town.victim.node_id}/review"
    assert (await town.people[0].post(path, json={"note": "x"})).status_code == 404
    owner = await key_of(town.hub, "owner0")
    asked = await owner.post(path, json={"note": "its memory was broken"})
    assert asked.status_code == 201, asked.text
    assert (await owner.post(path, json={})).status_code == 409, "it waits already"
    [waiting] = (await town.hub.admin.get("/approvals")).json()["approvals"]
    assert "its memory was broken" in waiting["summary"]
    assert waiting["can_approve"]
    decided = await town.hub.admin.post(f"/approvals/{waiting['id']}/approve")
    assert decided.status_code == 200, decided.text
    assert (await town.known())["banned_at_ms"] is None
    assert (await owner.post(path, json={})).status_code == 409, "nothing to review"


async def key_of(hub: HubDouble, name: str) -> httpx2.AsyncClient:
    accounts = (await hub.admin.get("/accounts")).json()["accounts"]
    [account] = [row["id"] for row in accounts if row["name"] == name]
    key = await hub.admin.post("/keys", json={"name": "again", "account_id": account})
    return hub.client(key.json()["key"])


@pytest.mark.soak
async def test_what_was_right_long_ago_may_be_wrong_today_and_tests_nobody(town: Town) -> None:
    await town.frame()
    town.hub.hub.clock.advance(round(town.hub.hub.settings.probe_age_s * 1000))  # type: ignore[attr-defined]
    for node in town.nodes:
        node.sign_in()
    await town.victim.poll(wait_ms=0)
    assert not await probes.send_due(town.hub.hub)
    assert (await town.known())["probation_at_ms"] is not None


@pytest.mark.soak
async def test_where_there_is_nothing_to_test_it_with_it_stays_on_probation(town: Town) -> None:
    town.hub.hub.settings.ban_submitter_days = 10_000
    await town.frame()
    assert not await probes.send_due(town.hub.hub)
    await town.run(town.framers[1], town.nodes[:3], lies=[town.victim], needs=FRAMED)
    known = await town.known()
    assert (known["probation_at_ms"] is not None, known["banned_at_ms"]) == (True, None)


@pytest.mark.soak
async def test_programs_that_varied_since_are_no_tests(town: Town) -> None:
    await town.frame()
    rows = [(row.account_id, row.spec_digest) for row in await all_jobs(town.hub)]

    def vary(tx: Tx) -> None:
        for account_id, digest in set(rows):
            result_rows.mark_varying(tx, account_id=account_id, spec_digest=digest)

    await town.hub.hub.store.write(vary)
    assert not await probes.send_due(town.hub.hub)


@pytest.mark.soak
async def test_who_sends_many_jobs_is_drawn_no_more_often(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    for state in ("paused", "active"):
        for node in town.nodes[:3]:
            (await town.hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": state})).raise_for_status()
        if state == "paused":
            for _ in range(3):
                await town.run(town.people[0], town.nodes[3:])
    await town.frame()
    for limit, each, expected in ((4, 10, [1] * 4), (200, 2, [1, 1, 1, 2]), (200, 10, [1, 1, 1, 4])):
        monkeypatch.setattr(probes, "_LOOKED_AT_MAX", limit)
        monkeypatch.setattr(probes, "_OF_ONE_MAX", each)
        rows = await candidates(town)
        assert sorted(Counter(row.account_id for row in rows).values()) == expected
    draws = [probes._draw(rows, bytes([0, 0, 0, a, 0, 0, 0, b])) for a in range(4) for b in range(4)]
    assert set(Counter(row.account_id for row in draws).values()) == {4}
    assert {row.id for row in draws} == {row.id for row in rows}


@pytest.mark.soak
async def test_neither_accusers_nor_who_gave_a_test_before_give_one(town: Town) -> None:
    await town.frame()
    town.hub.hub.clock.advance(15 * DAY_MS)  # type: ignore[attr-defined]
    accuser, giver, other = town.framers[0], *town.people[:2]
    await set_state(town, town.nodes[:3], "paused")
    for client in (accuser, giver, giver):
        await town.run(client, town.nodes[3:])
    await set_state(town, town.nodes[1:3], "active")
    await set_state(town, town.nodes[3:], "paused")
    await town.run(other, town.nodes[1:3])  # by the nodes that accused it
    await set_state(town, [town.victim], "active")
    town.victim.sign_in()
    await town.victim.poll(wait_ms=0)
    giver_id = (await giver.get("/me")).json()["id"]
    assert [row.account_id for row in await candidates(town)] == [giver_id, giver_id]
    await town.probe('"right"')
    assert await candidates(town) == [], "the other one is of the same submitter"


async def set_state(town: Town, nodes: list[NodeDouble], state: str) -> None:
    for node in nodes:
        answer = await town.hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": state})
        answer.raise_for_status()


@pytest.mark.soak
async def test_what_its_submitter_had_friends_confirm_is_no_test(town: Town) -> None:
    await town.frame()
    assert await candidates(town)
    narrowed = update(attempt_table).values(narrow=True)
    await town.hub.hub.store.write(lambda tx: tx.connection.execute(narrowed))
    assert not await candidates(town)


async def candidates(town: Town) -> list[ProbeCandidate]:
    owner = (await town.hub.admin.get(f"/nodes/{town.victim.node_id}")).json()["owner"]
    look = partial(
        probes._candidates,
        settings=town.hub.hub.settings,
        now_ms=town.hub.hub.now_ms(),
        node_id=town.victim.node_id,
        owner=owner,
    )
    return await town.hub.hub.store.read(look)


async def all_jobs(hub: HubDouble) -> list[FullJobRow]:
    return await hub.hub.store.read(lambda c: FullJobRow.all(c.execute(FullJobRow.select())))
