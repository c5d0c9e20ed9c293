"""Pay taken back because a result was wrong: in random stories, in races, and with planted faults."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from computepool.core.money import ledger
from computepool.core.money.pricing import PPM
from computepool.hub.identity.access import POOL_ACCOUNT
from computepool.hub.jobs import transactions
from computepool.hub.money import credits as credits_service
from computepool.hub.settlement.verification import rechecks, sampling
from tests.hub.money.ledger.conftest import Fresh
from tests.hub.money.ledger.story import told
from tests.hub.money.ledger.test_machine import HOLDBACK_S, PICKS, TIMES, Money, tell
from tests.hub.money.ledger.test_mutants import CORE, HUB, Mutant, find_place, plant
from tests.hub.money.ledger.test_races import TOPOLOGIES, party, request, spoken
from tests.hub.money.ledger.twins import Twin

HOUR_MS = 3_600_000


class WithTakeBacks(Money):
    @precondition(lambda self: self.books.paid)
    @rule(which=PICKS, times=TIMES)
    def prove_wrong(self, which: int, times: int) -> None:
        job = list(self.books.paid)[which % len(self.books.paid)]
        answers = self.insist(lambda twin: twin.prove_wrong(job), times)
        back = self.books.take_back(job)
        assert answers == [back, *[0] * (times - 1)]
        self.happened["taken back" if back else "too late"] += 1

    @precondition(lambda self: self.books.paid and self.books.maturing)
    @rule(which=PICKS)
    def mature_at_once(self, which: int) -> None:
        """In one commit with a refutation: whichever comes second must see the first."""
        job = list(self.books.paid)[which % len(self.books.paid)]

        async def both(twin: Twin) -> int:
            back, _ = await asyncio.gather(twin.prove_wrong(job), twin.mature())
            return back

        assert self.run(both) == self.books.take_back(job)
        self.books.mature(self.twins.now_ms)


STORY: tuple[Callable[[WithTakeBacks], None], ...] = (
    lambda it: it.submit(**told(items=3, cores=0.5)),
    lambda it: it.work(1, 1_234_567, 2 * HOUR_MS),
    lambda it: it.prove_wrong(1, 3),
    lambda it: it.wait(HOLDBACK_S * 1000),
    lambda it: it.mature_at_once(0),
    lambda it: it.prove_wrong(0, 2),  # too late
    lambda it: it.submit(**told()),
    lambda it: it.work(1, 777_777, HOUR_MS),
    lambda it: it.wait(HOLDBACK_S * 1000),
    lambda it: it.prove_wrong(0, 1),  # ripe, but nobody has looked yet
    lambda it: it.mature(2),
)


class OnSqlite(WithTakeBacks):
    databases = ("sqlite",)


@pytest.mark.soak
def test_a_story_takes_pay_back_in_time_and_too_late(fresh: Fresh) -> None:
    OnSqlite.happened.clear()
    tell(OnSqlite, fresh, STORY)
    assert OnSqlite.happened["taken back"]
    assert OnSqlite.happened["too late"]


@pytest.mark.soak
def test_any_story_of_taking_back_agrees_with_the_books(fresh: Fresh) -> None:
    OnSqlite.fresh = staticmethod(fresh)
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    run_state_machine_as_test(OnSqlite, settings=settings(max_examples=3, stateful_step_count=12, phases=phases))


MUTANTS = {
    "what has matured is taken back": Mutant(
        f"{HUB}.money.holds:_has_matured", "pay.seq <= ledger_rows.last_matured(tx.connection, owner_id)", "False"
    ),
    "the fee stays": Mutant(f"{CORE}.ledger:take_back", "user(account_id), fee, Kind", "user(account_id), 0, Kind"),
    "it goes to the other purse": Mutant(
        f"{CORE}.ledger:take_back", "Leg(earn(owner_id), user(account_id)", "Leg(earn(owner_id), owner(account_id)"
    ),
    "what was taken back matures": Mutant(f"{HUB}.money.ledger_rows:_pays", ", ~taken_back", ""),
    "the job does not say so": Mutant(
        f"{HUB}.money.holds:take_back", "recheck_rows.set_taken_back(tx, job.id, amount)", "pass"
    ),
}


def test_every_fault_still_has_its_place() -> None:
    for mutant in MUTANTS.values():
        find_place(mutant)


@pytest.mark.soak
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str, fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(MUTANTS[name], monkeypatch)
    with pytest.raises(Exception) as found:
        tell(OnSqlite, fresh, STORY)
    assert not isinstance(found.value, SyntaxError | NameError | TypeError | AttributeError), found.value


@pytest.mark.soak
@pytest.mark.parametrize(("database", "hubs"), TOPOLOGIES)
async def test_taking_back_and_maturing_at_once(fresh: Fresh, tmp_path: Path, database: str, hubs: int) -> None:
    """Each pay is either taken back or matures, whichever hub was first."""
    async with party(fresh(database), tmp_path, hubs=hubs) as all_of:
        sam = all_of.people["sam"]
        jobs = (await all_of.first.submit(sam, request(40), key="jobs")).job_ids
        given = await all_of.first.lease(all_of.first.nodes[0])
        all_of.advance(HOUR_MS)
        reports = [spoken(attempt.id, "succeeded", 1_000) for attempt in given]
        await all_of.first.report(all_of.first.nodes[0], *reports)
        proofs = [lambda twin, job=job: twin.prove_wrong(job) for job in jobs * 2]
        answers, refusals = await all_of.race([*proofs, *[Twin.mature] * 20], seed=7)
        assert refusals == []
        assert all_of.broken() == []
        assert sum(isinstance(answer, int) and answer > 0 for answer in answers) <= len(jobs)


@pytest.mark.soak
@pytest.mark.parametrize(("database", "hubs"), TOPOLOGIES)
async def test_two_violations_at_once_check_each_result_once(
    fresh: Fresh, tmp_path: Path, database: str, hubs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool's account receives exactly what the checks cost."""
    monkeypatch.setattr(sampling, "_draw", lambda _hub, _attempt: PPM)
    async with party(fresh(database), tmp_path, hubs=hubs) as all_of:
        wanted = request(30, verify="adaptive")
        jobs = (await all_of.first.submit(all_of.people["sam"], wanted, key="jobs")).job_ids
        given = await all_of.first.lease(all_of.first.nodes[0])
        all_of.advance(HOUR_MS)
        await all_of.first.report(all_of.first.nodes[0], *(spoken(attempt.id, "succeeded", 1_000) for attempt in given))
        penalised = all_of.first.nodes[0].principal.node_id

        async def penalise(twin: Twin) -> None:
            await transactions.write(twin.hub, lambda tx: rechecks.start(tx, penalised))

        _, refusals = await all_of.race([penalise] * 16, seed=3)
        assert refusals == []
        assert all_of.broken() == []
        assert len(all_of.first.job_states()) == 2 * len(jobs)
        assert all_of.first.balances().get(ledger.user(POOL_ACCOUNT)) is None


