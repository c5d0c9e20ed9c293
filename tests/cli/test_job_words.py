"""Texts about jobs in the terminal: outcome, reason for waiting, and price."""

from __future__ import annotations

import re
import sys
from io import StringIO

import pytest

from computepool.cli.job import follow, submit
from computepool.cli.job.jobs import print_why
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.core.money.money import CREDIT
from computepool.protocol.jobs.explanations import GateView, WhyView
from computepool.protocol.jobs.views import CorrectedResult, JobDetail
from computepool.protocol.money.credits import Estimate, QuoteView
from tests.cli.conftest import Run
from tests.sdk.fake_hub import FakeHub

UNCONFIRMED = "done, but not confirmed: no other owner's node could check the result yet"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def submitted(hub: FakeHub, run: Run, status: str, **fields: object) -> JobDetail:
    """A job that the hub reports with this status."""
    job_id = run("submit", "--", "true").out.strip()
    job = hub.view(job_id).model_copy(update={"status": status, "node_name": "studio", **fields})
    hub.view = lambda _: job  # type: ignore[method-assign]
    return job


def test_an_unconfirmed_result_is_mentioned(hub: FakeHub, run: Run) -> None:
    job = submitted(hub, run, UNCONFIRMED, started_at_ms=1_000, finished_at_ms=3_000)
    assert follow.job_line(job) == (
        "succeeded on studio after 2 s, but not confirmed: no other owner's node could check the result yet"
    )
    assert follow.job_line(job.model_copy(update={"status": "done"})) == "succeeded on studio after 2 s"
    assert UNCONFIRMED in run("jobs", "list").out


def test_why_describes_requirements(capsys: pytest.CaptureFixture[str]) -> None:
    need = "an owner who takes jobs of 60 minutes"
    gate = GateView(gate="rule_minutes", need=need, failing=2, failing_even_if_idle=1, passing_without=0)
    print_why(WhyView(reason="", sentence="Waiting.", nodes=2, eligible_now=0, gates=[gate]))
    assert capsys.readouterr().out == f"Waiting.\n{need}\t2\t1\t0\n"


@pytest.mark.usefixtures("hub")
def test_show_describes_requirements_with_units(run: Run) -> None:
    needs = ["--ram", "1000GB", "--disk", "2GB", "--tag", "linux", "--exclude-tag", "laptop", "--property", "site=lab"]
    job_id = run("submit", *needs, "--", "true").out.strip()
    shown = "1000 GB RAM, 2 GB disk, tags linux, exclude tags laptop, properties site=lab"
    assert f"needs\t{shown}\n" in run("jobs", "show", job_id).out


def test_the_list_says_why_a_job_waits(hub: FakeHub, run: Run) -> None:
    waiting = {"state": JobState.QUEUED, "reason": Reason.WAITING_FOR_NODE}
    submitted(hub, run, "no connected node can run it", **waiting)
    assert "no connected node can run it" in run("jobs", "list").out


def test_a_narrow_table_omits_the_last_columns(hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(hub, run, "done", id="job_01kzzzzzzzzzzzzzzzzzzzzzzz")
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", screen)
    run("jobs", "list")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert "STATE" in shown
    assert "KIND" not in shown


def test_a_refuted_result_is_shown_with_the_correct_one(hub: FakeHub, run: Run) -> None:
    right = {"result": '"right"', "outputs": [{"name": "out.txt", "size": 5, "digest": "d" * 64}]}
    money = {"hold": 3 * CREDIT, "charge": 2 * CREDIT, "taken_back": 2 * CREDIT}
    checked = {"verify": "adaptive", "verdict": "refuted", "corrected": CorrectedResult.model_validate(right)}
    shown = run("jobs", "show", submitted(hub, run, "done", **money, **checked).id).out
    for text in ("WRONG", "; 2.00 refunded later", '"right"', f"out.txt\t5 B\t{'d' * 64}"):
        assert text in shown


def quoted(**fields: object) -> QuoteView:
    unknown = Estimate(text="Unknown.")
    known = {
        "economy": "market", "price_version": 1, "items": 1, "max_price": 30 * CREDIT, "hold_each": 30 * CREDIT,
        "hold_total": 30 * CREDIT, "available": 100 * CREDIT, "affordable": True, "lasts_ms": 1000, "nodes": 2,
        "nodes_now": 0, "nodes_able": 1, "start": unknown, "run": unknown, "finish": unknown, "sentences": [],
    }  # fmt: skip
    return QuoteView.model_validate(known | fields)


def test_the_price_line_says_why_there_is_no_price() -> None:
    assert submit.price_line(quoted(nodes_able=0)) == (
        "Price: unknown, because no connected node can run it. 30.00 credits are put on hold; what is not used is refunded."
    )
    assert submit.price_line(quoted()).startswith("Price: no suitable node is free now. ")
