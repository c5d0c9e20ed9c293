"""`pool status`, `logs` and `cancel`; options of scripts; the newest events; and explained waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.protocol.jobs.jobs import Needs
from computepool.sdk import Pool
from computepool.sdk.client import waiting
from computepool.testing.processes import RealPool, free_port
from computepool.testing.waiting import wait_until
from tests.cli.conftest import Run, reply
from tests.sdk.fake_hub import FakeHub

SOON_S = 60.0


def argv(hub: FakeHub) -> list[str]:
    return list(list(hub.jobs.values())[-1]["request"].spec.argv)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text("import sys\nprint(*sys.argv[1:])\n")
    return file


@pytest.mark.parametrize(
    ("typed", "passed"),
    [
        (["--epochs", "3"], ["--epochs", "3"]),
        (["--epochs=3", "--cores", "2", "data.csv"], ["--epochs=3", "data.csv"]),
        (["--shift", "-5", "-x", "--name", "mine"], ["--shift", "-5", "-x"]),
        (["--epochs", "3", "--", "--cores", "7"], ["--epochs", "3", "--cores", "7"]),
        (["--", "--vran", "3"], ["--vran", "3"]),
    ],
)
def test_options_of_a_script_need_no_double_dash(
    hub: FakeHub, run: Run, script: Path, typed: list[str], passed: list[str]
) -> None:
    done = run("submit", script, *typed)
    assert done.code == 0, done.err
    assert argv(hub)[-len(passed) :] == passed
    assert ("Passed to" in done.err) is (typed[0] != "--")


@pytest.mark.parametrize(
    "typed", [["{}", "--vran", "16"], ["{}", "--retrys", "2"], ["--epochs", "3", "{}"], ["{}", "-xe", "A=1"]]
)
def test_a_probable_misspelling_is_not_passed_to_the_script(
    hub: FakeHub, run: Run, script: Path, typed: list[str]
) -> None:
    done = run("submit", *[word.format(script) for word in typed])
    assert (done.code, "No such option" in done.err, hub.jobs) == (2, True, {})


@pytest.fixture(scope="module")
def real() -> Iterator[RealPool]:
    with RealPool() as pool:
        pool.start_hub()
        pool.start_agent(name="small", trusted=("*",))
        client = pool.client()
        wait_until(lambda: client.jobs.preview(Needs()).why.eligible_now, SOON_S, "the node is there")
        yield pool


@pytest.mark.soak
@pytest.mark.process
def test_status_logs_and_cancel_work_on_recent_jobs(pool: Pool, run: Run) -> None:
    done = pool.command(["echo", "hello"], name="greet").job_id
    job_id = pool.command(["true"], wait=False, ram="1000GB", name="huge").job_id
    shown = run("status")
    assert shown.code == 0, shown.err
    for words in ("admin (", "1 of 1 node online", "small (", "1 queued", job_id):
        assert words in shown.out
    document = reply(run("status", "--json"))
    assert [job["id"] for job in document["jobs"]] == [job_id]
    assert (document["account"]["name"], document["hub"]["nodes_online"]) == ("admin", 1)
    assert run("logs", "greet").out == "hello\n"
    assert run("cancel", "last").out.split() == [job_id, "cancelled"]
    assert "none unfinished" in run("status").out
    assert done


@pytest.mark.soak
@pytest.mark.process
def test_a_limit_on_events_selects_the_newest(pool: Pool, run: Run) -> None:
    every = [json.loads(line)["seq"] for line in run("events", "--json").out.splitlines()]
    last = [json.loads(line)["seq"] for line in run("events", "-n", "3", "--json").out.splitlines()]
    first = [json.loads(line)["seq"] for line in run("events", "-n", "3", "--oldest", "--json").out.splitlines()]
    assert every == sorted(every)
    assert (last, first) == (every[:-4:-1], every[:3])


@pytest.mark.soak
@pytest.mark.process
def test_a_wait_at_the_terminal_is_explained_once(pool: Pool, real: RealPool) -> None:
    environment = {**os.environ, waiting.NOTICE_ENV: "0.2"}
    command = [sys.executable, "-m", "computepool.cli", "submit", "--ram", "1000GB", "--wait", "--", "true"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        explanation = next(line for line in lines if "No node can run this" in line)
        assert "the only node has less than 1000 GB of RAM" in explanation
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert "No node can run this" not in rest, "only once"
    pool.jobs.cancel(pool.jobs.list(limit=1)[0].id)


@pytest.mark.soak
@pytest.mark.process
def test_an_impossible_job_is_refused_on_request(pool: Pool, run: Run) -> None:
    before = len(pool.jobs.list())
    refused = run("submit", "--ram", "1000GB", "--impossible", "refuse", "--", "true")
    assert (refused.code, refused.err.startswith("No node can run this")) == (2, True)
    assert len(pool.jobs.list()) == before
    queued = run("submit", "--ram", "1000GB", "--", "true")
    assert (queued.code, "No node can run this" in queued.err) == (0, True)
    run("cancel", "last")


@pytest.mark.soak
@pytest.mark.process
def test_the_log_of_a_hub_is_printed_as_json(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "computepool.cli", "hub", "start", "--json"]
    command += ["--port", str(port), "--data", str(tmp_path / "hub")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        process.terminate()
        rest = [json.loads(text) for text in process.stdout]
    assert all({"at_ms", "level", "message"} <= entry.keys() for entry in [line, *rest])
