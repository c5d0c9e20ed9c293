"""Reports in every order: each gets a definite answer, one result at most is accepted, and no job is lost.

First every order of the six things that can happen to a job, all at once; then longer stories that Hypothesis makes
up, told to the real services and to a small model of the matrix in parallel.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from computepool.core.jobs.lifecycle import NODE_FAULTS, JobState, Outcome, Reason
from computepool.protocol.nodes.nodes import Report
from tests.hub.settling import OPEN, Bench, failure, returned, success

STEPS = ("report", "duplicate", "expire", "lease again", "report of the second", "cancel")
ACCEPTED = {"accepted", "accepted_late"}


async def tell(bench: Bench, job_id: str, order: tuple[str, ...]) -> list[str]:
    """One job's story; returns the verdicts. The first lease is always there, at node 0."""
    first = await bench.lease(job_id, 0)
    assert first is not None
    second: str | None = None
    verdicts: list[str] = []
    for step in order:
        match step:
            case "report" | "duplicate":
                verdicts += await bench.report(0, success(first))
            case "expire":
                await bench.expire(*filter(None, (first, second)))
            case "lease again":
                second = await bench.lease(job_id, 1) or second
            case "report of the second" if second is not None:
                verdicts += await bench.report(1, success(second, "2"))
            case "cancel":
                await bench.cancel(job_id)
    return verdicts


