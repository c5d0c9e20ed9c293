"""`pool payouts` and `pool.payouts` with a real hub: summaries, confirmation, and the life of a payout."""

from __future__ import annotations

import csv
import io
import json
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from computepool.core.errors import InsufficientCredits
from computepool.core.money.money import CREDIT
from computepool.hub.app import open_store
from computepool.hub.clock import SystemClock
from computepool.sdk import BadRequest, Conflict, Pool
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.cli.conftest import Run, reply
from tests.hub.money.payouts.earning import earn_now

pytestmark = pytest.mark.process
BANK = {"account_number": "50100123456789", "ifsc": "HDFC0000123", "name": "Asha Rao"}
TO_BANK = ("--bank", "50100123456789", "--ifsc", "HDFC0000123", "--name", "Asha Rao")


@pytest.fixture(scope="module")
def real() -> Iterator[RealPool]:
    with RealPool(payout_round_s=0.05, payouts_open_max=1_000) as pool:
        hub = pool.start_hub()
        store = open_store(hub.settings.url, clock=SystemClock(), hub_id="test")
        earn_now(store, pool.client().whoami().id, 1_000_000 * CREDIT)
        store.close()
        yield pool
        assert pool.broken_rules() == []


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """Pretends that a user at a terminal answers; returns the questions."""

    def sit_down(answer: bool) -> list[str]:
        asked: list[str] = []

        def confirm(question: str, **_: Any) -> bool:
            asked.append(question)
            if not answer:
                raise typer.Abort
            return True

        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        monkeypatch.setattr(typer, "confirm", confirm)
        return asked

    return sit_down


def listed(pool: Pool, payout_id: str) -> None:
    """Wait until the payout is on the operator's list."""
    if pool.payouts.get(payout_id).state == "requested":
        pool.payouts.approve(payout_id)
    wait_until(lambda: pool.payouts.get(payout_id).state == "submitted", 60)


@pytest.mark.soak
def test_a_request_shows_a_summary_and_asks(pool: Pool, run: Run, at_terminal: Callable[[bool], list[str]]) -> None:
    before = pool.payouts.available().available
    asked = at_terminal(False)
    refused = run("payouts", "request", "1234.50", *TO_BANK)
    assert refused.code != 0
    assert "1,234.50 credits" in refused.err
    assert "Asha Rao, account 50100123456789 at HDFC0000123" in refused.err
    assert f"of {before // CREDIT:,}" in refused.err
    assert len(asked) == 1
    assert pool.payouts.available().available == before
    at_terminal(True)
    done = run("payouts", "request", "1234.50", *TO_BANK)
    assert done.code == 0, done.err
    assert "1,234.50 credits" in done.out
    assert pool.payouts.available().available == before - 1_234_500_000


@pytest.mark.soak
def test_without_a_terminal_yes_is_required(pool: Pool, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    before = pool.payouts.available().available
    refused = run("payouts", "request", "500", "--upi", "asha@okaxis")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert pool.payouts.available().available == before
    made = reply(run("payouts", "request", "500", "--upi", "asha@okaxis", "--yes", "--json"))
    assert (made["amount"], made["upi"], made["masked"]) == (500 * CREDIT, "asha@okaxis", "as***@okaxis")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("500",), "Specify one target"),
        (("500", "--upi", "a@b", *TO_BANK), "Specify one target"),
        (("500", "--bank", "123456789"), "--ifsc and --name"),
        (("500", "--upi", "a@b", "--ifsc", "HDFC0000123"), "require --bank"),
        (("500", "--upi", "asha"), "is not a UPI id"),
        (("499.99", "--upi", "asha@okaxis"), "at least 500.00"),
        (("500.001", "--upi", "asha@okaxis"), "whole number of paise"),
        (("five", "--upi", "asha@okaxis"), "is not an amount"),
        (("1e9", "--upi", "asha@okaxis"), "is not an amount"),
        (("NaN", "--upi", "asha@okaxis"), "is not an amount"),
        (("--upi", "asha@okaxis", "--", "-500"), "is not an amount"),
        (("2000000", "--upi", "asha@okaxis"), "missing"),
    ],
)
def test_an_invalid_request_is_refused(pool: Pool, run: Run, arguments: tuple[str, ...], word: str) -> None:
    before = pool.payouts.available().available
    done = run("payouts", "request", "--yes", *arguments)
    assert done.code in (2, 4)
    assert word in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert pool.payouts.available().available == before