@pytest.mark.parametrize("matures_first", [True, False])
async def test_units_of_one_commit_see_each_other(fresh: Fresh, tmp_path: Path, matures_first: bool) -> None:
    """Transfers are written at the end of the commit, so neither finds the other's in the database."""
    async with party(fresh("sqlite"), tmp_path, hubs=1, holdback_s=HOLDBACK_S) as all_of:
        hub, owner = all_of.first, all_of.people["ann"].account_id
        jobs = []
        for place in range(2):  # the second pay is not ripe yet: a purse with something left in it hides mistakes
            jobs += (await hub.submit(all_of.people["sam"], request(), key=f"job {place}")).job_ids
            [attempt] = await hub.lease(hub.nodes[0])
            all_of.advance(HOLDBACK_S * 1000)
            await hub.report(hub.nodes[0], spoken(attempt.id, "succeeded", 1_000))
        written, gate = hub.hub.store.write, threading.Event()
        units = [
            written(lambda tx: credits_service._mature(tx, names=[owner], settings=hub.hub.settings)),
            hub.prove_wrong(jobs[0]),
        ]
        shut = asyncio.ensure_future(written(lambda _: gate.wait(60)))
        both = [asyncio.ensure_future(unit) for unit in (units if matures_first else reversed(units))]
        await asyncio.sleep(0)  # all three are on their way, and the last two in one commit
        gate.set()
        answers = await asyncio.gather(*both)
        await shut
        matured, back = answers if matures_first else reversed(answers)
        assert (matured, back > 0) == ((1, False) if matures_first else (0, True))
        assert hub.broken() == []
