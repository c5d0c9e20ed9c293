"""Races: every attempt of a job reports twice, while holds are placed and earnings mature, and each job is paid once.

On SQLite through one hub, on PostgreSQL through two that share the database.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from computepool.core.errors import Conflict, InsufficientCredits
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import HOUR_MS
from computepool.hub.db import dialect
from computepool.hub.identity.access import Principal
from computepool.hub.observability.consistency import pool as consistency
from computepool.protocol.jobs.jobs import Item, JobSpec, Needs, SubmitRequest
from computepool.testing.clock import FakeClock
from tests.hub.money.ledger.conftest import Fresh
from tests.hub.money.ledger.test_machine import spoken
from tests.hub.money.ledger.twins import Twin

JOBS = 180
OWNERS = ("ann", "bob", "eve")
WORKERS = 8
TOPOLOGIES = [("sqlite", 1), ("postgresql", 2)]
Action = Callable[[Twin], Awaitable[object]]


@dataclass
class Party:
    """The hubs of one database, with the accounts and nodes that all of them know."""

    hubs: list[Twin]
    people: dict[str, Principal]

    @property
    def first(self) -> Twin:
        return self.hubs[0]

    def advance(self, ms: int) -> None:
        for hub in self.hubs:
            hub.clock.advance(ms)

    async def race(self, actions: Sequence[Action], *, seed: int) -> tuple[list[object], list[Exception]]:
        """Run all actions by eight workers in random order, each at a random hub. Returns answers and refusals."""
        chance = random.Random(seed)
        waiting = [(action, chance.choice(self.hubs)) for action in actions]
        chance.shuffle(waiting)
        answers: list[object] = []
        refusals: list[Exception] = []

        async def work() -> None:
            while waiting:
                action, hub = waiting.pop()
                try:
                    answers.append(await action(hub))
                except Exception as error:  # noqa: BLE001 - judged by the test
                    refusals.append(error)

        await asyncio.gather(*(work() for _ in range(WORKERS)))
        return answers, refusals

    def broken(self) -> list[str]:
        return self.first.broken()


@asynccontextmanager
async def party(url: str, folder: Path, *, hubs: int, **settings: float) -> AsyncIterator[Party]:
    chosen = {"signup_grant": 10**6 * CREDIT, "holdback_s": 0, "node_faults_max": 100, **settings}
    made = [Twin(url, folder / str(place), clock=FakeClock(seed=place), **chosen) for place in range(hubs)]
    try:
        for hub in made:
            await hub.start()
        people = {name: await made[0].account(name) for name in ("sam", *OWNERS)}
        for place, name in enumerate(OWNERS):
            await made[0].node(people[name], seed=bytes([place + 1]) * 32, region="us")
        for hub in made[1:]:
            hub.nodes = made[0].nodes
        yield Party(made, people)
    finally:
        for hub in made:
            await hub.stop()
            hub.close()


def request(items: int = 1, **fields: object) -> SubmitRequest:
    spec = JobSpec(kind="command", name="x", argv=["/bin/true"], timeout_s=3600, needs=Needs(ram_mb=1, disk_mb=1))
    return SubmitRequest(spec=spec, items=[Item()] * items, **fields)


async def leased_three_times(all_of: Party) -> list[list[str]]:
    """Jobs whose first two attempts are overdue and whose third runs: by node, the attempts it has a result for."""
    sam = all_of.people["sam"]
    await all_of.first.submit(sam, request(JOBS), key="jobs")
    by_node: list[list[str]] = []
    for place in range(len(OWNERS)):
        given = await all_of.first.lease(all_of.first.nodes[place])
        assert len(given) == JOBS
        by_node.append([attempt.id for attempt in given])
        if place < len(OWNERS) - 1:
            all_of.advance(HOUR_MS)
            await all_of.first.expire()
            all_of.advance(HOUR_MS)
    all_of.advance(1_000_000)
    return by_node


@pytest.mark.parametrize(("database", "hubs"), [pytest.param("sqlite", 1, marks=pytest.mark.soak), ("postgresql", 2)])
async def test_of_a_thousand_racing_settlements_each_job_is_paid_once(
    fresh: Fresh, tmp_path: Path, database: str, hubs: int
) -> None:
    async with party(fresh(database), tmp_path, hubs=hubs) as all_of:
        by_node = await leased_three_times(all_of)
        actions = _settling(by_node) + _spending(all_of, 60)
        assert sum(len(attempts) for attempts in by_node) * 2 >= 1_000
        answers, refusals = await all_of.race(actions, seed=1)
        assert refusals == []
        verdicts = Counter(verdict for answer in answers if isinstance(answer, list) for verdict in answer)
        states = Counter(state for state, _, _ in all_of.first.job_states().values())
        accepted = verdicts["accepted"] + verdicts["accepted_late"]
        assert accepted == states["succeeded"]
        assert states["succeeded"] + states["cancelled"] == JOBS
        assert verdicts["superseded"] > 0
        assert verdicts["replay"] >= JOBS
        assert all_of.broken() == []
        await all_of.first.mature()
        assert _left_in(all_of, "earn:") == 0
        assert all_of.broken() == []


def _settling(by_node: list[list[str]]) -> list[Action]:
    """Every attempt reports success twice, in batches of one to five, each with another run time."""
    chance = random.Random(2)
    actions: list[Action] = []
    for place, attempts in enumerate(by_node):
        for _ in range(2):
            left = list(attempts)
            chance.shuffle(left)
            while left:
                some = [left.pop() for _ in range(min(len(left), chance.randint(1, 5)))]
                reports = [spoken(id_, "succeeded", 1_000 * place + 500_000) for id_ in some]
                actions.append(lambda hub, place=place, said=reports: hub.report(hub.nodes[place], *said))
    return actions


def _spending(all_of: Party, count: int) -> list[Action]:
    """Meanwhile the owners spend what they have just earned, earnings mature, and some jobs are cancelled."""
    sam, jobs = all_of.people["sam"], sorted(all_of.first.job_states())
    actions: list[Action] = []
    for number in range(count):
        who, wanted = all_of.people[OWNERS[number % 3]], request(2, max_price=0)
        actions += [
            lambda hub, who=who, wanted=wanted, n=number: hub.submit(who, wanted, key=f"own {n // 2}"),
            _mature,
            lambda hub, job=jobs[number * 3]: hub.cancel(sam, job),
        ]
    return actions


async def _mature(hub: Twin) -> None:
    """Like the housekeeping loop, which tries again in the next round when another hub was faster."""
    for _ in range(20):
        try:
            await hub.mature()
        except Conflict:
            continue
        return
    raise AssertionError("earnings never mature")


def _left_in(all_of: Party, prefix: str) -> int:
    return sum(amount for name, amount in all_of.first.balances().items() if name.startswith(prefix))


@pytest.mark.soak
@pytest.mark.parametrize(("database", "hubs"), TOPOLOGIES)
async def test_money_that_everybody_wants_is_held_once(fresh: Fresh, tmp_path: Path, database: str, hubs: int) -> None:
    """Each submission holds three of the fifty credits; all are sent at once, to all hubs, twice."""
    grant, each = 50 * CREDIT, 3 * CREDIT
    async with party(fresh(database), tmp_path, hubs=hubs, signup_grant=grant) as all_of:
        sam = all_of.people["sam"]
        wanted = request(max_price=each)
        actions: list[Action] = [
            lambda hub, n=number // 2: hub.submit(sam, wanted, key=f"key {n}") for number in range(200)
        ]
        answers, refusals = await all_of.race(actions, seed=3)
        assert {type(error) for error in refusals} == {InsufficientCredits}
        assert len({tuple(reply.job_ids) for reply in answers}) == grant // each  # type: ignore[attr-defined]
        assert len(all_of.first.job_states()) == grant // each
        assert all_of.first.balances()[f"user:{sam.account_id}"] == grant % each
        assert all_of.broken() == []


@pytest.mark.soak
async def test_two_hubs_race_for_the_same_earnings(fresh: Fresh, tmp_path: Path) -> None:
    """Earnings can be spent, or paid out, only once, also while they mature at both hubs."""
    async with party(fresh("postgresql"), tmp_path, hubs=2, signup_grant=0) as all_of:
        ann, sam = all_of.people["ann"], all_of.people["sam"]
        await all_of.first.top_up(sam, 10_000 * CREDIT, source="bank", key="rich")
        await all_of.first.submit(sam, request(200, max_price=8 * CREDIT), key="jobs")
        given = await all_of.first.lease(all_of.first.nodes[0])
        all_of.advance(2 * HOUR_MS)
        reports = [spoken(attempt.id, "succeeded", HOUR_MS) for attempt in given]
        earned = 200 * 8 * CREDIT * 4 // 5
        actions: list[Action] = [
            *(lambda hub, said=reports[n : n + 2]: hub.report(hub.nodes[0], *said) for n in range(0, 200, 2)),
            *[_mature] * 100,
            *(lambda hub, n=n: hub.submit(ann, request(max_price=5 * CREDIT), key=f"s{n}") for n in range(100)),
            *(lambda hub, n=n: hub.ask_payout(ann, 500 * CREDIT, key=f"p{n}") for n in range(8)),
        ]
        _, refusals = await all_of.race(actions, seed=4)
        await all_of.first.mature()
        more: list[Action] = [lambda hub, n=n: hub.ask_payout(ann, 500 * CREDIT, key=f"q{n}") for n in range(8)]
        _, late = await all_of.race(more, seed=5)
        assert {type(error) for error in (*refusals, *late)} == {InsufficientCredits}
        kept = sum(_left_in(all_of, f"{purse}:{ann.account_id}") for purse in ("owner", "earn", "escrow"))
        assert kept + _left_in(all_of, "payout:") == earned
        assert _left_in(all_of, "payout:") > 0
        assert all_of.broken() == []


# what the database itself refuses


REFUSED = {
    "UPDATE transfers SET amount = amount + 1": "never changed",
    "UPDATE transfers SET ref = ref": "never changed",
    "DELETE FROM transfers": "never changed",
    "DELETE FROM transfers WHERE seq = 1": "never changed",
    "UPDATE balances SET balance = -1 WHERE account LIKE 'user:%'": "covered",
}


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_the_database_refuses_whoever_writes_to_it(fresh: Fresh, tmp_path: Path, database: str) -> None:
    statements = dict(REFUSED)
    if database == "postgresql":
        statements |= {"TRUNCATE transfers": "never changed", "TRUNCATE transfers CASCADE": "never changed"}
    async with party(fresh(database), tmp_path, hubs=1) as all_of:
        engine = dialect.make_writer(all_of.first.settings.url)
        try:
            for statement, reason in statements.items():
                with pytest.raises(DBAPIError, match=reason), engine.begin() as connection:
                    connection.execute(text(statement))
        finally:
            engine.dispose()
        with consistency.snapshot(all_of.first.settings.url) as connection:
            assert connection.execute(text("SELECT COUNT(*) FROM transfers")).scalar() == 4
        assert all_of.broken() == []
