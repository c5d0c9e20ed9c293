"""What a person reads of a job in the terminal: how it ended, what it waits for, and what it would cost."""

from __future__ import annotations

import re
import sys
from io import StringIO

import pytest

from computepool.cli.job import follow, quote
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.core.money.money import CREDIT
from computepool.protocol.jobs.jobs import JobDetail
from computepool.protocol.money.credits import Estimate, QuoteView
from tests.cli.conftest import Run
from tests.sdk.fake_hub import FakeHub

UNCONFIRMED = "done, but not confirmed: no other owner's node could check the result yet"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def submitted(hub: FakeHub, run: Run, status: str, **fields: object) -> JobDetail:
    """A job as the hub would show it with this status."""
    job_id = run("submit", "--", "true").out.strip()
    job = hub.view(job_id).model_copy(update={"status": status, "node_name": "studio", **fields})
    hub.view = lambda _: job  # type: ignore[method-assign]
    return job


def test_whoever_waits_learns_that_a_result_is_not_confirmed(hub: FakeHub, run: Run) -> None:
    job = submitted(hub, run, UNCONFIRMED, started_at_ms=1_000, finished_at_ms=3_000)
    assert follow.sentence(job) == (
        "succeeded on studio after 2 s, but not confirmed: no other owner's node could check the result yet"
    )
    assert follow.sentence(job.model_copy(update={"status": "done"})) == "succeeded on studio after 2 s"
    assert UNCONFIRMED in run("jobs", "list").out


def test_a_list_says_what_a_job_waits_for(hub: FakeHub, run: Run) -> None:
    waiting = {"state": JobState.QUEUED, "reason": Reason.WAITING_FOR_NODE}
    submitted(hub, run, "no connected node can run it", **waiting)
    assert "no connected node can run it" in run("jobs", "list").out


def test_a_narrow_list_keeps_the_state(hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(hub, run, "done", id="job_01kzzzzzzzzzzzzzzzzzzzzzzz")
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", screen)
    run("jobs", "list")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert "STATE" in shown
    assert "KIND" not in shown


def quoted(**fields: object) -> QuoteView:
    unknown = Estimate(text="Unknown.")
    known = {
        "economy": "market", "price_version": 1, "items": 1, "max_price": 30 * CREDIT, "hold_each": 30 * CREDIT,
        "hold_total": 30 * CREDIT, "available": 100 * CREDIT, "affordable": True, "lasts_ms": 1000, "nodes": 2,
        "nodes_now": 0, "nodes_able": 1, "start": unknown, "run": unknown, "finish": unknown, "sentences": [],
    }  # fmt: skip
    return QuoteView.model_validate(known | fields)


def test_a_quote_does_not_speak_of_free_nodes_where_none_could_run_it() -> None:
    assert quote.short(quoted(nodes_able=0)) == (
        "Price: unknown, because no connected node can run it. 30.00 credits are put on hold; what is not used is refunded."
    )
    assert quote.short(quoted()).startswith("Price: no suitable node is free now. ")