@pytest.mark.soak
@pytest.mark.timeout(110)
async def test_every_order_of_what_can_happen(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    orders = list(itertools.permutations(STEPS))
    jobs = await bench.submit(len(orders))
    stories = await asyncio.gather(*(tell(bench, *told) for told in zip(jobs, orders, strict=True)))
    for seen, order, verdicts in zip(await bench.pictures(jobs), orders, stories, strict=True):
        seen.check()
        assert len(verdicts) >= 2, order
        assert sum(verdict in ACCEPTED for verdict in verdicts) == (seen.state is JobState.SUCCEEDED), order
        # The second of two equal reports is a replay, whatever came between them.
        assert "replay" in verdicts, order
        # Nothing is lost: it succeeded, or the submitter cancelled it before anybody had a result.
        assert seen.state in {JobState.SUCCEEDED, JobState.CANCELLED}, order
        first_word = min(order.index("report"), order.index("duplicate"))
        if first_word < order.index("cancel"):
            assert seen.state is JobState.SUCCEEDED, order
    await bench.stop()


# longer stories


@dataclass
class Try:
    node: int
    state: str = "live"  #: live, expired, cancelled, superseded, reported
    said: str | None = None


@dataclass
class Story:
    """What the matrix in core says a job must be, written down a second time and more simply."""

    retries: int
    state: JobState = JobState.QUEUED
    tries: list[Try] = field(default_factory=list)
    accepted: int | None = None
    job_faults: int = 0
    node_faults: int = 0
    owners: set[int] = field(default_factory=set)

    def judge(self, number: int, report: Report, *, taken: bool) -> str:
        known = self.tries[number - 1]
        if known.said is not None:
            return "replay" if known.said == report.digest() else "conflict"
        if self.state is JobState.CANCELLED:
            return "cancelled"
        if taken or self.state not in OPEN:
            return "superseded"
        if known.state == "live":
            return "accepted"
        return "accepted_late" if report.outcome is Outcome.SUCCEEDED else "superseded"

    def accept(self, number: int) -> None:
        self.state, self.accepted = JobState.SUCCEEDED, number
        self.end_live("superseded")

    def fail(self, node: int, report: Report | None) -> None:
        """None: its lease ran out."""
        if self.state not in OPEN:
            return
        hopeless = False
        if report is None or report.reason in NODE_FAULTS:
            self.node_faults += 1
            hopeless = self.node_faults >= 5
        elif report.outcome is Outcome.FAILED:
            self.job_faults += 1
            self.owners.add(node)
            hopeless = self.job_faults > self.retries or len(self.owners) >= 3
        self.state = JobState.FAILED if hopeless else JobState.QUEUED

    def end_live(self, state: str) -> None:
        for known in self.tries:
            if known.state == "live":
                known.state = state


def expect(node: int, batch: list[tuple[Story, int, Report]]) -> list[str]:
    """Verdicts are given in order; of one batch, a success counts before any failure."""
    verdicts: list[str] = []
    accepted: list[tuple[Story, int]] = []
    failed: list[tuple[Story, Report]] = []
    for story, number, report in batch:
        known = story.tries[number - 1]
        taken = any(other is story for other, _ in accepted)
        verdict = story.judge(number, report, taken=taken) if known.node == node else "foreign"
        verdicts.append(verdict)
        if verdict in ("replay", "conflict", "foreign"):
            continue
        known.said = report.digest()
        known.state = "reported"
        if verdict in ACCEPTED and report.outcome is Outcome.SUCCEEDED:
            accepted.append((story, number))
        elif verdict == "accepted":
            failed.append((story, report))
    for story, number in accepted:
        story.accept(number)
    for story, report in failed:
        story.fail(node, report)
    return verdicts


Maker = Callable[[str], Report]
MAKERS: tuple[Maker, ...] = (
    success,
    lambda attempt_id: success(attempt_id, "other"),
    failure,
    lambda attempt_id: failure(attempt_id, Reason.NODE_ERROR),
    returned,
)
NODES = st.integers(min_value=0, max_value=1)
PICKS = st.integers(min_value=0, max_value=10**6)
MADE = st.sampled_from(MAKERS)


@pytest.mark.parametrize("retries", [0, 3])
async def test_an_old_and_a_live_attempt_in_one_batch(tmp_path: Path, retries: int) -> None:
    """One node lost a job, got it again, and reports both at once: every pair of outcomes, in both orders."""
    bench = Bench(tmp_path, nodes=1)
    await bench.start()
    pairs = [(old, live, turned) for old in MAKERS for live in MAKERS for turned in (False, True)]
    jobs = await bench.submit(len(pairs), retries=retries)

    async def tell_pair(job_id: str, old: Maker, live: Maker, *, turned: bool) -> Story:
        story = Story(retries, tries=[Try(0, "expired"), Try(0)], node_faults=1, state=JobState.LEASED)
        first = await bench.lease(job_id, 0)
        await bench.expire(first or "")
        second = await bench.lease(job_id, 0)
        batch = [(story, 1, old(first or "")), (story, 2, live(second or ""))]
        batch = batch[::-1] if turned else batch
        verdicts = await bench.report(0, *(report for *_, report in batch))
        assert verdicts == expect(0, batch)
        return story

    told = zip(jobs, pairs, strict=True)
    stories = await asyncio.gather(*(tell_pair(id_, old, live, turned=t) for id_, (old, live, t) in told))
    for seen, story in zip(await bench.pictures(jobs), stories, strict=True):
        seen.check()
        assert (seen.state, seen.job.accepted_attempt) == (story.state, story.accepted)
    await bench.stop()


class Reports(RuleBasedStateMachine):
    """Jobs of one hub; nodes report what they hold, held, or never held, one by one and in batches."""

    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.bench = Bench(Path(self.folder.name))
        self.runner.run(self.bench.start())
        self.stories: dict[str, Story] = {}

    def teardown(self) -> None:
        self.runner.run(self.bench.stop())
        self.runner.close()
        self.folder.cleanup()

    def pick(self, number: int) -> tuple[str, Story]:
        return list(self.stories.items())[number % len(self.stories)]

    @rule(retries=st.integers(min_value=0, max_value=4))
    def submit(self, retries: int) -> None:
        if len(self.stories) < 3:
            (job_id,) = self.runner.run(self.bench.submit(retries=retries))
            self.stories[job_id] = Story(retries)

    @precondition(lambda self: self.stories)
    @rule(which=PICKS, node=NODES)
    def lease(self, which: int, node: int) -> None:
        job_id, story = self.pick(which)
        attempt = self.runner.run(self.bench.lease(job_id, node))
        assert (attempt is not None) == (story.state is JobState.QUEUED)
        if attempt is not None:
            story.tries.append(Try(node))
            story.state = JobState.LEASED
            assert attempt == f"{job_id}-{len(story.tries)}"

    @precondition(lambda self: any(story.tries for story in self.stories.values()))
    @rule(node=NODES, said=st.lists(st.tuples(PICKS, PICKS, MADE), min_size=1, max_size=4))
    def report(self, node: int, said: list[tuple[int, int, Maker]]) -> None:
        tried = [(job_id, story) for job_id, story in self.stories.items() if story.tries]
        batch: list[tuple[Story, int, Report]] = []
        for which, number, make in said:
            job_id, story = tried[which % len(tried)]
            number = number % len(story.tries) + 1
            batch.append((story, number, make(f"{job_id}-{number}")))
        expected = expect(node, batch)
        assert self.runner.run(self.bench.report(node, *(report for *_, report in batch))) == expected

    @precondition(lambda self: self.stories)
    @rule(speaking=st.sets(NODES))
    def silence(self, speaking: set[int]) -> None:
        renewed = [
            f"{job_id}-{number}"
            for job_id, story in self.stories.items()
            for number, known in enumerate(story.tries, start=1)
            if known.node in speaking
        ]
        self.runner.run(self.bench.silence(*renewed))
        for story in self.stories.values():
            for known in story.tries:
                if known.state == "live" and known.node not in speaking:
                    known.state = "expired"
                    story.fail(known.node, None)

    @precondition(lambda self: self.stories)
    @rule(which=PICKS)
    def cancel(self, which: int) -> None:
        job_id, story = self.pick(which)
        self.runner.run(self.bench.cancel(job_id))
        if story.state in OPEN:
            story.state = JobState.CANCELLED
            story.end_live("cancelled")

    @rule()
    def restart_the_hub(self) -> None:
        self.runner.run(self.bench.restart())

    @invariant()
    def the_store_agrees(self) -> None:
        pictures = self.runner.run(self.bench.pictures(self.stories))
        for seen, story in zip(pictures, self.stories.values(), strict=True):
            seen.check()
            assert seen.state is story.state
            assert seen.job.accepted_attempt == story.accepted
            assert (seen.job.job_faults, seen.job.node_faults) == (story.job_faults, story.node_faults)


Reports.TestCase.settings = settings(max_examples=4, stateful_step_count=25)
TestReports = Reports.TestCase


@pytest.mark.soak
class TestMoreReports(Reports.TestCase):  # type: ignore[misc,name-defined]
    settings = settings(max_examples=40, stateful_step_count=25)
