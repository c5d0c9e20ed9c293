"""`pool group` and collectors with a real hub: keys, reports, waiting, and fetching."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from computepool import Collector, connect
from computepool.cli.job.groups import show_summary
from computepool.core.errors import NotFound
from computepool.protocol.jobs import bundles
from computepool.protocol.jobs.groups import GroupItem, GroupSummary, ItemPage, LocationView
from computepool.sdk.classes.collector import DrainTimeout
from computepool.sdk.client.config import Config, save_config
from computepool.sdk.pool import Pool
from tests.cli.conftest import Run, reply
from tests.hub.serving import ServedHub, serving

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    with serving(tmp_path_factory.mktemp("hub"), signup_grant=10**15, verify="none") as hub:
        yield hub


@pytest.fixture
def pool(served: ServedHub) -> Iterator[Pool]:
    host, port = served.address
    save_config(Config(hub=f"http://{host}:{port}", key=served.key))
    with connect(retry_for=5) as made:
        yield made


def test_keys_are_registered_reported_and_waited_for(pool: Pool, run: Run, tmp_path: Path) -> None:
    listed = tmp_path / "keys"
    listed.write_text("b\n\nc\n")
    made = run("group", "register", "sweep", "a", "--file", listed, "--meta", "stage=first", "--json")
    assert json.loads(made.out) == {"group_id": pool.groups.find("sweep").id, "added": 3, "known": 0}
    assert run("group", "result", "sweep", "a", '{"loss": 0.5}').code == 0
    again = run("group", "result", "sweep", "a", "7")
    assert (again.code, "counted as a duplicate" in again.err) == (1, True)
    unknown = run("group", "failure", "sweep", "zzz", "why")
    assert (unknown.code, "does not expect 'zzz'" in unknown.err) == (2, True)
    late = run("group", "drain", "sweep", "--timeout", "0.2")
    assert late.code == 1
    assert "2 of 3 pending" in late.err
    assert run("group", "result", "sweep", "b", "plain words").code == 0
    assert run("group", "failure", "sweep", "c", "no \x1b[31mlicence").code == 0
    done = run("group", "drain", "sweep", "--json")
    assert done.code == 1, "something failed"
    summary = json.loads(done.out)
    assert (summary["complete"], summary["succeeded"], summary["failed"]) == (True, 2, 1)
    assert summary["duplicates"] == 1
    shown = run("jobs", "groups", "--group", "sweep")
    assert "no licence" in shown.out
    assert "\x1b" not in shown.out
    [row] = [line.split("\t") for line in run("jobs", "groups").out.splitlines() if "\tsweep\t" in line]
    assert row[3:8] == ["3", "2", "1", "0", "complete"]
    assert "\tsweep\t" in run("group", "list").out
    assert [group["name"] for group in reply(run("jobs", "groups", "--json"))] == ["sweep"]
    assert dict(pool.groups.collector("sweep").values()) == {"a": {"loss": 0.5}, "b": "plain words"}
    home = run("group", "return-home", "sweep")
    assert "it has no home" in home.out
    assert run("group", "return-home", "sweep", "--off").out == "Results stay at the hub.\n"
    assert run("group", "summary", "nobody").code == 2


@pytest.mark.soak
def test_a_collector_handles_many_keys_in_batches(pool: Pool) -> None:
    collector = Collector(pool, pool.groups.create("many").id)
    keys = [f"k{number:04}" for number in range(1_500)]
    assert collector.register_jobs(keys) == 1_500
    assert collector.register_jobs({"k0000": {"seed": 1}}) == 0
    pending: list[int] = []
    with pytest.raises(DrainTimeout) as late:
        collector.drain(timeout=0.1, progress=lambda view: pending.append(view.pending))
    assert (late.value.summary.pending, pending[0]) == (1_500, 1_500)
    assert all(collector.job_failures(dict.fromkeys(keys[1:], "not made")).values())
    with ThreadPoolExecutor(1) as other:
        drained = other.submit(collector.drain, 20)
        assert collector.job_result("k0000", b"\x00bytes")
        summary = drained.result(60)
    assert (summary.complete, summary.succeeded, summary.failed) == (True, 1, 1_499)
    assert [item.meta for item in collector.items("results")] == [{"seed": 1}]
    assert sum(1 for _ in collector.items("failures")) == 1_499
    assert sum(1 for _ in collector.results()) == 1_500
    assert list(collector.values()) == [("k0000", b"\x00bytes")]
    with pytest.raises(NotFound):
        collector.job_result("other")
    assert collector.register_jobs("other") == 1, "a string is one key"


@pytest.mark.soak
def test_a_job_completes_a_registered_key(pool: Pool, run: Run) -> None:
    run("group", "register", "keyed ones", "seed-7", "seed-8")
    done = run("submit", "--group", "keyed ones", "--key", "seed-7", "--", "true")
    assert (done.code, "pool group drain 'keyed ones'" in done.err) == (0, True)
    items = {item.key: item.job_id for item in pool.groups.collector("keyed ones").items()}
    assert items == {"seed-7": done.out.strip(), "seed-8": None}
    again = run("submit", "--group", "keyed ones", "--key", "seed-7", "--", "true")
    assert (again.code, "A job of the group has this key already" in again.err) == (2, True)
    for wrong in (["--key", "a"], ["--key", "a", "--group", "g", "--slices", "2"]):
        refused = run("submit", *wrong, "--", "true")
        assert (refused.code, "requires --group" in refused.err) == (2, True)


@pytest.mark.soak
def test_failed_items_of_a_map_are_listed_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    answer = bundles.answer([bundles.value_answer("7")] + [bundles.raised_answer("T\nValueError: bad")] * 30)
    job = GroupItem(key="100-130", job_id="job_1", state="succeeded", result=answer, bundled=31, carried=31)
    page, nothing = ItemPage(items=[job]), ItemPage(items=[])
    found = GroupSummary(
        id="grp_1", name="map", kind="map", account_id="acc_1", created_at_ms=0, counts={}, total=31,
        location=LocationView(hub_id="hub", address=""), results=page, failures=page, waiting=nothing,
    )  # fmt: skip
    show_summary(found)
    shown = capsys.readouterr()
    rows = [line.split("\t")[:4] for line in shown.out.splitlines() if "\tjob_1\t" in line]
    bad = [[str(number), "job_1", "failed", "ValueError: bad"] for number in range(101, 121)]
    assert rows == [*bad, ["100-130", "job_1", "succeeded", ""]]
    assert shown.err.count("and more") == 1


@pytest.mark.soak
def test_concurrent_submissions_create_one_group(pool: Pool, run: Run) -> None:
    command = [sys.executable, "-m", "computepool.cli", "submit", "--group", "together", "--", "true"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen(command, **pipes, text=True) for _ in range(3)]  # type: ignore[call-overload]
    ends = [process.communicate(timeout=60) for process in running]
    jobs = {said[0].strip() for said in ends}
    assert all("Waiting: no node is connected." in said[1] for said in ends), "without --wait, shown at submission"
    group = pool.groups.find("together")
    assert {job.id for job in pool.jobs.list(group_id=group.id)} == jobs
    assert len(pool.groups.list(name="together")) == 1
    shown = run("jobs", "groups", "--group", "together").out
    rows = [line.split("\t") for line in shown.splitlines() if line.startswith("(no key)\t")]
    assert {row[1]: row[3] for row in rows} == dict.fromkeys(jobs, "Waiting: no node is connected.")
    cancelled = run("group", "cancel", "together")
    assert "3 cancelled" in cancelled.out
    assert "was already complete: 3 cancelled" in run("group", "cancel", "together").out


def test_a_group_is_fetched_in_steps_and_verified(pool: Pool, run: Run, tmp_path: Path) -> None:
    run("group", "register", "fetched", "a", "../b")
    run("group", "result", "fetched", "../b", "1")
    folder = tmp_path / "results"
    first = run("group", "fetch", "fetched", folder)
    assert first.code == 0
    assert "1 is pending" in first.err
    run("group", "failure", "fetched", "a", "no")
    assert reply(run("group", "fetch", "fetched", folder, "--json"))["items"] == 2
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert {line["key"]: line["state"] for line in lines} == {"../b": "succeeded", "a": "failed"}
    for line in (folder / "manifest.txt").read_text().splitlines():
        digest, _, path = line.partition("  ")
        assert hashlib.sha256((folder / path).read_bytes()).hexdigest() == digest
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["results"]
    run("group", "register", "another", "x")
    other = run("group", "fetch", "another", folder)
    assert (other.code, "contains a different group" in other.err) == (2, True)
