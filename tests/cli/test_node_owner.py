"""`pool node` for the owner of a machine, with a real hub: saved options, output, and leaving."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.agent.owner import control, saved_options
from computepool.core.errors import ComputePoolError
from computepool.sdk import Pool
from computepool.sdk.client.config import node_folder
from computepool.testing.processes import RealPool, free_port, shared_cache
from computepool.testing.waiting import wait_until
from tests.cli.conftest import Run, reply, sign_in

pytestmark = pytest.mark.process
SOON_S = 90.0


@pytest.fixture(scope="module")
def real() -> Iterator[RealPool]:
    with RealPool() as pool:
        pool.start_hub()
        yield pool
        assert pool.broken_rules() == []


@pytest.fixture
def pool(real: RealPool) -> Pool:
    sign_in(real)
    return real.client()


class NodeProcess:
    """`pool node start` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: object, terminal: bool = False) -> str:
        """Returns its output until it was connected."""
        out = self.folder / "node.out"
        arguments = [sys.executable, "-m", "computepool.cli", "node", "start", *map(str, options)]
        if terminal:
            arguments = ["script", "--quiet", "--return", "--flush", "--command", shlex.join(arguments), "/dev/null"]
        with out.open("wb") as sink:
            self._process = subprocess.Popen(arguments, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
        wait_until(self._connected, SOON_S, "the node is connected")
        return self.output()

    def output(self) -> str:
        return (self.folder / "node.out").read_text()

    def _connected(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "node.out").read_text()
        try:
            return bool(control.call(node_folder(), "status")["connected"])
        except ComputePoolError:
            return False

    def stop(self) -> str:
        if self._process is None:
            return ""
        with contextlib.suppress(ComputePoolError):
            os.kill(control.call(node_folder(), "status")["pid"], signal.SIGTERM)
        self._process.wait(SOON_S)
        return self.output()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(SOON_S)


@pytest.fixture
def node(pool: Pool, real: RealPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeProcess]:
    """Its data folder may be entered by the users that jobs run as."""
    monkeypatch.setenv("COMPUTEPOOL_DATA", str(real.folder / tmp_path.name))
    folder = node_folder()
    folder.mkdir(parents=True)
    (folder / "cache").symlink_to(shared_cache())  # building the jobs' Python takes seconds
    process = NodeProcess(tmp_path)
    yield process
    process.stop()


def first_start(node: NodeProcess, pool: Pool, *options: object) -> str:
    return node.start("--code", pool.nodes.code().code, "--sandbox", "process", *options)


@pytest.mark.soak
def test_options_and_a_pause_persist_across_starts(node: NodeProcess, pool: Pool, run: Run) -> None:
    printed = first_start(node, pool, "--name", "laptop", "--cores", 1, "--ram", "1GB", "--tag", "old", "--net")
    assert "Saved options" not in printed
    assert "owner\tadmin\n" in run("node", "pause").out
    node.stop()

    printed = node.start("--tag", "older", "--no-net")
    assert "Saved options: --name laptop --cores 1 --ram 1000MB --sandbox process (" in printed
    profile = pool.nodes.find("laptop").profile
    assert (profile.cores, profile.ram_mb, profile.tags, profile.network) == (1, 1_000, ["older"], False)
    assert reply(run("node", "status", "--json"))["state"] == "paused"
    status = dict(line.split("\t") for line in run("node", "status").out.splitlines())
    assert status["owner"] == "admin", "by name, not by id"
    assert status["state"].startswith("paused: takes no new jobs")
    assert status["network"] == "none for jobs"
    assert status["sandbox"].startswith("process: A plain process")
    assert "answered" in status["hub"]
    assert not [line for line in status.items() if {"True", "False", "None"} & set(line)]
    assert run("node", "resume").code == 0
    node.stop()

    node.start("--reset", "cores", "--reset", "tag")
    wait_until(lambda: pool.nodes.find("laptop").profile.tags == [], SOON_S)
    profile = pool.nodes.find("laptop").profile
    assert (profile.cores, profile.ram_mb) == (float(len(os.sched_getaffinity(0))), 1_000)
    assert reply(run("node", "status", "--json"))["state"] == "ready"


def test_a_refused_start_changes_no_saved_options(node: NodeProcess, pool: Pool, run: Run) -> None:
    first_start(node, pool, "--name", "kept", "--cores", 1)
    before = saved_options.load(node_folder())
    refused: list[tuple[tuple[str, ...], str]] = [
        (("--cores", "2"), "Another agent already runs"),
        (("--cores", "-1"), "cores must be more than 0"),
        (("--reset", "corse"), "'corse' is not a saved option; choose from hub, name, tag"),
    ]
    for options, why in refused:
        done = run("node", "start", *options)
        assert (done.code, why in done.err) == (2, True), done.err
    assert saved_options.load(node_folder()) == before


@pytest.mark.soak
def test_on_a_terminal_it_prints_a_summary_and_the_jobs(node: NodeProcess, pool: Pool) -> None:
    printed = node.start("--code", pool.nodes.code().code, "--sandbox", "process", "--name", "hello", terminal=True)
    node_id = pool.nodes.find("hello").id
    assert re.search(rf"hello \({node_id}\) joined http://\S+ for admin\b", printed)
    for name in ("Offers", "Price", "Sandbox", "Network", "Logs", "pool node pause", "pool node leave", "Ctrl-C"):
        assert name in printed
    assert "INFO" not in printed
    future = pool.submit(abs, -3, host="hello")
    assert future.result(timeout=SOON_S) == 3
    job_id = future.job_id
    wait_until(lambda: f"abs ({job_id}, your own) succeeded" in node.output(), SOON_S, "the job is shown")
    assert f"abs ({job_id}, your own) started: 1 core" in node.output()
    assert "running job_" in (node_folder() / "agent.log").read_text(), "the log is kept"
    assert "Stopping" in node.stop()


@pytest.mark.soak
def test_a_machine_leaves_after_its_last_job(node: NodeProcess, pool: Pool, run: Run) -> None:
    first_start(node, pool, "--name", "goodbye", "--cores", 1)
    node_id, folder = pool.nodes.find("goodbye").id, node_folder()
    endless = pool.submit(time.sleep, 3600, host="goodbye")
    wait_until(lambda: reply(run("node", "status", "--json"))["running"], SOON_S, "the job runs")
    refused = run("node", "leave")
    assert (refused.code, "pass --yes" in refused.err) == (2, True)
    assert "1 job will finish first; pass --now to return them instead" in refused.err
    assert endless.cancel()
    future = pool.submit(time.sleep, 2, host="goodbye")
    wait_until(lambda: future.running() or future.done(), SOON_S, "the next job runs")
    done = run("node", "leave", "--yes")
    assert done.code == 0, done.err + node.output()
    assert done.out.startswith("goodbye has left http")
    assert future.result(timeout=SOON_S) is None, "it finished first"
    assert node.wait() == 0
    assert pool.nodes.get(node_id).state == "revoked"
    left = {path.name for path in folder.iterdir()}
    assert left.isdisjoint({"identity.json", "options.json", "outbox", "node.key"})
    assert "not enrolled" in run("node", "leave", "--yes").err
    first_start(node, pool, "--name", "hello-again")
    assert pool.nodes.find("hello-again").id != node_id


@pytest.mark.soak
def test_a_stopped_node_leaves_only_if_the_hub_answers(node: NodeProcess, pool: Pool, run: Run) -> None:
    first_start(node, pool, "--name", "away")
    node_id, folder = pool.nodes.find("away").id, node_folder()
    node.stop()
    options = folder / saved_options.FILE
    hub = json.loads(options.read_text())["hub_url"]
    options.write_text(json.dumps({"hub_url": f"http://127.0.0.1:{free_port()}"}))
    done = run("node", "leave", "--yes")
    assert (done.code, "stays enrolled" in done.err) == (3, True), done.err
    assert (folder / "identity.json").exists(), "nothing is deleted before the hub replies"
    options.write_text(json.dumps({"hub_url": hub}))
    assert reply(run("node", "leave", "--yes", "--json"))["node_id"] == node_id
    assert pool.nodes.get(node_id).state == "revoked"


@pytest.mark.soak
def test_the_cache_is_shown_and_cleared_without_an_agent(run: Run) -> None:
    assert run("node", "cache", "clear").out == "Freed 0 B.\n"
    cache = node_folder() / "cache"
    for name in ("artifacts", "environments/one/pkg", "runtimes"):
        (cache / name).mkdir(parents=True)
        (cache / name / "file").write_bytes(b"x" * 100_000)
    (cache / "environments" / "link").symlink_to(cache / "runtimes")
    shown = {part["name"]: part for part in reply(run("node", "cache", "--json"))}
    assert {name: part["files"] for name, part in shown.items()} == {
        "inputs of jobs": 1, "packages of jobs": 1, "other Pythons": 0, "jobs' Python and sandboxes": 1,
    }  # fmt: skip
    assert reply(run("node", "cache", "clear", "--json"))["freed_bytes"] >= 200_000
    assert [path.name for path in sorted(cache.rglob("file"))] == ["file"]
    assert (cache / "runtimes" / "file").exists()
    assert len(run("node", "cache").out.splitlines()) == 4
