"""The evidence behind a reputation: it adds up to the score, and tells others neither whose jobs nor when."""

from __future__ import annotations

from typing import Any, get_args

import httpx2

from computepool.core.trust.reputation import Evidence, ReputationEvent
from computepool.hub.scheduling import housekeeping, leases
from computepool.protocol.nodes.evidence import EvidenceKind
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.core.trust.histories import recompute
from tests.hub.fixtures import hub_fixture
from tests.hub.settlement import test_rechecks as rechecks
from tests.hub.settlement.test_rechecks import Pool
from tests.hub.submitting import submit
from tests.hub.working import HOUR, got, pages

database, hub, pool = rechecks.database, rechecks.hub, rechecks.pool
FAULT = {"outcome": "failed", "reason": "node_restarted", "exit_code": None}
HOUR_MS = 3_600_000


quiet = hub_fixture()


async def evidence(client: httpx2.AsyncClient, node: NodeDouble, **params: Any) -> list[dict[str, Any]]:
    return await pages(client, f"/nodes/{node.node_id}/evidence", "rows", **params)


async def work(client: httpx2.AsyncClient, node: NodeDouble, **report: Any) -> str:
    """A job that failed before may come back to the node in the same poll; it stays held."""
    [job_id] = await submit(client, spec={"name": "secret plan"}, retries=0)
    while not (held := [grant for grant in node.holding.values() if grant.job_id == job_id]):
        await node.take()
    await node.report(held[0].attempt_id, **report)
    return job_id


