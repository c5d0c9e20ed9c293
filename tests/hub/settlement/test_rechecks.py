"""When a node was wrong: what it said before is run again by others, unseen, and what was wrong is taken back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from computepool.core.money import ledger
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import affordable_ms, charge_of
from computepool.core.trust.verification import PPM
from computepool.hub.db.tables import jobs as job_table
from computepool.hub.main import check
from computepool.hub.money import credits as credits_service
from computepool.hub.scheduling import leases
from computepool.hub.settlement.hub_jobs import POOL_ACCOUNT
from computepool.hub.settlement.verification import sampling
from computepool.protocol.nodes.nodes import Grant
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.cast import upload
from tests.hub.settlement.test_verification import GRANT, crowd, others
from tests.hub.submitting import body, job, submit
from tests.hub.working import HOUR, PRICE, balance, balances_of, me

RAN_MS = 5_000
CHARGE = charge_of(PRICE, RAN_MS)
PAY = CHARGE * 8 // 10
FEE = CHARGE - PAY
#: What the pool sets aside for one look at such a job.
MOST = 2 * CHARGE + CREDIT // 100
#: The first node gets the jobs as long as it may have them.
FIRST = {"prefer_tags": ["n0"]}


BOTH = pytest.mark.parametrize("database", ["sqlite", "postgresql"])


@pytest.fixture
def database() -> str:
    return "sqlite"


@pytest.fixture
async def hub(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HubDouble]:
    url = "" if database == "sqlite" else request.getfixturevalue("migrated_url")
    async with running_hub(
        tmp_path, database_url=url, clock=FakeClock(), signup_grant=GRANT, tick_s=10_000, verify="adaptive"
    ) as hub:
        yield hub
        assert check(hub.hub.settings) == []


@dataclass
class Pool:
    """Sam, whose jobs go to the first node, and other owners' nodes. Which results are drawn for a check is ours to say."""

    hub: HubDouble
    sam: httpx2.AsyncClient
    nodes: list[NodeDouble]
    drawn: list[int] = field(default_factory=lambda: [PPM])
    seen: list[Grant] = field(default_factory=list)  #: whatever nodes were given

    @property
    def sleeper(self) -> NodeDouble:
        return self.nodes[0]

    async def take(self, nodes: list[NodeDouble]) -> tuple[NodeDouble, Grant]:
        async with asyncio.timeout(60):
            while True:
                for node in nodes:
                    node.sign_in()
                    given = list(node.holding.values()) or (await node.poll(wait_ms=20)).grants
                    if given:
                        self.seen.append(given[0])
                        return node, given[0]

    async def run(self, nodes: list[NodeDouble], result: str = '"right"', **said: Any) -> NodeDouble:
        node, grant = await self.take(nodes)
        await self.report(node, grant, result=result, **said)
        return node

    async def report(self, node: NodeDouble, grant: Grant, **said: Any) -> None:
        self.hub.hub.clock.advance(RAN_MS + 1_000)  # type: ignore[attr-defined]
        node.sign_in()
        assert await node.report(grant.attempt_id, **{"ran_ms": RAN_MS} | said) == "accepted"

    async def believed(self, *results: str, **fields: Any) -> list[str]:
        """Jobs about which the first node is believed unchecked."""
        made = []
        for result in results:
            made += await submit(self.sam, **{"spec": HOUR, "needs": FIRST} | fields)
            assert await self.run([self.sleeper], result) is self.sleeper
        return made

    async def penalise(self) -> str:
        """One more job, about which the first node is caught."""
        self.drawn[0] = 0
        [job_id] = await submit(self.sam, spec=HOUR, needs=FIRST)
        await self.run([self.sleeper], '"wrong"')
        second = await self.run(self.nodes[1:])
        await self.run(others(self.nodes[1:], second))
        assert (await job(self.sam, job_id))["verdict"] == "confirmed"
        return job_id

    async def hub_jobs(self) -> list[Any]:
        found = select(job_table).where(job_table.c.hub_job.is_not(None)).order_by(job_table.c.hub_job)
        return list(await self.hub.hub.store.read(lambda connection: connection.execute(found).all()))

    async def verdicts(self, job_ids: list[str]) -> list[str]:
        return [(await job(self.sam, job_id))["verdict"] for job_id in job_ids]

    async def owner(self, node: NodeDouble) -> str:
        return str((await self.hub.admin.get(f"/nodes/{node.node_id}")).json()["owner"])

    async def reputation(self, node: NodeDouble) -> dict[str, Any]:
        return (await self.hub.admin.get(f"/nodes/{node.node_id}")).json()["reputation"]