def test_a_payout_is_approved_exported_and_paid(pool: Pool, run: Run, tmp_path: Path) -> None:
    made = reply(run("payouts", "request", "20000", *TO_BANK, "--yes", "--json"))
    payout_id = made["id"]
    assert made["state"] == "requested"
    shown = run("payouts", "show", payout_id)
    assert "large" in shown.out or "first" in shown.out
    waiting = run("payouts", "list", "--all", "--state", "requested", "--json")
    assert payout_id in [payout["id"] for payout in json.loads(waiting.out)]
    assert reply(run("payouts", "approve", payout_id, "--yes", "--json"))["state"] == "reserved"
    wait_until(lambda: pool.payouts.get(payout_id).state == "submitted", 60)
    file = tmp_path / "payouts.csv"
    file.touch(0o644)
    exported = run("payouts", "export", "--out", file)
    assert exported.code == 0, exported.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "even if the file existed"
    rows = {row["reference"]: row for row in csv.DictReader(io.StringIO(file.read_text(), newline=""))}
    assert (rows[payout_id]["amount_inr"], rows[payout_id]["name"]) == ("20000.00", "Asha Rao")
    assert reply(run("payouts", "export", "--json")) == list(rows.values())
    assert run("payouts", "export").out.replace("\r\n", "\n") == file.read_text()
    paid = reply(run("payouts", "mark-paid", payout_id, "--reference", "UTR20000", "--json"))
    assert (paid["state"], paid["provider_ref"]) == ("paid", "UTR20000")
    again = run("payouts", "mark-paid", payout_id, "--reference", "UTR20000")
    assert again.code == 2
    assert "cannot be marked" in again.err
    assert payout_id in run("payouts").out


@pytest.mark.soak
def test_cancelling_and_rejecting_return_the_credits(pool: Pool, run: Run) -> None:
    before = pool.payouts.available().available
    large = [pool.payouts.request(20_000, upi="asha@okaxis").id for _ in range(2)]
    assert reply(run("payouts", "cancel", large[0], "--json"))["reason"] == "cancelled"
    rejected = reply(run("payouts", "reject", large[1], "--reason", "not yours", "--json"))
    assert (rejected["state"], "not yours" in rejected["status"]) == ("rejected", True)
    assert pool.payouts.available().available == before
    assert run("payouts", "cancel", "payout_none").code == 2


@pytest.mark.soak
def test_marking_a_payout_failed_asks_for_confirmation(
    pool: Pool, run: Run, at_terminal: Callable[[bool], list[str]]
) -> None:
    payout_id = pool.payouts.request("20000", bank=BANK).id
    listed(pool, payout_id)
    asked = at_terminal(True)
    failed = reply(run("payouts", "mark-failed", payout_id, "--reason", "closed", "--json"))
    assert failed["state"] == "failed"
    assert "certain" in asked[0]


@pytest.mark.soak
def test_the_sdk_requests_and_cancels_a_payout(pool: Pool) -> None:
    with pytest.raises(InsufficientCredits):
        pool.payouts.request(90_000_000, upi="asha@okaxis")
    with pytest.raises(BadRequest):
        pool.payouts.request(500.0, upi="asha@okaxis")  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        pool.payouts.request(500)
    made = pool.payouts.request("20000.50", upi="Asha@OkAxis")
    assert (made.amount, made.upi) == (20_000_500_000, "asha@okaxis")
    assert pool.payouts.get(made.id) == made
    assert made.id in [payout.id for payout in pool.payouts.list(limit=1_000)]
    pool.payouts.cancel(made.id)
    with pytest.raises(Conflict):
        pool.payouts.approve(made.id)