async def test_the_evidence_adds_up_to_the_score(quiet: HubDouble) -> None:
    sam, pia = await quiet.account("sam", "submitter"), await quiet.account("pia", "provider")
    node = await quiet.node(pia)
    clock = quiet.hub.clock
    assert isinstance(clock, FakeClock)
    for outcome in ({}, {}, FAULT, {}):
        clock.advance(HOUR_MS // 3)
        node.sign_in()
        await work(sam, node, **outcome)
    await submit(sam, items=3, needs={"cores": 1})
    node.sign_in()
    await node.take(3)
    clock.advance(HOUR_MS)
    await housekeeping.drop_silent(quiet.hub)
    await leases.expire_overdue(quiet.hub)
    rows = await evidence(pia, node, limit=3)
    assert rows == await evidence(pia, node, limit=500), "wherever a page ends"
    lost = [row for row in rows if row["evidence"] == "lease_lost"]
    assert [row["counted"] for row in lost] == [False] * (len(lost) - 1) + [True], "lost at one moment is one failure"
    assert len(lost) >= 3
    rest = [(row["evidence"], row["weight"]) for row in rows if row not in lost]
    assert rest == [("unverified", 0.25), ("node_fault", 1), ("unverified", 0.25), ("unverified", 0.25)]
    counted = [
        ReputationEvent(node.node_id, Evidence(row["evidence"]), row["at_ms"])
        for row in reversed(rows)
        if row["counted"]
    ]
    said = (await got(pia, f"/nodes/{node.node_id}"))["reputation"]
    assert round(recompute(counted).score(clock.now_ms()), 4) == said["score"]


async def test_strangers_are_told_neither_whose_jobs_nor_when(quiet: HubDouble) -> None:
    sam, olga = await quiet.account("sam", "submitter"), await quiet.account("olga", "submitter")
    pia, otto = await quiet.account("pia", "provider"), await quiet.account("otto", "provider")
    node = await quiet.node(pia)
    quiet.hub.clock.advance(1_234_567)  # type: ignore[attr-defined]
    node.sign_in()
    job_id = await work(sam, node)
    [exact] = await evidence(pia, node)
    assert (exact["job_id"], exact["job_kind"], exact["at_ms"]) == (job_id, "command", quiet.hub.now_ms())
    for stranger in (olga, otto):
        page = await got(stranger, f"/nodes/{node.node_id}/evidence")
        assert not page["exact"]
        [row] = page["rows"]
        assert (row["job_id"], row["job_kind"], row["reason"]) == (None, None, None)
        assert row["at_ms"] % HOUR_MS == 0
        assert job_id not in str(page)
    [mine] = await evidence(sam, node)
    assert mine["job_id"] == job_id, "whose job it was may know it again"
    for client in (sam, olga, pia, otto, quiet.admin):
        answer = await client.get(f"/nodes/{node.node_id}/evidence")
        assert "secret" not in answer.text
    assert (await pia.get("/nodes/node_none/evidence")).status_code == 404
    assert (await pia.get(f"/nodes/{node.node_id}/evidence", params={"after": "9" * 30})).json()["rows"] == []


async def test_pages_for_strangers_have_no_numbers_of_events(quiet: HubDouble) -> None:
    """A number would reveal the time to the millisecond, by comparison with one's own events."""
    sam, olga = await quiet.account("sam", "submitter"), await quiet.account("olga", "submitter")
    node, other = await quiet.node(name="one"), await quiet.node(name="other")
    for _ in range(3):
        await work(sam, node)
    first = await got(olga, f"/nodes/{node.node_id}/evidence", limit=1)
    numbers = {event["seq"] for event in (await got(quiet.admin, "/events", limit=500))["events"]}
    assert not first["next"].isdecimal() or int(first["next"]) not in numbers
    assert len(await evidence(olga, node, limit=1)) == 3
    for foreign in ("1000000", "zz", first["next"][:-2], "0" * 32):
        page = await got(olga, f"/nodes/{node.node_id}/evidence", after=foreign)
        assert page["rows"] == [], "a cursor is made by the hub"
    assert (await got(olga, f"/nodes/{other.node_id}/evidence", after=first["next"]))["rows"] == []


async def test_a_checked_result_is_told_once_and_a_violation_is_one(pool: Pool) -> None:
    await pool.believed('"right"')
    caught = await pool.penalise()
    rows = await evidence(pool.hub.admin, pool.sleeper)
    assert [(row["evidence"], row["violation"]) for row in rows if row["job_id"] == caught] == [("refuted", True)]
    assert rows[-1]["evidence"] == "unverified"
    told = [row for node in pool.nodes[1:] for row in await evidence(pool.hub.admin, node) if row["job_id"] == caught]
    assert [(row["evidence"], row["weight"], row["verified"]) for row in told] == [("verified", 1, True)] * 2


# what it does now


async def test_an_owner_sees_what_runs_since_when_and_what_it_pays(any_hub: HubDouble) -> None:
    sam, pia = (await any_hub.account("sam", "submitter"), await any_hub.account("pia", "provider", "submitter"))
    node = await any_hub.node(pia)
    [job_id] = await submit(sam, spec={"name": "secret plan", **HOUR})
    [grant] = await node.take()
    path = f"/nodes/{node.node_id}/work"
    held = await got(pia, path)
    assert (held["running"], held["leased"]) == (0, 1)
    await node.poll(wait_ms=0, running=[
        {"attempt_id": grant.attempt_id, "progress": 0.5, "load": {"cpu_percent": 150, "rss_mb": 7, "processes": 2}}
    ])  # fmt: skip
    held = await got(pia, path)
    [attempt] = held["attempts"]
    assert (held["running"], attempt["job_id"], attempt["job_name"]) == (1, job_id, None)
    assert (attempt["progress"], attempt["cpu_percent"], attempt["rss_mb"]) == (0.5, 150, 7)
    assert 0 < attempt["earns"] < attempt["price"] == grant.price
    assert held["earns"] == attempt["earns"]
    assert attempt["ends_at_ms"] - attempt["started_at_ms"] == 3_600_000
    assert "secret" not in str(held)
    for stranger in (sam, await any_hub.account("otto", "provider")):
        assert (await stranger.get(path)).status_code == 404
    await node.report(grant.attempt_id)
    [own] = await submit(pia, spec={"name": "my own"})
    await node.take()
    [attempt] = (await got(pia, path))["attempts"]
    assert (attempt["job_id"], attempt["job_name"], attempt["own"], attempt["earns"]) == (own, "my own", True, 0)


def test_every_kind_of_evidence_can_be_shown() -> None:
    assert set(get_args(EvidenceKind)) == {*Evidence, "inherited"}
