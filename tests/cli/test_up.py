"""`pool up`: real processes, a real sandbox, the CLI in another terminal, and a clean end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from computepool.testing.processes import free_port
from computepool.testing.waiting import wait_until

#: `make test` runs the example and the README's commands in tests/acceptance/test_examples.py.
pytestmark = [pytest.mark.process, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
READY_S = 90


@dataclass
class Up:
    folder: Path
    port: int
    env: dict[str, str]
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, folder: Path, *arguments: str) -> Up:
        port = free_port()
        env = {name: value for name, value in os.environ.items() if not name.startswith("COMPUTEPOOL_")}
        env |= {"COMPUTEPOOL_CONFIG": str(folder / "config.json"), "PYTHONUNBUFFERED": "1"}
        output = (folder / "up.out").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", "computepool.cli", "up", "--port", str(port), "--data", str(folder / "data"), *arguments],
            stdout=output, stderr=output, env=env, text=True,
        )  # fmt: skip
        output.close()
        return cls(folder, port, env, process)

    def printed(self) -> str:
        return (self.folder / "up.out").read_text()

    def wait_ready(self) -> None:
        wait_until(
            lambda: "Ctrl-C stops everything" in self.printed() or self.process.poll() is not None, READY_S, "pool up"
        )
        assert self.process.poll() is None, self.printed()

    def pool(self, *arguments: object, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "computepool.cli", *map(str, arguments)],
            env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=self.folder,
        )  # fmt: skip

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, number: int = signal.SIGTERM) -> float:
        start = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(60)
        return time.monotonic() - start


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A short path that other users may enter, because jobs run under their own uid if the tests run as root."""
    path = Path(tempfile.mkdtemp(prefix="computepool-up-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def up(folder: Path) -> Iterator[Up]:
    started = Up.start(folder)
    try:
        started.wait_ready()
        yield started
    finally:
        if started.process.poll() is None:
            started.stop()


def test_it_prints_the_next_steps(up: Up) -> None:
    printed = up.printed()
    assert f"ComputePool is running at http://127.0.0.1:{up.port}" in printed
    assert re.search(rf"http://127\.0\.0\.1:{up.port}/signin\?code=\w+", printed)
    assert "submit examples/hello.py --wait" in printed
    assert "This machine offers" in printed


def test_the_enrolment_code_is_not_on_a_command_line(up: Up) -> None:
    for child in up.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            assert "--code" not in child.cmdline()


def test_the_hello_example_runs(up: Up) -> None:
    done = up.pool("submit", ROOT / "examples/hello.py", "--out", "results")
    assert done.returncode == 0, done.stderr
    assert "Hello from job job_" in done.stdout
    assert (up.folder / "results/hello.txt").read_text() == "Hello, pool!\n"


def test_a_failed_job_fails_the_command_with_its_output(up: Up) -> None:
    done = up.pool("submit", "--wait", "--", "sh", "-c", "echo out; echo oops >&2; exit 7")
    assert done.returncode == 1
    assert done.stdout == "out\n"
    assert "oops" in done.stderr
    assert "exit code 7" in done.stderr


def test_jobs_nodes_queue_and_events_are_shown(up: Up) -> None:
    job_id = up.pool("submit", "--", "echo", "look").stdout.strip()
    assert up.pool("jobs", "wait", job_id).returncode == 0
    node = json.loads(up.pool("nodes", "--json").stdout)[0]
    detail = json.loads(up.pool("jobs", "show", job_id, "--json").stdout)
    assert (detail["state"], detail["node_id"]) == ("succeeded", node["id"])
    assert up.pool("jobs", "logs", "-f", job_id).stdout == "look\n"
    assert json.loads(up.pool("jobs", "queue", "--json").stdout)["nodes"][0]["online"]
    events = up.pool("events", "--job", job_id, "--json").stdout.splitlines()
    assert [json.loads(line)["after"] for line in events][-1] == "succeeded"
    assert "admin" in up.pool("whoami").stdout


def test_the_node_is_paused_and_resumed(up: Up) -> None:
    data = ["--data", up.folder / "data"]
    status = json.loads(up.pool("node", "status", *data, "--json").stdout)
    assert status["connected"]
    assert up.pool("node", "pause", *data).returncode == 0
    assert json.loads(up.pool("node", "status", *data, "--json").stdout)["state"] == "paused"
    assert up.pool("node", "resume", *data).returncode == 0
    name = json.loads(up.pool("nodes", "--json").stdout)[0]["name"]
    assert up.pool("node", "pause", name).stdout.startswith(f"{name}: The node is paused")
    assert "paused" not in up.pool("node", "resume", name).stdout
    assert up.pool("node", "why", *data).returncode == 0


def test_the_sign_in_link_works_once(up: Up) -> None:
    link = re.search(r"http://\S+/signin\?code=\w+", up.printed())
    assert link is not None
    other = Up(up.folder, up.port, {**up.env, "COMPUTEPOOL_CONFIG": str(up.folder / "other.json")}, up.process)
    first = other.pool("login", link[0])
    assert (first.returncode, "as admin" in first.stdout) == (0, True), first.stderr
    again = other.pool("login", link[0])
    assert again.returncode in (2, 4)
    assert again.stderr.count("\n") == 1


def test_a_second_hub_on_the_same_port_is_refused(up: Up, tmp_path: Path) -> None:
    done = up.pool("up", "--port", up.port, "--data", tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"Cannot listen on 127.0.0.1:{up.port}: Address already in use. Choose another port with --port.\n"
    )


def test_a_second_hub_with_the_same_data_is_refused(up: Up) -> None:
    other = Up(up.folder, up.port, {**up.env, "COMPUTEPOOL_CONFIG": str(up.folder / "second.json")}, up.process)
    done = other.pool("up", "--port", free_port(), "--data", up.folder / "data")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert up.pool("nodes").returncode == 0


def test_it_stops_cleanly_and_resumes_with_its_data(up: Up) -> None:
    job_id = up.pool("submit", "--", "sleep", "100").stdout.strip()
    wait_until(lambda: json.loads(up.pool("jobs", "show", job_id, "--json").stdout)["state"] == "running", 60)
    children = up.children()
    assert len(children) >= 2
    took_s = up.stop(signal.SIGINT)
    assert took_s < 25
    assert up.process.returncode == 0, up.printed()
    assert up.printed().endswith("Stopped.\n")
    wait_until(lambda: not any(child.is_running() for child in children), 60, "the end of all children")
    again = Up.start(up.folder)
    try:
        again.wait_ready()
        assert json.loads(again.pool("nodes", "--json").stdout)[0]["online"]
        assert len(json.loads(again.pool("nodes", "--json").stdout)) == 1  # the same node, not a new one
        assert any(job["id"] == job_id for job in json.loads(again.pool("jobs", "list", "--json").stdout))
    finally:
        children = again.children()
        again.process.kill()  # not even SIGKILL leaves processes behind
        again.process.wait(60)
    wait_until(lambda: not any(child.is_running() for child in children), 60, "the end of orphans")
