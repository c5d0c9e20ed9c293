"""Random stories about money, run by two real hubs and by the model: SQLite, PostgreSQL and the books agree.

Everything is said one to three times with the same key or the same words, and has one effect.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from computepool.core.errors import BadRequest, InsufficientCredits
from computepool.core.jobs.lifecycle import TERMINAL, JobState, Outcome, Reason
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import Zone
from computepool.hub.identity.access import Principal
from computepool.protocol.jobs.jobs import Item, JobSpec, Needs, SubmitRequest
from computepool.protocol.nodes.nodes import Report
from tests.hub.money.ledger.books import HOUR_MS, Books
from tests.hub.money.ledger.conftest import Fresh
from tests.hub.money.ledger.story import STORY
from tests.hub.money.ledger.twins import Node, Twin, Twins

T = TypeVar("T")
NAMES = ("ann", "bob", "eve")
REGIONS = ("in", "us")
REFERENCE = {"in": 5_600_000, "us": 8_000_000}  #: of a core, for an hour
GRANT = 30 * CREDIT
HOLDBACK_S = 600
SOURCES = {"bank": "ext:bank", "promo": "platform:promo"}
OVER = {state.value for state in TERMINAL}

PEOPLE = st.integers(min_value=0, max_value=len(NAMES) - 1)
PICKS = st.integers(min_value=0, max_value=10**6)
TIMES = st.integers(min_value=1, max_value=3)
CORES = st.sampled_from([0.5, 1, 3, 64])
TIMEOUTS = st.sampled_from([0.001, 60, 1000.5, 3600, 7200])
CEILINGS = st.one_of(st.none(), st.just(0), st.integers(min_value=1, max_value=100 * CREDIT))
BUDGETS = st.one_of(st.none(), st.integers(min_value=1, max_value=9), st.integers(1, 50 * CREDIT))
OUTCOMES = st.sampled_from(["succeeded", "succeeded", "succeeded", "failed", "node_error", "returned"])
RAN_MS = st.one_of(st.integers(min_value=0, max_value=100), st.integers(min_value=0, max_value=8 * HOUR_MS))


def spoken(attempt_id: str, outcome: str, ran_ms: int) -> Report:
    said: dict[str, tuple[Outcome, Reason]] = {
        "succeeded": (Outcome.SUCCEEDED, Reason.COMPLETED),
        "failed": (Outcome.FAILED, Reason.EXIT_NONZERO),
        "node_error": (Outcome.FAILED, Reason.NODE_ERROR),
        "returned": (Outcome.RETURNED, Reason.GIVEN_BACK),
    }
    word, reason = said[outcome]
    return Report(attempt_id=attempt_id, outcome=word, reason=reason, ran_ms=ran_ms)


#: What the story with everything must bring about.
SOMETIMES = {
    *("refused", "paid for", "own node", "released", "late", "replay", "hold spent", "earnings held"),
    *("matured", "payout paid", "payout returned", "cancelled", "expired", "ceiling too low"),
}


class Money(RuleBasedStateMachine):
    fresh: ClassVar[Fresh]
    databases: ClassVar[tuple[str, ...]] = ("sqlite", "postgresql")
    happened: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.books = Books(holdback_ms=HOLDBACK_S * 1000)
        self.people: list[Principal] = []
        self.nodes: list[Node] = []
        self.running: dict[str, Node] = {}  #: attempt → where; also when it is over
        self.words: dict[str, int] = {}  #: attempt → how long its accepted report says it ran
        self.payouts: list[str] = []
        self.spots = dict(REFERENCE)
        self.number = 0
        databases = [type(self).fresh(name) for name in self.databases]
        chosen = {"signup_grant": GRANT, "holdback_s": HOLDBACK_S, "node_faults_max": 3}
        twins = [Twin(url, Path(self.folder.name) / str(place), **chosen) for place, url in enumerate(databases)]
        self.twins = Twins(twins)

    def teardown(self) -> None:
        try:
            if self.people:
                self.twins.look(closely=True)
        finally:
            for twin in self.twins.both:
                self.runner.run(twin.stop())
                twin.close()
            self.runner.close()
            self.folder.cleanup()

    def run(self, action: Callable[[Twin], Awaitable[T]]) -> T:
        return self.runner.run(self.twins.do(action))

    def insist(self, action: Callable[[Twin], Awaitable[T]], times: int) -> list[T]:
        """Send it several times at once: they may share a commit, or not."""

        async def all_of_them(twin: Twin) -> list[Any]:
            said = await asyncio.gather(*(action(twin) for _ in range(times)), return_exceptions=True)
            return [repr(answer) if isinstance(answer, Exception) else answer for answer in said]

        return self.run(all_of_them)

    def key(self) -> str:
        self.number += 1
        return f"key {self.number}"

    @initialize()
    def open(self) -> None:
        async def begin(twin: Twin) -> tuple[list[Principal], list[str]]:
            await twin.start()
            for region in REGIONS:
                twin.set_spot(Zone("cpu", region), REFERENCE[region])
            people = [await twin.account(name) for name in NAMES]
            for place, owner in enumerate(people[:2]):
                await twin.node(owner, seed=bytes([place + 1]) * 32, region=REGIONS[place])
            return people, [node.principal.node_id for node in twin.nodes]

        self.people, _ = self.run(begin)
        self.nodes = self.twins.both[0].nodes
        for person in self.people:
            self.books.move("platform:promo", f"user:{person.account_id}", GRANT)

    # the submitter

    @rule(
        who=PEOPLE,
        times=TIMES,
        items=st.integers(min_value=1, max_value=3),
        cores=CORES,
        timeout_s=TIMEOUTS,
        max_price=CEILINGS,
        budget=BUDGETS,
        retries=st.integers(min_value=0, max_value=1),
        after=st.one_of(st.none(), PICKS),
        ttl_s=st.sampled_from([300, 10**6]),
    )
    def submit(self, *, who: int, times: int, items: int, after: int | None, **wanted: Any) -> None:
        person, key = self.people[who], self.key()
        request = self._request(person, items=items, after=after, **wanted)
        timeout_ms = -int(-wanted["timeout_s"] * 1000 // 1)
        ceilings = self._ceilings(request)
        try:
            reply = self.run(lambda twin: twin.submit(person, request, key=key))
        except InsufficientCredits:
            most = self._each(ceilings[-1], timeout_ms, items, wanted["budget"])
            assert most * items > self.books.available(person.account_id)
            self.happened["refused"] += 1
            return
        except BadRequest:
            assert wanted["budget"] is not None
            assert wanted["budget"] < items
            return
        assert reply.max_price in ceilings
        each = self._each(reply.max_price, timeout_ms, items, wanted["budget"])
        assert reply.hold == each * items
        self.books.hold(person.account_id, reply.job_ids, each=each, timeout_ms=timeout_ms)
        self.happened["earnings held"] += any(self.books.jobs[job].earned for job in reply.job_ids)
        again = self.insist(lambda twin: twin.submit(person, request, key=key), times)
        assert again == [reply] * times

    def _request(self, person: Principal, *, items: int, after: int | None, **wanted: Any) -> SubmitRequest:
        mine = [job for job, held in self.books.jobs.items() if held.account == person.account_id]
        waits = [job for job in mine if not self.books.jobs[job].over]
        spec = JobSpec(
            kind="command",
            name="x",
            argv=["/bin/true"],
            timeout_s=wanted["timeout_s"],
            needs=Needs(cores=wanted["cores"], ram_mb=1, disk_mb=1),
        )
        return SubmitRequest(
            spec=spec,
            items=[Item()] * items,
            retries=wanted["retries"],
            max_price=wanted["max_price"],
            budget=wanted["budget"],
            ttl_s=wanted["ttl_s"],
            after=[waits[after % len(waits)]] if waits and after is not None else [],
        )

    def _ceilings(self, request: SubmitRequest) -> range:
        """What was named; else twice the dearest zone, a little more, and never more than the highest price there is.

        Nobody is connected while jobs are submitted here, so every zone that has a price counts.
        """
        if request.max_price is not None:
            return range(request.max_price, request.max_price + 1)
        milli = max(1, round(request.spec.needs.cores * 1000))
        bounds = [
            (2 * (spot * milli // 1000), 4 * REFERENCE[name] * milli // 1000) for name, spot in self.spots.items()
        ]
        least = max(min(twice, highest) for twice, highest in bounds)
        return range(least, least + least // 10 + 2)

    @staticmethod
    def _each(ceiling: int, timeout_ms: int, items: int, budget: int | None) -> int:
        most = ceiling * timeout_ms // HOUR_MS
        return most if budget is None else min(most, budget // items)

    def unfinished(self) -> list[str]:
        return [job for job, held in self.books.jobs.items() if not held.over]

    @precondition(lambda self: self.books.jobs)
    @rule(which=PICKS, times=TIMES)
    def cancel(self, which: int, times: int) -> None:
        jobs = self.unfinished() or list(self.books.jobs)
        job = jobs[which % len(jobs)]
        [person] = [who for who in self.people if who.account_id == self.books.jobs[job].account]
        answers = self.insist(lambda twin: twin.cancel(person, job), times)
        assert len(set(answers)) == 1

    # the nodes

    @precondition(lambda self: self.unfinished())
    @rule(which=st.integers(min_value=0, max_value=1))
    def lease(self, which: int) -> None:
        node = self.nodes[which]
        given = self.run(lambda twin: twin.lease(twin.nodes[which]))
        self.happened["ceiling too low"] += bool(self.twins.both[0].hub.jobs.queue.backlog.shapes())
        for attempt in given:
            self.running[attempt.id] = node
            units = attempt.units
            price = self.spots[node.region] * units // 1000
            owner = node.principal.owner
            self.books.lease(attempt.job_id, attempt.number, owner=owner, price=price, now_ms=self.twins.now_ms)
            assert attempt.price == self.books.jobs[attempt.job_id].tries[attempt.number][1]

    @precondition(lambda self: self.running)
    @rule(said=st.lists(st.tuples(PICKS, OUTCOMES, RAN_MS), min_size=1, max_size=3), times=TIMES)
    def report(self, said: list[tuple[int, str, int]], times: int) -> None:
        ids = list(self.running)
        chosen = [(ids[which % len(ids)], outcome, ran_ms) for which, outcome, ran_ms in said]
        place = self.nodes.index(self.running[chosen[0][0]])
        batch = [
            spoken(id_, outcome, ran_ms) for id_, outcome, ran_ms in chosen if self.running[id_] is self.nodes[place]
        ]
        self._tell(place, batch, times=times)

    def _tell(self, place: int, batch: list[Report], *, times: int) -> None:
        verdicts = self.run(lambda twin: twin.report(twin.nodes[place], *batch))
        for report, verdict in zip(batch, verdicts, strict=True):
            if verdict in ("accepted", "accepted_late") and report.outcome is Outcome.SUCCEEDED:
                self.words[report.attempt_id] = report.ran_ms
                self.happened["late"] += verdict == "accepted_late"
        again = self.insist(lambda twin: twin.report(twin.nodes[place], *batch), times)
        assert all(verdict in ("replay", "conflict") for answer in again for verdict in answer)
        self.happened["replay"] += sum(answer.count("replay") for answer in again)

    @precondition(lambda self: self.unfinished())
    @rule(which=st.integers(min_value=0, max_value=1), ran_ms=RAN_MS, wait_ms=RAN_MS)
    def work(self, which: int, ran_ms: int, wait_ms: int) -> None:
        """A node takes what there is, and succeeds."""
        before = set(self.running)
        self.lease(which)
        self.twins.advance(wait_ms)
        batch = [spoken(id_, "succeeded", ran_ms) for id_ in self.running if id_ not in before]
        if batch:
            self._tell(which, batch, times=1)

    @precondition(lambda self: self.unfinished())
    @rule(which=st.integers(min_value=0, max_value=1), ran_ms=RAN_MS)
    def come_too_late(self, which: int, ran_ms: int) -> None:
        """A node is silent for longer than its leases, and then reports its results."""
        before = set(self.running)
        self.lease(which)
        self.twins.advance(HOUR_MS)
        self.expire(1)
        self._follow(self.twins.look().job_states())
        batch = [spoken(id_, "succeeded", ran_ms) for id_ in self.running if id_ not in before]
        if batch:
            self._tell(which, batch, times=2)

    @rule(which=st.integers(min_value=0, max_value=1), who=PEOPLE)
    def make_an_owner_rich(self, which: int, who: int) -> None:
        self.top_up(who, 4_000 * CREDIT, "bank", 1)
        wanted = {"cores": 64, "timeout_s": 7200, "max_price": None, "budget": None, "retries": 0}
        self.submit(who=who, times=1, items=1, after=None, ttl_s=10**6, **wanted)
        self.work(which, 2 * HOUR_MS, 3 * HOUR_MS)
        self._follow(self.twins.look().job_states())
        self.twins.advance(HOLDBACK_S * 1000)
        self.mature(2)

    # money in, money out

    @rule(
        who=PEOPLE,
        amount=st.integers(min_value=1, max_value=3_000 * CREDIT),
        source=st.sampled_from(["bank", "promo"]),
        times=TIMES,
    )
    def top_up(self, who: int, amount: int, source: str, times: int) -> None:
        person, key = self.people[who], self.key()
        answers = self.insist(lambda twin: twin.top_up(person, amount, source=source, key=key), times)
        assert all(answer == answers[0] for answer in answers)
        self.books.move(SOURCES[source], f"user:{person.account_id}", amount)
        assert answers[0].available == self.books.available(person.account_id)
        [other] = self.insist(lambda twin: twin.top_up(person, amount + 1, source=source, key=key), 1)
        assert "Conflict" in repr(other), "the key was for another amount"

    @precondition(lambda self: self.books.maturing)
    @rule(times=TIMES)
    def mature(self, times: int) -> None:
        self.insist(lambda twin: twin.mature(), times)
        self.happened["matured"] += self.books.mature(self.twins.now_ms)

    @rule(who=PEOPLE, rupees=st.integers(min_value=499, max_value=900), times=TIMES)
    def ask_for_a_payout(self, who: int, rupees: int, times: int) -> None:
        rich = [one for one in self.people if self.books.balances[f"owner:{one.account_id}"] >= 500 * CREDIT]
        person, key, amount = ((rich or self.people)[who % len(rich or self.people)], self.key(), rupees * CREDIT)
        matured = self.books.balances[f"owner:{person.account_id}"]
        answers = self.insist(lambda twin: twin.ask_payout(person, amount, key=key), times)
        assert all(answer == answers[0] for answer in answers)
        if rupees < 500 or amount > matured:
            assert "BadRequest" in answers[0] if rupees < 500 else "InsufficientCredits" in answers[0]
            return
        assert not isinstance(answers[0], str), answers[0]
        self.books.reserve(person.account_id, answers[0].id, amount)
        self.payouts.append(answers[0].id)

    @precondition(lambda self: self.books.payouts)
    @rule()
    def send_payouts(self) -> None:
        self.run(lambda twin: twin.send_payouts())

    @precondition(lambda self: self.payouts)
    @rule(which=PICKS, how=st.sampled_from(["approve", "approve", "paid", "failed", "reject"]), times=TIMES)
    def decide_a_payout(self, which: int, how: str, times: int) -> None:
        payouts = list(self.books.payouts) or self.payouts
        payout, key = payouts[which % len(payouts)], self.key()
        answers = self.insist(lambda twin: twin.end_payout(payout, how, key=key), times)
        assert len(set(answers)) == 1
        if answers[0] in ("paid", "failed", "rejected"):
            self.books.end_payout(payout, paid=answers[0] == "paid")
            self.happened["payout paid" if answers[0] == "paid" else "payout returned"] += 1

    # time

    @rule(ms=st.sampled_from([1, 999, 59_000, 400_000, HOUR_MS, 3 * HOUR_MS]))
    def wait(self, ms: int) -> None:
        self.twins.advance(ms)

    @precondition(lambda self: self.unfinished())
    @rule(times=TIMES)
    def expire(self, times: int) -> None:
        self.insist(lambda twin: twin.expire(), times)

    @rule(region=st.sampled_from(REGIONS), percent=st.integers(min_value=25, max_value=400))
    def move_the_market(self, region: str, percent: int) -> None:
        self.spots[region] = REFERENCE[region] * percent // 100
        for twin in self.twins.both:
            twin.set_spot(Zone("cpu", region), self.spots[region])

    @precondition(lambda self: self.unfinished())
    @rule()
    def restart_the_hubs(self) -> None:
        self.run(lambda twin: twin.restart())

    # what must be

    @invariant()
    def everybody_agrees(self) -> None:
        if not self.people:
            return
        seen = self.twins.look()
        self._follow(seen.job_states())
        expected = {name: amount for name, amount in self.books.balances.items() if amount}
        assert seen.balances() == expected

    def _follow(self, states: dict[str, tuple[str, int | None, int | None]]) -> None:
        """Follow the money of jobs that are over; whether they should be over is for other tests."""
        assert states.keys() == self.books.jobs.keys()
        for job, (state, accepted, charge) in states.items():
            if state not in OVER or self.books.jobs[job].over:
                continue
            expected = 0
            if state == JobState.SUCCEEDED:
                assert accepted is not None
                ran_ms = self.words[f"{job}-{accepted}"]
                expected = self.books.accept(job, accepted, ran_ms=ran_ms, now_ms=self.twins.now_ms)
            else:
                self.books.release(job)
            assert charge == expected
            self._note(job, state, charge)

    def _note(self, job: str, state: str, charge: int) -> None:
        held = self.books.jobs[job]
        dear = any(price > 0 for _, price, _ in held.tries.values())
        self.happened["paid for"] += charge > 0
        self.happened["hold spent"] += charge > 0 and charge == held.amount
        self.happened["own node"] += state == "succeeded" and held.amount > 0 and not dear
        self.happened["released"] += state != "succeeded" and held.amount > 0
        self.happened[state] += 1


def tell(kind: type[Money], fresh: Fresh, story: Sequence[Callable[[Any], object]] = STORY) -> None:
    kind.fresh = staticmethod(fresh)
    kind.happened = Counter()
    it = kind()
    try:
        for step in (kind.open, *story):
            step(it)
            it.everybody_agrees()
    finally:
        it.teardown()


def test_a_story_with_everything_in_it(fresh: Fresh) -> None:
    tell(Money, fresh)
    assert {event for event in SOMETIMES if not Money.happened[event]} == set()


@pytest.mark.soak
def test_two_databases_and_the_books_agree(fresh: Fresh) -> None:
    Money.fresh = staticmethod(fresh)
    # Not shrunk: each try is two hubs on two new databases, and a story of this length can be read.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    run_state_machine_as_test(Money, settings=settings(max_examples=12, stateful_step_count=30, phases=phases))