@pytest.fixture
async def pool(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> Pool:
    sam, nodes = await crowd(hub, 4)
    made = Pool(hub, sam, nodes)
    monkeypatch.setattr(sampling, "_draw", lambda _hub, _attempt: made.drawn[0])
    return made


@BOTH
async def test_a_sleeper_loses_what_it_was_paid_for_wrong_results_and_nothing_else(pool: Pool) -> None:
    said = ['"right"', '"wrong"', '"right"'] * 4
    past = await pool.believed(*said)
    assert set(await pool.verdicts(past)) == {"unchecked"}
    sleeper, sam = await pool.owner(pool.sleeper), await me(pool.sam)
    assert await balance(pool.hub, ledger.earn(sleeper)) == 12 * PAY
    before = await balance(pool.hub, ledger.user(sam))
    await pool.penalise()
    assert len(await pool.hub_jobs()) == 12
    assert await balance(pool.hub, ledger.escrow(POOL_ACCOUNT)) == 12 * MOST
    for _ in range(12 + 4):  # each once, and each wrong one a second time
        await pool.run(pool.nodes[1:])
    assert await pool.verdicts(past) == ["refuted" if one == '"wrong"' else "confirmed" for one in said]
    # To the microcredit: the wrong ones came back, the caught one was paid to the two that were right.
    assert await balance(pool.hub, ledger.earn(sleeper)) == 8 * PAY
    assert await balances_of(pool.hub, pool.sam) == (before + 4 * CHARGE - 2 * CHARGE, 0, 0)
    checkers = [await balance(pool.hub, ledger.earn(await pool.owner(node))) for node in pool.nodes[1:]]
    assert sum(checkers) == (2 + 12 + 4) * PAY
    assert await balance(pool.hub, ledger.FEES) == (12 - 4 + 2 + 16) * FEE
    brought_in = -await balance(pool.hub, ledger.PROMO) - 5 * GRANT
    assert brought_in - await _found_money(pool) == 12 * MOST, "no more than the first round needed at once"
    pools = await balance(pool.hub, ledger.user(POOL_ACCOUNT))
    assert (pools, await balance(pool.hub, ledger.escrow(POOL_ACCOUNT))) == (12 * MOST - 16 * CHARGE, 0)
    known = await pool.reputation(pool.sleeper)
    assert (known["violation_count"], known["streak"]) == (5, 0), (
        "what was right before a violation is no new beginning"
    )
    assert known["banned_at_ms"] is None, "all of it was about one submitter's jobs"


async def _found_money(pool: Pool) -> int:
    """What the operator was given at the first start."""
    return int((await pool.hub.admin.get("/credits")).json()["available"])


@pytest.mark.soak
@BOTH
async def test_who_got_a_wrong_result_is_told_and_given_the_right_one(pool: Pool) -> None:
    [wrong] = await pool.believed('"wrong"')
    await pool.penalise()
    await pool.run(pool.nodes[1:])
    assert await pool.verdicts([wrong]) == ["unchecked"], "one against one says nothing"
    await pool.run(pool.nodes[1:])
    seen = await job(pool.sam, wrong)
    assert (seen["verdict"], seen["taken_back"], seen["charge"]) == ("refuted", CHARGE, CHARGE)
    assert seen["status"].startswith("done, but the result was wrong")
    assert seen["status"].endswith("were refunded")
    assert seen["corrected"] == {"result": '"right"', "result_artifact": None, "outputs": []}
    told = (await pool.sam.get("/events", params={"job_id": wrong})).json()["events"]
    [event] = [event for event in told if event["action"] == "result.refuted"]
    assert event["data"] == {"taken_back": CHARGE, "sentence": seen["status"]}
    bill = (await pool.sam.get(f"/jobs/{wrong}/cost")).json()
    assert bill["sentence"].endswith("proven wrong afterwards, and all of it came back.")
    entries = (await pool.sam.get("/credits/statement", params={"job_id": wrong})).json()["entries"]
    back = [entry for entry in entries if entry["kind"] == "take_back"]
    assert sorted(entry["change"] for entry in back) == sorted((PAY, FEE))
    assert back[0]["text"] == f"Came back: the result of job {wrong} was wrong."


@pytest.mark.soak
async def test_the_right_files_can_be_read(pool: Pool) -> None:
    [wrong] = await pool.believed('"wrong"')
    await pool.penalise()
    for _ in range(2):
        node, grant = await pool.take(pool.nodes[1:])
        digest = await upload(node.client, b"right")
        await pool.report(node, grant, outputs=[{"name": "out.txt", "digest": digest, "size": 5}])
    seen = await job(pool.sam, wrong)
    assert (seen["outputs"], seen["corrected"]["outputs"][0]["name"]) == ([], "out.txt")
    assert (await pool.sam.get(f"/artifacts/{digest}")).content == b"right"


async def test_nobody_sees_a_hub_job_and_no_node_can_tell(pool: Pool) -> None:
    past = await pool.believed('"right"', '"right"')
    caught = await pool.penalise()
    ordinary = pool.seen[0]
    node, hub_job = await pool.take(pool.nodes[1:])
    assert hub_job.job_id not in (*past, caught)
    named = {"attempt_id", "job_id", "lane", "paid_ms"}  # budgets differ from job to job anyway
    assert hub_job.model_dump(exclude=named) == ordinary.model_dump(exclude=named)
    for client in (pool.sam, pool.hub.admin):
        listed = {found["id"] for found in (await client.get("/jobs")).json()["jobs"]}
        assert listed == {*past, caught}
    assert (await pool.sam.get(f"/jobs/{hub_job.job_id}")).status_code == 404
    after = await pool.sam.post("/jobs", json=body(spec=HOUR, after=[hub_job.job_id]))
    assert after.status_code == 422
    told = (await pool.sam.get("/events")).json()["events"]
    assert hub_job.job_id not in {event["job_id"] for event in told}
    queue = (await pool.sam.get("/queue")).json()
    assert all(hub_job.job_id not in row["jobs"] for row in queue["nodes"])
    await pool.report(node, hub_job, result='"right"')
    board = (await pool.sam.get("/credits/leaderboard")).json()
    assert [place["name"] for place in board["borrowers"]] == ["sam"]
    known = (await pool.hub.admin.get("/accounts")).json()["accounts"]
    assert [(one["name"], one["roles"]) for one in known if one["id"] == POOL_ACCOUNT] == [("(pool)", ["pool"])]


@pytest.mark.soak
async def test_what_has_matured_is_not_taken_back(pool: Pool) -> None:
    [wrong] = await pool.believed('"wrong"')
    await pool.penalise()
    await pool.run(pool.nodes[1:])
    node, grant = await pool.take(pool.nodes[1:])
    pool.hub.hub.clock.advance(round(pool.hub.hub.settings.holdback_s * 1000))  # type: ignore[attr-defined]
    assert await credits_service.mature(pool.hub.hub)
    before = await balances_of(pool.hub, pool.sam)
    await pool.report(node, grant, result='"right"')
    seen = await job(pool.sam, wrong)
    assert (seen["verdict"], seen["taken_back"]) == ("refuted", None)
    assert "nothing was refunded" in seen["status"]
    assert await balances_of(pool.hub, pool.sam) == before


@pytest.mark.soak
async def test_what_was_taken_back_never_matures(pool: Pool) -> None:
    await pool.believed('"wrong"', '"right"')
    await pool.penalise()
    for _ in range(3):
        await pool.run(pool.nodes[1:])
    pool.hub.hub.clock.advance(round(pool.hub.hub.settings.holdback_s * 1000))  # type: ignore[attr-defined]
    assert await credits_service.mature(pool.hub.hub)
    sleeper = await pool.owner(pool.sleeper)
    assert await balance(pool.hub, ledger.earn(sleeper)) == 0
    assert await balance(pool.hub, ledger.owner(sleeper)) == PAY


@pytest.mark.soak
async def test_a_checker_that_is_wrong_is_penalised_in_its_turn(pool: Pool) -> None:
    [right] = await pool.believed('"right"')
    await pool.penalise()
    liar = await pool.run(pool.nodes[1:], '"lie"')
    earned = await balance(pool.hub, ledger.earn(await pool.owner(liar)))
    await pool.run(others(pool.nodes[1:], liar))
    assert await pool.verdicts([right]) == ["confirmed"]
    assert (await pool.reputation(liar))["violation_count"] == 1
    assert await balance(pool.hub, ledger.earn(await pool.owner(liar))) == earned - PAY
    assert {row.verdict: row.taken_back for row in await pool.hub_jobs()} == {"refuted": CHARGE, "confirmed": None}


@pytest.mark.soak
async def test_three_different_results_change_nothing_and_are_not_tried_again(pool: Pool) -> None:
    [job_id] = await pool.believed('"one"')
    await pool.penalise()
    await pool.run(pool.nodes[1:], '"two"')
    await pool.run(pool.nodes[1:], '"three"')
    assert await pool.verdicts([job_id]) == ["unchecked"]
    await pool.penalise()
    assert len(await pool.hub_jobs()) == 2
    assert (await pool.reputation(pool.sleeper))["violation_count"] == 2


@pytest.mark.soak
async def test_a_hub_job_that_fails_or_expires_says_nothing(pool: Pool) -> None:
    past = await pool.believed('"right"', '"right"')
    await pool.penalise()
    node, grant = await pool.take(pool.nodes[1:])
    await pool.report(node, grant, outcome="failed", reason="exit_nonzero", exit_code=3)
    pool.hub.hub.nodes.registry.fleet.set_available(node.node_id, False)
    pool.hub.hub.clock.advance(round(pool.hub.hub.settings.holdback_s * 1000) + 1)  # type: ignore[attr-defined]
    await leases.expire_overdue(pool.hub.hub)
    assert await pool.verdicts(past) == ["unchecked", "unchecked"]
    assert await balance(pool.hub, ledger.escrow(POOL_ACCOUNT)) == 0


@pytest.mark.soak
async def test_only_what_may_be_compared_is_checked_again(pool: Pool) -> None:
    """Not what its submitter wants unchecked, not what is older, and not what one's own node did."""
    await pool.believed('"old"')
    pool.hub.hub.clock.advance(round(pool.hub.hub.settings.recheck_age_s * 1000))  # type: ignore[attr-defined]
    await pool.believed('"random"', verify="none")
    [wanted] = await pool.believed('"right"')
    await pool.penalise()
    assert [row.hub_job for row in await pool.hub_jobs()] == [f"recheck:{wanted}:1"]


@pytest.mark.soak
async def test_what_a_violation_may_cost_the_pool_is_bounded(pool: Pool) -> None:
    """Who is wrong on purpose must not let a friend be paid much for looking again."""
    past = await pool.believed('"right"', '"right"', '"right"')
    pool.hub.hub.settings.recheck_spend = 2 * MOST + 1
    await pool.penalise()
    assert {row.hub_job for row in await pool.hub_jobs()} == {f"recheck:{id_}:1" for id_ in past[1:]}
    assert {row.hold for row in await pool.hub_jobs()} == {MOST}
    assert await balance(pool.hub, ledger.escrow(POOL_ACCOUNT)) == 2 * MOST
    _, grant = await pool.take(pool.nodes[1:])
    assert grant.paid_ms == affordable_ms(grant.price, MOST)


@pytest.mark.soak
async def test_a_job_whose_inputs_are_gone_is_left_alone(pool: Pool) -> None:
    digest = await upload(pool.sam, b"input")
    spec = HOUR | {"inputs": [{"name": "in.txt", "digest": digest, "size": 5}]}
    [gone] = await pool.believed('"right"', spec=spec)
    other = await upload(pool.sam, b"another")
    spec = HOUR | {"inputs": [{"name": "in.txt", "digest": other, "size": 7}]}
    [kept] = await pool.believed('"right"', spec=spec)
    assert (await pool.sam.delete(f"/artifacts/{digest}")).status_code == 204
    await pool.penalise()
    assert [row.hub_job for row in await pool.hub_jobs()] == [f"recheck:{kept}:1"]
    node, grant = await pool.take(pool.nodes[1:])
    assert (await node.client.get(f"/artifacts/{other}")).content == b"another"
    assert (await pool.sam.get("/artifacts")).text.count(grant.job_id) == 0
    assert gone != kept


@pytest.mark.soak
async def test_the_last_ones_only_and_a_replay_changes_nothing(pool: Pool) -> None:
    pool.hub.hub.settings.recheck_max = 2
    past = await pool.believed('"wrong"', '"wrong"', '"wrong"')
    await pool.penalise()
    assert {row.hub_job for row in await pool.hub_jobs()} == {f"recheck:{id_}:1" for id_ in past[1:]}
    for _ in range(3):
        await pool.run(pool.nodes[1:])
    node, grant = await pool.take(pool.nodes[1:])
    await pool.report(node, grant, result='"right"')
    before = await balances_of(pool.hub, pool.sam)
    assert await node.report(grant.attempt_id, ran_ms=RAN_MS, result='"right"') == "replay"
    assert await balances_of(pool.hub, pool.sam) == before
    assert [row.hub_job for row in await pool.hub_jobs()][:1] == [f"recheck:{past[0]}:1"], "the next violation's round"


@pytest.mark.soak
async def test_results_are_checked_again_as_their_submitter_compares_them(pool: Pool) -> None:
    """Within the tolerance; and not at all where only a function of the submitter's could tell."""
    near, far = await pool.believed("0.5", "0.6", compare="tolerance:1e-6")
    [shown] = await submit(pool.sam, spec=HOUR, needs=FIRST, compare="tolerance:1e-6")
    await _prints(pool, [pool.sleeper], "loss 0.5")
    [left] = await pool.believed("0.5", compare_function={"function": "AA=="})
    await pool.penalise()
    for _ in range(4):  # the wrong one twice
        node, grant = await pool.take(pool.nodes[1:])
        about = {row.id: row.hub_job for row in await pool.hub_jobs()}[grant.job_id]
        if shown in about:
            await _prints(pool, [node], "loss 0.50000001")
        else:
            await pool.report(node, grant, result="0.50000001" if about.endswith("1") else "0.5")
    assert await pool.verdicts([near, far, shown, left]) == ["confirmed", "refuted", "confirmed", "unchecked"]


async def _prints(pool: Pool, nodes: list[NodeDouble], text: str) -> None:
    node, grant = await pool.take(nodes)
    pool.hub.hub.clock.advance(RAN_MS + 1_000)  # type: ignore[attr-defined]
    node.sign_in()
    digest = hashlib.sha256(text.encode()).hexdigest()
    report = node.make_report(grant.attempt_id, printed=digest, printed_chars=len(text), ran_ms=RAN_MS)
    log = {"attempt_id": grant.attempt_id, "stream": "stdout", "text": text}
    assert await node.report_all([report], logs=[log]) == ["accepted"]
