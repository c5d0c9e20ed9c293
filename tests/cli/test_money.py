"""Quotes, credits, prices and receipts on the command line, with a real hub and a node double."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.money.money import CREDIT
from computepool.hub.clock import SystemClock
from computepool.sdk import connect
from computepool.sdk.client.config import Config, load_config, save_config
from computepool.testing.node import NodeDouble
from computepool.testing.processes import RealPool
from tests.cli.conftest import Run, reply

pytestmark = pytest.mark.process
GRANT = 50 * CREDIT


@dataclass
class Town:
    """A hub; sam, a submitter; pia, who owns a node; and a finished job of sam on it."""

    real: RealPool
    keys: dict[str, str]
    job_id: str = ""

    @property
    def url(self) -> str:
        return self.real.hubs[0].url

    def sign_in(self, name: str) -> None:
        save_config(Config(hub=self.url, key=self.keys[name]))

    def work(self, jobs: int = 1, *, ran_ms: int = 1) -> threading.Thread:
        """Start a node of pia that runs this many jobs and leaves."""

        async def live() -> None:
            async with httpx2.AsyncClient(base_url=f"{self.url}/api/v1", timeout=30) as client:
                node = NodeDouble(client, SystemClock())
                with connect(self.url, self.keys["pia"]) as pool:
                    code = pool.nodes.code().code
                await node.register(code, name="attic", region="in")
                for _ in range(jobs):
                    [grant] = await node.take()
                    await node.report(grant.attempt_id, ran_ms=ran_ms)

        thread = threading.Thread(target=lambda: asyncio.run(live()), daemon=True)
        thread.start()
        return thread


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    config = str(tmp_path_factory.mktemp("config") / "config.json")
    with pytest.MonkeyPatch.context() as patch, RealPool(signup_grant=GRANT, tick_s=10_000, lease_min_s=3) as real:
        patch.setenv("COMPUTEPOOL_CONFIG", config)
        real.start_hub()
        with real.client() as admin:
            made = {name: admin.accounts.create(name).id for name in ("sam", "pia")}
            keys = {name: admin.keys.create("test", account_id=id_).key for name, id_ in made.items()}
        found = Town(real, {"admin": real.admin_key, **keys})
        node = found.work()
        with connect(found.url, keys["sam"]) as pool:
            reply = pool.jobs.submit(pool.options(timeout="10m").program(["true"]))
            found.job_id = reply.job_ids[0]
            pool.jobs.wait(found.job_id, timeout=60)
        node.join(30)
        yield found
        assert real.broken_rules() == []


@pytest.fixture
def sam(town: Town) -> Town:
    town.sign_in("sam")
    return town


def test_a_quote_submits_nothing(sam: Town, run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("1")
    before = len(reply(run("jobs", "list", "--json")))
    for command in (("quote", tmp_path / "s.py"), ("submit", tmp_path / "s.py", "--quote")):
        done = run(*command, "--max-price", "4", "--timeout", "30m", "--slices", 3)
        assert done.code == 0, done.err
        assert "It pays at most 4.00 per hour (your limit). 2.00 credits for each of 3 jobs, 6.00 in all," in done.out
        seen = reply(run(*command, "--max-price", "4", "--budget", "0.5", "--json"))
        assert (seen["max_price"], seen["hold_total"]) == (4 * CREDIT, CREDIT // 2)
    assert "unknown" in run("quote", "--", "never-run").out
    like_it = reply(run("quote", "--timeout", "10m", "--json", "--", "true"))
    assert like_it["run"]["samples"] == 1
    assert reply(run("quote", "--type", "ml", "--json"))["max_price"] == 20 * CREDIT
    assert len(reply(run("jobs", "list", "--json"))) == before


@pytest.mark.soak
def test_waiting_shows_the_price_and_then_the_cost(sam: Town, run: Run) -> None:
    node = sam.work()
    done = run("submit", "--wait", "--timeout", "5m", "--max-price", "12", "--", "true")
    node.join(30)
    assert done.code == 0, done.err
    assert "Price: " in done.err
    assert "1.00 credits are put on hold; what is not used is refunded." in done.err
    assert "on hold were refunded. Details: pool credits why job_" in done.err


@pytest.mark.soak
def test_insufficient_credits_are_explained_with_remedies(sam: Town, run: Run) -> None:
    done = run("submit", "--max-price", "1000", "--timeout", "1h", "--", "true")
    assert done.code == 4
    assert "1,000.00 credits must be put on hold; 95" in done.err
    assert "Shorten the time limit, lower the price limit, set a budget, or top up." in done.err
    assert done.err.endswith("Check your balance: pool credits\n")


@pytest.mark.soak
@pytest.mark.parametrize("amount", ["-1", "1e3", "NaN", "0.0000001", "lots", "99999999999", "0x10", ""])
@pytest.mark.parametrize("option", ["--max-price", "--budget"])
def test_an_invalid_amount_exits_with_2(sam: Town, run: Run, option: str, amount: str) -> None:
    done = run("submit", f"{option}={amount}", "--", "true")
    assert done.code == 2, done.err
    assert f"{option[2:].replace('-', '_')}: " in done.err
    assert done.out == ""


@pytest.mark.soak
def test_a_type_is_a_label_with_requirements(sam: Town, run: Run) -> None:
    job_id = run("submit", "--type", "ml", "--vram", "2", "--max-price", "0", "--", "true").out.strip()
    spec = reply(run("jobs", "show", job_id, "--json"))["spec"]
    assert spec["labels"] == ["ml"]
    assert (spec["needs"]["gpus"], spec["needs"]["vram_mb"], spec["needs"]["ram_mb"]) == (1, 2_000, 8_000)
    assert run("jobs", "cancel", job_id).code == 0
    assert "'toys' is not one of ml, gaming, other" in run("submit", "--type", "toys", "--", "true").err


def test_the_balance_and_the_cost_of_a_job_are_shown(sam: Town, run: Run) -> None:
    shown = dict(line.split("\t") for line in run("credits").out.splitlines())
    assert shown.keys() >= {"available", "held", "maturing"}
    assert reply(run("credits", "--json"))["economy"] == "market"
    why = run("credits", "why", sam.job_id).out
    assert why.startswith("This job cost 0.000001 credits: 0.001 s on attic at 5.60 per hour")
    assert "region\t× 0.70 for in" in why
    sam.sign_in("pia")
    assert run("credits", "why", sam.job_id).out.startswith("You were paid 0.00 credits: 0.001 s on attic")
    assert run("credits", "why", "job_none").code == 2


def test_a_statement_is_filtered_summed_and_exported(sam: Town, run: Run, tmp_path: Path) -> None:
    listed = run("credits", "statement", "--job", sam.job_id).out.splitlines()
    assert [line.split("\t")[2] for line in listed] == ["refund", "fee", "hold"]
    assert len(reply(run("credits", "statement", "--kind", "grant", "--since", "1h", "--json"))) == 1
    assert run("credits", "statement", "--until", "2020-01-01").out == ""
    assert run("credits", "statement", "--sums", "--kind", "grant").out == "grant\t1\t50.00\t50.00\t0.00\n"
    file = tmp_path / "all.csv"
    assert run("credits", "statement", "--csv", file).code == 0
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert len(rows) == len(reply(run("credits", "statement", "--json", "-n", 500)))
    assert run("credits", "statement", "--csv", "-").out.replace("\r\n", "\n") == file.read_text()
    assert "use 2h, 7d or 2026-05-01" in run("credits", "statement", "--since", "soon").err
    assert run("credits", "statement", "--kind", "gift").code == 2


@pytest.mark.soak
def test_only_administrators_may_give_credits(sam: Town, run: Run) -> None:
    assert run("credits", "give", "pia", "5").code == 4
    sam.sign_in("admin")
    done = run("credits", "give", "pia", "5.25", "--note", "thank you", "--paid-in")
    assert (done.code, done.out) == (0, "pia received 5.25 credits and now has 55.25 available.\n")
    assert "is not an amount" in run("credits", "give", "pia", "-5").err + run("credits", "give", "pia", "five").err
    assert run("credits", "give", "nobody", "5").code == 2
    sam.sign_in("pia")
    assert "Paid in: thank you." in run("credits", "statement", "--kind", "top_up").out


@pytest.mark.soak
def test_the_leaderboard_ranks_by_hours(sam: Town, run: Run) -> None:
    lines = [line.split("\t") for line in run("credits", "leaderboard", "--by", "hours").out.splitlines()]
    assert ["lends", "pia"] in [[line[0], line[2]] for line in lines]
    assert run("credits", "leaderboard", "--by", "luck").code == 2


def test_prices_are_changed_in_versions(sam: Town, run: Run, tmp_path: Path) -> None:
    assert "base\t10.00 per unit-hour" in run("prices").out
    assert run("prices", "set", "--base", "11").code == 4
    sam.sign_in("admin")
    file = tmp_path / "prices.json"
    file.write_text(run("prices", "show", "--json").out)
    version = json.loads(file.read_text())["version"]
    done = run("prices", "set", "--tier", "rtx-4090=3.1", "--region", "in=0.65", "--fee", "12.5%")
    assert (done.code, done.out) == (0, f"Version {version + 1} of the price table is now in effect.\n")
    table = reply(run("prices", "show", "--json"))
    assert (table["tiers"]["rtx-4090"], table["regions"]["in"], table["fee_ppm"]) == (310, 65, 125_000)
    stale = run("prices", "set", "--file", file)
    assert stale.code == 2
    assert "The prices have changed" in stale.err
    table |= {"tiers": table["tiers"] | {"rtx-4090": 300}, "regions": table["regions"] | {"in": 70}, "fee_ppm": 200_000}
    file.write_text(json.dumps(table))
    assert run("prices", "set", "--file", file).code == 0
    assert [line.split("\t")[0] for line in run("prices", "history").out.splitlines()][:2] == [
        str(version + 2),
        str(version + 1),
    ]
    assert f"version\t{version}" in run("prices", "show", version).out


@pytest.mark.soak
@pytest.mark.parametrize(
    "change",
    [("--base", "1.1234567"), ("--tier", "rtx-4090"), ("--tier", "rtx-4090=-1"), ("--fee", "a fifth"), ("--fee", "100%"),
     ("--fee", "90%"), ("--fee", "20.01%"),
     ("--region", "in=0.777"), ("--file", "nowhere.json"), ("--tier", "RTX 4090=3")],
)  # fmt: skip
def test_an_invalid_price_table_is_refused(sam: Town, run: Run, change: tuple[str, str]) -> None:
    sam.sign_in("admin")
    before = run("prices", "history").out
    refused = run("prices", "set", *change)
    assert refused.code == 2
    assert "at most 20 %" in refused.err or change not in {("--fee", "90%"), ("--fee", "20.01%")}
    assert run("prices", "history").out == before


@pytest.fixture
def receipt(sam: Town, run: Run, tmp_path: Path) -> Path:
    file = tmp_path / "receipt.json"
    done = run("jobs", "receipt", sam.job_id, "-o", file)
    assert (done.code, done.out) == (0, ""), done.err
    return file


@pytest.mark.soak
def test_a_receipt_is_verified_without_a_hub(sam: Town, run: Run, receipt: Path) -> None:
    assert load_config().key == sam.keys["sam"]  # downloading stores the hub's keys and keeps the user's own
    done = run("--hub", "http://127.0.0.1:1", "verify", receipt)
    assert (done.code, "its key is not known" in done.err) == (1, True), done.err
    known = run("--hub", sam.url, "verify", receipt)
    assert (known.code, known.err) == (0, "All checks passed.\n")
    assert all(line.startswith("ok\t") for line in known.out.splitlines())
    key = json.loads(receipt.read_text())["receipt"]["key"]
    assert run("verify", receipt, "--key", key).code == 0
    wrong = run("verify", receipt, "--key", key[:-4] + "AAAA")
    assert (wrong.code, "not a known key of the hub" in wrong.out) == (1, True)
    assert reply(run("verify", receipt, "--json"))["ok"] is True


Change = Callable[[dict[str, Any]], None]
CHANGES: dict[str, Change] = {
    "charge": lambda receipt: receipt.update(charge=receipt["charge"] + 1),
    "owner": lambda receipt: receipt.update(owner="acc_mallory"),
    "a transfer": lambda receipt: receipt["transfers"][-1].update(amount=1),
    "a hash": lambda receipt: receipt["transfers"][0].update(hash="0" * 64),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_receipt_fails_verification(run: Run, receipt: Path, what: str) -> None:
    document = json.loads(receipt.read_text())
    CHANGES[what](document["receipt"])
    receipt.write_text(json.dumps(document))
    done = run("verify", receipt)
    assert done.code == 1
    assert "WRONG\tIt was not signed with key" in done.out
    assert done.err == "Do not trust this receipt.\n"
    assert json.loads(run("verify", receipt, "--json").out)["ok"] is False


@pytest.mark.soak
@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "nonsense", '{"receipt": 1, "signature": ""}', '{"signature": "", "signature": ""}']
)
def test_a_file_that_is_not_a_receipt_is_refused(run: Run, tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    done = run("verify", file)
    assert (done.code, "is not a receipt" in done.err) == (2, True), done.err
    assert run("verify", tmp_path / "nowhere.json").code == 2


@pytest.mark.soak
def test_signing_in_stores_the_hubs_keys(sam: Town, run: Run) -> None:
    assert run("login", sam.url, "--key", sam.keys["sam"]).code == 0
    with connect() as pool:
        assert load_config().hub_keys == pool.accounts.hub_keys() != {}


@pytest.mark.soak
def test_an_administrator_reads_statements_and_sets_quotas(town: Town, run: Run) -> None:
    town.sign_in("admin")
    entries = reply(run("credits", "statement", "--account", "sam", "--kind", "grant", "--json"))
    assert [entry["amount"] for entry in entries] == [GRANT]
    assert "no account 'nobody'" in run("credits", "statement", "--account", "nobody").err
    assert run("accounts", "quota", "sam", "--jobs", "7", "--spend", "12.5").code == 0
    assert (
        run("accounts", "quota", "sam", "--jobs", "8").out
        == "sam: unfinished jobs: 8; credits per day: 12.50; storage: hub default; files kept for: hub default\n"
    )
    assert (
        run("accounts", "quota", "sam").out
        == "sam: unfinished jobs: 8; credits per day: 12.50; storage: hub default; files kept for: hub default\n"
    )
    assert "not an amount" in run("accounts", "quota", "sam", "--spend", "x").err
    cleared = reply(run("accounts", "quota", "sam", "--clear", "--json"))
    assert (cleared["jobs_open_max"], cleared["spend_per_day_max"]) == (None, None)
    town.sign_in("sam")
    assert run("accounts", "quota", "sam").code == 4
